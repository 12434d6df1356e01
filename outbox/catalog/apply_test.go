package catalog_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

const untouched = "unchanged payments, unchanged mail, unchanged charge_card.v1#1, unchanged send_receipt.v1#1"

func TestApplyTwiceAddsNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	if got := summary(apply(t, pool, shop)); got != "added payments, added mail, added charge_card.v1#1, added send_receipt.v1#1" {
		t.Error(got)
	}
	before := rows(t, pool)
	if got := summary(apply(t, pool, shop)); got != untouched {
		t.Error(got)
	}
	spelledOut := strings.Replace(shop, "    money:", "    # a comment\n    max_payload: 65536\n    retry: {max: 300s}\n    money:", 1)
	if got := summary(apply(t, pool, spelledOut)); got != untouched {
		t.Error(got)
	}
	if after := rows(t, pool); after != before {
		t.Errorf("\nbefore: %s\n after: %s", before, after)
	}
}

func TestApplyAddsARevision(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	apply(t, pool, shop)
	before := rows(t, pool)
	changed := strings.NewReplacer("minimum: 1", "minimum: 50", "payments-oncall", "treasury").Replace(shop)
	want := "unchanged payments, unchanged mail, revised charge_card.v1#2(/input/properties/amount/minimum /review/owner), unchanged send_receipt.v1#1"

	plan, err := catalog.Plan(t.Context(), pool, parse(t, changed))
	if err != nil || summary(plan) != want {
		t.Errorf("plan: %s, %v", summary(plan), err)
	}
	if after := rows(t, pool); after != before {
		t.Errorf("the plan has changed\nbefore: %s\n after: %s", before, after)
	}
	if got := summary(apply(t, pool, changed)); got != want {
		t.Errorf("apply: %s", got)
	}
	if after := rows(t, pool); !strings.HasPrefix(after, before) || len(after) == len(before) {
		t.Errorf("old rows have changed, or none was added\nbefore: %s\n after: %s", before, after)
	}
	// And back: a third revision that is like the first.
	if got := summary(apply(t, pool, shop)); !strings.Contains(got, "revised charge_card.v1#3") {
		t.Errorf("back: %s", got)
	}
}

func TestApplyChangesALaneInPlace(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	apply(t, pool, shop)
	if _, err := pool.Exec(t.Context(), "UPDATE outbox.lanes SET paused_until = 'infinity', pause_reason = 'audit' WHERE name = 'payments'"); err != nil {
		t.Fatal(err)
	}
	got := summary(apply(t, pool, strings.Replace(shop, "rate: 50", "concurrency: 5", 1)))
	if want := "revised payments(/burst /concurrency /rate), unchanged mail, unchanged charge_card.v1#1, unchanged send_receipt.v1#1"; got != want {
		t.Error(got)
	}
	var lane string
	if err := pool.QueryRow(t.Context(), "SELECT concat_ws(' ', concurrency, coalesce(rate::text, 'no rate'), burst, paused_until, pause_reason) FROM outbox.lanes WHERE name = 'payments'").Scan(&lane); err != nil {
		t.Fatal(err)
	}
	if lane != "5 no rate 1 infinity audit" {
		t.Errorf("a pause must survive: %s", lane)
	}
}

func TestApplyAtOnceGivesOneRevision(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	var wait sync.WaitGroup
	added := make(chan string, 64)
	c := parse(t, shop)
	for range 6 {
		wait.Go(func() {
			changes, err := catalog.Apply(t.Context(), pool, c, "ada")
			if err != nil {
				t.Error(err)
			}
			for _, change := range changes {
				if change.What != catalog.Unchanged {
					added <- change.Lane + change.Operation
				}
			}
		})
	}
	wait.Wait()
	if len(added) != 4 {
		t.Errorf("%d things were added, not 4", len(added))
	}
	if got := strings.Count(rows(t, pool), "\n"); got != 2 {
		t.Errorf("%d revisions, not 2", got)
	}
}

