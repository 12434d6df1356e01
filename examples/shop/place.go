package shop

import (
	"context"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/outbox"
)

// chargeCard is the only operation that the shop asks for; the rest follows from it.
const chargeCard = "charge_card.v1"

// Placed is what became of an order that was posted.
type Placed struct {
	Charge   outbox.Answer
	Repeated bool // it had been placed before; this is the first result
}

// Place records the order and the intent to charge for it in one transaction: the card
// is charged, once, if and only if the order is in the database. trace is a W3C
// traceparent, or empty.
//
// An order that was placed before is answered with what became of it. A *Problem
// refuses the order for good: it is invalid, or differs from the one placed under its
// number, and then nothing is charged for the difference. Any other error means that it
// is not known whether the order was placed: place the same order again.
func Place(ctx context.Context, db *pgxpool.Pool, o Order, trace string) (Placed, error) {
	if p := o.check(); p != nil {
		return Placed{}, p
	}
	var placed Placed
	var conflict *Problem
	err := pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
		placed, conflict, err = placeIn(ctx, tx, o, trace)
		return err
	})
	switch {
	case err != nil:
		return Placed{}, err
	case conflict != nil:
		return Placed{}, conflict
	}
	return placed, nil
}

// placeIn is Place in the transaction. The ledger is asked first, because its answer
// decides what to do with the order, and because the order keeps the reference. An
// error rolls back; a conflict is committed, since the ledger has noted who asked.
func placeIn(ctx context.Context, tx pgx.Tx, o Order, trace string) (placed Placed, conflict *Problem, err error) {
	a, err := outbox.Enqueue(ctx, tx, outbox.Intent{
		Tenant: o.Storefront, Operation: chargeCard, Payload: o,
		Subject: o.Customer, Principal: []string{"shop"}, Trace: trace,
	})
	if err != nil {
		return Placed{}, nil, err
	}
	switch a.Kind {
	case outbox.AnswerAccepted, outbox.AnswerInFlight, outbox.AnswerSettled, outbox.AnswerExpired:
	case outbox.AnswerConflict:
		return Placed{}, differs(a), nil
	case outbox.AnswerRefused:
		return Placed{}, nil, &Problem{Status: http.StatusUnprocessableEntity, Code: a.Code, Path: a.Path, Message: a.Hint}
	default:
		return Placed{}, nil, fmt.Errorf("shop: enqueue answered %s: %s", a.Kind, a.Hint)
	}
	inserted, err := insertOrder(ctx, tx, o, a.Reference)
	if err != nil {
		return Placed{}, nil, err
	}
	isNew := a.Kind == outbox.AnswerAccepted
	if isNew && !inserted {
		// The order outlived the ledger's memory of it. Charging now could be charging
		// twice, so the new intent is rolled back.
		return Placed{}, nil, &Problem{
			Status: http.StatusConflict, Code: "order_exists", Path: "/order_id",
			Message: "This order was placed long ago; nothing was charged now. Use a new number.",
		}
	}
	return Placed{Charge: a, Repeated: !isNew}, nil, nil
}

func differs(a outbox.Answer) *Problem {
	return &Problem{
		Status: http.StatusConflict, Code: "order_differs", Differs: a.Differs,
		Message: "Another order was placed under this number; nothing was charged for this one.",
	}
}

// The lines are written with the order or not at all: no line written means that the
// order was there.
const insertOrderSQL = `-- name: insert_order
WITH o AS (
	INSERT INTO shop.orders (storefront, order_id, customer, name, email, currency, amount, shipping, description, gift_note, address, charge)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
	ON CONFLICT ON CONSTRAINT orders_pkey DO NOTHING
	RETURNING storefront, order_id
)
INSERT INTO shop.order_lines (storefront, order_id, position, sku, title, quantity, unit_price, digital)
SELECT o.storefront, o.order_id, l.n, l.sku, l.title, l.quantity, l.unit_price, l.digital
FROM o, unnest($13::text[], $14::text[], $15::bigint[], $16::bigint[], $17::boolean[])
	WITH ORDINALITY l(sku, title, quantity, unit_price, digital, n)`

// insertOrder reports whether the order is new.
func insertOrder(ctx context.Context, tx pgx.Tx, o Order, charge string) (bool, error) {
	var skus, titles []string
	var quantities, prices []int64
	var digital []bool
	for _, l := range o.Lines {
		skus, titles = append(skus, l.SKU), append(titles, l.Title)
		quantities, prices = append(quantities, l.Quantity), append(prices, l.UnitPrice)
		digital = append(digital, l.Digital)
	}
	tag, err := tx.Exec(ctx, insertOrderSQL, o.Storefront, o.ID, o.Customer, o.Name, o.Email, o.Currency, o.Amount, o.Shipping,
		o.Description, o.GiftNote, o.Address, charge, skus, titles, quantities, prices, digital)
	if err != nil {
		return false, fmt.Errorf("shop: insert order: %w", err)
	}
	return tag.RowsAffected() > 0, nil
}
