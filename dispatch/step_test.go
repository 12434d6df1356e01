package dispatch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
	"github.com/outbox-worker/outbox-worker/providers"
)

// stepCatalog has an operation that ends with itself, one with a follow-on, and one that
// no provider here serves.
const stepCatalog = `
lanes:
  pay: {provider: scripted, concurrency: 1}
operations:
  - name: pay
    version: 1
    class: key_protected
    lane: pay
    key: {rule: operation_id}
    input: {type: object, required: [n], properties: {n: {type: integer}}}
    timeouts: {call: 20s, lease: 30s}
    retry: {max_attempts: 3, initial: 1m, max: 10m}
    unknown: at_most_once
    review: {owner: payments}
  - name: order
    version: 1
    class: key_protected
    lane: pay
    key: {rule: operation_id}
    input: {type: object, required: [n], properties: {n: {type: integer}}}
    timeouts: {call: 20s, lease: 30s}
    unknown: at_most_once
    review: {owner: payments}
    follow_ons:
      - {name: receipt, operation: pay.v1, payload: '{n: .intent.payload.n}'}
  - name: foreign
    version: 1
    class: key_protected
    lane: pay
    key: {rule: operation_id}
    input: {type: object, required: [n], properties: {n: {type: integer}}}
    review: {owner: payments}
`

// stepBundle is a ledger whose rows a test writes itself, and a worker that does not run:
// the test makes it take one step.
type stepBundle struct {
	t    *testing.T
	ctx  context.Context
	pool *pgxpool.Pool
	w    *Worker
	l    *lane
	says *scripted
}

// steps also bounds the test: whoever waits for a lock that is not to be waited for fails.
func steps(t *testing.T) *stepBundle {
	t.Helper()
	return stepsOn(t, pgtest.DB(t))
}

func stepsOn(t *testing.T, pool *pgxpool.Pool) *stepBundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	says := &scripted{account: "acct_1", caps: providers.Capabilities{
		Preset: "preset_1", KeyMemory: 24 * time.Hour, Replay: providers.ReplaySuccessOnly,
	}}
	b := &stepBundle{t: t, ctx: ctx, pool: pool, says: says}
	b.apply(stepCatalog)
	w, err := New(Config{Pool: pool, Providers: map[string]providers.Provider{"scripted": says}, Logger: slog.New(slog.DiscardHandler), Name: "tester"})
	b.must(err)
	w.running, w.stopping, w.calls, w.recording = ctx, ctx, ctx, ctx
	w.loads = newBatcher(batchLines, batchMax, w.loadEach)
	w.claims = newBatcher(batchLines, batchMax, func(ctx context.Context, all []*candidate) ([]bool, error) { return w.claim(ctx, pool, all) })
	w.settles = newBatcher(batchLines, batchMax, w.settleBatch)
	t.Cleanup(w.closeBatchers)
	b.w = w
	b.must(w.recognise(ctx))
	revisions, err := catalog.Load(ctx, pool)
	b.must(err)
	limits, err := w.laneLimits(ctx)
	b.must(err)
	services, problems := w.judge(revisions, limits)
	if len(problems) > 0 || len(services) != 2 {
		t.Fatalf("%d services, %v", len(services), problems)
	}
	w.publish(revisions, services)
	b.l = newLane(b.served("pay").revision.LaneID, "pay", 1)
	w.lanes[b.l.id] = b.l
	return b
}

func (b *stepBundle) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *stepBundle) apply(text string) {
	b.t.Helper()
	c, err := catalog.Parse("test.yaml", []byte(text))
	b.must(err)
	_, err = catalog.Apply(b.ctx, b.pool, c, "test")
	b.must(err)
}

func (b *stepBundle) served(name string) service {
	b.t.Helper()
	for _, s := range b.w.services {
		if s.revision.Spec.Name == name {
			return s
		}
	}
	b.t.Fatalf("%s is not served", name)
	return service{}
}

// Rows as they stand after a release, a claim, a claimed probe of attempt 1, and so on.
const (
	isReleased = `phase = 'released', next_at = clock_timestamp() + interval '1 minute'`
	pinned     = `account = 'acct_1', preset = 'preset_1', request_hash = sha256('request'), first_sent_at = clock_timestamp(), sends = 1`
	isLeased   = pinned + `, state = 'executing', phase = 'leased', attempt = 1, next_at = clock_timestamp() + interval '1 minute', holder = gen_random_uuid(),
		claimed_at = clock_timestamp(), claimed_by = 'worker 1'`
	isRetried = pinned + `, state = 'failed_retryable', attempt = 1`
	isAsking  = pinned + `, state = 'outcome_unknown', phase = 'asking', attempt = 1, unknown_attempt = 1, unknown_since = clock_timestamp(), holder = gen_random_uuid()`
	isProbing = pinned + `, state = 'outcome_unknown', phase = 'probing', attempt = 2, probes = 1, unknown_attempt = 1, unknown_since = clock_timestamp(),
		next_at = clock_timestamp() + interval '1 minute', holder = gen_random_uuid()`
	isReviewed = pinned + `, state = 'needs_review', phase = 'parked', next_at = NULL, attempt = 2, probes = 1, unknown_attempt = 1, unknown_since = clock_timestamp(),
		review_since = clock_timestamp(), review_reason = 'nobody knows', holder = gen_random_uuid()`
)

