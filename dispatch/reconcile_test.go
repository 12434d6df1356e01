package dispatch_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/dispatch"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/providers"
)

func (b *testBundle) sent(reference string, want int) {
	b.t.Helper()
	if got := b.sim.Requests(simulator.Charges, reference); got != want {
		b.t.Errorf("%d requests, want %d\n%s", got, want, strings.Join(b.history(reference), "\n"))
	}
}

func (b *testBundle) never(reference, what string) {
	b.t.Helper()
	for _, step := range b.history(reference) {
		if strings.Contains(step, what) {
			b.t.Errorf("%q happened:\n%s", what, strings.Join(b.history(reference), "\n"))
		}
	}
}

// A provider whose lookup lags: what it does not show yet may have happened.
func TestAbsenceBeforeTheLagIsNoProof(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.charges = canBeAsked
	b.charges.LookupLag = 1500 * time.Millisecond
	b.must(b.sim.SetBehaviour(simulator.Charges, simulator.Behaviour{Keys: simulator.Ignore, LookupLag: 1200 * time.Millisecond}))
	happened, not := b.charge("happened"), b.charge("did not")
	b.must(b.sim.Script(
		simulator.Fault{Kind: simulator.ResetAfter, Reference: happened.Reference, Nth: 1},
		simulator.Fault{Kind: simulator.ResetBefore, Reference: not.Reference, Nth: 1},
	))
	b.run(nil)
	for _, a := range []outbox.Answer{happened, not} {
		b.state(a.Reference, outbox.Succeeded)
		b.effects(simulator.Charges, a.Reference, 1)
	}
	b.sent(happened.Reference, 1)
	b.sent(not.Reference, 2)
	b.never(happened.Reference, "proven_absent")
	if n := b.sim.Lookups(simulator.Charges, happened.Reference); n < 2 {
		t.Errorf("%d lookups: it was asked too late to show anything", n)
	}
	var early bool
	b.must(b.pool.QueryRow(b.ctx, `SELECT min(h.at) FILTER (WHERE event = 'proven_absent') < min(h.at) FILTER (WHERE event = 'no_answer') + interval '1.5 s'
		FROM outbox.history h JOIN outbox.intents i ON i.id = h.intent_id WHERE i.reference = $1`, not.Reference).Scan(&early))
	if early {
		t.Error("absence was taken for a proof before the lag")
	}
}

// The request is on its way for longer than anybody waits: a lookup says absent, and
// then it arrives. The provider knows the key, so the reference makes it one effect.
func TestARequestThatArrivesAfterALookupSaidAbsentIsStillOneEffect(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.charges = canBeAsked
	b.charges.KeyMemory, b.charges.Replay = remembersKeys.KeyMemory, remembersKeys.Replay
	a := b.charge("straggler")
	b.must(b.sim.Script(simulator.Fault{Kind: simulator.Delay, Duration: 2500 * time.Millisecond, Reference: a.Reference, Nth: 1}))
	b.run(nil)
	b.state(a.Reference, outbox.Succeeded)
	b.must(b.sim.Await(b.ctx, func(s simulator.Snapshot) bool { return s.Count(simulator.Charges, a.Reference) == 1 }))
	b.allSettled()
	b.effects(simulator.Charges, a.Reference, 1)
	if got := b.history(a.Reference); !strings.Contains(strings.Join(got, "\n"), "resent") {
		t.Errorf("no lookup said absent in time, so this proves nothing:\n%s", strings.Join(got, "\n"))
	}
	b.never(a.Reference, "proven_absent") // it would have been a lie
}

func TestAKeyThatMayBeForgottenIsNeverSentAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.charges.KeyMemory = 2 * time.Second
	b.must(b.sim.SetBehaviour(simulator.Charges, simulator.Behaviour{Memory: 2 * time.Second}))
	a := b.charge("forgotten")
	b.must(b.sim.Script(simulator.Fault{Kind: simulator.ResetAfter, Reference: a.Reference, Nth: 1}))
	b.run(nil)
	b.state(a.Reference, outbox.NeedsReview)
	b.sent(a.Reference, 1)
	b.effects(simulator.Charges, a.Reference, 1)
	b.await(`EXISTS (SELECT FROM outbox.outbox WHERE review_since IS NOT NULL AND review_reason LIKE '%remembers keys for 2s%')`)
}

