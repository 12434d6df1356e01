package outbox_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/outbox"
)

// superseding is the same order with other details, in place of an intent.
func superseding(reference, order string, amount int) outbox.Intent {
	in := charge(order, amount)
	in.Supersedes = reference
	return in
}

// Only what is proven not to have happened makes room, and only outside a review.
func TestWhatCanBeSuperseded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, bySQL := range []bool{false, true} {
		for _, x := range []struct {
			state outbox.State
			may   bool
		}{
			{outbox.AwaitingApproval, false},
			{outbox.Accepted, false},
			{outbox.Executing, false},
			{outbox.FailedRetryable, false},
			{outbox.OutcomeUnknown, false},
			{outbox.NeedsReview, false},
			{outbox.Succeeded, false},
			{outbox.Exhausted, true},
			{outbox.FailedFinal, true},
			{outbox.Cancelled, true},
		} {
			order := fmt.Sprint(x.state, bySQL)
			in := charge(order, 1)
			if x.state == outbox.AwaitingApproval {
				in.Operation = "pay.v1"
			}
			ref := b.accept(in)
			switch x.state {
			case outbox.AwaitingApproval:
			case outbox.Succeeded, outbox.FailedFinal, outbox.Cancelled:
				b.settle(ref, x.state)
			default:
				b.hold(ref, x.state)
			}
			before := b.rows()
			next := superseding(ref, order, 2)
			next.Operation = in.Operation
			enqueue := b.enqueue
			if bySQL {
				enqueue = b.sqlEnqueue
			}
			a := enqueue(next)
			if !x.may {
				if a.Kind != outbox.AnswerRefused || a.Code != "supersedes_not_proven" || !strings.Contains(a.Hint, string(x.state)) {
					t.Errorf("%s: %+v", x.state, a)
				}
				b.wantRows(before)
				continue
			}
			if a.Kind != outbox.AnswerAccepted || a.Reference != b.reference(next, `["`+order+`"]`, 2) {
				t.Errorf("%s: %+v", x.state, a)
			}
			before.intents, before.open, before.heads = before.intents+1, before.open+1, before.heads+1
			if x.state == outbox.Exhausted {
				before.open, before.outcomes = before.open-1, before.outcomes+1
			}
			b.wantRows(before)
			if got := query[string](b, `SELECT n.generation || ' instead of ' || o.reference FROM outbox.intents n JOIN outbox.intents o ON o.id = n.supersedes_id
				WHERE n.reference = $1`, a.Reference); got != "2 instead of "+ref {
				t.Errorf("%s: generation %s", x.state, got)
			}
		}
	}
}

// A settled failure that is in review may yet turn out to be a success.
func TestWhatIsInReviewIsNotSuperseded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, state := range []outbox.State{outbox.FailedFinal, outbox.Exhausted} {
		ref := b.accept(charge(string(state), 1))
		if state == outbox.Exhausted {
			b.hold(ref, state)
			b.exec("UPDATE outbox.outbox SET review_since = clock_timestamp() WHERE state = 'exhausted'")
		} else {
			b.settle(ref, state)
			b.exec(`INSERT INTO outbox.outbox (intent_id, lane, catalog_id, attempt, state, phase, tenant, review_since)
				SELECT i.id, c.lane, c.id, 1, 'failed_final', 'parked', i.tenant, clock_timestamp()
				FROM outbox.intents i JOIN outbox.catalog c ON c.id = i.catalog_id WHERE i.reference = $1`, ref)
		}
		before := b.rows()
		if a := b.enqueue(superseding(ref, string(state), 2)); a.Code != "supersedes_not_proven" || !strings.Contains(a.Hint, "in review") {
			t.Errorf("%s: %+v", state, a)
		}
		b.wantRows(before)
	}
}