func TestApplyKeepsWhatTheFileDoesNotMention(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	apply(t, pool, shop)
	if got := summary(apply(t, pool, "lanes: {}\noperations: []")); got != "kept charge_card.v1#1, kept send_receipt.v1#1" {
		t.Error(got)
	}
	apply(t, pool, strings.NewReplacer("    money:", "    retired: true\n    money:").Replace(shop))
	if got := summary(apply(t, pool, "lanes: {}\noperations: []")); got != "kept send_receipt.v1#1" {
		t.Error(got)
	}
}

func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	_, shopOperations, _ := strings.Cut(shop, "operations:\n")
	_, receipt, _ := strings.Cut(shopOperations, "  - name: send_receipt\n")
	receipt = "lanes: {mail: {provider: mail}}\noperations:\n  - name: send_receipt\n" + receipt
	noReceipt, _, _ := strings.Cut(shop, "  - name: send_receipt\n")

	for _, test := range []struct {
		name, first, then, want string
	}{
		{
			"a follow-on that exists nowhere", "", noReceipt,
			"catalog.yaml:24: /operations/0/follow_ons/0/operation: there is no operation send_receipt.v1, neither in the file nor in the database (known here: charge_card.v1)",
		},
		{"nothing when the database has the follow-on", receipt, noReceipt, ""},
		{
			"a follow-on that the database has retired", receipt + "    retired: true\n", noReceipt,
			"catalog.yaml:24: /operations/0/follow_ons/0/operation: send_receipt.v1 is retired (retire what follows no earlier than what it follows)",
		},
		{
			"to retire what follows an operation that is kept", shop, receipt + "    retired: true\n",
			"catalog.yaml: charge_card.v1 (in the database): send_receipt.v1 is retired (retire what follows no earlier than what it follows)",
		},
		{
			"a circle through the database", shop, receipt + "    follow_ons: [{name: again, operation: charge_card.v1, payload: '{}'}]\n",
			"catalog.yaml: charge_card.v1 (in the database): the follow-ons go round in a circle: send_receipt.v1 → charge_card.v1 → send_receipt.v1 (an intent without end would follow)",
		},
		{
			"a version that forms its keys unlike that in the database", shop,
			strings.NewReplacer("version: 1", "version: 2", "rule: operation_id", "rule: arguments").Replace(receipt),
			"catalog.yaml: send_receipt.v1 (in the database): send_receipt.v2 and send_receipt.v1 share their keys but form them differently (use the same rule, number of fields and per_subject, or say per_version: true if both may happen)",
		},
		{"another key while there are no intents: nothing", shop, strings.Replace(shop, "rule: operation_id", "rule: arguments", 1), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.DB(t)
			if test.first != "" {
				apply(t, pool, test.first)
			}
			before := rows(t, pool)
			_, err := catalog.Apply(t.Context(), pool, parse(t, test.then), "ada")
			if test.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var e *catalog.Error
			if !errors.As(err, &e) || err.Error() != test.want {
				t.Errorf("\n got: %v\nwant: %s", err, test.want)
			}
			if after := rows(t, pool); after != before {
				t.Errorf("a refused catalog has changed something\nbefore: %s\n after: %s", before, after)
			}
		})
	}
}

func TestApplyRefusesAnotherKeyOfWhatHasIntents(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	apply(t, pool, shop)
	enqueue(t, pool, "charge_card.v1", `{"order_id":"o1","amount":1}`)
	for _, change := range [][2]string{
		{"rule: business, fields: [/order_id]", "rule: operation_id"},
		{"fields: [/order_id]", "fields: [/order_id, /amount]"},
		{"fields: [/order_id]", "fields: [/amount]"},
		{"fields: [/order_id]", "per_subject: true, fields: [/order_id]"},
		{"fields: [/order_id]", "per_version: true, fields: [/order_id]"},
	} {
		_, err := catalog.Apply(t.Context(), pool, parse(t, strings.Replace(shop, change[0], change[1], 1)), "ada")
		const want = "catalog.yaml:10: /operations/0/key: charge_card.v1 has intents, so its key cannot change: a repeat of one would be a new effect " +
			"(make it a new version with per_version: true, or another operation)"
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v", change[1], err)
		}
	}
}

