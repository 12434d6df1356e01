package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"

	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
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

// testCatalog has an operation for every rule that enqueue knows.
var testCatalog = "lanes: {main: {provider: main}}\noperations:\n" + operations(
	`name: charge, version: 1, key: {rule: business, fields: [/order]}`,
	`name: charge, version: 2, key: {rule: business, fields: [/order]}`,
	`name: ship, version: 1, key: {rule: business, fields: [/order]}`,
	`name: transfer, version: 1, key: {rule: business, fields: [/from/iban, '/we"ird name,}', /number]}, `+
		`input: {type: object, required: [from, 'we"ird name,}', number], properties: {from: {type: object, required: [iban], properties: {iban: {type: string}}}, 'we"ird name,}': {type: string}, number: {type: integer}}}`,
	`name: notify, version: 1, key: {rule: business, fields: [/order], per_subject: true}`,
	`name: book, version: 1, key: {rule: business, fields: [/order], per_version: true}`,
	`name: book, version: 2, key: {rule: business, fields: [/order], per_version: true}`,
	`name: bill, version: 1, key: {rule: business, fields: [/order]}, input: {type: object, required: [order, options], properties: `+
		`{order: {type: string}, currency: {type: string, default: eur}, options: {type: object, properties: {rush: {type: boolean, default: false}}}}}`,
	`name: pay, version: 1, key: {rule: business, fields: [/order]}, approval: {required: true}`,
	`name: small, version: 1, key: {rule: business, fields: [/order]}, max_payload: 64`,
	`name: mail, version: 1, key: {rule: operation_id}, input: {type: object}`,
	`name: search, version: 1, key: {rule: arguments}, input: {type: object}`,
	`name: ask, version: 1, key: {rule: arguments, window: 1h, per_subject: true}`,
)

// operations completes each with what it does not say.
func operations(each ...string) string {
	var text strings.Builder
	for _, op := range each {
		if !strings.Contains(op, "input:") {
			op += ", input: {type: object, required: [order], properties: {order: {type: string}}}"
		}
		text.WriteString("  - {" + op + ", class: key_protected, lane: main, review: {owner: ops}}\n")
	}
	return text.String()
}

// window is the default one, which search has.
const window = 15 * time.Minute

// testBundle is a database with testCatalog, an owner's connection to look at it and
// applications' connections, which may do what outbox_app may.
type testBundle struct {
	t      testing.TB
	ctx    context.Context
	url    string
	owner  *pgxpool.Pool
	app    *pgxpool.Pool
	ledger string
}

func setup(t testing.TB) *testBundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	b := &testBundle{t: t, ctx: ctx, url: pgtest.URL(t)}
	b.owner = b.pool(func(*pgxpool.Config) {})
	b.app = b.pool(asApp)
	b.exec("CREATE TABLE public.notes (note text); GRANT SELECT, INSERT ON public.notes TO outbox_app")
	b.apply(testCatalog)
	b.ledger = query[string](b, "SELECT id::text FROM outbox.ledger")
	return b
}

// asApp makes connections act as an application's role.
func asApp(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["role"] = "outbox_app" }

func (b *testBundle) pool(change func(*pgxpool.Config)) *pgxpool.Pool {
	b.t.Helper()
	config, err := pgxpool.ParseConfig(b.url)
	b.must(err)
	config.MaxConns = 8
	change(config)
	pool, err := pgxpool.NewWithConfig(b.ctx, config)
	b.must(err)
	b.t.Cleanup(pool.Close)
	return pool
}

func (b *testBundle) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *testBundle) apply(text string) {
	b.t.Helper()
	c, err := catalog.Parse("test.yaml", []byte(text))
	b.must(err)
	_, err = catalog.Apply(b.ctx, b.owner, c, "test")
	b.must(err)
}

func (b *testBundle) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.owner.Exec(b.ctx, sql, args...)
	b.must(err)
}

func query[T any](b *testBundle, sql string, args ...any) T {
	b.t.Helper()
	rows, err := b.owner.Query(b.ctx, sql, args...)
	b.must(err)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		b.t.Fatalf("%v: %s", err, sql)
	}
	return v
}

// begin begins an application's transaction, rolled back at the end.
func (b *testBundle) begin() pgx.Tx {
	b.t.Helper()
	tx, err := b.app.Begin(b.ctx)
	b.must(err)
	b.t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(b.ctx)) }) // most have committed
	return tx
}

// enqueue enqueues and commits.
func (b *testBundle) enqueue(in outbox.Intent) outbox.Answer {
	b.t.Helper()
	return b.enqueueIn(b.app, in)
}

func (b *testBundle) enqueueIn(db outbox.Querier, in outbox.Intent) outbox.Answer {
	b.t.Helper()
	a, err := outbox.Enqueue(b.ctx, db, in)
	b.must(err)
	return a
}

