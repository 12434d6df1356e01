package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/riverqueue/river"

	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
	"github.com/outbox-worker/outbox-worker/providers"
)

// dispatchArgs is a River job: intents of one lane that were released together, each at
// the attempt it was released at. They share no fate.
type dispatchArgs struct {
	Lane     int32   `json:"lane"`
	IDs      []int64 `json:"ids"`
	Attempts []int   `json:"attempts"`
}

// Kind names the job in River.
func (dispatchArgs) Kind() string { return "outbox_dispatch" }

// dispatcher is River's worker. It returns nil always: what became of an intent stands
// in the ledger, and a job that River runs again finds nothing left to claim.
type dispatcher struct {
	river.WorkerDefaults[dispatchArgs]
	w *Worker
}

// forgotten is when River may take a job for one whose worker has died: longer than any
// lease can last, twice.
const forgotten = 48 * time.Hour

// Timeout cuts nothing short: calls have deadlines of their own, and no ctx of River's.
// But without any, River would keep the jobs of dead workers as running for ever.
func (d *dispatcher) Timeout(*river.Job[dispatchArgs]) time.Duration { return forgotten }

func (d *dispatcher) Work(ctx context.Context, job *river.Job[dispatchArgs]) error {
	l := d.w.lane(job.Args.Lane)
	if l == nil || len(job.Args.IDs) != len(job.Args.Attempts) {
		return nil // not ours to serve any more: the release lease brings them to another worker
	}
	tickets := make([]ticket, len(job.Args.IDs))
	for i, id := range job.Args.IDs {
		tickets[i] = ticket{ID: id, Attempt: job.Args.Attempts[i]}
	}
	d.w.dispatch(ctx, l, tickets)
	return nil
}

// dispatch sends the intents as slots come free, claiming only what starts at once.
// What it has not claimed when the worker stops goes back to the outbox.
func (w *Worker) dispatch(ctx context.Context, l *lane, tickets []ticket) {
	var calls sync.WaitGroup
	defer calls.Wait()
	for len(tickets) > 0 {
		n := w.takeSlots(l, len(tickets))
		if n == 0 {
			w.giveBack(context.WithoutCancel(ctx), tickets, 0)
			return
		}
		w.start(ctx, l, tickets[:n], &calls)
		tickets = tickets[n:]
	}
}

// takeSlots waits for slots of the lane and of the process; 0 means that the worker stops.
func (w *Worker) takeSlots(l *lane, want int) int {
	n := l.slots.take(w.stopping, want)
	got := 0
	if n > 0 {
		got = w.slots.take(w.stopping, n)
	}
	l.slots.give(n - got)
	return got
}

// start claims the intents and starts a call for each that it got. It holds one slot
// for each and returns those it does not need.
func (w *Worker) start(ctx context.Context, l *lane, tickets []ticket, calls *sync.WaitGroup) {
	ready := w.prepare(ctx, tickets)
	started := 0
	if len(ready) > 0 {
		w.cfg.Hooks.beforeClaim(ready)
		others := w.startLocal(ctx, l, ready, calls)
		started, ready = len(ready)-len(others), others
	}
	claimAsked := time.Now()
	var mine []bool
	if len(ready) > 0 {
		var err error
		if mine, err = w.claims.Submit(ctx, ready...); err != nil {
			// Whether the claim committed is not known: if it did, the lease runs out and
			// the outcome is unknown; if not, the release lease brings them back.
			w.log.ErrorContext(ctx, "could not claim", "lane", l.name, "intents", len(ready), "error", err)
		}
	}
	for i, won := range mine {
		if !won {
			continue
		}
		started++
		calls.Go(func() {
			w.attempt(ctx, l, ready[i], claimAsked)
		})
	}
	w.freeSlots(l, len(tickets)-started)
}

func (w *Worker) freeSlots(l *lane, n int) {
	w.slots.give(n)
	l.slots.give(n)
	l.kick()
}

// prepare loads the intents and renders their requests. What cannot be sent is dealt
// with here: refused for its input, sent to review for its pins, or given back.
func (w *Worker) prepare(ctx context.Context, tickets []ticket) (ready []*candidate) {
	loaded, err := w.loads.Submit(ctx, tickets...)
	if err != nil {
		w.log.ErrorContext(ctx, "could not load what was released", "intents", len(tickets), "error", err)
		return nil
	}
	var ended []unstarted
	var later []ticket
	var pause time.Duration
	for _, c := range loaded {
		if c == nil {
			continue // somebody else has it
		}
		if u, wait := w.renderSafely(ctx, c); u != nil {
			ended = append(ended, *u)
		} else if wait > 0 {
			later, pause = append(later, c.ticket), max(pause, wait)
		} else {
			ready = append(ready, c)
		}
	}
	w.giveBack(ctx, later, pause)
	if err := w.endUnstarted(ctx, ended); err != nil {
		w.log.ErrorContext(ctx, "could not end what cannot be sent", "intents", len(ended), "error", err)
	}
	return ready
}

// Pauses before an intent that this worker cannot send now is released again.
const (
	notServedPause = time.Second
	notReadyPause  = 30 * time.Second
)

// renderSafely renders; an adapter that panics holds up its intent and nothing else.
func (w *Worker) renderSafely(ctx context.Context, c *candidate) (u *unstarted, wait time.Duration) {
	defer func() {
		if v := recover(); v != nil {
			w.log.ErrorContext(ctx, "could not prepare the request: panic", "reference", c.intent.Reference, "panic", v)
			u, wait = nil, notReadyPause
		}
	}()
	return w.render(ctx, c)
}

// render makes the candidate's request. It returns how the intent ends unsent, or after
// what pause it should be tried again; neither means ready.
func (w *Worker) render(ctx context.Context, c *candidate) (*unstarted, time.Duration) {
	if c.paused > 0 {
		return nil, c.paused
	}
	served, ok := w.served(ctx, c.catalogID)
	if !ok {
		return nil, notServedPause
	}
	c.revision, c.provider = served.revision, served.provider
	c.intent.Operation, c.intent.Version = c.revision.Spec.Name, c.revision.Spec.Version
	end := func(event outbox.Event, code, reason string) (*unstarted, time.Duration) {
		return &unstarted{ticket: c.ticket, from: c.state, event: event, code: code, reason: reason}, 0
	}
	var bad *catalog.InputError
	if err := c.revision.CheckInput(c.intent.Payload); errors.As(err, &bad) {
		return end(outbox.InputRejected, "input_invalid", bad.Error())
	} else if err != nil {
		w.log.ErrorContext(ctx, "could not check the input", "reference", c.intent.Reference, "error", err)
		return nil, notReadyPause
	}
	request, err := c.provider.Prepare(c.intent)
	var invalid *providers.InvalidError
	switch {
	case errors.As(err, &invalid):
		return end(outbox.InputRejected, "input_invalid", invalid.Error())
	case err != nil:
		w.log.ErrorContext(ctx, "could not prepare the request", "reference", c.intent.Reference, "error", err)
		return nil, notReadyPause
	}
	c.request = request
	if why, ok := c.pins.allow(c.provider.Account(), served.capabilities.Preset, request.Hash[:]); !ok {
		return end(outbox.PinsDiffer, "pins_differ", why)
	}
	return nil, 0
}
