package figures

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/outbox-worker/outbox-worker/dispatch"
	"github.com/outbox-worker/outbox-worker/providers"
)

// provider does nothing, after a while if asked to.
type provider struct {
	delay time.Duration
	begun func(providers.Request) // when a call begins; may be nil
	calls atomic.Int64
}

func (*provider) Account() string { return "acct_bench" }

func (*provider) Serves(string, int) (providers.Capabilities, bool) {
	return providers.Capabilities{Preset: "bench-1", KeyMemory: 24 * time.Hour, Replay: providers.ReplaySuccessOnly}, true
}

func (*provider) Prepare(in providers.Intent) (providers.Request, error) {
	return providers.Request{Intent: in, Hash: sha256.Sum256(in.Payload)}, nil
}

func (p *provider) Send(ctx context.Context, r providers.Request, permit providers.Permit) providers.Answer {
	if p.begun != nil {
		p.begun(r)
	}
	if err := permit(ctx); err != nil {
		return providers.NotSent("not_permitted", err.Error(), 0)
	}
	p.calls.Add(1)
	if p.delay > 0 {
		timer := time.NewTimer(p.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return providers.Unknown("timeout", ctx.Err().Error())
		}
	}
	return providers.Accepted("ch_3PqT2vLkdIwHu7ix", resultOf)
}

// work runs a worker on the place while do runs.
func (p *place) work(ctx context.Context, with *provider, concurrency int, do func(context.Context) error) error {
	w, err := dispatch.New(dispatch.Config{
		Pool: p.pool, Providers: map[string]providers.Provider{"bench": with}, Concurrency: concurrency,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() {
		err := w.Run(running)
		if err != nil {
			cancel(err) // what do waits for will not come
		}
		ended <- err
	}()
	err = do(ctx)
	if errors.Is(err, context.Canceled) {
		err = context.Cause(ctx)
	}
	stop()
	return errors.Join(err, <-ended)
}

// settledPoll is how often the ledger is asked whether all is settled: the error of a
// measurement of seconds, and no load.
const settledPoll = 5 * time.Millisecond

// openSQL asks whether anything is open but what is scheduled for later, by the indexes of
// the outbox: a scan of a million scheduled rows would be a load of its own.
const openSQL = `SELECT EXISTS (SELECT FROM outbox.outbox WHERE (phase = 'due') IS FALSE) OR EXISTS (
	SELECT FROM outbox.lanes l CROSS JOIN LATERAL (
		SELECT FROM outbox.outbox o WHERE o.lane = l.id AND o.phase = 'due' AND o.tenant = $1 AND o.rank = 0 AND o.next_at < now() + interval '1 day' LIMIT 1
	) due)`

// awaitSettled waits until all is settled but what is scheduled for later.
func (p *place) awaitSettled(ctx context.Context) error {
	tick := time.NewTicker(settledPoll)
	defer tick.Stop()
	for {
		var open bool
		err := p.pool.QueryRow(ctx, openSQL, tenant).Scan(&open)
		if err != nil || !open {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// drain settles what is open, off the clock.
func (p *place) drain(ctx context.Context, delay time.Duration) error {
	return p.work(ctx, &provider{delay: delay}, noLimit, p.awaitSettled)
}

// drained preloads n intents and gives the rate at which a worker settles them, from its
// start until the last one is in the ledger.
func (p *place) drained(ctx context.Context, n int, delay time.Duration, concurrency int) (rate float64, err error) {
	if err := p.preload(ctx, n, nil); err != nil {
		return 0, err
	}
	if err := p.calm(ctx, "outbox.outbox", "outbox.river_job"); err != nil {
		return 0, err
	}
	with := &provider{delay: delay}
	began := time.Now()
	err = p.work(ctx, with, concurrency, func(ctx context.Context) error {
		tick := time.NewTicker(settledPoll)
		defer tick.Stop()
		for with.calls.Load() < int64(n) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := p.awaitSettled(ctx); err != nil {
			return err
		}
		rate = float64(n) / time.Since(began).Seconds()
		return nil
	})
	return rate, err
}
