package dispatch_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/dispatch"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// Every fault of the provider, what the ledger says in the end, and what the provider
// counted. The provider's count is what matters; the state must not contradict it.
func TestWhatAProviderDoesBecomesAnHonestState(t *testing.T) {
	t.Parallel()
	b := setup(t)
	faults := []struct {
		claim   string
		fault   simulator.Fault
		state   outbox.State
		effects int
		sent    int // requests at the provider
	}{
		{"slow but in time", simulator.Fault{Kind: simulator.Delay, Duration: 200 * time.Millisecond, Nth: 1}, outbox.Succeeded, 1, 1},
		{"declined for good", simulator.Fault{Kind: simulator.Refuse, Nth: 1}, outbox.FailedFinal, 0, 1},
		{"throttled once, then done", simulator.Fault{Kind: simulator.Throttle, Nth: 1}, outbox.Succeeded, 1, 2},
		{"unauthorised once, then done", simulator.Fault{Kind: simulator.Unauthorized, Nth: 1}, outbox.Succeeded, 1, 2},
		{"unauthorised for ever: attempts used up", simulator.Fault{Kind: simulator.Unauthorized}, outbox.Exhausted, 0, 3},
		{"reset before the effect: nobody can know", simulator.Fault{Kind: simulator.ResetBefore, Nth: 1}, outbox.OutcomeUnknown, 0, 1},
		{"reset after the effect", simulator.Fault{Kind: simulator.ResetAfter, Nth: 1}, outbox.OutcomeUnknown, 1, 1},
		{"503 without the effect: it does not say so", simulator.Fault{Kind: simulator.ErrorBefore, Nth: 1}, outbox.OutcomeUnknown, 0, 1},
		{"500 after the effect", simulator.Fault{Kind: simulator.ErrorAfter, Nth: 1}, outbox.OutcomeUnknown, 1, 1},
		{"answer lost", simulator.Fault{Kind: simulator.Lost, Nth: 1}, outbox.OutcomeUnknown, 1, 1},
		{"another request is live", simulator.Fault{Kind: simulator.InProgress, Nth: 1}, outbox.OutcomeUnknown, 0, 1},
		{"answer truncated", simulator.Fault{Kind: simulator.Truncated, Nth: 1}, outbox.OutcomeUnknown, 1, 1},
		{"answer is no JSON", simulator.Fault{Kind: simulator.Garbage, Nth: 1}, outbox.OutcomeUnknown, 1, 1},
		{"redirected: no success", simulator.Fault{Kind: simulator.Redirect, Nth: 1}, outbox.OutcomeUnknown, 0, 1},
		{"later than the call's deadline", simulator.Fault{Kind: simulator.Delay, Duration: 1500 * time.Millisecond, Nth: 1}, outbox.OutcomeUnknown, 1, 1},
	}
	answers := make([]outbox.Answer, len(faults))
	for i, f := range faults {
		// The reference is known before anything can be sent: no worker runs yet.
		answers[i] = b.charge(fmt.Sprintf("order-%d", i))
		f.fault.Reference, f.fault.Service = answers[i].Reference, simulator.Charges
		b.must(b.sim.Script(f.fault))
	}
	b.run(nil)
	for i, f := range faults {
		b.state(answers[i].Reference, f.state)
		b.must(b.sim.Await(b.ctx, func(s simulator.Snapshot) bool { return s.Count(simulator.Charges, answers[i].Reference) >= f.effects }))
		b.effects(simulator.Charges, answers[i].Reference, f.effects)
		if got := b.sim.Requests(simulator.Charges, answers[i].Reference); got != f.sent {
			t.Errorf("%s: %d requests, want %d", f.claim, got, f.sent)
		}
	}
	if n := b.sim.Summary().RedirectsFollowed; n != 0 {
		t.Errorf("%d redirects followed", n)
	}
	b.noDuplicates()
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
	b.must(b.pool.QueryRow(b.ctx, `SELECT h.at >= l.paused_until FROM outbox.history h JOIN outbox.intents i ON i.id = h.intent_id, outbox.lanes l
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
	tried := b.enqueue(outbox.Intent{Payload: charge{"tried", 5, "EUR"}, Deadline: now.Add(700 * time.Millisecond)})
	b.must(b.sim.Script(simulator.Fault{Kind: simulator.Throttle, Reference: tried.Reference, RetryAfter: 1}))
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
