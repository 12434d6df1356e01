package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

// operateCatalog has short times, an operation that waits for approval, one that is
// followed by another, and one whose provider promises nothing.
const operateCatalog = `
lanes:
  payments: {provider: payments, concurrency: 20}
  mail: {provider: mail, concurrency: 20}
operations:
  - name: charge_card
    version: 1
    class: key_protected
    lane: payments
    key: {rule: business, fields: [/order_id]}
    input: {type: object, required: [order_id, amount], properties: {order_id: {type: string}, amount: {type: integer, minimum: 1}, currency: {type: string}}}
    timeouts: {call: 1s, lease: 6s}
    retry: {max_attempts: 2, initial: 20ms, max: 100ms}
    unknown: at_most_once
    review: {owner: payments-oncall}
    money: {amount: /amount, currency: /currency}
    follow_ons: [{name: receipt, operation: send_mail.v1, payload: '{order_id: .intent.payload.order_id, charge: .outcome.provider_id}'}]
  - name: wire
    version: 1
    class: non_repeatable
    lane: payments
    key: {rule: business, fields: [/order_id]}
    input: {type: object, required: [order_id], properties: {order_id: {type: string}}}
    unknown: at_most_once
    approval: {required: true}
    review: {owner: treasury}
  - name: send_mail
    version: 1
    class: non_repeatable
    lane: mail
    key: {rule: business, fields: [/order_id]}
    input: {type: object, required: [order_id, charge], properties: {order_id: {type: string}, charge: {type: string}}}
    unknown: at_most_once
    review: {owner: support}
`

// operateBundle is a database with operateCatalog.
type operateBundle struct {
	t    testing.TB
	ctx  context.Context
	url  string
	pool *pgxpool.Pool
}

func operateSetup(t testing.TB) *operateBundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	b := &operateBundle{t: t, ctx: ctx, url: pgtest.URL(t)}
	b.pool = b.open(nil)
	c, err := catalog.Parse("test.yaml", []byte(operateCatalog))
	b.must(err)
	_, err = catalog.Apply(b.ctx, b.pool, c, "test")
	b.must(err)
	return b
}

func (b *operateBundle) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *operateBundle) open(change func(*pgxpool.Config)) *pgxpool.Pool {
	b.t.Helper()
	config, err := pgxpool.ParseConfig(b.url)
	b.must(err)
	config.MaxConns = 8
	if change != nil {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(b.ctx, config)
	b.must(err)
	b.t.Cleanup(pool.Close)
	return pool
}

func (b *operateBundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.ctx, sql, args...); err != nil {
		b.t.Fatalf("%v: %s", err, sql)
	}
}

func (b *operateBundle) text(sql string, args ...any) string {
	b.t.Helper()
	rows, err := b.pool.Query(b.ctx, sql, args...)
	b.must(err)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[*string])
	if err != nil {
		b.t.Fatalf("%v: %s", err, sql)
	}
	if v == nil {
		return ""
	}
	return *v
}

// intent enqueues one; options are more parameters of outbox.enqueue.
func (b *operateBundle) intent(operation, order string, options ...string) (reference string) {
	b.t.Helper()
	more := ""
	for _, o := range options {
		more += ", " + o
	}
	return b.text(fmt.Sprintf(`SELECT (outbox.enqueue('shop', '%s.v1', '{"order_id":"%s","amount":1200,"currency":"EUR","charge":"ch_1"}'%s)).reference`, operation, order, more))
}