// The caller may repeat itself as with any intent, and everybody else gets the latest.
func TestSupersedingIsAnIntentLikeAnyOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.accept(charge("1", 1))
	b.settle(first, outbox.FailedFinal)
	second := b.accept(superseding(first, "1", 2))
	repeats := 0
	for by, enqueue := range map[string]func(outbox.Intent) outbox.Answer{"Go": b.enqueue, "SQL": b.sqlEnqueue} {
		want := func(claim string, in outbox.Intent, kind outbox.AnswerKind, reference string) {
			b.t.Helper()
			repeats++
			if a := enqueue(in); a.Kind != kind || a.Reference != reference {
				t.Errorf("%s: %s: %+v, want %s %s", by, claim, a, kind, reference)
			}
		}
		want("the same call again", superseding(first, "1", 2), outbox.AnswerInFlight, second)
		want("the same call with other details", superseding(first, "1", 3), outbox.AnswerConflict, second)
		want("the plain intent with the new details", charge("1", 2), outbox.AnswerInFlight, second)
		want("the plain intent with the old details", charge("1", 1), outbox.AnswerConflict, second)
	}
	if a := b.get("acme", first); a.Kind != outbox.AnswerSettled || a.State != outbox.FailedFinal {
		t.Errorf("the first is still what it was: %+v", a)
	}
	b.wantRows(rows{intents: 2, open: 1, outcomes: 1, repeats: repeats, heads: 1})

	b.settle(second, outbox.Cancelled)
	if a := b.enqueue(superseding(first, "1", 2)); a.Kind != outbox.AnswerSettled || a.Reference != second {
		t.Errorf("the first call again, late: %+v", a)
	}
	third := b.accept(superseding(second, "1", 1)) // even with the first details
	for claim, in := range map[string]outbox.Intent{
		"plain": charge("1", 1), "in place of the second": superseding(second, "1", 1), "in place of the first": superseding(first, "1", 1),
	} {
		if a := b.enqueue(in); a.Kind != outbox.AnswerInFlight || a.Reference != third {
			t.Errorf("%s: %+v", claim, a)
		}
	}
	if got := query[string](b, "SELECT string_agg(generation::text, ',' ORDER BY id) FROM outbox.intents"); got != "1,2,3" {
		t.Errorf("generations %s", got)
	}
	if len(slices.Compact([]string{first, second, third})) != 3 {
		t.Error("two generations share a reference")
	}
}

func TestTwoThatSupersedeAtOnceGiveOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const rounds, callers, generations = 15, 4, 3
	for round := range rounds {
		order := fmt.Sprint(round)
		ref := b.accept(charge(order, 1))
		for generation := range generations { // the first makes the head, the others find it
			if (round+generation)%2 == 0 {
				b.settle(ref, outbox.FailedFinal)
			} else {
				b.hold(ref, outbox.Exhausted)
			}
			answers := make([]outbox.Answer, callers)
			var all sync.WaitGroup
			start := make(chan struct{})
			for i := range callers {
				all.Go(func() {
					<-start
					a, err := outbox.Enqueue(b.ctx, b.app, superseding(ref, order, 2*generation+2+i%2)) // two each of two payloads
					if err != nil {
						t.Error(err)
					}
					answers[i] = a
				})
			}
			close(start)
			all.Wait()
			var kinds []string
			for _, a := range answers {
				kinds = append(kinds, string(a.Kind))
				if a.Reference == ref || a.Reference != answers[0].Reference {
					t.Fatalf("in place of %s: %+v", ref, answers)
				}
			}
			slices.Sort(kinds)
			if got := fmt.Sprint(kinds); got != "[accepted conflict conflict in_flight]" {
				t.Fatal(got)
			}
			ref = answers[0].Reference
		}
	}
	b.wantRows(rows{
		intents: rounds * (1 + generations), open: rounds, outcomes: rounds * generations, repeats: rounds * generations * (callers - 1), heads: rounds,
	})
	if n, want := query[int](b, "SELECT count(*) FROM outbox.history WHERE event = 'superseded'"), rounds*generations/2; n != want {
		t.Errorf("%d exhausted ones were closed, of %d", n, want)
	}
}

