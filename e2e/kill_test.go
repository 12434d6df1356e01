package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// Times of the tests in which a lease has to run out. A worker that stands in its call
// must be dead before the call gives up, on a busy machine, too.
const (
	killCall  = 3 * time.Second
	killLease = 8 * time.Second
	// lateAtMost is how long after its lease an intent may still count as executing.
	lateAtMost = 2 * time.Second
)

// A worker that is killed before its claim has committed has sent nothing, and everybody
// can see so: another one does the work.
func TestAWorkerKilledBeforeItsClaimLeavesTheWorkToAnother(t *testing.T) {
	t.Parallel()
	b := setup(t, withTimes(killCall, killLease))
	reference := b.charge(plain("1"))
	victim := b.hookedWorker("victim", beforeClaim, reference)
	victim.await(b)
	victim.kill()
	b.again(plain("1"), reference, outbox.AnswerInFlight, outbox.Accepted)

	b.worker("other")
	b.state(reference, outbox.Succeeded)
	b.quiet()
	b.counted(simulator.Charges, reference, 1, 1)
	if by := value[[]string](b, `array_agg(h.actor) FROM outbox.timeline h WHERE h.event = 'claimed'`); len(by) != 1 || by[0] != "other" {
		t.Errorf("claimed by %v, want other alone", by)
	}
	b.compare()
}

// A worker that is killed after its claim may have sent, as far as anybody can know. So
// the outcome is unknown as soon as the lease is over, and nobody sends again: this
// provider knows no keys and cannot be asked, so a person has to look.
func TestAWorkerKilledAfterItsClaimLeavesAnUnknownOutcomeThatNobodySendsAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		at       string
		hook     point
		hold     simulator.Point
		requests int
		effects  int
	}{
		{at: "claimed, nothing sent", hook: afterClaim},
		{at: "connected, nothing written", hook: beforeWrite},
		{at: "at the provider, before the effect", hold: simulator.BeforeEffect, requests: 1},
		{at: "at the provider, after the effect", hold: simulator.AfterEffect, requests: 1, effects: 1},
		{at: "answered", hook: afterCall, requests: 1, effects: 1},
		{at: "about to record", hook: beforeSettle, requests: 1, effects: 1},
	} {
		t.Run(c.at, func(t *testing.T) {
			t.Parallel()
			b := setup(t, withTimes(killCall, killLease))
			reference := b.charge(full("1"))
			goOn := func() {}
			if c.hook != "" {
				victim := b.hookedWorker("victim", c.hook, reference)
				victim.await(b)
				victim.kill()
			} else {
				goOn = b.sim.Hold(simulator.Charges, reference, c.hold)
				victim := b.worker("victim")
				b.held(simulator.Charges, reference)
				victim.kill()
			}
			b.counted(simulator.Charges, reference, c.effects, c.requests)
			b.again(full("1"), reference, outbox.AnswerInFlight, outbox.Executing)

			other := b.worker("other")
			b.state(reference, outbox.NeedsReview)
			if got, want := strings.Join(b.steps(reference), ", "), "0 committed accepted, 1 accepted claimed executing, "+
				"1 executing lease_expired outcome_unknown, 2 outcome_unknown not_proven needs_review"; got != want {
				t.Errorf("history: %s\nwant %s", got, want)
			}
			if took := value[time.Duration](b, `max(at) FILTER (WHERE event = 'lease_expired') - max(at) FILTER (WHERE event = 'claimed') FROM outbox.timeline`); took < killLease-100*time.Millisecond || took > killLease+lateAtMost { // the entry is written a moment after the lease begins
				t.Errorf("unknown %s after the claim, want %s to %s", took, killLease, killLease+lateAtMost)
			}

			// The other worker does what comes now, and leaves this alone, whatever the
			// first request still comes to.
			goOn()
			effects := c.requests // what has reached the provider has its effect
			b.atProvider(func(s simulator.Snapshot) bool { return s.Count(simulator.Charges, reference) == effects })
			b.again(full("1"), reference, outbox.AnswerInFlight, outbox.NeedsReview)
			next := b.charge(plain("2"))
			b.state(next, outbox.Succeeded)
			b.quiet()
			other.alive()
			b.counted(simulator.Charges, reference, effects, c.requests)
			b.state(reference, outbox.NeedsReview)
			if n := value[int](b, `count(*)::int FROM outbox.intents WHERE parent_id IS NOT NULL`); n != 0 {
				t.Errorf("%d follow-ons of an outcome that nobody knows", n)
			}
			b.compare()
		})
	}
}

// A worker that is killed once the outcome is recorded changes nothing any more. What
// should follow is written down beside the outcome, and another worker creates it, once.
func TestAWorkerKilledAfterSettlementLosesNoFollowOn(t *testing.T) {
	t.Parallel()
	b := setup(t, withTimes(killCall, killLease))
	reference := b.charge(full("1"))
	// It must not get to the follow-ons by its other ways either: none of its polls comes.
	victim := b.hookedWorker("victim", afterSettle, reference, "OUTBOX_WORKER__IDLE_POLL=1h")
	victim.await(b)
	victim.kill()
	effects := b.sim.Effects("")
	if phase := value[string](b, `phase::text FROM outbox.outbox`); phase != "following" || len(effects) != 1 {
		t.Fatalf("phase %s, effects %+v: want follow-ons to be created, and the charge alone", phase, effects)
	}
	settled := b.again(full("1"), reference, outbox.AnswerSettled, outbox.Succeeded)

	b.worker("other")
	b.quiet()
	b.counted(simulator.Charges, reference, 1, 1)
	if got := b.again(full("1"), reference, outbox.AnswerSettled, outbox.Succeeded); got.ProviderID != effects[0].ProviderID || !got.SettledAt.Equal(settled.SettledAt) {
		t.Errorf("settled as %s at %s, then %s at %s; the provider has %s",
			settled.ProviderID, settled.SettledAt, got.ProviderID, got.SettledAt, effects[0].ProviderID)
	}
	if got, want := strings.Join(b.steps(reference), ", "), "0 committed accepted, 1 accepted claimed executing, "+
		"1 executing provider_accepted succeeded, 1 succeeded follow_ons_created succeeded"; got != want {
		t.Errorf("history: %s\nwant %s", got, want)
	}
	for _, service := range []string{simulator.Shipments, simulator.Mail} {
		if n := len(b.sim.Effects(service)); n != 1 {
			t.Errorf("%d effects of %s, want 1", n, service)
		}
	}
	b.compare()
}