// situations are all that an intent can be in, as SQL for the intent $1.
var situations = []struct {
	name, operation, enqueue, sql string
}{
	{"awaiting approval", "wire", "", ""},
	{"accepted", "charge_card", "", ""},
	{"released", "charge_card", "", `UPDATE outbox.outbox SET phase = 'released', next_at = now() + '1 min' WHERE intent_id = $1`},
	{"not before", "charge_card", `not_before => now() + '1 hour'`, ""},
	{"executing", "charge_card", "", `UPDATE outbox.outbox SET ` + sent + `, state = 'executing', phase = 'leased', next_at = now() + '1 min', holder = gen_random_uuid(), claimed_at = now(), claimed_by = 'worker' WHERE intent_id = $1`},
	{"retryable", "charge_card", "", `UPDATE outbox.outbox SET ` + sent + `, state = 'failed_retryable', next_at = now() + '1 min' WHERE intent_id = $1`},
	{"retryable too late", "charge_card", `deadline => now() - interval '1 s'`, `UPDATE outbox.outbox SET ` + sent + `, state = 'failed_retryable' WHERE intent_id = $1`},
	{"unknown", "charge_card", "", `UPDATE outbox.outbox SET ` + unknown + ` WHERE intent_id = $1`},
	{"in review", "charge_card", "", `UPDATE outbox.outbox SET ` + reviewed + ` WHERE intent_id = $1`},
	{"in review, claimed", "charge_card", "", `UPDATE outbox.outbox SET ` + reviewed + `, review_owner = 'bob' WHERE intent_id = $1`},
	{"exhausted", "charge_card", "", `UPDATE outbox.outbox SET ` + exhausted + ` WHERE intent_id = $1`},
	{"exhausted too late", "charge_card", `deadline => now() - interval '1 s'`, `UPDATE outbox.outbox SET ` + exhausted + ` WHERE intent_id = $1`},
	{"superseded", "charge_card", "", `DELETE FROM outbox.outbox WHERE intent_id = $1; ` + ended("exhausted")},
	{"succeeded", "charge_card", "", `DELETE FROM outbox.outbox WHERE intent_id = $1; ` + ended("succeeded")},
	{"following", "charge_card", "", `UPDATE outbox.outbox SET ` + sent + `, state = 'succeeded', phase = 'following' WHERE intent_id = $1; ` + ended("succeeded")},
	{"not followed", "charge_card", "", beside("succeeded", "follow_on_rejected")},
	{"succeeded twice", "charge_card", "", beside("succeeded", "review_opened")},
	{"failed", "charge_card", "", `DELETE FROM outbox.outbox WHERE intent_id = $1; ` + ended("failed_final")},
	{"failed and happened", "charge_card", "", beside("failed_final", "review_opened")},
	{"cancelled", "charge_card", "", `DELETE FROM outbox.outbox WHERE intent_id = $1; ` + ended("cancelled")},
	{"forgotten", "charge_card", "", `DELETE FROM outbox.outbox WHERE intent_id = $1`},
}

const (
	sent      = `attempt = 3, sends = 2, account = 'acct', preset = 'p1', request_hash = '\x01'`
	unknown   = sent + `, state = 'outcome_unknown', phase = 'asking', next_at = now() + '1 hour', unknown_attempt = 3, unknown_since = now(), holder = gen_random_uuid()`
	reviewed  = sent + `, state = 'needs_review', phase = 'parked', next_at = NULL, unknown_attempt = 3, unknown_since = now(), review_since = now(), review_reason = 'cannot be asked'`
	exhausted = sent + `, state = 'exhausted', phase = 'parked', next_at = NULL`
)

func ended(state string) string {
	return `INSERT INTO outbox.outcomes (intent_id, attempt, state) VALUES ($1, 3, '` + state + `')`
}

func beside(state, event string) string {
	return `UPDATE outbox.outbox SET ` + sent + `, state = '` + state + `', phase = 'parked', next_at = NULL, review_since = now() WHERE intent_id = $1; ` + ended(state) +
		`; INSERT INTO outbox.history (intent_id, attempt, from_state, to_state, event, actor) VALUES ($1, 3, '` + state + `', '` + state + `', '` + event + `', 'worker')`
}

// in makes an intent and puts it into a situation.
func (b *operateBundle) in(situation, order string) (reference string) {
	b.t.Helper()
	for _, s := range situations {
		if s.name != situation {
			continue
		}
		var options []string
		if s.enqueue != "" {
			options = append(options, s.enqueue)
		}
		reference = b.intent(s.operation, order, options...)
		id := b.text(`SELECT id::text FROM outbox.intents WHERE reference = $1`, reference)
		if s.sql != "" {
			b.exec(strings.ReplaceAll(s.sql, "$1", id))
		}
		return reference
	}
	b.t.Fatalf("no situation %q", situation)
	return ""
}