// Unknown is sticky: what a later attempt meets says nothing about the first one.
func TestNothingButEvidenceAboutItselfEndsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.charge("sticky")
	b.must(b.sim.Script(
		simulator.Fault{Kind: simulator.ResetAfter, Reference: a.Reference, Nth: 1},
		simulator.Fault{Kind: simulator.Unauthorized, Reference: a.Reference, Nth: 2},
		simulator.Fault{Kind: simulator.Throttle, Reference: a.Reference, Nth: 3, RetryAfter: 1},
		simulator.Fault{Kind: simulator.InProgress, Reference: a.Reference, Nth: 4},
		simulator.Fault{Kind: simulator.ErrorBefore, Reference: a.Reference, Nth: 5},
	))
	release := b.sim.Hold(simulator.Charges, a.Reference, simulator.AfterEffect)
	b.run(nil)
	b.must(b.sim.Await(b.ctx, func(s simulator.Snapshot) bool { return s.Held(simulator.Charges, a.Reference) == 1 }))
	release()
	b.must(b.sim.Await(b.ctx, func(s simulator.Snapshot) bool { return s.Requests(simulator.Charges, a.Reference) == 2 }))
	b.sim.HTTPDown() // and now a refused dial
	b.await(`(SELECT count(*) >= 2 FROM outbox.history WHERE event = 'probed')`)
	b.must(b.sim.HTTPUp(b.ctx))
	b.state(a.Reference, outbox.Succeeded)
	b.effects(simulator.Charges, a.Reference, 1)
	b.never(a.Reference, "failed")
}

func TestADeadlineThatPassesLeavesAnUnknownOutcomeUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var now time.Time
	b.must(b.pool.QueryRow(b.ctx, `SELECT clock_timestamp()`).Scan(&now))
	a := b.enqueue(outbox.Intent{Payload: charge{"late", 5, "EUR"}, Deadline: now.Add(4 * time.Second)})
	// The first call times out, and whoever asks again hears that a request is live. It
	// has its effect long after the deadline.
	release := b.sim.Hold(simulator.Charges, a.Reference, simulator.BeforeEffect)
	b.run(nil)
	b.state(a.Reference, outbox.NeedsReview)
	b.never(a.Reference, "failed")
	release()
	b.must(b.sim.Await(b.ctx, func(s simulator.Snapshot) bool { return s.Count(simulator.Charges, a.Reference) == 1 }))
	if n := b.scalar(`SELECT count(*) FROM outbox.history WHERE event = 'resent' AND at > $1`, now.Add(4*time.Second)); n != 0 {
		t.Errorf("resent %d times after the deadline", n)
	}
}

func TestAnUnknownOutcomeIsNotAskedAboutInAnotherAccount(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.charge("moved")
	release := b.sim.Hold(simulator.Charges, a.Reference, simulator.AfterEffect)
	stop := b.run(func(c *dispatch.Config) { c.StopTimeout = time.Millisecond })
	b.must(b.sim.Await(b.ctx, func(s simulator.Snapshot) bool { return s.Held(simulator.Charges, a.Reference) == 1 }))
	stop() // cut off: unknown
	b.state(a.Reference, outbox.OutcomeUnknown)
	release()
	b.run(func(c *dispatch.Config) { c.Providers = b.accounts("acct_other") })
	b.state(a.Reference, outbox.NeedsReview)
	b.sent(a.Reference, 1)
	b.effects(simulator.Charges, a.Reference, 1)
}

