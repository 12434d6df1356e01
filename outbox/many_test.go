package outbox_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/outbox"
)

func (b *testBundle) enqueueMany(db outbox.Querier, ins []outbox.Intent) []outbox.Answer {
	b.t.Helper()
	answers, err := outbox.EnqueueMany(b.ctx, db, ins)
	b.must(err)
	if len(answers) != len(ins) {
		b.t.Fatalf("%d answers to %d intents", len(answers), len(ins))
	}
	return answers
}

// Thousands in one call, each with its own answer, in the order given, whatever the
// others get.
func TestABulkAnswersEachInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	settled := b.accept(charge("settled", 1))
	b.settle(settled, outbox.Succeeded)
	open := b.accept(charge("open", 1))
	expired := b.accept(charge("expired", 1))
	b.settle(expired, outbox.Cancelled)
	b.trim(expired)
	failed := b.accept(charge("failed", 1))
	b.settle(failed, outbox.FailedFinal)

	const n = 3000
	ins, want := make([]outbox.Intent, n), make([]outbox.Answer, n)
	at := time.Date(2031, 2, 3, 4, 5, 6, 789000, time.FixedZone("", 3600))
	for i := range ins {
		in := charge(fmt.Sprintf("bulk %d", i), i)
		kind := outbox.Answer{Kind: outbox.AnswerAccepted, State: outbox.Accepted, Operation: "charge.v1"}
		switch i % 10 {
		case 1:
			in, kind.Reference = charge("settled", 1), settled
			kind.Kind, kind.State, kind.Attempt, kind.ProviderID = outbox.AnswerSettled, outbox.Succeeded, 1, "ch_1"
		case 2:
			in, kind.Reference = charge("open", 1), open
			kind.Kind = outbox.AnswerInFlight
		case 3:
			in, kind.Reference = charge("open", 2), open
			kind.Kind, kind.Code, kind.Differs = outbox.AnswerConflict, "payload_differs", []string{"/amount"}
		case 4:
			in, kind.Reference = charge("expired", 1), expired
			kind.Kind, kind.State, kind.Attempt = outbox.AnswerExpired, outbox.Cancelled, 1
		case 5:
			in.Payload = raw(`{"amount": %d}`, i)
			kind = outbox.Answer{Kind: outbox.AnswerRefused, Code: "key_field_missing", Path: "/order"}
		case 6:
			in.Payload = raw(`{"order": "\ud800"}`)
			kind = outbox.Answer{Kind: outbox.AnswerRefused, Code: "lone_surrogate", Path: "/order"}
		case 7:
			in = search(fmt.Sprint(i))
			in.Operation, in.Subject = "ask.v1", "ada"
			kind.Operation = "ask.v1"
		case 8:
			in.Operation = "nothing.v1"
			kind = outbox.Answer{Kind: outbox.AnswerRefused, Code: "operation_unknown"}
		}
		ins[i], want[i] = in, kind
	}
	ins[0].NotBefore, ins[0].Deadline, ins[0].Priority, ins[0].Task, ins[0].Trace = at, at.Add(time.Hour), -7, "task", "trace"
	ins[0].Subject, ins[0].Parent, ins[0].Principal = `"sub" ü`, open, []string{"a", "b,c", `"`}
	ins[9] = superseding(failed, "failed", 2)

	tx := b.begin()
	answers := b.enqueueMany(tx, ins)
	for i, a := range answers {
		if a.Kind == outbox.AnswerAccepted {
			want[i].Reference = a.Reference // checked below
		}
		if told := a.Hint != ""; told == (a.Kind == outbox.AnswerAccepted || a.Kind == outbox.AnswerSettled || a.Kind == outbox.AnswerExpired) {
			t.Fatalf("%d: hint %q to %s", i, a.Hint, a.Kind)
		}
		a.Hint, a.CreatedAt, a.SettledAt, a.Result = "", time.Time{}, time.Time{}, nil
		if !reflect.DeepEqual(a, want[i]) {
			t.Fatalf("%d:\n%+v, want\n%+v", i, a, want[i])
		}
	}
	if got := answers[1].Result; string(got) != `{"status":"paid","fee":7}` {
		t.Errorf("result %s", got)
	}
	b.must(tx.Commit(b.ctx))
	accepted := n / 10 * 3 // remainders 0, 7, 9
	b.wantRows(rows{intents: 4 + accepted, open: 1 + accepted, outcomes: 3, repeats: n / 10 * 4, heads: n/10 + 1})
	for i := 0; i < n; i += 10 {
		if a := b.get("acme", answers[i].Reference); a.Kind != outbox.AnswerInFlight || answers[i].Reference != b.reference(ins[i], fmt.Sprintf(`["bulk %d"]`, i), 1) {
			t.Fatalf("%d: %+v", i, a)
		}
	}
	if got := query[string](b, `SELECT concat_ws('|', not_before AT TIME ZONE 'UTC', deadline AT TIME ZONE 'UTC', priority, task, trace, subject, principal, parent_id IS NOT NULL)
		FROM outbox.intents WHERE reference = $1`, answers[0].Reference); got != `2031-02-03 03:05:06.000789|2031-02-03 04:05:06.000789|-7|task|trace|"sub" ü|{a,"b,c","\""}|t` {
		t.Errorf("recorded: %s", got)
	}
}

