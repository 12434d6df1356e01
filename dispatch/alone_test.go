package dispatch

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/providers"
)

// atRest is a lane with nothing in flight.
func (b *stepBundle) atRest() {
	b.t.Helper()
	b.w.probing.Wait()
	if b.l.slots.free != 1 || b.l.probes.free != 1 || b.w.slots.free != b.w.slots.size {
		b.t.Errorf("slots are lost: %d of 1, %d of 1 to ask, %d of %d of the process", b.l.slots.free, b.l.probes.free, b.w.slots.free, b.w.slots.size)
	}
}

func panicsOn(reference string) func(providers.Intent) {
	return func(in providers.Intent) {
		if in.Reference == reference {
			panic("a bug of the adapter")
		}
	}
}

// A lane of one goes on: what an adapter cannot render comes back later, and nothing else
// waits for it.
func TestAPreparePanicHoldsUpItsIntentAlone(t *testing.T) {
	t.Parallel()
	b := steps(t)
	bad, good := b.put("pay", isReleased), b.put("pay", isReleased)
	b.says.prepare = panicsOn(b.ask(`SELECT reference FROM outbox.intents WHERE id = $1`, bad))
	b.w.dispatch(b.ctx, b.l, []ticket{{bad, 0}, {good, 0}})
	b.is("good", b.outcome(good), "succeeded 1 ch_1")
	b.is("bad", b.open(bad), "accepted due 0")
	b.is("later", b.ask(`SELECT next_at > clock_timestamp() + interval '20 seconds' FROM outbox.outbox WHERE intent_id = $1`, bad), "true")
	b.atRest()
}

// A sender that panics may have sent.
func TestASendPanicIsAnUnknownOutcomeOfItsIntentAlone(t *testing.T) {
	t.Parallel()
	b := steps(t)
	bad, good := b.put("pay", isReleased), b.put("pay", isReleased)
	var calls atomic.Int32
	b.says.send = func(context.Context, providers.Request, providers.Permit) providers.Answer {
		if calls.Add(1) == 1 {
			panic("a bug of the adapter")
		}
		return accepts
	}
	b.w.dispatch(b.ctx, b.l, []ticket{{bad, 0}, {good, 0}})
	b.is("good", b.outcome(good), "succeeded 1 ch_1")
	b.is("bad", b.open(bad), "outcome_unknown asking 1 of 1 heard")
	b.atRest()
}

// asks runs a lane's reconcile until done, with one slot to ask.
func (b *stepBundle) asks(done func() bool) {
	b.t.Helper()
	b.w.cfg.IdlePoll = 5 * time.Millisecond
	ctx, cancel := context.WithCancel(b.ctx)
	ended := make(chan struct{})
	go func() { b.w.reconcile(ctx, b.l); close(ended) }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() && b.ctx.Err() == nil {
		<-tick.C
	}
	cancel()
	<-ended
	b.atRest()
}

func TestALookupPanicHoldsUpItsIntentAlone(t *testing.T) {
	t.Parallel()
	b := steps(t)
	b.says.caps = providers.Capabilities{Preset: "preset_1", Lookup: true}
	for id, s := range b.w.services {
		s.capabilities = b.says.caps
		b.w.services[id] = s
	}
	bad, good := b.put("pay", isAsking, `next_at = clock_timestamp() - interval '1 hour'`), b.put("pay", isAsking)
	reference := b.ask(`SELECT reference FROM outbox.intents WHERE id = $1`, bad)
	b.says.look = func(r providers.Request) providers.Finding {
		if r.Intent.Reference == reference {
			panic("a bug of the adapter")
		}
		return providers.Finding{Kind: providers.Found, Answer: accepts}
	}
	b.asks(func() bool { return b.outcome(good) != "" })
	b.is("good", b.outcome(good), "succeeded 2 ch_1")
	if got := b.open(bad); !strings.HasPrefix(got, "outcome_unknown asking ") {
		t.Errorf("bad: %s", got)
	}
	b.is("why", b.ask(`SELECT DISTINCT reason FROM outbox.history WHERE intent_id = $1`, bad), "lookup: not_looked: provider_panic: a bug of the adapter")
}

func TestAPanicBeforeTheQuestionHoldsUpItsIntentAlone(t *testing.T) {
	t.Parallel()
	b := steps(t)
	bad, good := b.put("pay", isAsking, `next_at = clock_timestamp() - interval '1 hour'`), b.put("pay", isAsking)
	b.says.prepare = panicsOn(b.ask(`SELECT reference FROM outbox.intents WHERE id = $1`, bad))
	b.asks(func() bool { return b.outcome(good) != "" })
	b.is("good", b.outcome(good), "succeeded 2 ch_1")
	b.is("bad, until its lease ends", b.open(bad), "outcome_unknown probing 2 of 1")
}

// What the catalog says of a lane is followed by a worker that runs.
func TestALanesConcurrencyIsFollowed(t *testing.T) {
	t.Parallel()
	b := steps(t)
	var inFlight atomic.Int32
	held := make(chan struct{})
	b.says.send = func(context.Context, providers.Request, providers.Permit) providers.Answer {
		inFlight.Add(1)
		defer inFlight.Add(-1)
		<-held
		return accepts
	}
	w, err := New(Config{
		Pool: b.pool, Providers: map[string]providers.Provider{"scripted": b.says}, Logger: slog.New(slog.DiscardHandler), IdlePoll: 20 * time.Millisecond,
	})
	b.must(err)
	for range 4 {
		b.put("pay")
	}
	ctx, stop := context.WithCancel(b.ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	reach := func(n int32) {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for inFlight.Load() != n {
			select {
			case <-tick.C:
			case <-b.ctx.Done():
				t.Errorf("%d in flight, want %d", inFlight.Load(), n)
				return
			}
		}
	}
	reach(1)
	b.apply(strings.Replace(stepCatalog, "concurrency: 1", "concurrency: 4", 1))
	reach(4)
	close(held)
	reach(0)
	stop()
	b.must(<-ended)
}
