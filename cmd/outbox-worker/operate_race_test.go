package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/dispatch"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/httpjson"
)

// raceBundle is an operateBundle with a provider and, once run is called, a worker.
type raceBundle struct {
	*operateBundle
	sim    *simulator.Server
	charge httpjson.Operation // what the provider promises: nothing, unless a test changes it
}

func raceSetup(t testing.TB) *raceBundle {
	t.Helper()
	b := &raceBundle{operateBundle: operateSetup(t), charge: httpjson.Operation{Path: "/v1/charges", ThrottledIsNotSent: true}}
	sim, err := simulator.Start(b.ctx, simulator.Options{})
	b.must(err)
	t.Cleanup(func() { b.must(sim.Close()) })
	b.sim = sim
	b.must(sim.SetBehaviour(simulator.Charges, simulator.Behaviour{Keys: simulator.Ignore}))
	return b
}

// run starts a worker and returns what stops it and waits.
func (b *raceBundle) run(hooks dispatch.Hooks) (stop func()) {
	b.t.Helper()
	p, err := httpjson.New(httpjson.Config{Account: "acct", BaseURL: b.sim.HTTPURL(), Operations: map[string]httpjson.Operation{"charge_card": b.charge}})
	b.must(err)
	w, err := dispatch.New(dispatch.Config{
		Pool: b.open(nil), Providers: map[string]providers.Provider{"payments": p}, Name: "worker", Logger: slog.New(slog.DiscardHandler),
		IdlePoll: 20 * time.Millisecond, SweepEvery: 20 * time.Millisecond, Hooks: hooks,
	})
	b.must(err)
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		b.must(<-done)
	})
	b.t.Cleanup(stop)
	return stop
}

// await waits until the query gives true; the database has no signal for it.
func (b *raceBundle) await(query string, args ...any) {
	b.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for b.text("SELECT ("+query+")::text", args...) != "true" {
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			b.t.Fatalf("never: %s", query)
		}
	}
}

func (b *raceBundle) awaitState(reference, state string) {
	b.t.Helper()
	b.await(`SELECT EXISTS (SELECT FROM outbox.intents i LEFT JOIN outbox.outbox o ON o.intent_id = i.id LEFT JOIN outbox.outcomes e ON e.intent_id = i.id
		WHERE i.reference = $1 AND coalesce(e.state, o.state)::text = $2)`, reference, state)
}

func (b *raceBundle) events(reference string) string {
	b.t.Helper()
	return b.text(`SELECT string_agg(h.event::text, ' ' ORDER BY h.at) FROM outbox.history h JOIN outbox.intents i ON i.id = h.intent_id WHERE i.reference = $1`, reference)
}

func TestOfTwoWhoResolveAtOnceOneWins(t *testing.T) {
	t.Parallel()
	b := operateSetup(t)
	for n := range 20 {
		reference := b.in("in review", fmt.Sprint(n))
		var wg sync.WaitGroup
		var mu sync.Mutex
		got := map[string]string{}
		for _, action := range []string{"succeeded", "failed", "not_executed"} {
			wg.Go(func() {
				a, err := operate(b.ctx, b.pool, "SELECT "+operatedColumns+" FROM "+actions[action]+" a", reference, "because", action)
				mu.Lock()
				defer mu.Unlock()
				got[action] = a.Answer + " " + a.Code
				if err != nil {
					got[action] = err.Error()
				}
			})
		}
		wg.Wait()
		won := 0
		for action, answer := range got {
			switch answer {
			case "done ":
				won++
				if by := b.text(`SELECT h.actor FROM outbox.history h JOIN outbox.intents i ON i.id = h.intent_id WHERE i.reference = $1`, reference); by != action {
					t.Errorf("%s won, and the history says %s", action, by)
				}
			case "refused settled", "refused not_in_review":
			default:
				t.Errorf("%s: %s", action, answer)
			}
		}
		if won != 1 {
			t.Fatalf("%d won: %v", won, got)
		}
	}
}