// The first attempt's worker sleeps on its success; meanwhile the provider, whose memory
// of keys was declared and does not exist, refuses the resend. The late success cannot
// be the outcome any more, and it must not be forgotten.
func TestALateSuccessBesideAFailureOpensAReview(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must(b.sim.SetBehaviour(simulator.Charges, simulator.Behaviour{Keys: simulator.Ignore}))
	a := b.charge("contradiction")
	b.charges.Replay = providers.ReplayAllAfterStart
	b.must(b.sim.Script(simulator.Fault{Kind: simulator.Refuse, Reference: a.Reference, Nth: 2}))
	wake := make(chan struct{})
	var once sync.Once
	b.run(func(c *dispatch.Config) {
		c.Hooks.AfterCall = func(string) {
			first := false
			once.Do(func() { first = true })
			if first {
				<-wake
			}
		}
	})
	b.state(a.Reference, outbox.FailedFinal)
	close(wake)
	b.await(`EXISTS (SELECT FROM outbox.outbox o JOIN outbox.intents i ON i.id = o.intent_id
		WHERE i.reference = $1 AND o.state = 'failed_final' AND o.review_since IS NOT NULL AND o.review_reason LIKE '%ch\_%')`, a.Reference)
	got, err := outbox.Get(b.ctx, b.pool, "shop", a.Reference)
	b.must(err)
	if got.State != outbox.FailedFinal {
		t.Errorf("a settled outcome was changed to %s", got.State)
	}
	if again := b.enqueue(outbox.Intent{Payload: charge{"contradiction", 900, "EUR"}, Supersedes: a.Reference}); again.Kind != outbox.AnswerRefused {
		t.Errorf("superseded while in review: %+v", again)
	}
}

// Several replicas, a provider that keeps everybody in the dark for a while: every
// question has a number of its own, so no two were asked at once.
func TestReplicasNeverAskAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.charges = canBeAsked
	b.must(b.sim.SetBehaviour(simulator.Charges, simulator.Behaviour{Keys: simulator.Ignore}))
	b.must(b.sim.Script(
		simulator.Fault{Kind: simulator.ResetAfter, Service: simulator.Charges, Nth: 1},
		simulator.Fault{Kind: simulator.ErrorBefore, Service: simulator.Charges, On: simulator.OnLookup, Count: 60},
	))
	for range 4 {
		b.run(nil)
	}
	var answers []outbox.Answer
	for i := range 10 {
		answers = append(answers, b.charge(fmt.Sprint("dark ", i)))
	}
	b.allSettled()
	for _, a := range answers {
		b.effects(simulator.Charges, a.Reference, 1)
		b.sent(a.Reference, 1)
	}
	if n := b.scalar(`SELECT count(*) FROM (SELECT intent_id, attempt FROM outbox.history WHERE event IN ('probed', 'found') GROUP BY 1, 2 HAVING count(*) > 1) q`); n != 0 {
		t.Errorf("%d questions were asked twice under one number", n)
	}
}

// The catalog may prefer twice to never, for a provider that offers nothing better.
func TestAtLeastOnceRepeatsAndAtMostOnceDoesNot(t *testing.T) {
	t.Parallel()
	for choice, want := range map[string]struct {
		state         outbox.State
		effects, sent int
	}{
		"at_most_once":  {outbox.NeedsReview, 1, 1},
		"at_least_once": {outbox.Succeeded, 2, 2},
	} {
		t.Run(choice, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.charges = neither
			b.apply(strings.Replace(testCatalog, "unknown: at_most_once", "unknown: "+choice, 1))
			b.must(b.sim.SetBehaviour(simulator.Charges, simulator.Behaviour{Keys: simulator.Ignore}))
			a := b.charge("choice")
			b.must(b.sim.Script(simulator.Fault{Kind: simulator.ResetAfter, Reference: a.Reference, Nth: 1}))
			b.run(nil)
			b.state(a.Reference, want.state)
			b.sent(a.Reference, want.sent)
			b.effects(simulator.Charges, a.Reference, want.effects)
		})
	}
}

// What nobody can prove goes to its owner when the window ends, with what was tried.
func TestWhatCannotBeProvenGoesToReviewWhenTheWindowEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.charges = canBeAsked
	b.charges.AbsenceIsProof = false
	b.apply(strings.Replace(testCatalog, "timeouts: {call: 1s, lease: 6s}", "timeouts: {call: 1s, lease: 6s, reconcile: 1s}", 1))
	b.must(b.sim.SetBehaviour(simulator.Charges, simulator.Behaviour{Keys: simulator.Ignore}))
	a := b.charge("never shown")
	b.must(b.sim.Script(simulator.Fault{Kind: simulator.ResetBefore, Reference: a.Reference, Nth: 1}))
	b.run(nil)
	b.state(a.Reference, outbox.NeedsReview)
	b.sent(a.Reference, 1)
	b.effects(simulator.Charges, a.Reference, 0)
	b.await(`EXISTS (SELECT FROM outbox.outbox WHERE review_since >= unknown_since + interval '1 s' AND review_reason LIKE 'looked up for 1s%absent%')`)
}
