package outbox_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/outbox"
)

// ask enqueues through the door and holds the answer, but for its hint and times,
// against want. Then the transaction must still be good for the application's work.
func (b *testBundle) ask(d door, in outbox.Intent, want outbox.Answer) (got outbox.Answer) {
	b.t.Helper()
	got, err := d.enqueue(in)
	b.must(err)
	bare := got
	bare.Hint, bare.CreatedAt, bare.SettledAt = "", time.Time{}, time.Time{}
	if !reflect.DeepEqual(bare, want) {
		b.t.Errorf("answer\n%+v, want\n%+v", bare, want)
	}
	if told := got.Hint != ""; told != (want.Kind != outbox.AnswerAccepted && want.Kind != outbox.AnswerSettled && want.Kind != outbox.AnswerExpired) {
		b.t.Errorf("%s with the hint %q", got.Kind, got.Hint)
	}
	b.must(d.note(string(got.Kind)))
	return got
}

func (b *testBundle) reference(in outbox.Intent, key string, generation int) string {
	name, _, _ := strings.Cut(in.Operation, ".")
	return outbox.Reference(b.ledger, in.Tenant, name, key, generation)
}

// Each answer in a transaction of its own, which does other work as well, commits, and
// is looked at in the ledger.
func TestEveryWayGivesEveryAnswer(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, b *testBundle, w way) {
		paid := json.RawMessage(`{"status":"paid","fee":7}`)
		in := charge("1042", 24000)
		ref := b.reference(in, `["1042"]`, 1)
		other := in
		other.Payload = raw(`{"order": "1042", "amount": 24001, "items": [{"sku": "a/b~c"}]}`)
		notes := 0
		inTx := func(in outbox.Intent, want outbox.Answer) outbox.Answer {
			b.t.Helper()
			d := w.begin(b)
			got := b.ask(d, in, want)
			b.must(d.commit())
			notes++
			return got
		}

		first := inTx(in, outbox.Answer{Kind: outbox.AnswerAccepted, Reference: ref, State: outbox.Accepted, Operation: "charge.v1"})
		b.wantRows(rows{intents: 1, open: 1})
		if at := query[time.Time](b, "SELECT created_at FROM outbox.intents"); !at.Equal(first.CreatedAt) {
			t.Errorf("created at %s, answered %s", at, first.CreatedAt)
		}

		again := inTx(in, outbox.Answer{Kind: outbox.AnswerInFlight, Reference: ref, State: outbox.Accepted, Operation: "charge.v1"})
		if !again.CreatedAt.Equal(first.CreatedAt) {
			t.Errorf("the original's time is %s, answered %s", first.CreatedAt, again.CreatedAt)
		}
		b.hold(ref, outbox.OutcomeUnknown)
		inTx(in, outbox.Answer{Kind: outbox.AnswerInFlight, Reference: ref, State: outbox.OutcomeUnknown, Operation: "charge.v1", Attempt: 1})

		differs := []string{"/amount", "/items"}
		inTx(other, outbox.Answer{
			Kind: outbox.AnswerConflict, Reference: ref, State: outbox.OutcomeUnknown, Operation: "charge.v1", Attempt: 1,
			Code: "payload_differs", Differs: differs,
		})
		b.wantRows(rows{intents: 1, open: 1, repeats: 3})

		b.settle(ref, outbox.Succeeded)
		settled := inTx(in, outbox.Answer{
			Kind: outbox.AnswerSettled, Reference: ref, State: outbox.Succeeded, Operation: "charge.v1", Attempt: 1,
			ProviderID: "ch_1", Result: paid,
		})
		if at := query[time.Time](b, "SELECT settled_at FROM outbox.outcomes"); !at.Equal(settled.SettledAt) || !settled.CreatedAt.Equal(first.CreatedAt) {
			t.Errorf("settled at %s, answered %s; created at %s, answered %s", at, settled.SettledAt, first.CreatedAt, settled.CreatedAt)
		}
		inTx(other, outbox.Answer{
			Kind: outbox.AnswerConflict, Reference: ref, State: outbox.Succeeded, Operation: "charge.v1", Attempt: 1,
			Code: "payload_differs", Differs: differs,
		})

		b.trim(ref)
		inTx(in, outbox.Answer{
			Kind: outbox.AnswerExpired, Reference: ref, State: outbox.Succeeded, Operation: "charge.v1", Attempt: 1, ProviderID: "ch_1",
		})
		inTx(other, outbox.Answer{
			Kind: outbox.AnswerConflict, Reference: ref, State: outbox.Succeeded, Operation: "charge.v1", Attempt: 1, Code: "payload_differs",
		})

		refused := in
		refused.Payload = raw(`{"order": ""}`)
		inTx(refused, outbox.Answer{Kind: outbox.AnswerRefused, Code: "key_field_missing", Path: "/order"})

		declined := charge("1043", 1)
		failed := b.accept(declined)
		b.settle(failed, outbox.FailedFinal)
		inTx(declined, outbox.Answer{
			Kind: outbox.AnswerSettled, Reference: failed, State: outbox.FailedFinal, Operation: "charge.v1", Attempt: 1,
			Code: "card_declined", Reason: "Do not honour.",
		})
		b.wantRows(rows{intents: 2, outcomes: 2, repeats: 8})
		if n := query[int](b, "SELECT count(*) FROM public.notes"); n != notes {
			t.Errorf("%d of the application's %d rows were committed", n, notes)
		}
	})
}

