package dispatch_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/dispatch"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/providers/httpjson"
)

// Every fault of the provider, by what the provider promises, and what the ledger says
// in the end. The provider's count is what matters; the state must not contradict it.
func TestWhatAProviderDoesBecomesAnHonestState(t *testing.T) {
	t.Parallel()
	first := func(kind simulator.Kind) simulator.Fault { return simulator.Fault{Kind: kind, Nth: 1} }
	slow := func(d time.Duration) simulator.Fault {
		return simulator.Fault{Kind: simulator.Delay, Duration: d, Nth: 1}
	}
	always := simulator.Fault{Kind: simulator.Unauthorized}
	const done, refused, review, exhausted = outbox.Succeeded, outbox.FailedFinal, outbox.NeedsReview, outbox.Exhausted

	// after is how it ends where nobody can be asked, where the provider remembers keys,
	// and where it can be asked: state, effects, requests.
	type end struct {
		state         outbox.State
		effects, sent int
	}
	faults := []struct {
		claim                string
		fault                simulator.Fault
		neither, keys, asked end
	}{
		{"slow but in time", slow(200 * time.Millisecond), end{done, 1, 1}, end{done, 1, 1}, end{done, 1, 1}},
		{"declined for good", first(simulator.Refuse), end{refused, 0, 1}, end{refused, 0, 1}, end{refused, 0, 1}},
		{"throttled once", first(simulator.Throttle), end{done, 1, 2}, end{done, 1, 2}, end{done, 1, 2}},
		{"unauthorised once", first(simulator.Unauthorized), end{done, 1, 2}, end{done, 1, 2}, end{done, 1, 2}},
		{"unauthorised for ever", always, end{exhausted, 0, 3}, end{exhausted, 0, 3}, end{exhausted, 0, 3}},
		{"reset before the effect", first(simulator.ResetBefore), end{review, 0, 1}, end{done, 1, 2}, end{done, 1, 2}},
		{"reset after the effect", first(simulator.ResetAfter), end{review, 1, 1}, end{done, 1, 2}, end{done, 1, 1}},
		{"503 without the effect", first(simulator.ErrorBefore), end{review, 0, 1}, end{done, 1, 2}, end{done, 1, 2}},
		{"500 after the effect", first(simulator.ErrorAfter), end{review, 1, 1}, end{done, 1, 2}, end{done, 1, 1}},
		{"answer lost", first(simulator.Lost), end{review, 1, 1}, end{done, 1, 2}, end{done, 1, 1}},
		{"another request is live", first(simulator.InProgress), end{review, 0, 1}, end{done, 1, 2}, end{done, 1, 2}},
		{"answer truncated", first(simulator.Truncated), end{review, 1, 1}, end{done, 1, 2}, end{done, 1, 1}},
		{"answer is no JSON", first(simulator.Garbage), end{review, 1, 1}, end{done, 1, 2}, end{done, 1, 1}},
		{"redirected", first(simulator.Redirect), end{review, 0, 1}, end{done, 1, 2}, end{done, 1, 2}},
	}
	for promise, with := range map[string]struct {
		charges   httpjson.Operation
		behaviour simulator.Behaviour
		end       func(int) end
	}{
		"neither":        {neither, simulator.Behaviour{Keys: simulator.Ignore}, func(i int) end { return faults[i].neither }},
		"remembers keys": {remembersKeys, simulator.Behaviour{}, func(i int) end { return faults[i].keys }},
		"can be asked":   {canBeAsked, simulator.Behaviour{Keys: simulator.Ignore}, func(i int) end { return faults[i].asked }},
	} {
		t.Run(promise, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.charges = with.charges
			b.must(b.sim.SetBehaviour(simulator.Charges, with.behaviour))
			answers := make([]outbox.Answer, len(faults))
			for i, f := range faults {
				// The reference is known before anything can be sent: no worker runs yet.
				answers[i] = b.charge(fmt.Sprintf("order-%d", i))
				f.fault.Reference, f.fault.Service = answers[i].Reference, simulator.Charges
				b.must(b.sim.Script(f.fault))
			}
			b.run(nil)
			for i, f := range faults {
				want := with.end(i)
				b.state(answers[i].Reference, want.state)
				b.effects(simulator.Charges, answers[i].Reference, want.effects)
				if got := b.sim.Requests(simulator.Charges, answers[i].Reference); got != want.sent {
					t.Errorf("%s: %d requests, want %d\n%v", f.claim, got, want.sent, b.history(answers[i].Reference))
				}
			}
			if n := b.sim.Summary().RedirectsFollowed; n != 0 {
				t.Errorf("%d redirects followed", n)
			}
			b.noDuplicates()
		})
	}
}

