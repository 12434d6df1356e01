package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// enqueueMany enqueues n plain charges at once.
func (b *bundle) enqueueMany(prefix string, n int) []outbox.Answer {
	b.t.Helper()
	intents := make([]outbox.Intent, n)
	for i := range intents {
		intents[i] = plain(fmt.Sprint(prefix, i)).intent()
	}
	answers, err := outbox.EnqueueMany(b.ctx, b.pool, intents)
	b.must(err)
	return answers
}

// slowly makes every charge take that long.
func (b *bundle) slowly(d time.Duration) {
	b.t.Helper()
	b.must(b.sim.Script(simulator.Fault{Kind: simulator.Delay, Service: simulator.Charges, Duration: d}))
}

func TestTenReplicasHaveEachEffectOnceAndShareTheWork(t *testing.T) {
	t.Parallel()
	const replicas, intents = 10, 300
	b := setup(t, withTimes(patientCall, patientLease))
	b.slowly(50 * time.Millisecond)
	workers := make([]*child, replicas)
	for i := range workers {
		workers[i] = b.worker(fmt.Sprint("replica-", i), "OUTBOX_DATABASE__MAX_CONNS=4")
	}
	b.ready(workers...)
	// Released a lane's room at a time, so that there is something to share.
	for _, a := range b.enqueueMany("o", intents) {
		if a.Kind != outbox.AnswerAccepted {
			t.Fatalf("enqueued: %+v", a)
		}
	}
	b.quiet()
	if states := b.compare(); states[outbox.Succeeded] != intents {
		t.Errorf("states %v, want %d succeeded", states, intents)
	}
	if n := b.sim.Requests(simulator.Charges, ""); n != intents {
		t.Errorf("%d requests, want %d", n, intents)
	}
	type share struct{ Actors, Claims int }
	if s := (share{
		value[int](b, `count(DISTINCT actor)::int FROM outbox.timeline WHERE event = 'claimed'`),
		value[int](b, `count(*)::int FROM outbox.timeline WHERE event = 'claimed'`),
	}); s.Actors <= replicas/2 || s.Claims != intents {
		t.Errorf("%d of %d replicas made %d claims, want more than half and %d", s.Actors, replicas, s.Claims, intents)
	}
}
