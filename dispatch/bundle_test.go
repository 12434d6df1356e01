package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/outbox-worker/outbox-worker/dispatch"
	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/httpjson"
)

func TestMain(m *testing.M) {
	code := pgtest.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// testCatalog has a charge with two follow-ons, and short times.
const testCatalog = `
lanes:
  payments: {provider: payments, concurrency: 20}
  shipping: {provider: shipping, concurrency: 20}
operations:
  - name: charge_card
    version: 1
    class: key_protected
    lane: payments
    key: {rule: business, fields: [/order_id]}
    input:
      type: object
      required: [order_id, amount, currency]
      properties:
        order_id: {type: string}
        amount: {type: integer, minimum: 1}
        currency: {type: string, pattern: "^[A-Z]{3}$"}
    timeouts: {call: 1s, lease: 6s}
    retry: {max_attempts: 3, initial: 20ms, max: 100ms}
    unknown: at_most_once
    review: {owner: payments}
    money: {amount: /amount, currency: /currency}
    follow_ons:
      - name: shipment
        operation: ship.v1
        payload: '{order_id: .intent.payload.order_id, charge: .outcome.provider_id}'
  - name: ship
    version: 1
    class: key_protected
    lane: shipping
    key: {rule: business, fields: [/order_id]}
    input:
      type: object
      required: [order_id]
      properties:
        order_id: {type: string}
    timeouts: {call: 1s, lease: 6s}
    retry: {max_attempts: 3, initial: 20ms, max: 100ms}
    review: {owner: shipping}
`

// testBundle is a database, a provider process's worth of simulator, and what a worker
// needs to serve testCatalog.
type testBundle struct {
	t      testing.TB
	ctx    context.Context
	cancel context.CancelFunc
	pool   *pgxpool.Pool
	sim    *simulator.Server
	url    string

	charges httpjson.Operation // what the payment provider promises
}

// What a payment provider may promise: to remember keys, to be asked, or neither.
var (
	remembersKeys = httpjson.Operation{Path: "/v1/charges", ThrottledIsNotSent: true, KeyMemory: 24 * time.Hour, Replay: providers.ReplaySuccessOnly}
	canBeAsked    = httpjson.Operation{Path: "/v1/charges", ThrottledIsNotSent: true, Lookup: "/v1/charges", AbsenceIsProof: true}
	neither       = httpjson.Operation{Path: "/v1/charges", ThrottledIsNotSent: true}
)

func setup(t testing.TB) *testBundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	b := &testBundle{t: t, ctx: ctx, cancel: cancel, charges: remembersKeys}
	b.url = pgtest.URL(t)
	b.pool = b.open(8)
	sim, err := simulator.Start(ctx, simulator.Options{})
	b.must(err)
	t.Cleanup(func() { b.must(sim.Close()) })
	b.sim = sim
	b.apply(testCatalog)
	return b
}

func (b *testBundle) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *testBundle) open(conns int32) *pgxpool.Pool { return b.openURL(b.url, conns) }

func (b *testBundle) openURL(url string, conns int32) *pgxpool.Pool {
	b.t.Helper()
	config, err := pgxpool.ParseConfig(url)
	b.must(err)
	config.MaxConns = conns
	return b.openConfig(config)
}

func (b *testBundle) openConfig(config *pgxpool.Config) *pgxpool.Pool {
	b.t.Helper()
	pool, err := pgxpool.NewWithConfig(b.ctx, config)
	b.must(err)
	b.t.Cleanup(pool.Close)
	return pool
}

// patient gives calls more time than a busy machine takes, for tests in which nothing is
// meant to run out of time.
func (b *testBundle) patient() {
	b.t.Helper()
	b.apply(strings.ReplaceAll(testCatalog, "timeouts: {call: 1s, lease: 6s}", "timeouts: {call: 30s, lease: 40s}"))
}

func (b *testBundle) apply(text string) {
	b.t.Helper()
	c, err := catalog.Parse("test.yaml", []byte(text))
	b.must(err)
	_, err = catalog.Apply(b.ctx, b.pool, c, "test")
	b.must(err)
}

// accounts are the simulator's payments (as that account) and shipping, through the
// real adapter.
func (b *testBundle) accounts(payments string) map[string]providers.Provider {
	b.t.Helper()
	open := func(account string, operations map[string]httpjson.Operation) providers.Provider {
		p, err := httpjson.New(httpjson.Config{Account: account, BaseURL: b.sim.HTTPURL(), Operations: operations})
		b.must(err)
		return p
	}
	return map[string]providers.Provider{
		"payments": open(payments, map[string]httpjson.Operation{"charge_card": b.charges}),
		"shipping": open("acct_ship", map[string]httpjson.Operation{"ship": {
			Path: "/v1/shipments", KeyMemory: 24 * time.Hour, Replay: providers.ReplaySuccessOnly, ThrottledIsNotSent: true,
		}}),
	}
}

