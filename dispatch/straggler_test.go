package dispatch_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/dispatch"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/providers"
)

// These two the model in docs/model found.

// A resend's effect is younger than the attempt that it asks about, so the provider's lag
// begins anew with it.
func TestTheLagBeginsAnewWithAResend(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.charges = canBeAsked
	b.charges.KeyMemory, b.charges.Replay = remembersKeys.KeyMemory, remembersKeys.Replay
	b.charges.LookupLag = 3 * time.Second
	b.must(b.sim.SetBehaviour(simulator.Charges, simulator.Behaviour{LookupLag: 2900 * time.Millisecond}))
	var now time.Time
	b.must(b.pool.QueryRow(b.ctx, `SELECT clock_timestamp()`).Scan(&now))
	// Past the deadline nothing may be sent, so the lookup is all that is left.
	a := b.enqueue(outbox.Intent{Payload: charge{"lagged", 5, "EUR"}, Deadline: now.Add(5 * time.Second)})
	b.must(b.sim.Script(
		simulator.Fault{Kind: simulator.ResetBefore, Reference: a.Reference, Nth: 1},
		simulator.Fault{Kind: simulator.ResetAfter, Reference: a.Reference, Nth: 2},
		simulator.Fault{Kind: simulator.Unauthorized, Reference: a.Reference},
	))
	b.run(nil)
	b.state(a.Reference, outbox.Succeeded)
	b.effects(simulator.Charges, a.Reference, 1)
	b.never(a.Reference, "failed")
}

// freezing stops its first call between permit and write; its others are refused at the
// dial.
type freezing struct {
	providers.Provider
	once         *sync.Once
	frozen, thaw chan struct{}
}

func (f freezing) Send(ctx context.Context, r providers.Request, may providers.Permit) providers.Answer {
	answer := providers.NotSent("dial_refused", "connection refused", 0)
	f.once.Do(func() {
		if err := may(ctx); err != nil {
			return
		}
		close(f.frozen)
		<-f.thaw
		answer = f.Provider.Send(context.WithoutCancel(ctx), r, func(context.Context) error { return nil })
	})
	return answer
}

func (f freezing) Lookup(ctx context.Context, r providers.Request) providers.Finding {
	return f.Provider.(providers.Looker).Lookup(ctx, r)
}

// A worker is stopped between permit and write; another asks by a resend, which reports.
// That report is not the first one's: it can still write, so "absent" proves nothing.
func TestAResendsReportIsNotTheFirstSenders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.charges = canBeAsked
	b.charges.KeyMemory, b.charges.Replay = remembersKeys.KeyMemory, remembersKeys.Replay
	var now time.Time
	b.must(b.pool.QueryRow(b.ctx, `SELECT clock_timestamp()`).Scan(&now))
	deadline := now.Add(9 * time.Second) // two seconds of resends after the lease, then none
	a := b.enqueue(outbox.Intent{Payload: charge{"paused", 5, "EUR"}, Deadline: deadline})
	f := freezing{once: &sync.Once{}, frozen: make(chan struct{}), thaw: make(chan struct{})}
	for range 2 {
		b.run(func(c *dispatch.Config) {
			p := f
			p.Provider = c.Providers["payments"]
			c.Providers["payments"] = p
		})
	}
	<-f.frozen
	b.await(`EXISTS (SELECT FROM outbox.history WHERE event = 'resent')`)
	b.await(`(SELECT count(*) >= 2 FROM outbox.history WHERE event = 'probed' AND at > $1)`, deadline)
	b.never(a.Reference, "failed")
	b.effects(simulator.Charges, a.Reference, 0)
	close(f.thaw)
	b.state(a.Reference, outbox.Succeeded)
	b.effects(simulator.Charges, a.Reference, 1)
	b.never(a.Reference, "failed")
}
