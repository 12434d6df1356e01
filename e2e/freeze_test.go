package e2e_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// wakeCall is as long as a frozen worker needs to wake up and to say what it knows, also on
// a busy machine: the second worker's call must still run then.
const wakeCall = 8 * time.Second

// late is a condition: an answer of that attempt came too late and is kept as evidence.
const late = `EXISTS (SELECT FROM outbox.history h JOIN outbox.intents i ON i.id = h.intent_id
	WHERE i.reference = $1 AND h.attempt = $2 AND h.event = 'late_answer')`

// A worker's machine sleeps before its claim, and what it was about to claim is handed out
// anew. Whatever has become of that when it wakes up, the claim compares state and attempt
// and fails.
func TestAWorkerThatWakesUpBeforeItsClaimClaimsNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		claim string
		state outbox.State
	}{
		{"another is calling", outbox.Executing},
		{"another will try again in an hour", outbox.FailedRetryable},
		{"another has settled", outbox.Succeeded},
	} {
		t.Run(c.claim, func(t *testing.T) {
			t.Parallel()
			b := setup(t, strings.Replace(withTimes(patientCall, patientLease), "initial: 50ms, max: 250ms", "initial: 1h, max: 1h", 1))
			reference := b.charge(plain("1"))
			first := b.hookedWorker("first", beforeClaim, reference)
			first.await(b)
			first.freeze()
			job := value[int64](b, `id FROM outbox.river_job`)
			answer := b.sim.Hold(simulator.Charges, reference, simulator.BeforeEffect)
			defer answer()
			if c.state == outbox.FailedRetryable {
				b.must(b.sim.Script(simulator.Fault{Kind: simulator.Unauthorized, Reference: reference}))
			}
			if c.state == outbox.Succeeded {
				answer()
			}
			b.worker("second")
			b.atProvider(func(s simulator.Snapshot) bool { return s.Requests(simulator.Charges, reference) == 1 })
			b.state(reference, c.state)
			before := b.steps(reference)

			first.thaw()
			first.goOn()
			b.await(jobIs, job, "completed", 1)
			b.state(b.charge(plain("2")), outbox.Succeeded)
			if after := b.steps(reference); c.state != outbox.Succeeded && !slices.Equal(after, before) {
				t.Errorf("history was %v, and is %v", before, after)
			}
			b.state(reference, c.state)
			if n := b.sim.Requests(simulator.Charges, reference); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
			b.compare()
		})
	}
}

// A worker's machine sleeps between claim and call. Another sends the request again, to
// find out, and waits for the answer when the first wakes up: that sends nothing any more,
// and what it says of its own attempt does not touch the one that is in question now. Here
// not even the provider would notice one request too many.
func TestAWorkerThatWakesUpWhileAnotherSendsAgainSendsNothingAndOverwritesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, withTimes(wakeCall, wakeCall+5*time.Second))
	b.configure(byKey)
	reference := b.charge(plain("1"))
	first := b.hookedWorker("first", afterClaim, reference)
	first.await(b)
	first.freeze()
	answer := b.sim.Hold(simulator.Charges, reference, simulator.BeforeEffect)
	defer answer()
	b.worker("second")
	b.held(simulator.Charges, reference)

	first.thaw()
	first.goOn()
	b.await(late, reference, 1)
	b.again(plain("1"), reference, outbox.AnswerInFlight, outbox.OutcomeUnknown)
	answer()
	b.state(reference, outbox.Succeeded)
	b.state(b.charge(plain("2")), outbox.Succeeded)
	b.quiet()
	b.counted(simulator.Charges, reference, 1, 1)
	b.compare()
}

// The same where a person has decided meanwhile that it had not happened, which was right:
// the next attempt is under way when the first wakes up.
func TestAWorkerThatWakesUpAfterAReviewDoesNotTouchTheNextAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, withTimes(wakeCall, wakeCall+5*time.Second))
	reference := b.charge(plain("1"))
	first := b.hookedWorker("first", afterClaim, reference)
	first.await(b)
	first.freeze()
	answer := b.sim.Hold(simulator.Charges, reference, simulator.BeforeEffect)
	defer answer()
	b.worker("second")
	b.state(reference, outbox.NeedsReview)
	type operated struct{ Answer, State string }
	if got := says[operated](b, 0, "outbox-worker", "resolve", reference, "--as", "not-executed",
		"--evidence", "not in the provider's journal", "--reason", "worker gone"); len(got) != 1 || got[0].State != string(outbox.FailedRetryable) {
		t.Errorf("resolve: %+v", got)
	}
	b.held(simulator.Charges, reference)

	first.thaw()
	first.goOn()
	b.await(late, reference, 1)
	b.again(plain("1"), reference, outbox.AnswerInFlight, outbox.Executing)
	answer()
	b.state(reference, outbox.Succeeded)
	b.quiet()
	b.counted(simulator.Charges, reference, 1, 1)
	b.compare()
}

