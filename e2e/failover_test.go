package e2e_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/internal/pgtemp"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// The primary is lost under load, and its synchronous standby promoted. Workers and
// callers have a URL with both hosts, as one has in production, and nobody is restarted.
// Whatever was acknowledged is there; what was due may have been sent in a future that the
// new primary cannot know of, so it is found out before anything is sent; and everything
// happens once.
func TestNothingIsLostOrRepeatedWhenAStandbyIsPromotedUnderLoad(t *testing.T) {
	t.Parallel()
	const producers, each = 4, 60
	primary, err := pgtemp.Start(t.Context(), pgtemp.Options{Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := primary.Stop(); err != nil {
			t.Error(err)
		}
	})
	migrate(t, primary.URL())
	standby, err := primary.Standby(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	b := setupAt(t, fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable&target_session_attrs=read-write", primary.Address(), standby.Address()))
	b.apply(withTimes(2*time.Second, 7*time.Second))
	b.must(b.sim.SetBehaviour(simulator.Charges, simulator.Behaviour{Keys: simulator.Honour}))
	b.configure(byBoth)
	b.slowly(50 * time.Millisecond)
	workers := []*child{b.worker("worker-0"), b.worker("worker-1")}
	b.ready(workers...)

	answers := make([][]outbox.Answer, producers)
	var all sync.WaitGroup
	gate := make(chan struct{}) // the second half is enqueued around the promotion
	for p := range producers {
		all.Go(func() {
			for i := range each {
				if i == each/2 {
					<-gate
				}
				answers[p] = append(answers[p], b.insist(plain(fmt.Sprintf("%d-%d", p, i))))
			}
		})
	}
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	b.atProvider(func(s simulator.Snapshot) bool { return s.Count(simulator.Charges, "") >= producers*each/8 })
	open()
	b.must(primary.Halt(pgtemp.ModeImmediate))
	b.must(standby.Promote(b.ctx))
	all.Wait()

	b.quiet()
	for _, w := range workers {
		w.alive()
	}
	for _, some := range answers {
		for _, a := range some {
			if n := value[int](b, `count(*)::int FROM outbox.intents WHERE reference = $1`, a.Reference); n != 1 {
				t.Errorf("%s was answered with %s and is not there", a.Reference, a.Kind)
			}
		}
	}
	if states := b.compare(); states[outbox.Succeeded] != producers*each || len(states) != 1 {
		t.Errorf("states %v, want %d succeeded", states, producers*each)
	}
	if n := len(b.sim.Effects(simulator.Charges)); n != producers*each {
		t.Errorf("%d charges, want %d", n, producers*each)
	}
	if n := value[int](b, `count(DISTINCT intent_id)::int FROM outbox.history WHERE event = 'ledger_moved'`); n == 0 {
		t.Error("nothing was in doubt after the promotion: was there any load?")
	}
	// Operators have the same URL.
	ran := b.call("", b.environment(), program(t), "list", "--state", "succeeded", "--limit", "1", "--output", "json")
	if ran.code != 0 || ran.stdout == "" {
		t.Errorf("list ended with %d: %s%s", ran.code, ran.stdout, ran.stderr)
	}
}