// The provider's count decides who was right: what was cancelled has no effect, what was
// claimed has one.
func TestACancellationAndAClaimExcludeEachOther(t *testing.T) {
	t.Parallel()
	b := raceSetup(t)
	const intents = 120
	references := make([]string, intents)
	for n := range references {
		references[n] = b.intent("charge_card", fmt.Sprint(n))
	}
	b.must(b.sim.Script(simulator.Fault{Kind: simulator.Delay, Service: simulator.Charges, Duration: 50 * time.Millisecond}))
	b.run(dispatch.Hooks{})
	b.must(b.sim.Await(b.ctx, func(s simulator.Snapshot) bool { return s.Count(simulator.Charges, "") > 0 }))
	outcomes := make([]string, intents)
	var wg sync.WaitGroup
	for part := range 4 {
		wg.Go(func() {
			for n := intents - 1 - part; n >= 0; n -= 4 {
				a, err := operate(b.ctx, b.pool, "SELECT "+operatedColumns+" FROM "+actions["cancel"]+" a", references[n], "because", "ann")
				outcomes[n] = a.Answer
				if err != nil {
					outcomes[n] = err.Error()
				}
			}
		})
	}
	wg.Wait()
	b.await(`SELECT NOT EXISTS (SELECT FROM outbox.outbox o JOIN outbox.lanes l ON l.id = o.lane WHERE l.name = 'payments')`)
	count := map[string]int{}
	for n, reference := range references {
		count[outcomes[n]]++
		effects, state := b.sim.Count(simulator.Charges, reference), b.state(reference)
		if outcomes[n] == "done" && (state != "cancelled" || effects != 0) || outcomes[n] == "refused" && (state != "succeeded" || effects != 1) {
			t.Errorf("cancel: %s, but it is %s with %d effects", outcomes[n], state, effects)
		}
	}
	if count["done"]+count["refused"] != intents || count["done"] == 0 || count["refused"] == 0 {
		t.Errorf("no race: %v", count)
	}
}

// A worker has it in its hands and is about to claim: the claim's compare-and-set fails.
func TestWhatAWorkerIsAboutToClaimCanStillBeCancelled(t *testing.T) {
	t.Parallel()
	b := raceSetup(t)
	reference := b.intent("charge_card", "1")
	cancelled := make(chan string, 1)
	b.run(dispatch.Hooks{BeforeClaim: func([]string) {
		a, err := operate(b.ctx, b.pool, "SELECT "+operatedColumns+" FROM "+actions["cancel"]+" a", reference, "because", "ann")
		cancelled <- fmt.Sprint(a.Answer, err)
	}})
	if got := <-cancelled; got != "done<nil>" {
		t.Fatal(got)
	}
	// The next one goes through the same lane, so the first has been dealt with.
	other := b.intent("charge_card", "2")
	<-cancelled
	b.awaitState(other, "succeeded")
	if n := b.sim.Requests(simulator.Charges, reference); n != 0 || b.state(reference) != "cancelled" {
		t.Errorf("%s, with %d requests", b.state(reference), n)
	}
}

// A worker that answers late and an operator who decides meanwhile: one of them settles,
// what the other knows is kept, and a contradiction is not swept under the carpet.
func TestAResolutionAndALateAnswerExcludeEachOther(t *testing.T) {
	t.Parallel()
	b := raceSetup(t)
	const intents = 12
	var answered sync.WaitGroup
	answered.Add(intents)
	hold := make(chan struct{})
	var references []string
	for n := range intents {
		references = append(references, b.intent("charge_card", fmt.Sprint(n)))
	}
	stop := b.run(dispatch.Hooks{AfterCall: func(string) {
		answered.Done()
		<-hold
	}})
	answered.Wait()
	b.exec(`UPDATE outbox.outbox SET next_at = now() WHERE state = 'executing'`) // the leases run out
	b.await(`SELECT count(*) = $1 FROM outbox.outbox WHERE state = 'needs_review'`, intents)
	close(hold)
	got := map[string]string{}
	for _, reference := range references {
		a, _ := b.act("failed", reference)
		got[reference] = a.Answer
	}
	stop()
	for _, reference := range references {
		state, events := b.state(reference), b.events(reference)
		switch got[reference] {
		case "done":
			if state != "failed_final" || !strings.HasSuffix(events, "resolved_failed late_answer review_opened") {
				t.Errorf("resolved, and it is %s: %s", state, events)
			}
		case "refused":
			if state != "succeeded" || strings.Contains(events, "resolved") {
				t.Errorf("refused, and it is %s: %s", state, events)
			}
		}
		if n := b.sim.Count(simulator.Charges, reference); n != 1 {
			t.Errorf("%d effects", n)
		}
	}
	t.Logf("resolved: %d of %d", len(slices.DeleteFunc(slices.Collect(maps.Values(got)), func(s string) bool { return s != "done" })), intents)
}