// actions are all that an operator can do to an intent, as SQL for the reference $1,
// the reason $2 and the actor $3.
var actions = map[string]string{
	"replay":       `outbox.replay($1, $2, $3)`,
	"replay_many":  `outbox.replay_many(ARRAY[$1], $2, $3)`,
	"reconcile":    `outbox.reconcile($1, $2, $3)`,
	"cancel":       `outbox.cancel($1, $2, $3)`,
	"succeeded":    `outbox.resolve($1, 'succeeded', '"seen"', $2, $3, 'ch_9', '{"receipt": 1}')`,
	"failed":       `outbox.resolve($1, 'failed', '"seen"', $2, $3)`,
	"not_executed": `outbox.resolve($1, 'not_executed', '{"ticket": 7}', $2, $3)`,
	"claim":        `outbox.review_claim($1, $2, $3)`,
	"release":      `outbox.review_release($1, $2, $3)`,
	"close":        `outbox.review_close($1, '["seen"]', $2, $3)`,
}

// act performs one; the answer says what it did and led to, or the code of a refusal.
func (b *operateBundle) act(action, reference string) (operated, string) {
	b.t.Helper()
	return b.actAs("ann", action, reference)
}

func (b *operateBundle) actAs(actor, action, reference string) (operated, string) {
	b.t.Helper()
	a, err := operate(b.ctx, b.pool, "SELECT "+operatedColumns+" FROM "+actions[action]+" a", reference, "because", actor)
	b.must(err)
	if a.Answer == "done" {
		return a, fmt.Sprintf("%s>%s", a.Did, a.State)
	}
	return a, a.Code
}

// ledger is everything that the database has of an intent.
func (b *operateBundle) ledger(reference string) string {
	b.t.Helper()
	return b.text(`SELECT concat_ws(E'\n', (SELECT o::text FROM outbox.outbox o WHERE o.intent_id = i.id), (SELECT e::text FROM outbox.outcomes e WHERE e.intent_id = i.id),
		(SELECT string_agg(h::text, E'\n' ORDER BY at) FROM outbox.history h WHERE h.intent_id = i.id)) FROM outbox.intents i WHERE reference = $1`, reference)
}

func (b *operateBundle) state(reference string) string {
	b.t.Helper()
	return b.text(`SELECT coalesce(e.state, o.state)::text FROM outbox.intents i LEFT JOIN outbox.outbox o ON o.intent_id = i.id
		LEFT JOIN outbox.outcomes e ON e.intent_id = i.id WHERE i.reference = $1`, reference)
}

// What each action does in each situation: what it did, and the state that it led to; or
// the code with which it was refused.
const operatorMatrix = `
                     | replay                         | reconcile                 | cancel              | resolve: succeeded | failed                 | not_executed              | claim                  | release                 | close
awaiting approval    | awaiting_approval              | not_unknown               | cancelled>cancelled | not_in_review      | not_in_review          | not_in_review             | not_in_review          | not_in_review           | not_in_review
accepted             | due_now>accepted               | not_unknown               | cancelled>cancelled | not_in_review      | not_in_review          | not_in_review             | not_in_review          | not_in_review           | not_in_review
released             | due_now>accepted               | not_unknown               | cancelled>cancelled | not_in_review      | not_in_review          | not_in_review             | not_in_review          | not_in_review           | not_in_review
not before           | not_before                     | not_unknown               | cancelled>cancelled | not_in_review      | not_in_review          | not_in_review             | not_in_review          | not_in_review           | not_in_review
executing            | in_flight                      | in_flight                 | in_flight           | not_in_review      | not_in_review          | not_in_review             | not_in_review          | not_in_review           | not_in_review
retryable            | due_now>failed_retryable       | not_unknown               | cancelled>cancelled | not_in_review      | not_in_review          | not_in_review             | not_in_review          | not_in_review           | not_in_review
retryable too late   | deadline_passed                | not_unknown               | cancelled>cancelled | not_in_review      | not_in_review          | not_in_review             | not_in_review          | not_in_review           | not_in_review
unknown              | asked_now>outcome_unknown      | asked_now>outcome_unknown | unknown             | not_in_review      | not_in_review          | not_in_review             | not_in_review          | not_in_review           | not_in_review
in review            | in_review                      | in_review                 | in_review           | resolved>succeeded | resolved>failed_final  | resolved>failed_retryable | claimed>needs_review   | not_claimed             | undecided
in review, claimed   | in_review                      | in_review                 | in_review           | resolved>succeeded | resolved>failed_final  | resolved>failed_retryable | claimed                | released>needs_review   | undecided
exhausted            | attempts_anew>failed_retryable | not_unknown               | cancelled>cancelled | not_in_review      | not_in_review          | not_in_review             | not_in_review          | not_in_review           | not_in_review
exhausted too late   | deadline_passed                | not_unknown               | cancelled>cancelled | not_in_review      | not_in_review          | not_in_review             | not_in_review          | not_in_review           | not_in_review
superseded           | superseded                     | not_unknown               | settled             | settled            | settled                | settled                   | not_in_review          | not_in_review           | not_in_review
succeeded            | already_happened               | not_unknown               | already_happened    | settled            | settled                | settled                   | not_in_review          | not_in_review           | not_in_review
following            | already_happened               | not_unknown               | already_happened    | settled            | settled                | settled                   | not_in_review          | not_in_review           | not_in_review
not followed         | follow_ons_again>succeeded     | not_unknown               | already_happened    | settled            | settled                | settled                   | claimed>succeeded      | not_claimed             | closed>succeeded
succeeded twice      | in_review                      | not_unknown               | already_happened    | settled            | settled                | settled                   | claimed>succeeded      | not_claimed             | closed>succeeded
failed               | settled                        | not_unknown               | settled             | settled            | settled                | settled                   | not_in_review          | not_in_review           | not_in_review
failed and happened  | in_review                      | not_unknown               | settled             | settled            | settled                | settled                   | claimed>failed_final   | not_claimed             | closed>failed_final
cancelled            | settled                        | not_unknown               | settled             | settled            | settled                | settled                   | not_in_review          | not_in_review           | not_in_review
forgotten            | forgotten                      | forgotten                 | forgotten           | forgotten          | forgotten              | forgotten                 | forgotten              | forgotten               | forgotten
`

