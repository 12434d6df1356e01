package figures

import (
	"context"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/providers"
)

// idle is what an idle system does and how fast it wakes.
type idle struct {
	p50, p99 float64 // ms from commit to the beginning of the call
	cpu      float64 // % of a core, this process
}

// idled measures an idle system once a round, whichever of its figures are asked for.
func (r *run) idled(of func(idle) float64) func(context.Context, *place) (pair, error) {
	return func(ctx context.Context, p *place) (pair, error) {
		if r.idle == nil {
			got, err := r.fromIdle(ctx, p)
			if err != nil {
				return pair{}, err
			}
			r.idle = &got
		}
		return pair{Value: of(*r.idle)}, nil
	}
}

// fromIdle commits intents one by one to a worker that has gone to sleep, and then leaves
// it alone for a while.
func (r *run) fromIdle(ctx context.Context, p *place) (got idle, err error) {
	var mu sync.Mutex
	began := make(chan time.Time, 1)
	with := &provider{begun: func(providers.Request) {
		mu.Lock()
		defer mu.Unlock()
		began <- time.Now()
	}}
	err = p.work(ctx, with, 100, func(ctx context.Context) error {
		var waits []float64
		err := p.session(ctx, func(c *pgx.Conn) error {
			for i := -1; i < r.o.Wakes; i++ { // the first one also waits for the worker to start
				// From asleep (300 ms later) and from just now awake, in turn.
				if err := pause(ctx, time.Duration(i&1)*300*time.Millisecond+50*time.Millisecond); err != nil {
					return err
				}
				if err := accept(ctx, c, intentOf(p.take())); err != nil {
					return err
				}
				committed := time.Now()
				select {
				case at := <-began:
					if i >= 0 {
						waits = append(waits, max(0, at.Sub(committed).Seconds()*1e3))
					}
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		got.p50, got.p99 = quantile(waits, 0.5), quantile(waits, 0.99)
		if !r.wants("7-cpu", Idle) {
			return nil
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
		before, start := cpuTime(), time.Now()
		if err := pause(ctx, r.o.Idle); err != nil {
			return err
		}
		got.cpu = 100 * (cpuTime() - before).Seconds() / time.Since(start).Seconds()
		return nil
	})
	return got, err
}

// cpuTime is what this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