// There is a short way for what is plain and a long one for everything else, and nobody can
// tell by the rows which one it was.
func TestEveryWayRecordsTheSame(t *testing.T) {
	t.Parallel()
	b := setup(t)
	at := time.Date(2031, 2, 3, 4, 5, 6, 789000, time.UTC)
	record := map[string]func(in outbox.Intent) outbox.Answer{
		"one":    b.enqueue,
		"many":   func(in outbox.Intent) outbox.Answer { return b.enqueueMany(b.app, []outbox.Intent{in})[0] },
		"SQL":    b.sqlEnqueue,
		"nowait": func(in outbox.Intent) outbox.Answer { in.NoWait = true; return b.enqueue(in) },
		"database/sql": func(in outbox.Intent) outbox.Answer {
			a, err := outbox.EnqueueSQL(b.ctx, stdlibDB(b), in)
			b.must(err)
			return a
		},
	}
	full := outbox.Intent{
		Subject: "s", Principal: []string{"p", `q "\{,}' NULL`, "", "NULL", "\n"}, Task: "t", NotBefore: at, Deadline: at.Add(time.Second), Priority: 100, Trace: "tr",
	}
	for _, base := range []outbox.Intent{{}, full} {
		for _, x := range []struct {
			operation, id, payload string
		}{
			{"charge.v1", "", `{"b": [1, "é"], "order": "1\u00e9\"", "a": 2.50}`},
			{"charge.v2", "", `{"order": 17.0}`},
			{"book.v1", "", `{"order": "1"}`},
			{"pay.v1", "", `{"order": "1"}`},
			{"bill.v1", "", `{"order": "1", "options": {}}`},
			{"transfer.v1", "", `{"from": {"iban": "DE1"}, "we\"ird name,}": "a", "number": 2}`},
			{"mail.v1", `id "1" é`, `{}`},
			{"ask.v1", "", `{"order": "1"}`},
		} {
			in := base
			in.Operation, in.OperationID, in.Payload = x.operation, x.id, raw("%s", x.payload)
			if x.operation == "ask.v1" {
				in.Subject, in.Principal = "s", []string{"p", "q"}
			}
			var answers []outbox.Answer
			for by, enqueue := range record {
				in.Tenant = by
				a := enqueue(in)
				name := strings.TrimSuffix(strings.TrimSuffix(x.operation, ".v1"), ".v2")
				if name == "book" {
					name = x.operation // its versions are separated
				}
				if want := outbox.Reference(b.ledger, by, name, b.keyOf(a.Reference), 1); a.Reference != want {
					t.Errorf("%s, %s: reference %s, want %s", x.operation, by, a.Reference, want)
				}
				a.Reference, a.CreatedAt = "", time.Time{}
				answers = append(answers, a)
			}
			for _, a := range answers {
				if a.Kind != outbox.AnswerAccepted || !reflect.DeepEqual(a, answers[0]) {
					t.Errorf("%s: %+v and %+v", x.operation, a, answers[0])
				}
			}
			rows := list[string](b, `SELECT DISTINCT (to_jsonb(i) - '{id,tenant,reference,created_at}'::text[])::text || ' ' || i.payload::text
				|| (to_jsonb(o) - CASE WHEN i.not_before IS NULL THEN '{intent_id,tenant,next_at}' ELSE '{intent_id,tenant}' END::text[])::text || (o.next_at = coalesce(i.not_before, i.created_at))
				FROM outbox.intents i JOIN outbox.outbox o ON o.intent_id = i.id JOIN outbox.catalog c ON c.id = i.catalog_id WHERE c.operation = $1`, x.operation)
			if n := query[int](b, "SELECT count(*) FROM outbox.outbox o JOIN outbox.catalog c ON c.id = o.catalog_id WHERE c.operation = $1", x.operation); len(rows) != 1 || n != len(record) {
				t.Errorf("%s: %d kinds of %d rows:\n%s", x.operation, len(rows), n, strings.Join(rows, "\n"))
			}
		}
		b.exec("SET session_replication_role = replica; DELETE FROM outbox.intents; DELETE FROM outbox.outbox; DELETE FROM outbox.heads; SET session_replication_role = DEFAULT")
	}
}