// accept is enqueue for what has to be new.
func (b *testBundle) accept(in outbox.Intent) string {
	b.t.Helper()
	a := b.enqueue(in)
	if a.Kind != outbox.AnswerAccepted {
		b.t.Fatalf("%s, not accepted: %+v", a.Kind, a)
	}
	return a.Reference
}

// sqlEnqueue enqueues through plain SQL: the database canonicalises.
func (b *testBundle) sqlEnqueue(in outbox.Intent) outbox.Answer {
	b.t.Helper()
	var text string
	b.must(b.app.QueryRow(b.ctx, callOf(in)).Scan(&text))
	return answerOf(b.t, text)
}

func (b *testBundle) get(tenant, reference string) outbox.Answer {
	b.t.Helper()
	a, err := outbox.Get(b.ctx, b.app, tenant, reference)
	b.must(err)
	return a
}

// rows counts what the door writes, and what settling writes.
type rows struct{ intents, open, outcomes, repeats, heads int }

func (b *testBundle) rows() (n rows) {
	b.t.Helper()
	b.must(b.owner.QueryRow(b.ctx, `SELECT (SELECT count(*) FROM outbox.intents), (SELECT count(*) FROM outbox.outbox),
		(SELECT count(*) FROM outbox.outcomes), (SELECT count(*) FROM outbox.repeats), (SELECT count(*) FROM outbox.heads)`).
		Scan(&n.intents, &n.open, &n.outcomes, &n.repeats, &n.heads))
	return n
}

func (b *testBundle) wantRows(want rows) {
	b.t.Helper()
	if got := b.rows(); got != want {
		b.t.Errorf("rows %+v, want %+v", got, want)
	}
}

// repeats lists the answers given to those who asked again, oldest first, with the
// first principal.
func (b *testBundle) repeats(reference string) string {
	b.t.Helper()
	return query[string](b, `SELECT coalesce(string_agg(concat_ws(' by ', r.answer, r.principal[1]), ', ' ORDER BY r.at), '')
		FROM outbox.repeats r JOIN outbox.intents i ON i.id = r.intent_id WHERE i.reference = $1`, reference)
}

// settle ends an intent as a worker would: it leaves the outbox, and its outcome and
// history stand.
func (b *testBundle) settle(reference string, state outbox.State) {
	b.t.Helper()
	event := map[outbox.State]outbox.Event{
		outbox.Succeeded: outbox.ProviderAccepted, outbox.FailedFinal: outbox.ProviderRefused, outbox.Cancelled: outbox.CancelRequested,
	}[state]
	b.as("outbox_worker", func(tx pgx.Tx) error {
		var id int64
		if err := tx.QueryRow(b.ctx, `DELETE FROM outbox.outbox o USING outbox.intents i
			WHERE i.id = o.intent_id AND i.reference = $1 RETURNING o.intent_id`, reference).Scan(&id); err != nil {
			return err
		}
		from := outbox.Executing
		if state == outbox.Cancelled {
			from = outbox.Accepted
		}
		if _, err := tx.Exec(b.ctx, `INSERT INTO outbox.history (intent_id, attempt, from_state, to_state, event, actor, claimed_at)
			VALUES ($1, 1, $2::outbox.state, $3, $4, 'worker', CASE $2 WHEN 'executing' THEN now() END)`, id, from, state, event); err != nil {
			return err
		}
		_, err := tx.Exec(b.ctx, `
			INSERT INTO outbox.outcomes (intent_id, attempt, state, provider_id, account, code, reason, result)
			SELECT $1, 1, $2::outbox.state, CASE $2 WHEN 'succeeded' THEN 'ch_1' END, 'acct',
				CASE $2 WHEN 'failed_final' THEN 'card_declined' END, CASE $2 WHEN 'failed_final' THEN 'Do not honour.' END,
				CASE $2 WHEN 'succeeded' THEN '{"status":"paid","fee":7}' END::json`, id, state)
		return err
	})
	if a := b.get(b.tenantOf(reference), reference); a.Kind != outbox.AnswerSettled || a.State != state {
		b.t.Fatalf("after settling: %+v", a)
	}
}

// hold puts an open intent into a state that it could have reached.
func (b *testBundle) hold(reference string, state outbox.State) {
	b.t.Helper()
	b.as("outbox_worker", func(tx pgx.Tx) error {
		_, err := tx.Exec(b.ctx, `
			UPDATE outbox.outbox o SET
				state = $2::outbox.state,
				phase = CASE $2 WHEN 'accepted' THEN 'due' WHEN 'failed_retryable' THEN 'due' WHEN 'executing' THEN 'leased'
					WHEN 'outcome_unknown' THEN 'asking' ELSE 'parked' END::outbox.phase,
				next_at = CASE WHEN $2 IN ('needs_review', 'exhausted') THEN NULL ELSE clock_timestamp() END,
				attempt = CASE $2 WHEN 'accepted' THEN 0 ELSE 1 END, sends = CASE $2 WHEN 'accepted' THEN 0 ELSE 1 END, claimed_at = clock_timestamp(), claimed_by = 'worker', account = 'acct', preset = 'p1', request_hash = '\x00',
				unknown_attempt = CASE WHEN $2 IN ('outcome_unknown', 'needs_review') THEN 1 END,
				review_since = CASE $2 WHEN 'needs_review' THEN clock_timestamp() END
			FROM outbox.intents i WHERE i.id = o.intent_id AND i.reference = $1`, reference, state)
		return err
	})
	if a := b.get(b.tenantOf(reference), reference); a.Kind != outbox.AnswerInFlight || a.State != state {
		b.t.Fatalf("held: %+v", a)
	}
}

