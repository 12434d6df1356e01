package e2e_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// The failure table that every store of idempotency keys is asked about, row by row, with
// real processes and a provider that ignores keys and can be looked up. docs/failures.md
// tells more cases, and the other files here show them.

// asked makes a bundle whose payment provider ignores keys and can be looked up.
func asked(t *testing.T) *bundle {
	t.Helper()
	b := setup(t, withTimes(killCall, killLease))
	b.configure(byLookup)
	return b
}

// settledAs sees that who asks again gets what the provider has, and under one id.
func (b *bundle) settledAs(o order, reference string) {
	b.t.Helper()
	effects := b.sim.Effects(simulator.Charges)
	for range 2 {
		a := b.again(o, reference, outbox.AnswerSettled, outbox.Succeeded)
		if len(effects) != 1 || a.ProviderID != effects[0].ProviderID {
			b.t.Errorf("settled as %s; the provider has %+v", a.ProviderID, effects)
		}
	}
}

// nothingFollows is the entry of an order that has no follow-ons, after that attempt.
func nothingFollows(attempt int) string {
	return fmt.Sprintf("%d succeeded follow_ons_created succeeded", attempt)
}

// Same key and payload at once: one execution, and a result that all share.
func TestRowOneTheSameRequestAtOnce(t *testing.T) {
	t.Parallel()
	b := asked(t)
	b.ready(b.worker("one"), b.worker("two"))
	const callers = 8
	answers := make([]outbox.Answer, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() { answers[i] = throughPgx(b, plain("1042")) })
	}
	all.Wait()
	reference, accepted := answers[0].Reference, 0
	for _, a := range answers {
		if a.Reference != reference || !slices.Contains([]outbox.AnswerKind{outbox.AnswerAccepted, outbox.AnswerInFlight, outbox.AnswerSettled}, a.Kind) {
			t.Errorf("answered %+v, the first %s", a, reference)
		}
		if a.Kind == outbox.AnswerAccepted {
			accepted++
		}
	}
	if accepted != 1 {
		t.Errorf("%d were told that theirs is new, want 1", accepted)
	}
	b.state(reference, outbox.Succeeded)
	b.counted(simulator.Charges, reference, 1, 1)
	b.settledAs(plain("1042"), reference)
	b.compare()
}

// Same key, changed amount: a conflict, whatever the first one's state, and no effect.
func TestRowTwoTheSameKeyWithAnotherAmount(t *testing.T) {
	t.Parallel()
	b := asked(t)
	o := plain("1042")
	changed := o
	changed.Amount++
	reference := b.charge(o)
	conflicts := func(state outbox.State) {
		t.Helper()
		a := b.again(changed, reference, outbox.AnswerConflict, state)
		if !slices.Equal(a.Differs, []string{"/amount"}) || a.ProviderID != "" || a.Result != nil {
			t.Errorf("differs in %v, told %q %s", a.Differs, a.ProviderID, a.Result)
		}
	}
	conflicts(outbox.Accepted)
	answer := b.sim.Hold(simulator.Charges, reference, simulator.AfterEffect)
	b.worker("worker")
	b.held(simulator.Charges, reference)
	conflicts(outbox.Executing)
	answer()
	b.state(reference, outbox.Succeeded)
	conflicts(outbox.Succeeded)
	b.quiet()
	b.counted(simulator.Charges, reference, 1, 1)
	if e := b.sim.Effects(simulator.Charges); len(e) != 1 {
		t.Errorf("effects %+v, want the first alone", e)
	}
	b.settledAs(o, reference)
	b.compare()
}

// Response lost after success: found out, with the original outcome and its id.
func TestRowThreeTheResponseIsLostAfterSuccess(t *testing.T) {
	t.Parallel()
	for _, kind := range []simulator.Kind{simulator.ResetAfter, simulator.Lost, simulator.Truncated, simulator.ErrorAfter} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			b := asked(t)
			b.must(b.sim.Script(simulator.Fault{Kind: kind, Service: simulator.Charges, Count: 1}))
			reference := b.charge(plain("1042"))
			b.worker("worker")
			b.state(reference, outbox.Succeeded)
			b.quiet()
			b.counted(simulator.Charges, reference, 1, 1)
			b.settledAs(plain("1042"), reference)
			if steps := b.steps(reference); !slices.Contains(steps, "1 executing no_answer outcome_unknown") || !slices.Contains(steps, "2 outcome_unknown found succeeded") {
				t.Errorf("history: %q", steps)
			}
			b.compare()
		})
	}
}