// A superseding intent that is rolled back leaves the exhausted one to be replayed.
func TestASupersededExhaustedIntentIsClosed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.accept(charge("1", 1))
	b.hold(ref, outbox.Exhausted)
	replay := func() (replayed int) {
		b.as("outbox_worker", func(tx pgx.Tx) error {
			tag, err := tx.Exec(b.ctx, `UPDATE outbox.outbox o SET state = 'failed_retryable', phase = 'due', next_at = clock_timestamp()
				FROM outbox.intents i WHERE i.id = o.intent_id AND i.reference = $1 AND o.state = 'exhausted'`, ref)
			replayed = int(tag.RowsAffected())
			return err
		})
		return replayed
	}

	tx := b.begin()
	if a := b.enqueueIn(tx, superseding(ref, "1", 2)); a.Kind != outbox.AnswerAccepted {
		t.Fatalf("%+v", a)
	}
	b.must(tx.Rollback(b.ctx))
	b.wantRows(rows{intents: 1, open: 1})
	if a := b.get("acme", ref); a.State != outbox.Exhausted || a.Kind != outbox.AnswerInFlight {
		t.Errorf("rolled back: %+v", a)
	}

	next := b.accept(superseding(ref, "1", 2))
	if n := replay(); n != 0 {
		t.Errorf("%d replayed", n)
	}
	if a := b.get("acme", ref); a.Kind != outbox.AnswerSettled || a.State != outbox.Exhausted || a.Code != "superseded" || a.Attempt != 1 || a.SettledAt.IsZero() {
		t.Errorf("the old one: %+v", a)
	}
	if got := query[string](b, `SELECT concat_ws(' ', h.from_state, h.event, h.to_state, h.attempt, 'by', h.actor)
		FROM outbox.history h JOIN outbox.intents i ON i.id = h.intent_id WHERE i.reference = $1`, ref); got != "exhausted superseded exhausted 1 by shop" {
		t.Errorf("history: %s", got)
	}
	b.wantRows(rows{intents: 2, open: 1, outcomes: 1, heads: 1})
	if a := b.get("acme", next); a.Kind != outbox.AnswerInFlight || a.State != outbox.Accepted {
		t.Errorf("the new one: %+v", a)
	}
}

// An operator who replays and a caller who supersedes at once: one of them wins, and
// the other is told.
func TestAReplayAndASupersedingExcludeEachOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.accept(charge("1", 1))
	b.hold(ref, outbox.Exhausted)
	operator, err := b.owner.Begin(b.ctx)
	b.must(err)
	_, err = operator.Exec(b.ctx, "UPDATE outbox.outbox SET state = 'failed_retryable', phase = 'due', next_at = clock_timestamp() WHERE state = 'exhausted'")
	b.must(err)
	answered := make(chan outbox.Answer)
	go func() {
		a, err := outbox.Enqueue(b.ctx, b.app, superseding(ref, "1", 2))
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	b.awaitBlocked(1)
	b.must(operator.Commit(b.ctx))
	if a := <-answered; a.Kind != outbox.AnswerRefused || a.Code != "supersedes_not_proven" || !strings.Contains(a.Hint, "replayed") {
		t.Errorf("%+v", a)
	}
	b.wantRows(rows{intents: 1, open: 1, heads: 1})
	if a := b.get("acme", ref); a.State != outbox.FailedRetryable {
		t.Errorf("%+v", a)
	}
}

// A key by arguments can be superseded too; its window then begins anew.
func TestSupersedingBeginsTheWindowAnew(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := search("rain")
	ref := b.accept(in)
	b.age(window / 2)
	b.settle(ref, outbox.FailedFinal)
	if a := b.enqueue(in); a.Kind != outbox.AnswerSettled || a.Reference != ref {
		t.Errorf("within the window: %+v", a)
	}
	again := in
	again.Supersedes = ref
	next := b.accept(again)
	if next != b.searchRef(2) {
		t.Errorf("reference %s", next)
	}
	b.settle(next, outbox.Succeeded)
	b.age(window / 2)
	if a := b.enqueue(in); a.Kind != outbox.AnswerSettled || a.Reference != next {
		t.Errorf("within the new window: %+v", a)
	}
	b.age(window / 2)
	if a := b.enqueue(in); a.Kind != outbox.AnswerAccepted || a.Reference != b.searchRef(3) {
		t.Errorf("after the new window: %+v", a)
	}
	// The caller who superseded and asks again long after gets the latest, not a new one.
	if a := b.enqueue(again); a.Kind != outbox.AnswerInFlight || a.Reference != b.searchRef(3) {
		t.Errorf("the same call again: %+v", a)
	}
}