func (b *testBundle) keyOf(reference string) string {
	b.t.Helper()
	return query[string](b, "SELECT key FROM outbox.intents WHERE reference = $1", reference)
}

// Nor by the answer to a repeat, and what is recorded of it.
func TestEveryWayAnswersARepeatAlike(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.accept(charge("open", 1))
	b.settle(b.accept(charge("settled", 1)), outbox.Succeeded)
	expired := b.accept(charge("expired", 1))
	b.settle(expired, outbox.Cancelled)
	b.trim(expired)
	failed := b.accept(charge("again", 1))
	b.settle(failed, outbox.FailedFinal)
	b.accept(superseding(failed, "again", 2))
	other := charge("open", 2)
	other.Operation = "charge.v2"
	for name, x := range map[string]struct {
		in   outbox.Intent
		want outbox.AnswerKind
	}{
		"open":                            {charge("open", 1), outbox.AnswerInFlight},
		"settled":                         {charge("settled", 1), outbox.AnswerSettled},
		"expired":                         {charge("expired", 1), outbox.AnswerExpired},
		"another payload":                 {charge("open", 2), outbox.AnswerConflict},
		"another payload, other version":  {other, outbox.AnswerConflict},
		"another payload, settled":        {charge("settled", 2), outbox.AnswerConflict},
		"another payload, expired":        {charge("expired", 2), outbox.AnswerConflict},
		"superseded":                      {charge("again", 1), outbox.AnswerConflict},
		"what superseded it":              {charge("again", 2), outbox.AnswerInFlight},
		"what superseded it, by its name": {superseding(failed, "again", 2), outbox.AnswerInFlight},
	} {
		before := b.rows()
		var answers []outbox.Answer
		answers = append(answers, b.enqueue(x.in), b.sqlEnqueue(x.in), b.enqueueMany(b.app, []outbox.Intent{x.in})[0],
			b.enqueueMany(b.app, []outbox.Intent{x.in, search(name)})[0])
		x.in.NoWait = true
		answers = append(answers, b.enqueue(x.in))
		for i, a := range answers {
			if a.Kind != x.want || !reflect.DeepEqual(a, answers[0]) {
				t.Errorf("%s, way %d:\n%+v, want %s as in\n%+v", name, i, a, x.want, answers[0])
			}
		}
		id := query[int64](b, "SELECT id FROM outbox.intents WHERE reference = $1", answers[0].Reference)
		if got := list[string](b, `SELECT answer || principal::text FROM (SELECT * FROM outbox.repeats WHERE intent_id = $1 ORDER BY at DESC LIMIT 5) r`, id); !slices.Equal(slices.Compact(got), []string{string(x.want) + "{shop}"}) {
			t.Errorf("%s: recorded %v", name, got)
		}
		before.intents, before.open, before.heads, before.repeats = before.intents+1, before.open+1, before.heads+1, before.repeats+len(answers)
		b.wantRows(before)
	}
}