// Worker dies before dispatch: another claims it, one attempt at a time.
func TestRowFourTheWorkerDiesBeforeDispatch(t *testing.T) {
	t.Parallel()
	b := asked(t)
	reference := b.charge(plain("1042"))
	victim := b.hookedWorker("victim", beforeClaim, reference)
	victim.await(b)
	victim.kill()
	b.counted(simulator.Charges, reference, 0, 0)
	b.worker("other")
	b.worker("another")
	b.state(reference, outbox.Succeeded)
	b.quiet()
	b.counted(simulator.Charges, reference, 1, 1)
	if got, want := b.steps(reference), []string{"0 committed accepted", "1 accepted claimed executing", "1 executing provider_accepted succeeded", nothingFollows(1)}; !slices.Equal(got, want) {
		t.Errorf("history %q, want %q", got, want)
	}
	b.settledAs(plain("1042"), reference)
	b.compare()
}

// Worker dies after dispatch: unknown, asked, and no blind repeat.
func TestRowFiveTheWorkerDiesAfterDispatch(t *testing.T) {
	t.Parallel()
	b := asked(t)
	reference := b.charge(plain("1042"))
	answer := b.sim.Hold(simulator.Charges, reference, simulator.AfterEffect)
	victim := b.worker("victim")
	b.held(simulator.Charges, reference)
	victim.kill()
	b.again(plain("1042"), reference, outbox.AnswerInFlight, outbox.Executing)
	b.worker("other")
	b.state(reference, outbox.Succeeded)
	answer()
	b.quiet()
	b.counted(simulator.Charges, reference, 1, 1)
	if got, want := b.steps(reference), []string{
		"0 committed accepted", "1 accepted claimed executing", "1 executing lease_expired outcome_unknown", "2 outcome_unknown found succeeded", nothingFollows(2),
	}; !slices.Equal(got, want) {
		t.Errorf("history %q, want %q", got, want)
	}
	b.settledAs(plain("1042"), reference)
	b.compare()
}

// Recovery: after kill -9 of one of three workers in the middle of its calls, all that it
// had in flight has left executing, and has been asked about a first time, within its
// lease and five seconds.
func TestWhatAKilledWorkerHadInFlightIsFoundOutWithinLeaseAndFiveSeconds(t *testing.T) {
	t.Parallel()
	const limit = killLease + 5*time.Second
	b := asked(t)
	answer := b.sim.Hold(simulator.Charges, "", simulator.AfterEffect)
	victim := b.worker("victim")
	const inFlight = 40
	for i := range inFlight {
		b.charge(plain(fmt.Sprint(i)))
	}
	b.atProvider(func(s simulator.Snapshot) bool { return s.Held(simulator.Charges, "") == inFlight })
	victim.kill()
	killed := value[time.Time](b, "clock_timestamp()")
	answer()
	b.ready(b.worker("other"), b.worker("another"))
	for i := range 100 { // they have work of their own meanwhile
		b.charge(plain(fmt.Sprint(inFlight + i)))
	}
	b.await(`(SELECT count(*) FROM outbox.outcomes) = $1`, inFlight+100)
	b.quiet()
	lost := value[int](b, `count(*)::int FROM outbox.history WHERE event = 'lease_expired'`)
	took := value[time.Duration](b, `max(at) - $1 FROM (SELECT min(h.at) AS at FROM outbox.history h
		WHERE h.event IN ('found', 'probed', 'not_proven') GROUP BY h.intent_id) firsts`, killed)
	t.Logf("%d in flight, the last one asked about %s after the kill; lease %s", lost, took.Round(time.Millisecond), killLease)
	if lost != inFlight || took > limit {
		t.Errorf("%d leases ran out, the last was asked about after %s; want %d within %s", lost, took, inFlight, limit)
	}
	if n := len(b.sim.Effects(simulator.Charges)); n != inFlight+100 {
		t.Errorf("%d charges, want %d", n, inFlight+100)
	}
	if states := b.compare(); states[outbox.Succeeded] != inFlight+100 {
		t.Errorf("states %v", states)
	}
}