// run starts a worker and returns what stops it and waits.
func (b *testBundle) run(change func(*dispatch.Config)) (stop func()) {
	b.t.Helper()
	cfg := dispatch.Config{
		Pool: b.open(8), Providers: b.accounts("acct_pay"), IdlePoll: 50 * time.Millisecond, SweepEvery: 50 * time.Millisecond, Logger: b.logger(),
	}
	if change != nil {
		change(&cfg)
	}
	w, err := dispatch.New(cfg)
	b.must(err)
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() {
		err := w.Run(ctx)
		if err != nil {
			b.cancel() // nothing will happen any more: do not wait for it
		}
		done <- err
	}()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("worker: %v", err)
		}
	}
	b.t.Cleanup(stop)
	return stop
}

func (b *testBundle) logger() *slog.Logger {
	if os.Getenv("OUTBOX_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(b.t.Output(), nil))
}

type charge struct {
	OrderID  string `json:"order_id"`
	Amount   int    `json:"amount"`
	Currency string `json:"currency"`
}

func (b *testBundle) enqueue(in outbox.Intent) outbox.Answer {
	b.t.Helper()
	if in.Tenant == "" {
		in.Tenant = "shop"
	}
	if in.Operation == "" {
		in.Operation = "charge_card.v1"
	}
	a, err := outbox.Enqueue(b.ctx, b.pool, in)
	b.must(err)
	return a
}

func (b *testBundle) charge(order string) outbox.Answer {
	b.t.Helper()
	a := b.enqueue(outbox.Intent{Payload: charge{order, 1200, "EUR"}})
	if a.Kind != outbox.AnswerAccepted {
		b.t.Fatalf("enqueue %s: %+v", order, a)
	}
	return a
}

// awaitRow waits until the query gives true. The database has no signal for most of
// what tests wait for, so it is asked until the test's deadline.
func (b *testBundle) await(query string, args ...any) {
	b.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var ok bool
		if err := b.pool.QueryRow(b.ctx, "SELECT "+query, args...).Scan(&ok); err != nil {
			b.t.Fatalf("await %s: %v\n%s", query, err, b.dump())
		}
		if ok {
			return
		}
		<-tick.C
	}
}

// settled waits until nothing is open, and returns the state of the reference.
func (b *testBundle) state(reference string, want outbox.State) {
	b.t.Helper()
	b.await(`EXISTS (SELECT FROM outbox.intents i LEFT JOIN outbox.outbox o ON o.intent_id = i.id LEFT JOIN outbox.outcomes e ON e.intent_id = i.id
		WHERE i.reference = $1 AND coalesce(e.state, o.state)::text = $2)`, reference, want)
}

func (b *testBundle) allSettled() {
	b.t.Helper()
	b.await(`NOT EXISTS (SELECT FROM outbox.outbox)`)
}

// dump is the ledger, for a test that failed.
func (b *testBundle) dump() string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), 5*time.Second)
	defer cancel()
	var text string
	err := b.pool.QueryRow(ctx, `SELECT coalesce(string_agg(t::text, E'\n' ORDER BY t.intent_id, t.at), 'no history') FROM (
		SELECT * FROM outbox.timeline ORDER BY at DESC LIMIT 50) t`).Scan(&text)
	var rows string
	_ = b.pool.QueryRow(ctx, `SELECT coalesce(string_agg(t::text, E'\n'), 'no open rows') FROM (SELECT * FROM outbox.outbox LIMIT 20) t`).Scan(&rows)
	return fmt.Sprint(text, "\n", rows, err)
}

func (b *testBundle) effects(service, reference string, want int) {
	b.t.Helper()
	if got := b.sim.Count(service, reference); got != want {
		b.t.Errorf("%s of %s: %d effects, want %d\n%s", service, reference, got, want, b.dump())
	}
}

func (b *testBundle) noDuplicates() {
	b.t.Helper()
	if d := b.sim.Duplicates(); len(d) > 0 {
		b.t.Errorf("duplicates: %+v", d)
	}
}

func (b *testBundle) scalar(query string, args ...any) (n int) {
	b.t.Helper()
	b.must(b.pool.QueryRow(b.ctx, query, args...).Scan(&n))
	return n
}

func (b *testBundle) history(reference string) (steps []string) {
	b.t.Helper()
	rows, err := b.pool.Query(b.ctx, `SELECT concat_ws(' ', t.attempt, t.from_state, t.event, t.to_state) FROM outbox.timeline t
		JOIN outbox.intents i ON i.id = t.intent_id WHERE i.reference = $1 ORDER BY t.at`, reference)
	b.must(err)
	defer rows.Close()
	for rows.Next() {
		var s string
		b.must(rows.Scan(&s))
		steps = append(steps, s)
	}
	b.must(rows.Err())
	return steps
}

func sameJSON(t testing.TB, got, want any) {
	t.Helper()
	g, _ := json.Marshal(got)
	w, _ := json.Marshal(want)
	if string(g) != string(w) {
		t.Errorf("got  %s\nwant %s", g, w)
	}
}