func TestEveryActionInEverySituation(t *testing.T) {
	t.Parallel()
	b := operateSetup(t)
	lines := strings.Split(strings.TrimSpace(operatorMatrix), "\n")
	var columns []string
	for _, cell := range strings.Split(lines[0], "|")[1:] {
		columns = append(columns, strings.TrimPrefix(strings.TrimSpace(cell), "resolve: "))
	}
	if len(lines)-1 != len(situations) {
		t.Fatalf("%d situations in the table, not %d", len(lines)-1, len(situations))
	}
	for _, line := range lines[1:] {
		cells := strings.Split(line, "|")
		situation := strings.TrimSpace(cells[0])
		for i, want := range cells[1:] {
			b.check(situation, columns[i], strings.TrimSpace(want))
			if columns[i] == "replay" {
				b.check(situation, "replay_many", strings.TrimSpace(want))
			}
		}
	}
}

// check performs an action in a situation, and holds the ledger against the answer.
func (b *operateBundle) check(situation, action, want string) {
	b.t.Helper()
	reference := b.in(situation, situation+" "+action)
	before := b.ledger(reference)
	a, got := b.act(action, reference)
	name := action + " when " + situation
	if got != want {
		b.t.Errorf("%s: %s, want %s", name, got, want)
		return
	}
	after := b.ledger(reference)
	if a.Answer != "done" {
		if after != before {
			b.t.Errorf("%s was refused and changed\n%s\ninto\n%s", name, before, after)
		}
		if a.Answer != "refused" || a.Reason == "" || a.Hint == "" || a.Was != a.State {
			b.t.Errorf("%s: %+v", name, a)
		}
		return
	}
	if entry := b.text(`SELECT concat_ws(' ', h.actor, h.to_state, h.reason) FROM outbox.history h JOIN outbox.intents i ON i.id = h.intent_id
		WHERE i.reference = $1 ORDER BY h.at DESC LIMIT 1`, reference); !strings.HasPrefix(entry, "ann "+string(a.State)) || !strings.HasSuffix(entry, "because") {
		b.t.Errorf("%s: the history says %q", name, entry)
	}
	if got := b.state(reference); got != string(a.State) {
		b.t.Errorf("%s: it is %s, not %s", name, got, a.State)
	}
}