func TestConflictNamesEachDifferingField(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.accept(outbox.Intent{Tenant: "acme", Operation: "charge.v1", Payload: raw(
		`{"order": "1", "same": 1, "gone": 1, "text": "a", "type": 1, "null": null, "deep": {"a": {"b/c~d": [1, 2, {"x": 1}]}}, "list": [1, 2, 3]}`)})
	for _, x := range []struct {
		claim, payload string
		want           []string
	}{
		{
			"members added, gone and changed, at any depth",
			`{"order": "1", "same": 1.0, "new": 1, "text": "b", "type": "1", "null": 0, "deep": {"a": {"b/c~d": [1, 3, {"x": 2}]}}, "list": [1, 2]}`,
			[]string{"/deep/a/b~1c~0d/1", "/deep/a/b~1c~0d/2/x", "/gone", "/list/2", "/new", "/null", "/text", "/type"},
		},
		{
			"a whole value of another type",
			`{"order": "1", "same": 1, "gone": 1, "text": "a", "type": 1, "null": null, "deep": {"a": []}, "list": {"0": 1}}`,
			[]string{"/deep/a", "/list"},
		},
		{
			"null is not the same as missing",
			`{"order": "1", "same": 1, "gone": 1, "text": "a", "type": 1, "deep": {"a": {"b/c~d": [1, 2, {"x": 1}]}}, "list": [1, 2, 3]}`,
			[]string{"/null"},
		},
		{
			"sixteen at most",
			`{"order": "1", "same": 1, "gone": 1, "text": "a", "type": 1, "null": null, "deep": {"a": {"b/c~d": [1, 2, {"x": 1}]}},
			  "list": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}`,
			strings.Fields("/list/3 /list/4 /list/5 /list/6 /list/7 /list/8 /list/9 /list/10 /list/11 /list/12 /list/13 /list/14 /list/15 /list/16 /list/17 /list/18"),
		},
	} {
		in := outbox.Intent{Tenant: "acme", Operation: "charge.v1", Payload: raw("%s", x.payload)}
		for by, a := range map[string]outbox.Answer{"Go": b.enqueue(in), "SQL": b.sqlEnqueue(in)} {
			if a.Kind != outbox.AnswerConflict || !reflect.DeepEqual(a.Differs, x.want) {
				t.Errorf("%s, in %s: %s differs in %q, want %q", x.claim, by, a.Kind, a.Differs, x.want)
			}
		}
	}
}

// While another transaction holds the key: at once is measured by the other one being
// still open, and held up by its lock on the intent.
func TestBusyIsAnsweredWhileTheOtherTransactionIsOpen(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, b *testBundle, w way) {
		for _, in := range []outbox.Intent{charge("1", 1), search("rain")} {
			patient := in
			in.NoWait = true
			for _, commits := range []bool{true, false} {
				first := b.begin()
				a := b.enqueueIn(first, patient)
				if a.Kind != outbox.AnswerAccepted {
					t.Fatalf("first: %+v", a)
				}
				d := w.begin(b)
				b.ask(d, in, outbox.Answer{Kind: outbox.AnswerBusy})
				b.ask(d, in, outbox.Answer{Kind: outbox.AnswerBusy}) // it is still usable, and as impatient
				if first.Conn().IsClosed() || first.Conn().PgConn().TxStatus() != 'T' {
					t.Error("the first transaction is not open any more")
				}
				if commits {
					b.must(first.Commit(b.ctx))
					b.ask(d, in, outbox.Answer{Kind: outbox.AnswerInFlight, Reference: a.Reference, State: outbox.Accepted, Operation: in.Operation})
				} else {
					b.must(first.Rollback(b.ctx))
					b.ask(d, in, outbox.Answer{Kind: outbox.AnswerAccepted, Reference: a.Reference, State: outbox.Accepted, Operation: in.Operation})
				}
				b.must(d.commit())
				b.exec("SET session_replication_role = replica; DELETE FROM outbox.intents; DELETE FROM outbox.outbox; DELETE FROM outbox.heads; SET session_replication_role = DEFAULT")
			}
		}
	})
}

