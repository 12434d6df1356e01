package e2e_test

import (
	"testing"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// What the payments account is declared to promise.
const (
	byLookup = `{charge_card: {path: /v1/charges, lookup: /v1/charges}}`
	byKey    = `{charge_card: {path: /v1/charges, key_memory: 24h, replay: success_only}}`
	byBoth   = `{charge_card: {path: /v1/charges, lookup: /v1/charges, absence_is_proof: true, key_memory: 24h, replay: success_only}}`
)

// Where the provider tells, a kill -9 costs a lease and nobody's time: another worker finds
// out what became of the attempt, and does what is left to do.
func TestAWorkerKilledAfterItsClaimIsFoundOutByAnother(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		claim    string
		promises string
		keys     simulator.KeyMode
		killed   []point // one worker after the other
		requests int
	}{
		{"looked up: it happened", byLookup, simulator.Ignore, []point{afterCall}, 1},
		{"sent again under its key: it happened", byKey, simulator.Honour, []point{afterCall}, 2},
		{"sent again under its key: it had not", byKey, simulator.Honour, []point{afterClaim}, 1},
		{"looked up: not there, so sent again under its key", byBoth, simulator.Honour, []point{afterClaim}, 1},
		{"who finds out is killed as well", byKey, simulator.Honour, []point{afterCall, beforeResend}, 2},
	} {
		t.Run(c.claim, func(t *testing.T) {
			t.Parallel()
			b := setup(t, withTimes(killCall, killLease))
			b.must(b.sim.SetBehaviour(simulator.Charges, simulator.Behaviour{Keys: c.keys}))
			b.configure(c.promises)
			reference := b.charge(full("1"))
			for _, at := range c.killed {
				victim := b.hookedWorker("victim at "+string(at), at, reference)
				victim.await(b)
				victim.kill()
			}
			b.worker("other")
			b.state(reference, outbox.Succeeded)
			b.quiet()
			b.counted(simulator.Charges, reference, 1, c.requests)
			settled := b.again(full("1"), reference, outbox.AnswerSettled, outbox.Succeeded)
			if e := b.sim.Effects(simulator.Charges); len(e) != 1 || settled.ProviderID != e[0].ProviderID {
				t.Errorf("settled as %q, effects %+v", settled.ProviderID, e)
			}
			// A success that was found out late is followed like any other.
			if states := b.compare(); states[outbox.Succeeded] != 3 {
				t.Errorf("states %v, want the charge, its shipment and its receipt", states)
			}
		})
	}
}
