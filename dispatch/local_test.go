package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-worker/outbox-worker/dispatch"
	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/local"
)

const roomsCatalog = `
lanes:
  rooms: {provider: rooms, concurrency: 20}
operations:
  - name: book_room
    version: 1
    class: non_repeatable
    lane: rooms
    key: {rule: operation_id}
    input: {type: object, required: [room, night], properties: {room: {type: string}, night: {type: string}}}
    timeouts: {call: 10s, lease: 20s}
    retry: {max_attempts: 3, initial: 20ms, max: 50ms}
    review: {owner: desk}
`

// rooms is a database with bookings, and the effect that books.
func (b *testBundle) rooms(before func(in providers.Intent) error) map[string]providers.Provider {
	b.t.Helper()
	b.apply(roomsCatalog)
	_, err := b.pool.Exec(b.ctx, `CREATE TABLE bookings (room text, night text, reference text NOT NULL, PRIMARY KEY (room, night))`)
	b.must(err)
	p, err := local.New(local.Config{Effects: map[string]local.Effect{"book_room": func(ctx context.Context, tx pgx.Tx, in providers.Intent) providers.Answer {
		var w struct{ Room, Night string }
		if err := json.Unmarshal(in.Payload, &w); err != nil {
			return providers.Refused("payload", err.Error(), true)
		}
		_, err := tx.Exec(ctx, `INSERT INTO bookings VALUES ($1, $2, $3)`, w.Room, w.Night, in.Reference)
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == "23505" {
			return providers.Refused("room_taken", "somebody else has it", true)
		}
		if err == nil {
			err = before(in)
		}
		if err != nil {
			return local.Failed(err)
		}
		return providers.Accepted(w.Room+"/"+w.Night, nil)
	}}})
	b.must(err)
	return map[string]providers.Provider{"rooms": p}
}

func (b *testBundle) book(id, room string) outbox.Answer {
	b.t.Helper()
	return b.enqueue(outbox.Intent{Operation: "book_room.v1", OperationID: id, Payload: map[string]string{"room": room, "night": "2027-01-01"}})
}

func TestALocalEffectCommitsWithItsOutcome(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var failures atomic.Int32
	with := b.rooms(func(providers.Intent) error {
		if failures.Add(1) == 1 {
			return errors.New("once")
		}
		return nil
	})
	for range 3 {
		b.run(func(c *dispatch.Config) { c.Providers = with })
	}
	id := uuid.Must(uuid.NewV7()).String()
	first := b.book(id, "12")
	b.state(first.Reference, outbox.Succeeded)
	sameJSON(t, b.history(first.Reference), []string{
		"0 committed accepted",
		"1 accepted claimed executing", "1 executing not_sent failed_retryable",
		"2 failed_retryable claimed executing", "2 executing provider_accepted succeeded",
	})
	if again := b.book(id, "12"); again.Kind != outbox.AnswerSettled || again.ProviderID != "12/2027-01-01" {
		t.Errorf("the same id again: %+v", again)
	}
	if changed := b.book(id, "13"); changed.Kind != outbox.AnswerConflict {
		t.Errorf("other details under the same id: %+v", changed)
	}
	// The same room under another id is refused by the room, and leaves nothing.
	other := b.book(uuid.Must(uuid.NewV7()).String(), "12")
	b.state(other.Reference, outbox.FailedFinal)
	if n := b.scalar(`SELECT count(*) FROM bookings`); n != 1 {
		t.Errorf("%d bookings, want 1", n)
	}
}

// Whatever happens between the effect and COMMIT, there is a booking if and only if the
// ledger says so.
func TestALocalEffectIsThereIfAndOnlyIfTheLedgerSaysSo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 60
	var calls atomic.Int32
	// Every third transaction loses its connection after the effect.
	with := b.rooms(func(in providers.Intent) error {
		if calls.Add(1)%3 == 0 {
			_, err := b.pool.Exec(b.ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE 'INSERT INTO bookings%' AND state = 'idle in transaction'`)
			return err
		}
		return nil
	})
	for i := range 2 {
		b.run(func(c *dispatch.Config) {
			c.Providers, c.Name, c.ReleaseLease = with, fmt.Sprint("replica-", i), 300*time.Millisecond
		})
	}
	for i := range n {
		b.book(fmt.Sprint("id-", i), fmt.Sprint("room-", i%(n/2))) // two ids want each room
	}
	b.await(`NOT EXISTS (SELECT FROM outbox.outbox WHERE state <> 'exhausted')`)
	if got := b.scalar(`SELECT count(*) FROM bookings k FULL JOIN (SELECT i.reference FROM outbox.outcomes e JOIN outbox.intents i ON i.id = e.intent_id WHERE e.state = 'succeeded') s
		USING (reference) WHERE k.room IS NULL OR s.reference IS NULL`); got != 0 {
		t.Errorf("%d bookings without a success, or successes without a booking", got)
	}
	if got := b.scalar(`SELECT count(*) FROM bookings`); got == 0 {
		t.Error("nothing was booked, so this proves nothing")
	}
	if got := b.scalar(`SELECT count(*) FROM outbox.history WHERE to_state = 'outcome_unknown'`); got != 0 {
		t.Errorf("%d outcomes unknown", got)
	}
}