func TestAProviderThatIsDownCostsRetriesAndNothingElse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sim.HTTPDown()
	b.run(nil)
	a := b.charge("down")
	b.await(`(SELECT sends >= 1 FROM outbox.outbox o JOIN outbox.intents i ON i.id = o.intent_id WHERE i.reference = $1)`, a.Reference)
	b.must(b.sim.HTTPUp(b.ctx))
	b.await(`EXISTS (SELECT FROM outbox.intents i LEFT JOIN outbox.outcomes e ON e.intent_id = i.id LEFT JOIN outbox.outbox o ON o.intent_id = i.id
		WHERE i.reference = $1 AND coalesce(e.state, o.state) IN ('succeeded', 'exhausted'))`, a.Reference)
	got, err := outbox.Get(b.ctx, b.pool, "shop", a.Reference)
	b.must(err)
	want := map[outbox.State]int{outbox.Succeeded: 1, outbox.Exhausted: 0}[got.State]
	b.effects(simulator.Charges, a.Reference, want)
}

func TestAttemptsThatAreUsedUpLeaveAnIntentThatCanBeSuperseded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sim.HTTPDown()
	b.run(nil)
	a := b.charge("worn")
	b.state(a.Reference, outbox.Exhausted)
	sameJSON(t, b.history(a.Reference), []string{
		"0 committed accepted",
		"1 accepted claimed executing", "1 executing not_sent failed_retryable",
		"2 failed_retryable claimed executing", "2 executing not_sent failed_retryable",
		"3 failed_retryable claimed executing", "3 executing not_sent failed_retryable",
		"3 failed_retryable attempts_used exhausted",
	})
	b.must(b.sim.HTTPUp(b.ctx))
	next := b.enqueue(outbox.Intent{Payload: charge{"worn", 900, "EUR"}, Supersedes: a.Reference})
	if next.Kind != outbox.AnswerAccepted {
		t.Fatalf("supersede: %+v", next)
	}
	b.state(next.Reference, outbox.Succeeded)
	b.effects(simulator.Charges, a.Reference, 0)
	b.effects(simulator.Charges, next.Reference, 1)
}

func TestOne429PausesTheLaneForEverybody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.charge("throttled")
	b.must(b.sim.Script(simulator.Fault{Kind: simulator.Throttle, Reference: first.Reference, Nth: 1, RetryAfter: 1}))
	b.run(nil)
	b.await(`EXISTS (SELECT FROM outbox.lanes WHERE name = 'payments' AND paused_until > clock_timestamp())`)
	second := b.charge("behind it")
	b.state(second.Reference, outbox.Succeeded)
	b.state(first.Reference, outbox.Succeeded)
	var after bool
	b.must(b.pool.QueryRow(b.ctx, `SELECT h.at >= l.paused_until FROM outbox.timeline h JOIN outbox.intents i ON i.id = h.intent_id, outbox.lanes l
		WHERE l.name = 'payments' AND i.reference = $1 AND h.event = 'claimed'`, second.Reference).Scan(&after))
	if !after {
		t.Error("the second intent was sent while the lane was paused")
	}
	if got := b.sim.Requests(simulator.Charges, ""); got != 3 {
		t.Errorf("%d requests, want 3", got)
	}
}

func TestWhatBreaksTheSchemaIsRefusedUnsentAndHoldsUpNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bad := b.enqueue(outbox.Intent{Payload: map[string]any{"order_id": "bad", "amount": 0, "currency": "EUR"}})
	good := b.charge("good")
	b.run(nil)
	b.state(good.Reference, outbox.Succeeded)
	b.state(bad.Reference, outbox.FailedFinal)
	got, err := outbox.Get(b.ctx, b.pool, "shop", bad.Reference)
	b.must(err)
	if got.Code != "input_invalid" || !strings.Contains(got.Reason, "/amount") {
		t.Errorf("code %q, reason %q: want input_invalid naming /amount", got.Code, got.Reason)
	}
	if n := b.sim.Requests(simulator.Charges, bad.Reference); n != 0 {
		t.Errorf("%d requests for refused input", n)
	}
}

