package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/internal/pgtemp"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/migrations"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// The database goes down as in a crash, twice, while applications enqueue and workers
// send. Nobody restarts a worker. Whoever had an answer finds it kept, whoever had none
// asks again under the same key, and nothing happens twice.
func TestWorkersSurviveARestartOfPostgresUnderLoad(t *testing.T) {
	t.Parallel()
	const producers, each = 4, 60
	server, err := pgtemp.Start(t.Context(), pgtemp.Options{Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	migrate(t, server.URL())
	b := setupAt(t, server.URL())
	b.apply(withTimes(2*time.Second, 7*time.Second))
	b.slowly(50 * time.Millisecond)
	workers := []*child{b.worker("worker-0"), b.worker("worker-1")}
	b.ready(workers...)

	answers := make([][]outbox.Answer, producers)
	var all sync.WaitGroup
	gate := make(chan struct{}) // the second half is enqueued around the second restart
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
	restart := func(after int) {
		t.Helper()
		b.atProvider(func(s simulator.Snapshot) bool { return s.Count(simulator.Charges, "") >= after })
		b.must(server.Restart(b.ctx, pgtemp.ModeImmediate))
	}
	restart(producers * each / 8)
	open()
	restart(producers * each * 5 / 8)
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
	states := b.compare()
	t.Logf("states %v", states)
	if n := value[int](b, `count(*)::int FROM outbox.intents`); n != producers*each || states[outbox.Succeeded] < n/2 || states[outbox.Succeeded]+states[outbox.NeedsReview] != n {
		t.Errorf("%d intents, states %v: want %d, most of them succeeded, the others in review", n, states, producers*each)
	}
}

func migrate(t testing.TB, url string) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
}

// insist enqueues until there is an answer: what an application does that does not know
// whether its transaction went through.
func (b *bundle) insist(o order) outbox.Answer {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		a, err := outbox.Enqueue(b.ctx, b.pool, o.intent())
		if err == nil {
			return a
		}
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			b.t.Error(errors.Join(err, context.Cause(b.ctx)))
			return a
		}
	}
}