func TestNothingIsDoneWithoutActorReasonAndEvidence(t *testing.T) {
	t.Parallel()
	b := operateSetup(t)
	reference := b.in("in review", "1")
	before := b.ledger(reference)
	long := strings.Repeat("x", 1001)
	for _, x := range []struct {
		sql, code string
	}{
		{`outbox.replay($1, 'r', '')`, "actor_missing"},
		{`outbox.replay($1, 'r', NULL)`, "actor_missing"},
		{`outbox.replay($1, ' ', 'a')`, "reason_missing"},
		{`outbox.cancel($1, NULL, 'a')`, "reason_missing"},
		{`outbox.reconcile($1, '` + long + `', 'a')`, "reason_too_long"},
		{`outbox.review_claim($1, 'r', '` + long + `')`, "actor_too_long"},
		{`outbox.resolve($1, 'failed', NULL, 'r', 'a')`, "evidence_missing"},
		{`outbox.resolve($1, 'failed', 'null', 'r', 'a')`, "evidence_missing"},
		{`outbox.resolve($1, 'failed', '" "', 'r', 'a')`, "evidence_missing"},
		{`outbox.resolve($1, 'failed', '{}', 'r', 'a')`, "evidence_missing"},
		{`outbox.resolve($1, 'failed', to_jsonb(repeat('x', 70000)), 'r', 'a')`, "evidence_too_large"},
		{`outbox.resolve($1, 'done', '1', 'r', 'a')`, "outcome_invalid"},
		{`outbox.resolve($1, NULL, '1', 'r', 'a')`, "outcome_invalid"},
		{`outbox.resolve($1, 'failed', '1', 'r', 'a', 'ch_1')`, "result_without_success"},
		{`outbox.resolve($1, 'succeeded', '1', 'r', 'a', repeat('x', 1001))`, "result_too_large"},
		{`outbox.resolve($1, 'succeeded', '1', 'r', 'a', attempt => 2)`, "moved_on"},
		{`outbox.review_close($1, NULL, 'r', 'a')`, "evidence_missing"},
		{`outbox.replay(left($1, 6), 'r', 'a')`, "not_found"},
		{`outbox.replay(NULL, 'r' || left($1, 1), 'a')`, "not_found"},
	} {
		a, err := operate(b.ctx, b.pool, "SELECT "+operatedColumns+" FROM "+x.sql+" a", reference)
		if err != nil || a.Code != x.code || a.Answer == "done" {
			t.Errorf("%s: %+v, %v, want %s", x.sql, a, err, x.code)
		}
	}
	if after := b.ledger(reference); after != before {
		t.Errorf("it changed from\n%s\nto\n%s", before, after)
	}
}

// On another timeline the ledger may have forgotten what was sent: nobody cancels or
// replays by it before a worker has dealt with that.
func TestNothingIsDoneInALedgerThatHasMoved(t *testing.T) {
	t.Parallel()
	b := operateSetup(t)
	accepted, exhausted := b.in("accepted", "1"), b.in("exhausted", "2")
	before := b.ledger(accepted) + b.ledger(exhausted)
	b.exec(`UPDATE outbox.ledger SET system_identifier = 1, timeline = 2147483647, database = current_database()`)
	for action := range actions {
		for _, reference := range []string{accepted, exhausted} {
			if _, got := b.act(action, reference); got != "ledger_moved" {
				t.Errorf("%s: %s", action, got)
			}
		}
	}
	if after := b.ledger(accepted) + b.ledger(exhausted); after != before {
		t.Errorf("it changed from\n%s\nto\n%s", before, after)
	}
}

// What an operator decided is an outcome like any other, with its evidence beside it.
func TestAResolutionIsAnOutcomeWithItsEvidence(t *testing.T) {
	t.Parallel()
	b := operateSetup(t)
	reference := b.in("in review, claimed", "1")
	a, _ := b.act("succeeded", reference)
	if a.ClaimedBy != "bob" {
		t.Errorf("%+v does not say whose claim it was", a)
	}
	if got := b.text(`SELECT concat_ws(' ', e.state, e.attempt, e.provider_id, e.account, e.result, o.state, o.phase, o.unknown_attempt, o.review_owner)
		FROM outbox.outcomes e JOIN outbox.outbox o USING (intent_id)`); got != `succeeded 3 ch_9 acct {"receipt": 1} succeeded following` {
		t.Error(got)
	}
	if got := b.text(`SELECT evidence::text FROM outbox.history WHERE event = 'resolved_succeeded'`); got != `"seen"` {
		t.Error(got)
	}
	answer, err := outbox.Get(b.ctx, b.pool, "shop", reference)
	b.must(err)
	if answer.State != outbox.Succeeded || answer.ProviderID != "ch_9" {
		t.Errorf("the application sees %+v", answer)
	}

	// Failed for good: the key may be superseded from now on.
	reference = b.in("in review", "2")
	b.act("failed", reference)
	if got := b.text(`SELECT (outbox.enqueue('shop', 'charge_card.v1', '{"order_id":"2","amount":1}', supersedes => $1)).answer`, reference); got != "accepted" {
		t.Error(got)
	}
	// Not executed: due under the same pins, and with nothing unknown left.
	reference = b.in("in review", "3")
	b.act("not_executed", reference)
	if got := b.text(`SELECT concat_ws(' ', o.state, o.phase, o.account, o.request_hash, o.sends, o.unknown_attempt, o.review_since, o.review_reason, o.next_at <= now())
		FROM outbox.outbox o JOIN outbox.intents i ON i.id = o.intent_id WHERE i.reference = $1`, reference); got != `failed_retryable due acct \x01 2 t` {
		t.Error(got)
	}
}

