package e2e_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

// catalogText has a charge that a shipment and a receipt follow. The providers know no keys
// and cannot be asked, unless a test has it otherwise: what is counted there only our own
// guards protect, and what is unknown ends in review.
const catalogText = `
lanes:
  payments: {provider: payments, concurrency: 60}
  shipping: {provider: shipping, concurrency: 60}
  mail: {provider: mail, concurrency: 20}
operations:
  - name: charge_card
    version: 1
    class: non_repeatable
    unknown: at_most_once
    lane: payments
    key: {rule: business, fields: [/order_id]}
    input:
      type: object
      required: [order_id, amount, currency]
      properties:
        order_id: {type: string}
        amount: {type: integer, minimum: 1}
        currency: {type: string, pattern: "^[A-Z]{3}$"}
        email: {type: string}
        parcel: {type: boolean}
    timeouts: &timeouts {call: CALL, lease: LEASE}
    retry: &retry {max_attempts: 100, initial: 50ms, max: 250ms}
    review: {owner: payments}
    follow_ons:
      - name: shipment
        operation: ship.v1
        when: .intent.payload.parcel == true
        payload: '{order_id: .intent.payload.order_id, charge: .outcome.provider_id}'
      - name: receipt
        operation: send_receipt.v1
        when: .intent.payload.email != null
        payload: '{to: .intent.payload.email, subject: "Order \(.intent.payload.order_id)", text: "Charged: \(.outcome.provider_id)"}'
  - name: ship
    version: 1
    class: non_repeatable
    unknown: at_most_once
    lane: shipping
    key: {rule: business, fields: [/order_id]}
    input:
      type: object
      required: [order_id, charge]
      properties:
        order_id: {type: string}
        charge: {type: string}
    timeouts: *timeouts
    retry: *retry
    review: {owner: shipping}
  - name: send_receipt
    version: 1
    class: non_repeatable
    unknown: at_most_once
    lane: mail
    key: {rule: operation_id}
    input:
      type: object
      required: [to, subject, text]
      properties:
        to: {type: string}
        subject: {type: string}
        text: {type: string}
    timeouts: *timeouts
    retry: *retry
    review: {owner: support}
`

// patient are times that no busy machine exceeds; for tests that do not wait for a lease.
const (
	patientCall  = 20 * time.Second
	patientLease = 25 * time.Second
)

// withTimes fills in how long a call and its lease last.
func withTimes(call, lease time.Duration) string {
	return strings.NewReplacer("CALL", call.String(), "LEASE", lease.String()).Replace(catalogText)
}

// testLimit is how long a test may take, on a machine that does much else.
const testLimit = 3 * time.Minute

// bundle is a database, a simulator, a directory for processes, and what they need to
// know of each other.
type bundle struct {
	t    testing.TB
	ctx  context.Context
	url  string
	pool *pgxpool.Pool
	sim  *simulator.Server
	dir  string
}

// setup makes a bundle on a database of its own, with the catalog applied.
func setup(t testing.TB, text string) *bundle {
	t.Helper()
	b := setupAt(t, pgtest.URL(t))
	b.apply(text)
	return b
}

// setupAt makes a bundle on a database that has the schema.
func setupAt(t testing.TB, databaseURL string) *bundle {
	t.Helper()
	b := newBundle(t, databaseURL)
	sim, err := simulator.Start(b.ctx, simulator.Options{})
	b.must(err)
	t.Cleanup(func() {
		if err := sim.Close(); err != nil {
			t.Error(err)
		}
	})
	b.sim = sim
	for _, service := range []string{simulator.Charges, simulator.Shipments} {
		b.must(sim.SetBehaviour(service, simulator.Behaviour{Keys: simulator.Ignore}))
	}
	b.configure(`{charge_card: {path: /v1/charges}}`)
	return b
}

// newBundle has no simulator.
func newBundle(t testing.TB, databaseURL string) *bundle {
	t.Helper()
	program(t) // its making is not part of the test's time
	ctx, cancel := context.WithTimeout(context.Background(), testLimit)
	t.Cleanup(cancel)
	b := &bundle{t: t, ctx: ctx, url: databaseURL, dir: t.TempDir()}
	b.pool = b.open(databaseURL)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(b.dump())
		}
	})
	return b
}

func (b *bundle) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bundle) open(databaseURL string) *pgxpool.Pool {
	b.t.Helper()
	config, err := pgxpool.ParseConfig(databaseURL)
	b.must(err)
	config.MaxConns = 6
	pool, err := pgxpool.NewWithConfig(b.ctx, config)
	b.must(err)
	b.t.Cleanup(pool.Close)
	return pool
}

// asApplication is the database's URL for somebody who may do what applications may.
func (b *bundle) asApplication() string {
	b.t.Helper()
	u, err := url.Parse(b.url)
	b.must(err)
	q := u.Query()
	q.Set("options", "-crole=outbox_app")
	u.RawQuery = q.Encode()
	return u.String()
}

func (b *bundle) apply(text string) {
	b.t.Helper()
	c, err := catalog.Parse("test.yaml", []byte(text))
	b.must(err)
	_, err = catalog.Apply(b.ctx, b.pool, c, "test")
	b.must(err)
}