// An impatient caller's own lock_timeout is as it was, whatever the answer.
func TestNoWaitLeavesTheLockTimeoutAsItWas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	impatient := charge("1", 1)
	impatient.NoWait = true
	tx := b.begin()
	timeout := func() (got string) {
		b.t.Helper()
		b.must(tx.QueryRow(b.ctx, "SHOW lock_timeout").Scan(&got))
		return got
	}
	_, err := tx.Exec(b.ctx, "SET lock_timeout = '7s'")
	b.must(err)
	b.ask(pgxTx{b.ctx, tx}, impatient, outbox.Answer{Kind: outbox.AnswerAccepted, Reference: b.reference(impatient, `["1"]`, 1), State: outbox.Accepted, Operation: "charge.v1"})
	if got := timeout(); got != "7s" {
		t.Errorf("after accepted: %s", got)
	}
	holder := b.begin()
	b.enqueueIn(holder, charge("2", 1))
	impatient.Payload = charge("2", 1).Payload
	b.ask(pgxTx{b.ctx, tx}, impatient, outbox.Answer{Kind: outbox.AnswerBusy})
	if got := timeout(); got != "7s" {
		t.Errorf("after busy: %s", got)
	}
}

// By default the second waits for the first, as a unique constraint does.
func TestTheSecondWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, b *testBundle, w way) {
		type result struct {
			answer outbox.Answer
			err    error
		}
		for _, in := range []outbox.Intent{charge("1", 1), search("rain")} {
			for _, commits := range []bool{true, false} {
				first := b.begin()
				b.enqueueIn(first, in)
				d := w.begin(b)
				second := make(chan result)
				go func() {
					a, err := d.enqueue(in)
					second <- result{a, err}
				}()
				b.awaitBlocked(1)
				want := outbox.AnswerAccepted
				if commits {
					want = outbox.AnswerInFlight
					b.must(first.Commit(b.ctx))
				} else {
					b.must(first.Rollback(b.ctx))
				}
				got := <-second
				b.must(got.err)
				if got.answer.Kind != want {
					t.Errorf("%s, first commits %t: %+v", in.Operation, commits, got.answer)
				}
				b.must(d.note("after waiting"))
				b.must(d.commit())
				if n := b.rows(); n.intents != 1 || n.open != 1 {
					t.Errorf("%s, first commits %t: %+v", in.Operation, commits, n)
				}
				b.exec("SET session_replication_role = replica; DELETE FROM outbox.intents; DELETE FROM outbox.outbox; DELETE FROM outbox.heads; SET session_replication_role = DEFAULT")
			}
		}
		if n := query[int](b, "SELECT count(*) FROM public.notes"); n != 4 {
			t.Errorf("%d of the application's 4 rows were committed", n)
		}
	})
}

func TestGetTellsTheTenantAndNobodyElse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.accept(charge("1", 1))
	want := func(tenant, reference string, kind outbox.AnswerKind, state outbox.State) {
		b.t.Helper()
		viaSQL, err := outbox.GetSQL(b.ctx, stdlibDB(b), tenant, reference)
		b.must(err)
		for by, a := range map[string]outbox.Answer{"pgx": b.get(tenant, reference), "database/sql": viaSQL} {
			if a.Kind != kind || a.State != state {
				t.Errorf("%s: %+v, want %s %s", by, a, kind, state)
			}
			if kind == outbox.AnswerNotFound && !reflect.DeepEqual(a, outbox.Answer{Kind: kind, Hint: a.Hint}) {
				t.Errorf("%s: not found, yet told %+v", by, a)
			}
		}
	}
	want("acme", ref, outbox.AnswerInFlight, outbox.Accepted)
	want("other", ref, outbox.AnswerNotFound, "")
	want("ACME", ref, outbox.AnswerNotFound, "")
	want("acme", strings.ToUpper(ref), outbox.AnswerNotFound, "")
	want("acme", "", outbox.AnswerNotFound, "")
	b.settle(ref, outbox.Succeeded)
	want("acme", ref, outbox.AnswerSettled, outbox.Succeeded)
	want("other", ref, outbox.AnswerNotFound, "")
	b.trim(ref)
	want("acme", ref, outbox.AnswerExpired, outbox.Succeeded)
	b.wantRows(rows{intents: 1, outcomes: 1}) // asking for the status is no repeat
}