func TestApplyNeedsAnActor(t *testing.T) {
	t.Parallel()
	_, err := catalog.Apply(t.Context(), nil, parse(t, shop), "")
	if err == nil || err.Error() != "catalog: apply: the actor is empty" {
		t.Error(err)
	}
}

func TestApplyRefusesACatalogThatWasNotParsed(t *testing.T) {
	t.Parallel()
	c := parse(t, shop)
	c.Operations[0].Lane = "nowhere"
	_, err := catalog.Apply(t.Context(), nil, c, "ada")
	if err == nil || err.Error() != `catalog.yaml:9: /operations/0/lane: there is no lane "nowhere" (known here: payments, mail)` {
		t.Error(err)
	}
}

func TestApplyAsOperator(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "SET LOCAL ROLE outbox_operator"); err != nil {
			return err
		}
		_, err := catalog.Apply(t.Context(), tx, parse(t, shop), "ada")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := rows(t, pool); !strings.Contains(got, "by ada") {
		t.Errorf("the actor is not recorded: %s", got)
	}
}

// A pointer becomes a text-array literal that outbox.key_of must read as the same path.
func TestKeyFieldsReachTheDatabase(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	for _, name := range []string{"order_id", "order id", `a"b`, `a\b`, "NULL", "null", "a,b", "{x}", "ø", " x ", "'", "$1", "x-y"} {
		quoted := quote(name)
		text := `{"lanes": {"l": {"provider": "p"}}, "operations": [{"name": "op", "version": 1, "class": "read_only", "lane": "l",
			"key": {"rule": "business", "fields": [` + quote("/outer/"+name) + `]},
			"input": {"type": "object", "required": ["outer"], "properties": {"outer": {"type": "object", "required": [` + quoted + `],
				"properties": {` + quoted + `: {"type": "string"}}}}}}]}`
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			apply(t, tx, text)
			if got := enqueue(t, tx, "op.v1", `{"outer":{`+quoted+`:"the key"}}`); got != `["the key"]` {
				t.Errorf("%s: key %s", quoted, got)
			}
			return errRollback
		})
		if !errors.Is(err, errRollback) {
			t.Fatal(err)
		}
	}
}

func TestDefaultsReachTheDatabase(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	apply(t, pool, shop)
	enqueue(t, pool, "charge_card.v1", `{"order_id":"o1","amount":1}`)
	var payload string
	if err := pool.QueryRow(t.Context(), "SELECT payload::text FROM outbox.intents").Scan(&payload); err != nil {
		t.Fatal(err)
	}
	if payload != `{"amount":1,"currency":"eur","order_id":"o1"}` {
		t.Error(payload)
	}
}

var errRollback = errors.New("roll back")

type queryRower interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// enqueue records an intent and returns its key.
func enqueue(t *testing.T, db queryRower, operation, payload string) (key string) {
	t.Helper()
	var answer string
	err := db.QueryRow(t.Context(), "SELECT concat_ws(' ', answer, code, path, hint), reference FROM outbox.enqueue('t', $1, $2)", operation, payload).Scan(&answer, &key)
	if err != nil || answer != "accepted" {
		t.Fatalf("enqueue: %s, %v", answer, err)
	}
	if err := db.QueryRow(t.Context(), "SELECT key FROM outbox.intents WHERE reference = $1", key).Scan(&key); err != nil {
		t.Fatal(err)
	}
	return key
}

// rows writes the whole catalog table, one line a revision.
func rows(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	var all string
	err := pool.QueryRow(t.Context(), `SELECT coalesce(string_agg(concat_ws(' ', id, operation, revision, encode(digest, 'hex'), xmin, 'by ' || applied_by, spec) || E'\n', '' ORDER BY id), '') FROM outbox.catalog`).Scan(&all)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