// The same after the call: what the first worker knows when it wakes up is older than the
// outcome.
func TestAWorkerThatWakesUpAfterAnotherHasSettledChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, withTimes(killCall, killLease))
	b.must(b.sim.SetBehaviour(simulator.Charges, simulator.Behaviour{Keys: simulator.Honour}))
	b.configure(byKey)
	reference := b.charge(full("1"))
	first := b.hookedWorker("first", afterCall, reference)
	first.await(b)
	first.freeze()
	b.worker("second")
	b.state(reference, outbox.Succeeded)
	b.quiet()
	settled := b.again(full("1"), reference, outbox.AnswerSettled, outbox.Succeeded)

	first.thaw()
	first.goOn()
	b.await(late, reference, 1)
	b.state(b.charge(plain("2")), outbox.Succeeded)
	b.quiet()
	if now := b.again(full("1"), reference, outbox.AnswerSettled, outbox.Succeeded); now.Attempt != settled.Attempt || !now.SettledAt.Equal(settled.SettledAt) {
		t.Errorf("settled by attempt %d at %s, and now by %d at %s", settled.Attempt, settled.SettledAt, now.Attempt, now.SettledAt)
	}
	b.counted(simulator.Charges, reference, 1, 2)
	if n := len(b.sim.Effects("")); n != 4 {
		t.Errorf("%d effects, want two charges, a shipment and a receipt", n)
	}
	b.compare()
}

// A worker sleeps for longer than its lease at each point of a call, and wakes up when
// another has asked what became of it: one effect, whether the provider honours keys or can
// only be looked up, and whatever the first worker still has to say.
func TestAWorkerThatSleepsBeyondItsLeaseCausesOneEffectAtEveryPoint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		claim    string
		hook     point // where it falls asleep; "": while the provider has its request
		promises string
		keys     simulator.KeyMode
		requests int // it sends nothing after its lease, and nobody sends blindly; 0: some are told that one is in progress
	}{
		{"before the request is written, by key", beforeWrite, byKey, simulator.Honour, 1},
		{"before the request is written, by lookup", beforeWrite, byLookup, simulator.Ignore, 1},
		{"while it is with the provider, by key", "", byKey, simulator.Honour, 0},
		{"while it is with the provider, by lookup", "", byLookup, simulator.Ignore, 1},
		{"after it, by key", afterCall, byKey, simulator.Honour, 2},
		{"after it, by lookup", afterCall, byLookup, simulator.Ignore, 1},
	} {
		t.Run(c.claim, func(t *testing.T) {
			t.Parallel()
			b := setup(t, withTimes(killCall, killLease))
			b.must(b.sim.SetBehaviour(simulator.Charges, simulator.Behaviour{Keys: c.keys}))
			b.configure(c.promises)
			reference := b.charge(plain("1"))
			var first *child
			var wake func()
			if c.hook != "" {
				h := b.hookedWorker("first", c.hook, reference)
				h.await(b)
				first, wake = h.child, func() { h.thaw(); h.goOn() }
			} else {
				answer := b.sim.Hold(simulator.Charges, reference, simulator.BeforeEffect)
				first = b.worker("first")
				b.held(simulator.Charges, reference)
				wake = func() { answer(); first.thaw() }
			}
			first.freeze()
			b.worker("second")
			b.await(`EXISTS (SELECT FROM outbox.history WHERE event = 'lease_expired')`)
			b.await(`EXISTS (SELECT FROM outbox.history WHERE attempt > 1)`) // asked about, or sent again
			wake()
			b.state(reference, outbox.Succeeded)
			b.quiet()
			b.state(b.charge(plain("2")), outbox.Succeeded)
			b.quiet()
			requests := c.requests
			if requests == 0 {
				requests = b.sim.Requests(simulator.Charges, reference)
			}
			b.counted(simulator.Charges, reference, 1, requests)
			b.compare()
		})
	}
}

// A worker's machine sleeps, or its network is gone, in the middle of a transaction in
// which it hands out work. The others are not held up by what it has locked.
func TestAWorkerFrozenInATransactionHoldsUpNobody(t *testing.T) {
	t.Parallel()
	b := setup(t, withTimes(patientCall, patientLease))
	first := b.worker("first")
	b.ready(first)
	// It has locked the lane and is to put a job into River's table.
	tx, err := b.pool.Begin(b.ctx)
	b.must(err)
	defer func() { _ = tx.Rollback(b.ctx) }()
	_, err = tx.Exec(b.ctx, `LOCK TABLE outbox.river_job IN EXCLUSIVE MODE`)
	b.must(err)
	reference := b.charge(plain("1"))
	b.await(`EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query ILIKE '%copy%river_job%')`)
	first.freeze()
	b.must(tx.Rollback(b.ctx))

	b.worker("second")
	b.state(reference, outbox.Succeeded)
	first.thaw()
	b.state(b.charge(plain("2")), outbox.Succeeded)
	b.quiet()
	first.alive()
	b.counted(simulator.Charges, reference, 1, 1)
	b.compare()
}