// followOn records a follow-on of a parent as a worker does.
func (b *testBundle) followOn(parent, name, operation, payload string) outbox.Answer {
	b.t.Helper()
	var text string
	b.as("outbox_worker", func(tx pgx.Tx) error {
		return tx.QueryRow(b.ctx, `SELECT json_strip_nulls(to_json(a))::text FROM outbox.intents i,
			outbox.enqueue_follow_on(i.id, $2, $3, $4, NULL) a WHERE i.reference = $1`, parent, name, operation, payload).Scan(&text)
	})
	return answerOf(b.t, text)
}

func TestAFollowOnHasItsParentsKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	parent := charge("1", 1)
	parent.Subject, parent.Task, parent.Trace, parent.Priority = "ada", "task 7", "00-1-2-01", 7
	ref := b.accept(parent)
	b.settle(ref, outbox.Succeeded)
	a := b.followOn(ref, "receipt", "mail.v1", `{"to": "ada"}`)
	if want := b.reference(outbox.Intent{Tenant: "acme", Operation: "mail.v1"}, `{"follow_on":"receipt","parent":"`+ref+`"}`, 1); a.Kind != outbox.AnswerAccepted || a.Reference != want {
		t.Errorf("%+v, want reference %s", a, want)
	}
	if again := b.followOn(ref, "receipt", "mail.v1", `{"to":"ada"}`); again.Kind != outbox.AnswerInFlight || again.Reference != a.Reference {
		t.Errorf("again: %+v", again)
	}
	if changed := b.followOn(ref, "receipt", "mail.v1", `{"to":"bob"}`); changed.Kind != outbox.AnswerConflict {
		t.Errorf("rendered otherwise: %+v", changed)
	}
	if other := b.followOn(ref, "invoice", "mail.v1", `{"to":"ada"}`); other.Kind != outbox.AnswerAccepted {
		t.Errorf("another of the same parent: %+v", other)
	}
	if got := query[string](b, `SELECT concat_ws(' ', subject, task, trace, priority, principal[1], (SELECT p.reference FROM outbox.intents p WHERE p.id = i.parent_id))
		FROM outbox.intents i WHERE reference = $1`, a.Reference); got != "ada task 7 00-1-2-01 7 shop "+ref {
		t.Errorf("inherited: %s", got)
	}
	// A caller cannot take a follow-on's key, whatever the operation id says.
	clash := outbox.Intent{Tenant: "acme", Operation: "mail.v1", Payload: raw(`{"to":"ada"}`), OperationID: `{"follow_on":"receipt","parent":"` + ref + `"}`}
	if c := b.enqueue(clash); c.Kind != outbox.AnswerAccepted || c.Reference == a.Reference {
		t.Errorf("a caller's own: %+v", c)
	}
}

