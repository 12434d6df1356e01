package dispatch_test

import (
	"testing"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

func TestACommittedIntentHasItsEffectOnceAndItsFollowOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.run(nil)
	a := b.charge("o-1")
	b.allSettled()
	b.effects(simulator.Charges, a.Reference, 1)
	if got := len(b.sim.Effects(simulator.Shipments)); got != 1 {
		t.Errorf("shipments: %d, want 1", got)
	}
	got, err := outbox.Get(b.ctx, b.pool, "shop", a.Reference)
	b.must(err)
	if got.State != outbox.Succeeded || got.ProviderID != b.sim.Effects(simulator.Charges)[0].ProviderID {
		t.Errorf("answer %+v", got)
	}
	sameJSON(t, b.history(a.Reference), []string{
		"0 committed accepted",
		"1 accepted claimed executing",
		"1 executing provider_accepted succeeded",
		"1 succeeded follow_ons_created succeeded",
	})
}