// configure writes the workers' configuration, with what the payments account performs.
func (b *bundle) configure(payments string) {
	b.t.Helper()
	b.must(os.WriteFile(b.config(), []byte(workerConfig(b.sim.HTTPURL(), b.sim.SMTPAddr(), payments)), 0o600))
}

func (b *bundle) config() string { return filepath.Join(b.dir, "outbox-worker.yaml") }

func workerConfig(http, smtp, payments string) string {
	return fmt.Sprintf(`providers:
  payments:
    adapter: httpjson
    account: acct_pay
    base_url: %[1]s
    operations: %[3]s
  shipping:
    adapter: httpjson
    account: acct_ship
    base_url: %[1]s
    operations: {ship: {path: /v1/shipments}}
  mail:
    adapter: smtp
    account: acct_mail
    address: %[2]s
    tls: none
    from: shop@shop.example
    operations: [send_receipt]
`, http, smtp, payments)
}

// environment is that of the tests, with this database.
func (b *bundle) environment() []string { return append(cleanEnv(), "DATABASE_URL="+b.url) }

// Paces of the workers here: nothing but the lease shall be waited for.
const (
	sweepEvery = 200 * time.Millisecond
	stopLimit  = 20 * time.Second
)

func (b *bundle) workerEnvironment(name string) []string {
	return append(b.environment(), "OUTBOX_CONFIG="+b.config(), "OUTBOX_WORKER__NAME="+name,
		"OUTBOX_WORKER__SWEEP_EVERY="+sweepEvery.String(), "OUTBOX_WORKER__STOP_TIMEOUT="+stopLimit.String(),
		"OUTBOX_WORKER__RELEASE_LEASE=2s", "OUTBOX_WORKER__IDLE_POLL=100ms", "OUTBOX_DATABASE__MAX_CONNS=5")
}

// worker starts the real worker and does not wait for it.
func (b *bundle) worker(name string, env ...string) *child {
	b.t.Helper()
	cmd := exec.Command(program(b.t), "run", "--log-format", "json")
	cmd.Env = append(b.workerEnvironment(name), env...)
	return b.start(name, cmd)
}

// ready waits until the worker serves.
func (b *bundle) ready(workers ...*child) {
	b.t.Helper()
	for _, w := range workers {
		w.awaitLog(b, `"worker started"`)
	}
}

// order is the payload of a charge.
type order struct {
	OrderID  string `json:"order_id"`
	Amount   int    `json:"amount"`
	Currency string `json:"currency"`
	Email    string `json:"email,omitempty"`
	Parcel   bool   `json:"parcel,omitempty"`
}

func (o order) intent() outbox.Intent {
	return outbox.Intent{Tenant: "shop", Operation: "charge_card.v1", Payload: o}
}

// plain is an order that nothing follows.
func plain(id string) order { return order{OrderID: id, Amount: 24000, Currency: "EUR"} }

// full is an order that a shipment and a receipt follow.
func full(id string) order {
	return order{OrderID: id, Amount: 24000, Currency: "EUR", Email: id + "@customers.example", Parcel: true}
}

func (b *bundle) enqueue(o order) outbox.Answer {
	b.t.Helper()
	a, err := outbox.Enqueue(b.ctx, b.pool, o.intent())
	b.must(err)
	return a
}

// charge enqueues a new charge and returns its reference.
func (b *bundle) charge(o order) string {
	b.t.Helper()
	a := b.enqueue(o)
	if a.Kind != outbox.AnswerAccepted {
		b.t.Fatalf("enqueue %s: %+v", o.OrderID, a)
	}
	return a.Reference
}

// again enqueues a charge that was enqueued before; the answer must be of that kind, and
// name the same intent.
func (b *bundle) again(o order, reference string, kind outbox.AnswerKind, state outbox.State) outbox.Answer {
	b.t.Helper()
	a := b.enqueue(o)
	if a.Kind != kind || a.State != state || a.Reference != reference {
		b.t.Errorf("asked again: %s %s %s, want %s %s %s", a.Kind, a.State, a.Reference, kind, state, reference)
	}
	return a
}

const poll = 10 * time.Millisecond

// await asks the database until the condition holds. It has no signal for most of what
// tests wait for; and it may be away for a moment.
func (b *bundle) await(condition string, args ...any) {
	b.t.Helper()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		var holds bool
		err := b.pool.QueryRow(b.ctx, "SELECT "+condition, args...).Scan(&holds)
		if err == nil && holds {
			return
		}
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			b.t.Fatalf("this never came true (%v): %s %v", err, condition, args)
		}
	}
}

// stateOf is a condition: the state of the intent with the reference.
const stateOf = `(SELECT coalesce(e.state, o.state)::text FROM outbox.intents i LEFT JOIN outbox.outbox o ON o.intent_id = i.id
	LEFT JOIN outbox.outcomes e ON e.intent_id = i.id WHERE i.reference = $1)`

