package rooms

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/local"
)

// Catalog is what the hotel does, for outbox-worker catalog apply.
//
//go:embed catalog.yaml
var Catalog []byte

//go:embed schema.sql
var schema string

// Setup creates the hotel's own tables where they are missing.
func Setup(ctx context.Context, db *pgxpool.Pool) error {
	if _, err := db.Exec(ctx, schema); err != nil {
		return fmt.Errorf("rooms: create tables: %w", err)
	}
	return nil
}

// Stay is what a guest asks for: a room, a night as in 2027-01-31, and the guest's address.
type Stay struct {
	Room  string `json:"room"`
	Night string `json:"night"`
	Guest string `json:"guest"`
}

// Ask writes down what the guest wants, and under which operation id it will be booked.
// Nothing is attempted yet, so a crash from here on loses nothing and repeats nothing.
func Ask(ctx context.Context, db *pgxpool.Pool, s Stay) (uuid.UUID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return id, err
	}
	if _, err := db.Exec(ctx, "INSERT INTO rooms.requests (operation_id, room, night, guest) VALUES ($1, $2, $3, $4)", id, s.Room, s.Night, s.Guest); err != nil {
		return id, fmt.Errorf("rooms: write the request down: %w", err)
	}
	return id, nil
}

// Book commits the intent to book what was asked for under id. It may be called as often
// as one likes: the answer to the second call is the first booking's.
func Book(ctx context.Context, db *pgxpool.Pool, id uuid.UUID) (outbox.Answer, error) {
	var s Stay
	err := db.QueryRow(ctx, "SELECT room, night::text, guest FROM rooms.requests WHERE operation_id = $1", id).Scan(&s.Room, &s.Night, &s.Guest)
	if err != nil {
		return outbox.Answer{}, fmt.Errorf("rooms: request %s: %w", id, err)
	}
	return outbox.Enqueue(ctx, db, Intent(id, s))
}

// Intent books the stay under the operation id. Other details under the same id are a
// conflict: they are another booking and need an id of their own.
func Intent(id uuid.UUID, s Stay) outbox.Intent {
	return outbox.Intent{Tenant: "hotel", Operation: "book_room.v1", OperationID: id.String(), Subject: s.Guest, Payload: s}
}

// Provider performs book_room in the ledger's database.
func Provider() (providers.Provider, error) {
	return local.New(local.Config{Account: "hotel", Effects: map[string]local.Effect{"book_room": book}})
}

// uniqueViolation is SQLSTATE 23505.
const uniqueViolation = "23505"

// book is the effect. It writes through tx and through nothing else, so that the booking
// and its outcome are there together or not at all.
func book(ctx context.Context, tx pgx.Tx, in providers.Intent) providers.Answer {
	var s Stay
	if err := json.Unmarshal(in.Payload, &s); err != nil {
		return providers.Refused("payload_invalid", err.Error(), true)
	}
	_, err := tx.Exec(ctx, "INSERT INTO rooms.bookings (room, night, guest, reference) VALUES ($1, $2, $3, $4)", s.Room, s.Night, s.Guest, in.Reference)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == uniqueViolation {
		return providers.Refused("room_taken", fmt.Sprintf("room %s has a guest on %s", s.Room, s.Night), true)
	}
	if err != nil {
		return local.Failed(err)
	}
	return providers.Accepted(fmt.Sprintf("%s-%s", s.Room, s.Night), nil)
}