// A releaser that sleeps is told of what is due, and only then: a notification takes a
// lock at commit that all transactions want.
func TestOnlyASleepingReleaserIsNotified(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn, err := b.owner.Acquire(b.ctx)
	b.must(err)
	defer conn.Release()
	_, err = conn.Exec(b.ctx, "LISTEN outbox_due")
	b.must(err)
	lane := query[string](b, "SELECT id::text FROM outbox.lanes")
	// told returns how often it was, up to a notification of the test's own.
	told := func() (n int) {
		b.t.Helper()
		b.exec("SELECT pg_notify('outbox_due', 'end')")
		for {
			got, err := conn.Conn().WaitForNotification(b.ctx)
			b.must(err)
			if got.Payload == "end" {
				return n
			}
			if got.Payload != lane {
				t.Errorf("payload %q, want the lane %s", got.Payload, lane)
			}
			n++
		}
	}
	enqueueAll := func(name string) {
		b.accept(charge(name+" Go", 1))
		b.sqlEnqueue(charge(name+" SQL", 1))
		b.accept(search(name))
		b.enqueueMany(b.app, []outbox.Intent{charge(name+" many", 1)})
		b.enqueue(charge(name+" Go", 1)) // a repeat
		in := charge(name, 1)
		in.Operation = "pay.v1" // waits for approval
		b.accept(in)
		b.sqlEnqueue(outbox.Intent{Tenant: "acme", Operation: "pay.v1", Payload: raw(`{"order": "%s SQL"}`, name)})
	}
	enqueueAll("awake")
	if n := told(); n != 0 {
		t.Errorf("told %d times while awake", n)
	}
	b.exec("UPDATE outbox.lanes SET asleep = true")
	enqueueAll("asleep")
	if n := told(); n != 4 {
		t.Errorf("told %d times of 4 that are due", n)
	}
	tx := b.begin()
	b.enqueueIn(tx, charge("rolled back", 1))
	b.must(tx.Rollback(b.ctx))
	if n := told(); n != 0 {
		t.Errorf("told %d times of what was rolled back", n)
	}
}

// Within a bulk too, the first of a key is new and the others ask again.
func TestDuplicatesWithinABulk(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ins := []outbox.Intent{
		charge("1", 1), search("rain"), charge("1", 1), charge("1", 2), search("rain"), charge("2", 1), charge("1", 1),
	}
	var kinds []outbox.AnswerKind
	for _, a := range b.enqueueMany(b.app, ins) {
		kinds = append(kinds, a.Kind)
	}
	want := []outbox.AnswerKind{"accepted", "accepted", "in_flight", "conflict", "in_flight", "accepted", "in_flight"}
	if !slices.Equal(kinds, want) {
		t.Errorf("%v, want %v", kinds, want)
	}
	b.wantRows(rows{intents: 3, open: 3, repeats: 4, heads: 1})
}

func TestAnEmptyBulkAsksNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if a := b.enqueueMany(nil, nil); len(a) != 0 { // no database is needed
		t.Errorf("%+v", a)
	}
	refused := b.enqueueMany(nil, []outbox.Intent{{Tenant: "acme", Operation: "charge.v1"}})
	if refused[0].Code != "payload_missing" {
		t.Errorf("%+v", refused)
	}
	if n := query[int](b, "SELECT count(*) FROM outbox.enqueue_many('[]')"); n != 0 {
		t.Errorf("%d answers to none", n)
	}
	_, err := outbox.EnqueueMany(b.ctx, nil, []outbox.Intent{charge("1", 1), {Payload: func() {}}})
	if err == nil || !strings.HasPrefix(err.Error(), "intent 1: outbox: payload") {
		t.Errorf("a payload that is no JSON: %v", err)
	}
}