func TestAReplayHasAnAttemptAndAnEntryOfItsOwn(t *testing.T) {
	t.Parallel()
	b := operateSetup(t)
	reference := b.in("exhausted", "1")
	for range 2 {
		if _, got := b.act("replay", reference); got != "attempts_anew>failed_retryable" {
			t.Fatal(got)
		}
		if got := b.text(`SELECT concat_ws(' ', attempt, sends, account) FROM outbox.outbox`); !strings.HasSuffix(got, " 0 acct") {
			t.Error(got)
		}
		b.exec(`UPDATE outbox.outbox SET state = 'exhausted', phase = 'parked', next_at = NULL, attempt = attempt + 1, sends = 1`)
	}
	if got := b.text(`SELECT string_agg(concat_ws(' ', attempt, event), ', ' ORDER BY at) FROM outbox.history`); got != "3 replayed, 4 replayed" {
		t.Error(got)
	}
}

func TestAPausedLaneStaysPaused(t *testing.T) {
	t.Parallel()
	b := operateSetup(t)
	reference := b.in("exhausted", "1")
	lane := func(sql string) string {
		return b.text(`SELECT concat_ws(' ', answer, code, paused_until IS NOT NULL) FROM outbox.` + sql)
	}
	for _, x := range []struct{ sql, want string }{
		{`resume_lane('payments', 'r', 'ann')`, "refused not_paused f"},
		{`pause_lane('payments', '', 'ann')`, "refused reason_missing f"},
		{`pause_lane('payments', 'r', 'ann', now() - interval '1 s')`, "refused until_passed f"},
		{`pause_lane('nowhere', 'r', 'ann')`, "not_found not_found f"},
		{`pause_lane('payments', 'r', 'ann', now() + interval '1 hour')`, "done t"},
		{`pause_lane('payments', 'r', 'bob', now() + interval '1 minute')`, "refused paused_longer t"},
		{`pause_lane('payments', 'the provider is down', 'bob')`, "done t"},
	} {
		if got := lane(x.sql); got != x.want {
			t.Errorf("%s: %s, want %s", x.sql, got, x.want)
		}
	}
	if a, _ := b.act("replay", reference); !strings.Contains(a.Hint, "paused") {
		t.Errorf("%+v does not say that nothing happens yet", a)
	}
	if got := b.text(`SELECT concat_ws(' ', paused_until, pause_reason, paused_by) FROM outbox.lanes WHERE name = 'payments'`); got != "infinity the provider is down bob" {
		t.Error(got)
	}
	if got := lane(`resume_lane('payments', 'it is back', 'ann')`); got != "done f" {
		t.Error(got)
	}
	if got := b.text(`SELECT string_agg(concat_ws(' ', action, actor, reason), ', ' ORDER BY at) FROM outbox.lane_history`); got != "paused ann r, paused bob the provider is down, resumed ann it is back" {
		t.Error(got)
	}
}

// refusedBy reports the SQLSTATE with which a role is refused, or "".
func (b *operateBundle) refusedBy(role, sql string) string {
	b.t.Helper()
	tx, err := b.pool.Begin(b.ctx)
	b.must(err)
	defer func() { _ = tx.Rollback(b.ctx) }()
	_, err = tx.Exec(b.ctx, "SET LOCAL ROLE "+role)
	b.must(err)
	_, err = tx.Exec(b.ctx, sql)
	return sqlstate(err)
}