// put writes an intent and its outbox row: due for a minute, then as each set says.
func (b *stepBundle) put(operation string, sets ...string) (id int64) {
	b.t.Helper()
	b.must(b.pool.QueryRow(b.ctx, `INSERT INTO outbox.intents (catalog_id, generation, priority, digest_version, tenant, reference, digest, key, payload)
		SELECT id, 1, 0, 1, 'shop', md5(gen_random_uuid()::text), sha256('{"n":1}'), '"1"', '{"n":1}' FROM outbox.catalog WHERE name = $1 RETURNING id`, operation).Scan(&id))
	b.do(`INSERT INTO outbox.outbox (intent_id, next_at, lane, catalog_id, state, phase, tenant)
		SELECT i.id, clock_timestamp() - interval '1 minute', c.lane, c.id, 'accepted', 'due', 'shop'
		FROM outbox.intents i JOIN outbox.catalog c ON c.id = i.catalog_id WHERE i.id = $1`, id)
	for _, set := range sets {
		b.do(`UPDATE outbox.outbox SET `+set+` WHERE intent_id = $1`, id)
	}
	return id
}

// ended writes an intent that has an outcome and no outbox row.
func (b *stepBundle) ended(operation, state string, providerID *string) int64 {
	b.t.Helper()
	id := b.put(operation)
	b.do(`DELETE FROM outbox.outbox WHERE intent_id = $1`, id)
	b.do(`INSERT INTO outbox.outcomes (intent_id, attempt, state, provider_id, account) VALUES ($1, 1, $2, $3, 'acct_1')`, id, state, providerID)
	return id
}

func (b *stepBundle) do(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(b.ctx, sql, args...)
	b.must(err)
}

func (b *stepBundle) ask(sql string, args ...any) (text string) {
	b.t.Helper()
	b.must(b.pool.QueryRow(b.ctx, "SELECT coalesce(("+sql+")::text, '')", args...).Scan(&text))
	return text
}

// open is the outbox row: state, phase, attempt, and the unknown attempt with whether
// its worker has been heard of. Empty when there is none.
func (b *stepBundle) open(id int64) string {
	b.t.Helper()
	return b.ask(`SELECT concat_ws(' ', state, phase, attempt, 'of ' || unknown_attempt,
		CASE WHEN unknown_attempt IS NOT NULL AND holder IS NULL THEN 'heard' END) FROM outbox.outbox WHERE intent_id = $1`, id)
}

func (b *stepBundle) outcome(id int64) string {
	b.t.Helper()
	return b.ask(`SELECT concat_ws(' ', state, attempt, provider_id) FROM outbox.outcomes WHERE intent_id = $1`, id)
}

// events are an intent's history: attempt and event each.
func (b *stepBundle) events(id int64) string {
	b.t.Helper()
	return b.ask(`SELECT string_agg(attempt || ' ' || event, ', ' ORDER BY at) FROM outbox.history WHERE intent_id = $1`, id)
}

func (b *stepBundle) is(what, got, want string) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// candidate is an intent of operation pay, ready to be claimed.
func (b *stepBundle) candidate(id int64, attempt int) *candidate {
	s := b.served("pay")
	c := &candidate{ticket: ticket{id, attempt}, revision: s.revision, provider: s.provider}
	c.intent.Operation, c.intent.Version = "pay", 1
	c.request, _ = b.says.Prepare(c.intent)
	return c
}

// requestHash is that of every request here, and of the rows that are pinned.
var requestHash = sha256.Sum256([]byte("request"))

// scripted is a provider that answers as a test says; by itself it accepts and finds
// nothing. What it sends it counts.
type scripted struct {
	account string
	caps    providers.Capabilities
	prepare func(providers.Intent)
	send    func(context.Context, providers.Request, providers.Permit) providers.Answer
	look    func(providers.Request) providers.Finding
	sent    atomic.Int32
	looked  atomic.Int32
}

func (p *scripted) Account() string { return p.account }

func (p *scripted) Serves(operation string, _ int) (providers.Capabilities, bool) {
	return p.caps, operation != "foreign"
}

func (p *scripted) Prepare(in providers.Intent) (providers.Request, error) {
	if p.prepare != nil {
		p.prepare(in)
	}
	return providers.Request{Intent: in, Hash: requestHash}, nil
}

func (p *scripted) Send(ctx context.Context, r providers.Request, permit providers.Permit) providers.Answer {
	if p.send != nil {
		return p.send(ctx, r, permit)
	}
	if err := permit(ctx); err != nil {
		return providers.NotSent("no_permit", err.Error(), 0)
	}
	return providers.Accepted(fmt.Sprint("ch_", p.sent.Add(1)), nil)
}

func (p *scripted) Lookup(_ context.Context, r providers.Request) providers.Finding {
	p.looked.Add(1)
	if p.look != nil {
		return p.look(r)
	}
	return providers.Finding{Kind: providers.Absent}
}