func TestARefusedFollowOnIsSupersededUnderItsOwnKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	parent := b.accept(charge("1", 1))
	b.settle(parent, outbox.Succeeded)
	old := b.followOn(parent, "shipment", "ship.v1", `{"order": "1"}`).Reference
	b.settle(old, outbox.FailedFinal)
	in := outbox.Intent{Tenant: "acme", Operation: "ship.v1", Payload: raw(`{"order": "1", "address": "corrected"}`), Supersedes: old}
	next := b.accept(in)
	if want := b.reference(in, `{"follow_on":"shipment","parent":"`+parent+`"}`, 2); next != want {
		t.Errorf("reference %s, want %s", next, want)
	}
	if a := b.enqueue(in); a.Kind != outbox.AnswerInFlight || a.Reference != next {
		t.Errorf("the same call again: %+v", a)
	}
	if a := b.followOn(parent, "shipment", "ship.v1", `{"order": "1", "address": "corrected"}`); a.Kind != outbox.AnswerInFlight || a.Reference != next {
		t.Errorf("the follow-on created again: %+v", a)
	}
	if a := b.followOn(parent, "shipment", "ship.v1", `{"order": "1"}`); a.Kind != outbox.AnswerConflict || a.Reference != next {
		t.Errorf("the follow-on created again as it was: %+v", a)
	}
	in.Operation = "mail.v1"
	if a := b.enqueue(in); a.Code != "supersedes_other_key" {
		t.Errorf("with another operation: %+v", a)
	}
	in.Operation, in.Tenant = "ship.v1", "other"
	if a := b.enqueue(in); a.Code != "supersedes_unknown" {
		t.Errorf("by another tenant: %+v", a)
	}
	// The order's own key is not touched.
	plain := outbox.Intent{Tenant: "acme", Operation: "ship.v1", Payload: raw(`{"order": "1"}`)}
	if a := b.enqueue(plain); a.Kind != outbox.AnswerAccepted || a.Reference != b.reference(plain, `["1"]`, 1) {
		t.Errorf("the order's own: %+v", a)
	}
}

// A compensation is an intent with a key of its own, tied to what it undoes.
func TestACompensationIsTiedToWhatItUndoes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.accept(charge("1", 240))
	refund := outbox.Intent{Tenant: "acme", Operation: "ship.v1", Payload: raw(`{"order": "refund 1"}`), Compensates: ref}
	for _, state := range []outbox.State{
		outbox.Accepted, outbox.Executing, outbox.FailedRetryable, outbox.OutcomeUnknown, outbox.NeedsReview, outbox.Exhausted,
	} {
		b.hold(ref, state)
		if a := b.enqueue(refund); a.Kind != outbox.AnswerRefused || a.Code != "compensates_not_succeeded" {
			t.Errorf("%s: %+v", state, a)
		}
	}
	b.wantRows(rows{intents: 1, open: 1})
	b.settle(ref, outbox.Succeeded)
	undo := b.accept(refund)
	if undo != b.reference(refund, `["refund 1"]`, 1) {
		t.Errorf("reference %s", undo)
	}
	if got := query[string](b, "SELECT o.reference FROM outbox.intents n JOIN outbox.intents o ON o.id = n.compensates_id WHERE n.reference = $1", undo); got != ref {
		t.Errorf("compensates %s", got)
	}
	if a := b.enqueue(refund); a.Kind != outbox.AnswerInFlight || a.Reference != undo {
		t.Errorf("again: %+v", a)
	}
	// It can be undone after retention took the details, too.
	b.trim(ref)
	refund.Payload = raw(`{"order": "refund 2"}`)
	if a := b.enqueue(refund); a.Kind != outbox.AnswerAccepted {
		t.Errorf("from the tombstone: %+v", a)
	}
	for _, state := range []outbox.State{outbox.FailedFinal, outbox.Cancelled} {
		other := b.accept(charge(string(state), 1))
		b.settle(other, state)
		refund.Compensates = other
		if a := b.enqueue(refund); a.Code != "compensates_not_succeeded" {
			t.Errorf("%s: %+v", state, a)
		}
	}
}

// Approval is asked for before anything may be sent, whoever enqueues.
func TestWhatNeedsApprovalWaitsForIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := charge("1", 1)
	in.Operation = "pay.v1"
	a := b.enqueue(in)
	if a.Kind != outbox.AnswerAccepted || a.State != outbox.AwaitingApproval {
		t.Errorf("%+v", a)
	}
	if got := query[string](b, "SELECT state || ' ' || phase FROM outbox.outbox"); got != "awaiting_approval parked" {
		t.Errorf("outbox: %s", got)
	}
	if again := b.enqueue(in); again.Kind != outbox.AnswerInFlight || again.State != outbox.AwaitingApproval {
		t.Errorf("%+v", again)
	}
}
