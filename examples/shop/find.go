package shop

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/outbox"
)

const findOrderSQL = `-- name: find_order
SELECT o.storefront, o.order_id, o.customer, o.name, o.email, o.currency, o.amount, o.shipping, o.description, o.gift_note, o.address, o.charge,
	(SELECT json_agg(json_build_object('sku', l.sku, 'title', l.title, 'quantity', l.quantity, 'unit_price', l.unit_price, 'digital', l.digital)
		ORDER BY l.position) FROM shop.order_lines l WHERE (l.storefront, l.order_id) = (o.storefront, o.order_id))
FROM shop.orders o WHERE o.storefront = $1 AND o.order_id = $2`

// Find returns an order with what is known of its charge; found is false when the
// storefront has no such order.
func Find(ctx context.Context, db *pgxpool.Pool, storefront, id string) (o Order, charge outbox.Answer, found bool, err error) {
	var reference string
	err = db.QueryRow(ctx, findOrderSQL, storefront, id).Scan(&o.Storefront, &o.ID, &o.Customer, &o.Name, &o.Email, &o.Currency,
		&o.Amount, &o.Shipping, &o.Description, &o.GiftNote, &o.Address, &reference, &o.Lines)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Order{}, outbox.Answer{}, false, nil
	case err != nil:
		return Order{}, outbox.Answer{}, false, fmt.Errorf("shop: find order: %w", err)
	}
	charge, err = outbox.Get(ctx, db, storefront, reference)
	return o, charge, err == nil, err
}