// trim leaves the tombstone of a settled intent, as retention would.
func (b *testBundle) trim(reference string) {
	b.t.Helper()
	b.as("outbox_retention", func(tx pgx.Tx) error {
		_, err := tx.Exec(b.ctx, `
			WITH trimmed AS (UPDATE outbox.intents SET payload = NULL WHERE reference = $1 RETURNING id)
			UPDATE outbox.outcomes SET result = NULL WHERE intent_id IN (SELECT id FROM trimmed)`, reference)
		return err
	})
}

func (b *testBundle) as(role string, do func(pgx.Tx) error) {
	b.t.Helper()
	b.must(pgx.BeginFunc(b.ctx, b.owner, func(tx pgx.Tx) error {
		if _, err := tx.Exec(b.ctx, "SET LOCAL ROLE "+role); err != nil {
			return err
		}
		return do(tx)
	}))
}

func (b *testBundle) tenantOf(reference string) string {
	b.t.Helper()
	return query[string](b, "SELECT tenant FROM outbox.intents WHERE reference = $1", reference)
}

// awaitBlocked returns once n sessions of this database wait for a lock.
func (b *testBundle) awaitBlocked(n int) {
	b.t.Helper()
	b.await(fmt.Sprintf("%d sessions wait for a lock", n), func() bool {
		return query[int](b, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == n
	})
}

// await asks until something that must come about has.
func (b *testBundle) await(what string, happened func() bool) {
	b.t.Helper()
	for !happened() {
		select {
		case <-b.ctx.Done():
			b.t.Fatalf("still not: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// callOf is a plain SQL call of outbox.enqueue, answered as one JSON text.
func callOf(in outbox.Intent) string {
	var args []string
	add := func(name, value string) { args = append(args, name+" => "+value) }
	text := func(name, value string) {
		if value != "" {
			add(name, literal(value))
		}
	}
	text("tenant", in.Tenant)
	if in.Tenant == "" {
		add("tenant", "''")
	}
	add("operation", literal(in.Operation))
	add("payload", payloadLiteral(in.Payload))
	text("operation_id", in.OperationID)
	text("subject", in.Subject)
	if in.Principal != nil {
		var list []string
		for _, p := range in.Principal {
			list = append(list, literal(p))
		}
		add("principal", "ARRAY["+strings.Join(list, ", ")+"]::text[]")
	}
	text("task", in.Task)
	text("parent", in.Parent)
	text("supersedes", in.Supersedes)
	text("compensates", in.Compensates)
	if !in.NotBefore.IsZero() {
		add("not_before", literal(in.NotBefore.Format(time.RFC3339Nano)))
	}
	if !in.Deadline.IsZero() {
		add("deadline", literal(in.Deadline.Format(time.RFC3339Nano)))
	}
	if in.Priority != 0 {
		add("priority", fmt.Sprint(in.Priority))
	}
	text("trace", in.Trace)
	if in.NoWait {
		add("nowait", "true")
	}
	return "SELECT json_strip_nulls(to_json(a))::text FROM outbox.enqueue(" + strings.Join(args, ", ") + ") a"
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func payloadLiteral(payload any) string {
	switch p := payload.(type) {
	case nil:
		return "NULL"
	case json.RawMessage:
		return literal(string(p))
	}
	text, err := json.Marshal(payload)
	if err != nil {
		panic(err)
	}
	return literal(string(text))
}

func answerOf(t testing.TB, text string) outbox.Answer {
	t.Helper()
	a, err := decodeAnswer(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func decodeAnswer(text string) (a outbox.Answer, err error) {
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return a, fmt.Errorf("%w: %q", err, text)
	}
	return a, nil
}

// raw is a payload in the caller's own spelling.
func raw(format string, args ...any) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(format, args...))
}

// charge is the plainest intent.
func charge(order string, amount int) outbox.Intent {
	return outbox.Intent{Tenant: "acme", Operation: "charge.v1", Payload: map[string]any{"order": order, "amount": amount}, Principal: []string{"shop"}}
}

// search is an intent whose key is its arguments.
func search(text string) outbox.Intent {
	return outbox.Intent{Tenant: "acme", Operation: "search.v1", Payload: map[string]any{"text": text}, Principal: []string{"agent"}}
}

func stdlibDB(b *testBundle) *sql.DB {
	db := stdlib.OpenDBFromPool(b.app)
	b.t.Cleanup(func() { b.must(db.Close()) })
	return db
}