func TestOperatorsActThroughFunctionsOnlyAndApplicationsNotAtAll(t *testing.T) {
	t.Parallel()
	b := operateSetup(t)
	reference := b.in("in review", "1")
	b.in("not followed", "2")
	b.exec(`SELECT outbox.pause_lane('mail', 'r', 'a')`)
	calls := []string{
		`SELECT outbox.pause_lane('payments', 'r', 'a')`, `SELECT outbox.resume_lane('payments', 'r', 'a')`,
		`SELECT outbox.money_of('{}', '{}')`, `SELECT outbox.replay_verdict(NULL, NULL, NULL)`,
	}
	for _, call := range actions {
		calls = append(calls, "SELECT "+strings.NewReplacer("$1", "'"+reference+"'", "$2", "'r'", "$3", "'a'").Replace(call))
	}
	for _, call := range calls {
		for role, want := range map[string]string{"outbox_operator": "", "outbox_app": "42501", "outbox_worker": "42501", "outbox_retention": "42501"} {
			if role == "outbox_retention" && strings.Contains(call, "money_of") {
				want = "" // it reads the amount before it takes the payload, and changes nothing by it
			}
			if got := b.refusedBy(role, call); got != want {
				t.Errorf("%s: %s: %q, want %q", role, call, got, want)
			}
		}
	}
	for _, table := range []string{"intents", "outbox", "outcomes", "history", "repeats", "approvals", "lanes", "lane_history", "catalog", "heads", "ledger"} {
		for _, sql := range []string{"DELETE FROM outbox." + table, "INSERT INTO outbox." + table + " DEFAULT VALUES", "TRUNCATE outbox." + table} {
			if got := b.refusedBy("outbox_operator", sql); got != "42501" {
				t.Errorf("outbox_operator: %s: %q", sql, got)
			}
		}
	}
	for _, sql := range []string{
		`UPDATE outbox.outbox SET state = 'accepted'`, `UPDATE outbox.history SET actor = 'x'`, `UPDATE outbox.lanes SET paused_until = NULL`,
		`SELECT outbox.hold('x', 'r', 'a')`, `SELECT outbox.remember(NULL, NULL, NULL, NULL, NULL, NULL)`, `SELECT outbox.wake(1)`,
	} {
		if got := b.refusedBy("outbox_operator", sql); got != "42501" {
			t.Errorf("outbox_operator: %s: %q", sql, got)
		}
	}
	// Not even the owner rewrites what operators did.
	for _, sql := range []string{`UPDATE outbox.lane_history SET actor = 'x'`, `DELETE FROM outbox.lane_history`, `TRUNCATE outbox.lane_history`} {
		if _, err := b.pool.Exec(b.ctx, sql); sqlstate(err) != "42501" {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

func TestMoneyIsFoundWhereTheCatalogPoints(t *testing.T) {
	t.Parallel()
	b := operateSetup(t)
	for _, x := range []struct{ payload, amount, currency, want string }{
		{`{"amount":1200,"currency":"EUR"}`, "/amount", "/currency", "1200 EUR"},
		{`{"amount":"12.34"}`, "/amount", "", "12.34"},
		{`{"a/b":{"m~n":["x",7]}}`, "/a~1b/m~0n/1", "", "7"},
		{`{"amount":-5,"currency":"EUR"}`, "/amount", "/currency", "-5 EUR"},
		{`{"amount":"much","currency":"EUR"}`, "/amount", "/currency", ""},
		{`{"amount":{"x":1}}`, "/amount", "/currency", ""},
		{`{}`, "/amount", "/currency", ""},
		{`{"amount":1}`, "", "", ""},
	} {
		spec := "{}"
		if x.amount != "" {
			spec = fmt.Sprintf(`{"money":{"amount":%q,"currency":%q}}`, x.amount, x.currency)
		}
		if got := b.text(`SELECT concat_ws(' ', amount, currency) FROM outbox.money_of($1::text::json, $2::text::jsonb)`, x.payload, spec); got != x.want {
			t.Errorf("%+v: %q", x, got)
		}
	}
	if got := b.text(`SELECT concat_ws(' ', amount, currency) FROM outbox.money_of(NULL, '{"money":{"amount":"/a"}}')`); got != "" {
		t.Errorf("of a tombstone: %q", got)
	}
}