// The provider promises nothing, so a second request would be a second effect. Whatever
// an operator does to the unknown outcome, none is made; only evidence that nothing
// happened lets it go again.
func TestNoActionSendsAnUnknownIntentAgain(t *testing.T) {
	t.Parallel()
	b := raceSetup(t)
	b.must(b.sim.Script(simulator.Fault{Kind: simulator.ResetAfter, Service: simulator.Charges, Nth: 1}))
	b.run(dispatch.Hooks{AfterCall: func(string) {
		b.exec(`SELECT outbox.pause_lane('payments', 'so that nobody asks yet', 'test')`)
	}})
	reference := b.intent("charge_card", "1")
	b.awaitState(reference, "outcome_unknown")
	try := func(state string, but ...string) {
		t.Helper()
		for _, action := range slices.Sorted(maps.Keys(actions)) {
			if !slices.Contains(but, action) {
				b.act(action, reference)
			}
		}
		if got := b.state(reference); got != state {
			t.Fatalf("it is %s, not %s", got, state)
		}
	}
	try("outcome_unknown")
	b.exec(`SELECT outbox.resume_lane('payments', 'r', 'test')`)
	b.awaitState(reference, "needs_review")
	try("needs_review", "succeeded", "failed", "not_executed")
	if r, e := b.sim.Requests(simulator.Charges, reference), b.sim.Count(simulator.Charges, reference); r != 1 || e != 1 {
		t.Fatalf("%d requests, %d effects: %s", r, e, b.events(reference))
	}
	if enqueued := b.text(`SELECT (outbox.enqueue('shop', 'charge_card.v1', '{"order_id":"1","amount":1200,"currency":"EUR","charge":"ch_1"}', supersedes => $1)).code`, reference); enqueued != "supersedes_not_proven" {
		t.Errorf("superseded: %s", enqueued)
	}
	a, _ := b.act("succeeded", reference)
	if a.State != "succeeded" {
		t.Errorf("%+v", a)
	}
	// Its follow-on comes, as if the answer had not been lost.
	b.await(`SELECT EXISTS (SELECT FROM outbox.intents WHERE key LIKE '{"follow_on":"receipt"%')`)
	if r := b.sim.Requests(simulator.Charges, reference); r != 1 {
		t.Errorf("%d requests", r)
	}
}

// With all its attempts used up and replayed, an intent is sent under the key it had.
func TestAReplayedIntentIsSentUnderTheSameKey(t *testing.T) {
	t.Parallel()
	b := raceSetup(t)
	b.must(b.sim.Script(simulator.Fault{Kind: simulator.Unauthorized, Service: simulator.Charges}))
	stop := b.run(dispatch.Hooks{})
	reference := b.intent("charge_card", "1")
	for attempts := range 2 {
		b.awaitState(reference, "exhausted")
		if n := b.sim.Requests(simulator.Charges, reference); n != 2*(attempts+1) {
			t.Fatalf("%d requests, want %d", n, 2*(attempts+1))
		}
		if attempts == 1 {
			b.sim.ClearFaults()
		}
		if _, got := b.act("replay", reference); got != "attempts_anew>failed_retryable" {
			t.Fatal(got)
		}
	}
	b.awaitState(reference, "succeeded")
	stop()
	if n := b.sim.Count(simulator.Charges, reference); n != 1 {
		t.Errorf("%d effects", n)
	}
	if got := b.text(`SELECT string_agg(DISTINCT attempt::text, ' ') FROM outbox.timeline WHERE event = 'claimed'`); got != "1 2 3 4 5" {
		t.Errorf("attempts %s", got)
	}
}

// Two bulks and a worker at the same rows: nobody waits for anybody, nothing is done twice.
func TestBulksDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	b := operateSetup(t)
	var references []string
	for n := range 40 {
		references = append(references, b.in("exhausted", fmt.Sprint(n)))
	}
	tx, err := b.pool.Begin(b.ctx)
	b.must(err)
	defer func() { _ = tx.Rollback(b.ctx) }()
	_, err = tx.Exec(b.ctx, `SELECT FROM outbox.outbox o JOIN outbox.intents i ON i.id = o.intent_id WHERE i.reference = $1 FOR UPDATE OF o`, references[0])
	b.must(err)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if _, err := b.pool.Exec(b.ctx, `SELECT * FROM outbox.replay_many($1, 'because', 'ann')`, references); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := b.text(`SELECT count(*)::text FROM outbox.history WHERE event = 'replayed'`); got != "39" {
		t.Errorf("%s replayed", got)
	}
	if got := b.state(references[0]); got != "exhausted" {
		t.Errorf("what another holds is %s", got)
	}
}
