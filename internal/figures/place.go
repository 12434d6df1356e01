package figures

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/outbox-worker/outbox-worker/migrations"
	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

// benchSchema holds the tables of the baselines, River's own included.
const benchSchema = "outbox_bench"

// place is a database with a ledger, and beside it the tables of the baselines.
type place struct {
	pool       *pgxpool.Pool
	next       int  // names the next intent
	checkpoint bool // see Options
}

// operation is what is measured: one field is the key, nothing follows, and the times are
// those of a payment.
const operation = "bench_charge.v1"

const benchCatalog = `
lanes:
  bench: {provider: bench, concurrency: %d}
operations:
  - name: bench_charge
    version: 1
    class: key_protected
    lane: bench
    key: {rule: business, fields: [/order_id]}
    input: {type: object, required: [order_id], properties: {order_id: {type: string}}}
    timeouts: {call: 10s, lease: 30s}
    retry: {max_attempts: 5}
    review: {owner: bench}
`

const baselineSQL = `
CREATE TABLE outbox_bench.bare (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	tenant text NOT NULL, key text NOT NULL UNIQUE, payload json
);
CREATE TABLE outbox_bench.orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text NOT NULL, total int NOT NULL);
CREATE TABLE outbox_bench.lines (order_id bigint NOT NULL, item int NOT NULL, quantity int NOT NULL, PRIMARY KEY (order_id, item));
CREATE TABLE outbox_bench.stock (item int PRIMARY KEY, quantity int NOT NULL) WITH (fillfactor = 50);
INSERT INTO outbox_bench.stock SELECT item, 1000000000 FROM generate_series(1, 100) item;
CREATE TABLE outbox_bench.floor (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	state int NOT NULL DEFAULT 0, tenant text NOT NULL, key text NOT NULL UNIQUE, payload json
);
CREATE TABLE outbox_bench.steps (
	id bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(), step int NOT NULL, actor text NOT NULL
);
CREATE INDEX ON outbox_bench.steps (id);
CREATE TABLE outbox_bench.whole (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	settled_at timestamptz, state int NOT NULL, tenant text NOT NULL, key text NOT NULL UNIQUE, provider_id text, payload json, result json
);
`

// newPlace installs the ledger and the baselines' tables in the pool's database, which
// must have neither; it may have their schemas.
func newPlace(ctx context.Context, pool *pgxpool.Pool, checkpoint bool) (*place, error) {
	if err := migrations.Up(ctx, pool); err != nil {
		return nil, err
	}
	p := &place{pool: pool, checkpoint: checkpoint}
	if err := p.limit(ctx, 2000); err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+benchSchema); err != nil {
		return nil, fmt.Errorf("baselines: %w", err)
	}
	if _, err := pool.Exec(ctx, baselineSQL); err != nil {
		return nil, fmt.Errorf("baselines: %w", err)
	}
	river, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: benchSchema})
	if err != nil {
		return nil, fmt.Errorf("River for the baselines: %w", err)
	}
	if _, err := river.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, fmt.Errorf("River for the baselines: %w", err)
	}
	return p, nil
}

// limit sets how many intents the lane lets be in flight.
func (p *place) limit(ctx context.Context, concurrency int) error {
	c, err := catalog.Parse("bench", fmt.Appendf(nil, benchCatalog, concurrency))
	if err != nil {
		return err
	}
	_, err = catalog.Apply(ctx, p.pool, c, "bench")
	return err
}

// take names the next order.
func (p *place) take() int {
	p.next++
	return p.next
}

func keyOf(n int) string { return fmt.Sprintf("ord_%09d", n) }

func intentOf(n int) outbox.Intent {
	return outbox.Intent{Tenant: tenant, Operation: operation, Payload: payloadOf(n)}
}

const tenant = "acme"

// payloadOf an order has 150 bytes, canonical already.
func payloadOf(n int) json.RawMessage {
	return fmt.Appendf(nil, `{"amount":24000,"currency":"EUR","customer":"cus_9f3a61bb04","description":"Order %09d of the spring collection, paid by card","order_id":"%s"}`, n, keyOf(n))
}

// resultOf is what the provider says: 60 bytes.
var resultOf = json.RawMessage(`{"id":"ch_3PqT2vLkdIwHu7ix","status":"succeeded","fee":712}`)

// preload commits n intents in bulks.
func (p *place) preload(ctx context.Context, n int, change func(*outbox.Intent)) error {
	for n > 0 {
		bulk := make([]outbox.Intent, min(n, 1000))
		for i := range bulk {
			bulk[i] = intentOf(p.take())
			if change != nil {
				change(&bulk[i])
			}
		}
		answers, err := outbox.EnqueueMany(ctx, p.pool, bulk)
		if err != nil {
			return err
		}
		for _, a := range answers {
			if a.Kind != outbox.AnswerAccepted {
				return fmt.Errorf("preload: %s: %s %s", a.Kind, a.Code, a.Hint)
			}
		}
		n -= len(bulk)
	}
	return nil
}

// calm refreshes statistics that autovacuum would have by then, and lets the server write
// back what earlier steps dirtied, if it may.
func (p *place) calm(ctx context.Context, tables ...string) error {
	var steps []string
	for _, table := range tables {
		steps = append(steps, "VACUUM ANALYZE "+table)
	}
	if p.checkpoint {
		steps = append(steps, "CHECKPOINT")
	}
	for _, sql := range steps {
		if _, err := p.pool.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// within runs do under a deadline, so that what hangs is named.
func within(ctx context.Context, d time.Duration, what string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if err := do(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// url of the place, for processes: the pool's configuration may name another database than
// the text that it was made from.
func (p *place) url() (string, error) {
	c := p.pool.Config().ConnConfig
	u, err := url.Parse(c.ConnString())
	if err != nil {
		return "", err
	}
	u.Path = "/" + c.Database
	return u.String(), nil
}

// session is one connection, for what a single caller does.
func (p *place) session(ctx context.Context, do func(*pgx.Conn) error) error {
	return p.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return do(c.Conn()) })
}