func TestEveryRepeatIsRecorded(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, b *testBundle, w way) {
		ask := func(in outbox.Intent, by string) {
			b.t.Helper()
			in.Principal = []string{by, "host"}
			d := w.begin(b)
			_, err := d.enqueue(in)
			b.must(err)
			b.must(d.commit())
		}
		before := query[time.Time](b, "SELECT clock_timestamp()")
		in := charge("1", 1)
		ask(in, "ada")
		ref := b.reference(in, `["1"]`, 1)
		ask(in, "bob")
		ask(charge("1", 2), "cyn")
		b.settle(ref, outbox.Succeeded)
		ask(in, "dan")
		ask(charge("1", 2), "eve")
		b.trim(ref)
		ask(in, "fay")
		if got, want := b.repeats(ref), "in_flight by bob, conflict by cyn, settled by dan, conflict by eve, expired by fay"; got != want {
			t.Errorf("repeats: %s, want %s", got, want)
		}
		if n := query[int](b, "SELECT count(*) FROM outbox.repeats WHERE at BETWEEN $1 AND clock_timestamp() AND principal[2] = 'host'", before); n != 5 {
			t.Errorf("%d of 5 repeats have their time and whole principal", n)
		}
		if w.transactions { // one that is taken back was never given
			d := w.begin(b)
			_, err := d.enqueue(in)
			b.must(err)
			b.must(d.rollback())
		}
		b.wantRows(rows{intents: 1, outcomes: 1, repeats: 5})
	})
}

func TestAnAnswerSaysWhatItKnowsAsJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	text, err := json.Marshal(outbox.Answer{
		Kind: outbox.AnswerSettled, Reference: "ref", State: outbox.Succeeded, Operation: "charge.v1", Attempt: 2,
		ProviderID: "ch_1", Result: json.RawMessage(`{"fee":7}`), CreatedAt: at, SettledAt: at.Add(time.Second),
	})
	want := `{"answer":"settled","reference":"ref","state":"succeeded","operation":"charge.v1","attempt":2,"provider_id":"ch_1",` +
		`"result":{"fee":7},"created_at":"2026-03-01T12:00:00Z","settled_at":"2026-03-01T12:00:01Z"}`
	if err != nil || string(text) != want {
		t.Errorf("%s %v, want %s", text, err, want)
	}
	text, err = json.Marshal(outbox.Answer{Kind: outbox.AnswerRefused, Code: "tenant_invalid", Hint: "Give one."})
	if want := `{"answer":"refused","code":"tenant_invalid","hint":"Give one."}`; err != nil || string(text) != want {
		t.Errorf("%s %v, want %s", text, err, want)
	}
}

func TestAnErrorOfTheSetUpSaysWhatToDo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, x := range []struct{ broken, hint string }{
		{"REVOKE outbox_app FROM CURRENT_USER; SET LOCAL ROLE pg_monitor", "GRANT outbox_app"},
		{"ALTER SCHEMA outbox RENAME TO elsewhere", "run outbox-worker migrate"},
		{"ALTER FUNCTION outbox.enqueue RENAME TO enqueue_old", "run outbox-worker migrate"},
	} {
		tx, err := b.owner.Begin(b.ctx)
		b.must(err)
		_, err = tx.Exec(b.ctx, x.broken)
		b.must(err)
		if _, err = outbox.Enqueue(b.ctx, tx, charge("1", 1)); err == nil || !strings.Contains(err.Error(), x.hint) || !strings.HasPrefix(err.Error(), "outbox: enqueue charge.v1: ") {
			t.Errorf("%s: %v", x.broken, err)
		}
		b.must(tx.Rollback(b.ctx))
	}
	if _, err := outbox.Enqueue(b.ctx, b.app, outbox.Intent{Tenant: "acme", Operation: "charge.v1", Payload: func() {}}); err == nil ||
		!strings.HasPrefix(err.Error(), "outbox: payload of charge.v1: ") {
		t.Errorf("a payload that is no JSON: %v", err)
	}
}