// In plain SQL a bulk is JSON, and one bad element does not hold up the others.
func TestABulkInSQLAnswersBadElementsToo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var got []string
	rows, err := b.app.Query(b.ctx, `SELECT concat_ws(' ', a.answer, a.code) FROM outbox.enqueue_many($1) a`, `[
		{"tenant": "acme", "operation": "charge.v1", "payload": "{\"order\": \"1\"}"},
		{"tenant": "acme", "operation": "charge.v1", "payload": "{\"order\": \"2\"}", "priority": "high"},
		{"tenant": "acme", "operation": "charge.v1", "payload": "{\"order\": \"3\"}", "deadline": "soon"},
		{"tenant": "ac\u0000me", "operation": "charge.v1", "payload": "{\"order\": \"4\"}"},
		{"tenant": "acme", "operation": "charge.v1", "payload": "{\"order\": \"5\"}", "principal": "ada"},
		{"tenant": "acme", "operation": "charge.v1", "payload": "{\"order\": \"6\"}", "digest": "\\xzz"},
		{"tenant": "acme", "operation": "charge.v1", "payload": {"order": "7", "amount": 2.0}},
		{"tenant": "acme", "operation": "charge.v1"},
		17, null, [], "text", {},
		{"tenant": "acme", "operation": "charge.v1", "payload": "{\"order\": \"8\"}", "principal": ["ada"], "not_before": "2031-01-01T00:00:00Z"}
	]`)
	b.must(err)
	for rows.Next() {
		var s string
		b.must(rows.Scan(&s))
		got = append(got, s)
	}
	b.must(rows.Err())
	want := []string{
		"accepted", "refused request_invalid", "refused request_invalid", "refused request_invalid", "refused request_invalid", "refused request_invalid",
		"accepted", "refused payload_missing", "refused request_invalid", "refused request_invalid", "refused request_invalid", "refused request_invalid",
		"refused tenant_invalid", "accepted",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want\n%q", got, want)
	}
	if n := b.rows(); n.intents != 3 {
		t.Errorf("%+v", n)
	}
}

// Two bulks with the same keys, each in the other's opposite order: one waits for the
// other, and none is the victim of a deadlock.
func TestBulksInOppositeOrdersDoNotDeadlock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const rounds, keys = 250, 8
	parent := b.accept(charge("parent", 1))
	for round := range rounds {
		var ins []outbox.Intent
		for k := range keys {
			if k%2 == 0 {
				ins = append(ins, charge(fmt.Sprintf("%d.%d", round, k), 1))
			} else {
				ask := search(fmt.Sprintf("%d.%d", round, k))
				ask.Operation, ask.Subject = "ask.v1", "ada" // its scopes sort before charge's
				ins = append(ins, ask)
			}
		}
		reversed := slices.Clone(ins)
		if round%2 == 0 { // what goes one by one in this bulk goes with the others in that one
			ins[0].Parent, reversed[2].Parent = parent, parent
		}
		if round%4 == 0 {
			reversed[2].Parent = ""
		}
		slices.Reverse(reversed)
		var both sync.WaitGroup
		var first, second []outbox.Answer
		var err1, err2 error
		start := make(chan struct{})
		both.Go(func() { <-start; first, err1 = outbox.EnqueueMany(b.ctx, b.app, ins) })
		both.Go(func() { <-start; second, err2 = outbox.EnqueueMany(b.ctx, b.app, reversed) })
		close(start)
		both.Wait()
		b.must(err1)
		b.must(err2)
		slices.Reverse(second)
		accepted := 0
		for k := range keys {
			if first[k].Reference != second[k].Reference {
				t.Fatalf("round %d, key %d: %+v and %+v", round, k, first[k], second[k])
			}
			for _, a := range []outbox.Answer{first[k], second[k]} {
				if a.Kind == outbox.AnswerAccepted {
					accepted++
				}
			}
		}
		if accepted != keys { // all of one bulk: they were one after the other
			t.Fatalf("round %d: %d of %d accepted", round, accepted, keys)
		}
	}
	b.wantRows(rows{intents: 1 + rounds*keys, open: 1 + rounds*keys, repeats: rounds * keys, heads: rounds * keys / 2})
}

func TestABulkThroughDatabaseSQLCommitsWithItsTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ins := []outbox.Intent{charge("first", 1), {Tenant: "acme", Operation: "nothing.v1", Payload: raw(`{}`)}, charge("first", 1), charge("first", 2)}
	want := []outbox.AnswerKind{outbox.AnswerAccepted, outbox.AnswerRefused, outbox.AnswerInFlight, outbox.AnswerConflict}
	for _, commit := range []bool{false, true} {
		tx, err := stdlibDB(b).BeginTx(b.ctx, nil)
		b.must(err)
		answers, err := outbox.EnqueueManySQL(b.ctx, tx, ins)
		b.must(err)
		for i, a := range answers {
			if a.Kind != want[i] {
				t.Errorf("intent %d: %+v, want %s", i, a, want[i])
			}
		}
		if !commit {
			b.must(tx.Rollback())
			b.wantRows(rows{})
			continue
		}
		b.must(tx.Commit())
		b.wantRows(rows{intents: 1, open: 1, repeats: 2})
	}
}