func (b *bundle) state(reference string, want outbox.State) {
	b.t.Helper()
	b.await(stateOf+" = $2", reference, string(want))
}

// quiet waits until nothing can move by itself any more.
func (b *bundle) quiet() {
	b.t.Helper()
	b.await(`NOT EXISTS (SELECT FROM outbox.outbox WHERE phase <> 'parked')`)
}

// value reads one value from the ledger.
func value[T any](b *bundle, query string, args ...any) T {
	b.t.Helper()
	rows, err := b.pool.Query(b.ctx, "SELECT "+query, args...)
	b.must(err)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	b.must(err)
	return v
}

// steps is the history of an intent, in words.
func (b *bundle) steps(reference string) []string {
	b.t.Helper()
	return value[[]string](b, `array_agg(concat_ws(' ', t.attempt, t.from_state, t.event, t.to_state) ORDER BY t.at)
		FROM outbox.timeline t JOIN outbox.intents i ON i.id = t.intent_id WHERE i.reference = $1`, reference)
}

// counted compares effects and requests at the provider with what they should be.
func (b *bundle) counted(service, reference string, effects, requests int) {
	b.t.Helper()
	if got := b.sim.Count(service, reference); got != effects {
		b.t.Errorf("%s of %s: %d effects, want %d", service, reference, got, effects)
	}
	if got := b.sim.Requests(service, reference); got != requests {
		b.t.Errorf("%s of %s: %d requests, want %d", service, reference, got, requests)
	}
}

// atProvider waits for what the simulator counts.
func (b *bundle) atProvider(condition func(simulator.Snapshot) bool) {
	b.t.Helper()
	b.must(b.sim.Await(b.ctx, condition))
}

// held waits until a request for the reference stands at a hold.
func (b *bundle) held(service, reference string) {
	b.t.Helper()
	b.atProvider(func(s simulator.Snapshot) bool { return s.Held(service, reference) == 1 })
}

// services tells where an operation has its effects.
var services = map[string]string{
	"charge_card": simulator.Charges, "void": simulator.Charges, "ship": simulator.Shipments, "send_receipt": simulator.Mail,
}

// compare is the verdict on everything: each intent's state against the number of effects
// that the provider counted. It returns how many intents are in each state.
func (b *bundle) compare() map[outbox.State]int {
	b.t.Helper()
	rows, err := b.pool.Query(b.ctx, `SELECT i.reference, c.name, coalesce(e.state, o.state)::text FROM outbox.intents i
		JOIN outbox.catalog c ON c.id = i.catalog_id LEFT JOIN outbox.outbox o ON o.intent_id = i.id LEFT JOIN outbox.outcomes e ON e.intent_id = i.id`)
	b.must(err)
	states, effects := map[outbox.State]int{}, 0
	var reference, operation string
	var state outbox.State
	_, err = pgx.ForEachRow(rows, []any{&reference, &operation, &state}, func() error {
		n := b.sim.Count(services[operation], reference)
		states[state]++
		effects += n
		least, most := 0, 0
		switch state {
		case outbox.Succeeded:
			least, most = 1, 1
		case outbox.Executing, outbox.OutcomeUnknown, outbox.NeedsReview:
			most = 1
		}
		if n < least || n > most {
			b.t.Errorf("%s of %s is %s, and had %d effects\n%s", operation, reference, state, n, strings.Join(b.steps(reference), "\n"))
		}
		return nil
	})
	b.must(err)
	if all := len(b.sim.Effects("")); all != effects {
		b.t.Errorf("the provider counted %d effects, of which the ledger knows %d", all, effects)
	}
	if d := b.sim.Duplicates(); len(d) > 0 {
		b.t.Errorf("duplicates: %+v", d)
	}
	if n := value[int](b, `count(*)::int FROM outbox.intents i JOIN outbox.outcomes e ON e.intent_id = i.id AND e.state = 'succeeded'
		WHERE NOT EXISTS (SELECT FROM outbox.outbox o WHERE o.intent_id = i.id)
		AND (SELECT count(*) FROM outbox.intents f WHERE f.parent_id = i.id)
			<> (i.payload ->> 'parcel' IS NOT NULL)::int + (i.payload ->> 'email' IS NOT NULL)::int`); n > 0 {
		b.t.Errorf("%d charges succeeded and have other follow-ons than they should", n)
	}
	return states
}

// dump is the end of the ledger, for a test that failed.
func (b *bundle) dump() string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), 10*time.Second)
	defer cancel()
	var history, open string
	err := b.pool.QueryRow(ctx, `SELECT coalesce(string_agg(t::text, E'\n' ORDER BY t.at), 'no history') FROM (
		SELECT * FROM outbox.timeline ORDER BY at DESC LIMIT 40) t`).Scan(&history)
	if err == nil {
		err = b.pool.QueryRow(ctx, `SELECT coalesce(string_agg(t::text, E'\n'), 'nothing open') FROM (SELECT * FROM outbox.outbox LIMIT 20) t`).Scan(&open)
	}
	if err != nil {
		return "the ledger cannot be read: " + err.Error()
	}
	return "ledger:\n" + history + "\n" + open
}
