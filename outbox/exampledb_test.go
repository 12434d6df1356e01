package outbox_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

// exampleDB is a private database with the schema, a catalog and a table of orders.
func exampleDB() (pool *pgxpool.Pool, done func()) {
	ctx := context.Background()
	tb := &exampleTB{}
	pool, err := pgxpool.New(ctx, pgtest.URL(tb))
	check(err)
	tb.Cleanup(pool.Close)
	_, err = pool.Exec(ctx, "CREATE TABLE orders (id text PRIMARY KEY)")
	check(err)
	rules, err := catalog.Parse("example.yaml", []byte(`
lanes:
  payments: {provider: payments}
operations:
  - name: charge_card
    version: 1
    class: key_protected
    lane: payments
    key: {rule: business, fields: [/order_id]}
    input: {type: object, required: [order_id], properties: {order_id: {type: string}}}
    review: {owner: payments-oncall}
`))
	check(err)
	_, err = catalog.Apply(ctx, pool, rules, "example")
	check(err)
	return pool, tb.end
}

// exampleTB is what pgtest needs of a test, for an Example.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (tb *exampleTB) Helper()                           {}
func (tb *exampleTB) Failed() bool                      { return false }
func (tb *exampleTB) Logf(string, ...any)               {}
func (tb *exampleTB) Cleanup(f func())                  { tb.cleanups = append(tb.cleanups, f) }
func (tb *exampleTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (tb *exampleTB) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (tb *exampleTB) end() {
	for i := len(tb.cleanups) - 1; i >= 0; i-- {
		tb.cleanups[i]()
	}
}