func TestNothingIsSentAfterItsDeadline(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var now time.Time
	b.must(b.pool.QueryRow(b.ctx, `SELECT clock_timestamp()`).Scan(&now))
	late := b.enqueue(outbox.Intent{Payload: charge{"late", 5, "EUR"}, Deadline: now.Add(-time.Hour)})
	// Retried until its deadline: the provider is down for this one.
	tried := b.enqueue(outbox.Intent{Payload: charge{"tried", 5, "EUR"}, Deadline: now.Add(4 * time.Second)})
	b.must(b.sim.Script(simulator.Fault{Kind: simulator.Throttle, Reference: tried.Reference, RetryAfter: 10}))
	b.run(nil)
	b.state(late.Reference, outbox.FailedFinal)
	b.state(tried.Reference, outbox.FailedFinal)
	for _, a := range []outbox.Answer{late, tried} {
		got, err := outbox.Get(b.ctx, b.pool, "shop", a.Reference)
		b.must(err)
		if got.Code != "deadline_passed" {
			t.Errorf("code %q, want deadline_passed", got.Code)
		}
	}
	if n := b.sim.Requests(simulator.Charges, late.Reference); n != 0 {
		t.Errorf("%d requests after the deadline", n)
	}
	if n := b.sim.Requests(simulator.Charges, tried.Reference); n != 1 {
		t.Errorf("%d requests, want the one before the deadline", n)
	}
}

func TestNotBeforeIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.run(nil)
	var now time.Time
	b.must(b.pool.QueryRow(b.ctx, `SELECT clock_timestamp()`).Scan(&now))
	later := b.enqueue(outbox.Intent{Payload: charge{"later", 5, "EUR"}, NotBefore: now.Add(600 * time.Millisecond)})
	never := b.enqueue(outbox.Intent{Payload: charge{"next week", 5, "EUR"}, NotBefore: now.Add(7 * 24 * time.Hour)})
	b.state(later.Reference, outbox.Succeeded)
	if e := b.sim.Effects(simulator.Charges); len(e) != 1 || e[0].At.Before(now.Add(600*time.Millisecond)) {
		t.Errorf("effects %+v", e)
	}
	b.state(never.Reference, outbox.Accepted)
}

func TestAFollowOnThatCannotBeCreatedGoesToReviewWithoutTouchingItsParent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(strings.NewReplacer(
		"payload: '{order_id: .intent.payload.order_id, charge: .outcome.provider_id}'",
		`payload: 'if .intent.payload.order_id == "broken" then error("no address") else {order_id: .intent.payload.order_id} end'`,
	).Replace(testCatalog))
	broken, whole := b.charge("broken"), b.charge("whole")
	b.run(nil)
	b.state(broken.Reference, outbox.Succeeded)
	b.state(whole.Reference, outbox.Succeeded)
	b.await(`EXISTS (SELECT FROM outbox.outbox o JOIN outbox.intents i ON i.id = o.intent_id
		WHERE i.reference = $1 AND o.state = 'succeeded' AND o.review_since IS NOT NULL AND o.review_reason LIKE '%no address%')`, broken.Reference)
	b.await(`(SELECT count(*) = 1 FROM outbox.outbox)`)
	b.effects(simulator.Charges, broken.Reference, 1)
	if n := len(b.sim.Effects(simulator.Shipments)); n != 1 {
		t.Errorf("%d shipments, want 1", n)
	}
}

func TestAnotherAccountOrRequestBetweenAttemptsSendsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(strings.Replace(testCatalog, "retry: {max_attempts: 3, initial: 20ms, max: 100ms}\n    review: {owner: payments}",
		"retry: {max_attempts: 3, initial: 500ms, max: 500ms}\n    review: {owner: payments}", 1))
	a := b.charge("moved")
	b.must(b.sim.Script(simulator.Fault{Kind: simulator.Unauthorized, Reference: a.Reference, Nth: 1}))
	stop := b.run(nil)
	b.state(a.Reference, outbox.FailedRetryable)
	stop()
	b.run(func(c *dispatch.Config) { c.Providers = b.accounts("acct_other") })
	b.state(a.Reference, outbox.NeedsReview)
	b.effects(simulator.Charges, a.Reference, 0)
	if n := b.sim.Requests(simulator.Charges, a.Reference); n != 1 {
		t.Errorf("%d requests, want the first account's only", n)
	}
	b.await(`EXISTS (SELECT FROM outbox.outbox WHERE review_since IS NOT NULL AND review_reason LIKE '%acct_other%')`)
}
