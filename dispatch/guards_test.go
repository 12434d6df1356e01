package dispatch_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/dispatch"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/providers"
)

func TestTenReplicasShareTheWorkAndHaveEachEffectOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.patient()
	const intents = 400
	var ins []outbox.Intent
	for i := range intents {
		ins = append(ins, outbox.Intent{Tenant: "shop", Operation: "charge_card.v1", Payload: charge{fmt.Sprint("o", i), 100, "EUR"}})
	}
	// Keys are not honoured here: only our own guards stand between an intent and a
	// second charge.
	b.charges = neither
	b.must(b.sim.SetBehaviour(simulator.Charges, simulator.Behaviour{Keys: simulator.Ignore}))
	b.must(b.sim.Script(simulator.Fault{Kind: simulator.Delay, Service: simulator.Charges, Duration: 20 * time.Millisecond}))
	for i := range 10 {
		b.run(func(c *dispatch.Config) { c.Pool, c.Name = b.open(5), fmt.Sprint("replica-", i) })
	}
	answers, err := outbox.EnqueueMany(b.ctx, b.pool, ins)
	b.must(err)
	b.allSettled()
	for _, a := range answers {
		b.effects(simulator.Charges, a.Reference, 1)
	}
	b.noDuplicates()
	if n := len(b.sim.Effects(simulator.Shipments)); n != intents {
		t.Errorf("%d shipments, want %d", n, intents)
	}
	if n := b.scalar(`SELECT count(DISTINCT actor) FROM outbox.timeline WHERE event = 'claimed'`); n < 5 {
		t.Errorf("%d of 10 replicas did the work", n)
	}
	if n := b.scalar(`SELECT count(*) FROM outbox.timeline WHERE event = 'claimed'`); n != 2*intents {
		t.Errorf("%d claims, want %d", n, 2*intents)
	}
}

// A job may be lost: the release is a lease. And it may turn up again after its intent
// was released anew: the claim's compare-and-set lets one through.
func TestALateJobAndItsTwinSendOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.patient()
	b.charges = neither
	b.must(b.sim.SetBehaviour(simulator.Charges, simulator.Behaviour{Keys: simulator.Ignore}))
	held := make(chan struct{})
	var once sync.Once
	arrived := make(chan struct{})
	b.run(func(c *dispatch.Config) {
		c.ReleaseLease = 200 * time.Millisecond
		c.Hooks.BeforeClaim = func([]string) {
			first := false
			once.Do(func() { first = true })
			if first {
				close(arrived)
				<-held // loaded, not claimed: as if paused
			}
		}
	})
	a := b.charge("twice released")
	<-arrived
	b.state(a.Reference, outbox.Succeeded)
	close(held)
	b.allSettled()
	b.effects(simulator.Charges, a.Reference, 1)
	if n := b.scalar(`SELECT count(*) FROM outbox.timeline h JOIN outbox.intents i ON i.id = h.intent_id WHERE h.event = 'claimed' AND i.reference = $1`, a.Reference); n != 1 {
		t.Errorf("claimed %d times, want 1", n)
	}
}

// A worker that is paused for longer than its lease, between claim and write: its
// outcome is unknown meanwhile, and when it wakes up it sends nothing. Its proof that it
// sent nothing is evidence about the very attempt that is unknown, so the intent may go
// again.
func TestAWorkerThatWakesUpAfterItsLeaseSendsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must(b.sim.SetBehaviour(simulator.Charges, simulator.Behaviour{Keys: simulator.Ignore}))
	b.charges = canBeAsked
	wake := make(chan struct{})
	var once sync.Once
	b.run(func(c *dispatch.Config) {
		c.Hooks.AfterClaim = func(string) {
			first := false
			once.Do(func() { first = true })
			if first {
				<-wake
			}
		}
	})
	a := b.charge("sleepy")
	b.state(a.Reference, outbox.OutcomeUnknown)
	if n := b.sim.Requests(simulator.Charges, a.Reference); n != 0 {
		t.Errorf("%d requests before it woke up", n)
	}
	close(wake)
	b.state(a.Reference, outbox.Succeeded)
	b.effects(simulator.Charges, a.Reference, 1)
	// Its absence was no proof as long as nobody knew what had become of the sender.
	var steps []string
	for _, s := range b.history(a.Reference) {
		if !strings.Contains(s, "probed") {
			steps = append(steps, s)
		}
	}
	sameJSON(t, steps[:4], []string{
		"0 committed accepted",
		"1 accepted claimed executing",
		"1 executing lease_expired outcome_unknown",
		"1 outcome_unknown not_sent failed_retryable",
	})
}

// The pause comes after the write: the late answer is the unknown attempt's own, so it
// is accepted, once.
func TestALateAnswerOfTheUnknownAttemptIsItsOutcome(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.charges = neither
	wake := make(chan struct{})
	b.run(func(c *dispatch.Config) {
		c.Hooks.AfterCall = func(string) { <-wake }
	})
	a := b.charge("slow to tell")
	b.state(a.Reference, outbox.NeedsReview)
	close(wake)
	b.state(a.Reference, outbox.Succeeded)
	b.allSettled()
	b.effects(simulator.Charges, a.Reference, 1)
	if n := len(b.sim.Effects(simulator.Shipments)); n != 1 {
		t.Errorf("%d shipments, want 1: a success found out late has its follow-ons too", n)
	}
}

func TestAGracefulStopLosesNoKnownOutcome(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.patient()
	release := b.sim.Hold(simulator.Charges, "", simulator.BeforeEffect)
	stop := b.run(nil)
	var answers []outbox.Answer
	for i := range 10 {
		answers = append(answers, b.charge(fmt.Sprint("in flight ", i)))
	}
	b.must(b.sim.Await(b.ctx, func(s simulator.Snapshot) bool { return s.Held(simulator.Charges, "") == 10 }))
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	late := b.charge("after the signal")
	release()
	<-stopped
	for _, a := range answers {
		b.effects(simulator.Charges, a.Reference, 1)
		b.state(a.Reference, outbox.Succeeded)
	}
	b.noDuplicates()
	if n := b.scalar(`SELECT count(*) FROM outbox.outbox WHERE state = 'executing'`); n != 0 {
		t.Errorf("%d still executing after the stop", n)
	}
	b.run(nil)
	b.allSettled()
	b.effects(simulator.Charges, late.Reference, 1)
}

func TestAStopThatRunsOutOfTimeRecordsUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.charges = neither
	release := b.sim.Hold(simulator.Charges, "", simulator.AfterEffect)
	defer release()
	stop := b.run(func(c *dispatch.Config) { c.StopTimeout = 50 * time.Millisecond })
	a := b.charge("cut off")
	b.must(b.sim.Await(b.ctx, func(s simulator.Snapshot) bool { return s.Held(simulator.Charges, a.Reference) == 1 }))
	stop()
	b.state(a.Reference, outbox.OutcomeUnknown)
	b.effects(simulator.Charges, a.Reference, 1)
}

func TestNoTenantStarvesAnother(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.patient()
	var ins []outbox.Intent
	for i := range 500 {
		ins = append(ins, outbox.Intent{Tenant: "large", Operation: "charge_card.v1", Payload: charge{fmt.Sprint("l", i), 1, "EUR"}})
	}
	for i := range 5 {
		ins = append(ins, outbox.Intent{Tenant: fmt.Sprint("small-", i), Operation: "charge_card.v1", Payload: charge{fmt.Sprint("s", i), 1, "EUR"}})
	}
	_, err := outbox.EnqueueMany(b.ctx, b.pool, ins)
	b.must(err)
	b.run(nil)
	b.allSettled()
	// The place of each small tenant's charge among all charges, in claiming order.
	last := b.scalar(`SELECT max(place) FROM (
		SELECT i.tenant, row_number() OVER (ORDER BY h.at, i.id) AS place
		FROM outbox.timeline h JOIN outbox.intents i ON i.id = h.intent_id JOIN outbox.catalog c ON c.id = i.catalog_id
		WHERE h.event = 'claimed' AND c.name = 'charge_card') q WHERE tenant LIKE 'small-%'`)
	if last > 100 {
		t.Errorf("a small tenant waited for %d others behind a large one's 500", last)
	}
}

// A release walks a bounded number of places. Tenants with nothing due yet must not hide
// one who has, however many they are.
func TestTenantsWithNothingDueHideNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.patient()
	var ins []outbox.Intent
	for i := range 700 {
		ins = append(ins, outbox.Intent{
			Tenant: fmt.Sprintf("later-%03d", i), Operation: "charge_card.v1", Payload: charge{"l", 1, "EUR"}, NotBefore: time.Now().AddDate(0, 0, 7),
		})
	}
	_, err := outbox.EnqueueMany(b.ctx, b.pool, ins)
	b.must(err)
	b.run(nil)
	for _, tenant := range []string{"zz", "mm", "aa", "later-350"} {
		a := b.enqueue(outbox.Intent{Tenant: tenant, Payload: charge{"now", 1, "EUR"}})
		b.state(a.Reference, outbox.Succeeded)
	}
}

func TestPriorityOrdersATenantsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.patient()
	_, err := b.pool.Exec(b.ctx, `UPDATE outbox.lanes SET concurrency = 1`)
	b.must(err)
	var want []string
	for i, p := range []int{-5, 0, 7, 100} {
		a := b.enqueue(outbox.Intent{Payload: charge{fmt.Sprint("p", i), 1, "EUR"}, Priority: p})
		want = append([]string{a.Reference}, want...)
	}
	b.run(nil)
	b.allSettled()
	var got []string
	for _, e := range b.sim.Effects(simulator.Charges) {
		got = append(got, e.Reference)
	}
	sameJSON(t, got, want)
}

// A lane's concurrency is the provider account's, so it holds over all replicas.
func TestALanesConcurrencyHoldsOverAllReplicas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.patient()
	_, err := b.pool.Exec(b.ctx, `UPDATE outbox.lanes SET concurrency = 3 WHERE name = 'payments'`)
	b.must(err)
	release := b.sim.Hold(simulator.Charges, "", simulator.BeforeEffect)
	for range 4 {
		b.run(nil)
	}
	for i := range 12 {
		b.charge(fmt.Sprint("narrow ", i))
	}
	b.must(b.sim.Await(b.ctx, func(s simulator.Snapshot) bool { return s.Held(simulator.Charges, "") == 3 }))
	if n := b.scalar(`SELECT count(*) FROM outbox.outbox WHERE phase IN ('released', 'leased')`); n != 3 {
		t.Errorf("%d released or in flight, want 3", n)
	}
	release()
	b.allSettled()
	if most := b.scalar(`SELECT max(n) FROM (SELECT count(*) FILTER (WHERE h.event = 'claimed') OVER (ORDER BY h.at RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
		- count(*) FILTER (WHERE h.event = 'provider_accepted') OVER (ORDER BY h.at RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS n
		FROM outbox.timeline h JOIN outbox.intents i ON i.id = h.intent_id JOIN outbox.catalog c ON c.id = i.catalog_id WHERE c.name = 'charge_card') q`); most > 3 {
		t.Errorf("%d calls at once, want at most 3", most)
	}
}

func TestARateIsSharedByAllReplicas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.patient()
	_, err := b.pool.Exec(b.ctx, `UPDATE outbox.lanes SET rate = 20, burst = 1 WHERE name = 'payments'`)
	b.must(err)
	for range 3 {
		b.run(nil)
	}
	for i := range 21 {
		b.charge(fmt.Sprint("rated ", i))
	}
	b.allSettled()
	var span float64
	b.must(b.pool.QueryRow(b.ctx, `SELECT extract(epoch FROM max(h.at) - min(h.at)) FROM outbox.timeline h JOIN outbox.intents i ON i.id = h.intent_id
		JOIN outbox.catalog c ON c.id = i.catalog_id WHERE h.event = 'claimed' AND c.name = 'charge_card'`).Scan(&span))
	if span < 0.9 {
		t.Errorf("21 charges at 20 a second began within %.2f s", span)
	}
}

// Two versions of a deployment side by side: the old one does not touch what only the
// new one can do.
func TestAWorkerLeavesAloneWhatItCannotServe(t *testing.T) {
	t.Parallel()
	b := setup(t)
	only := b.accounts("acct_pay")
	maps.DeleteFunc(only, func(name string, _ providers.Provider) bool { return name != "payments" })
	b.run(func(c *dispatch.Config) { c.Providers = only })
	a := b.charge("half")
	b.state(a.Reference, outbox.Succeeded)
	b.await(`EXISTS (SELECT FROM outbox.outbox o JOIN outbox.catalog c ON c.id = o.catalog_id WHERE c.name = 'ship' AND o.state = 'accepted' AND o.phase = 'due')`)
	b.run(nil)
	b.allSettled()
	if n := len(b.sim.Effects(simulator.Shipments)); n != 1 {
		t.Errorf("%d shipments, want 1", n)
	}
}

// strange answers what no database wants to store.
type strange struct{ providers.Provider }

func (s strange) Send(ctx context.Context, r providers.Request, may providers.Permit) providers.Answer {
	a := s.Provider.Send(ctx, r, may)
	a.Result, a.ProviderID = []byte("{\"note\":\"\\u0000 \xff\x00\"}"), a.ProviderID+"\x00"
	return a
}

func TestAStrangeAnswerIsRecordedAndHoldsUpNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	with := b.accounts("acct_pay")
	with["payments"] = strange{with["payments"]}
	b.run(func(c *dispatch.Config) { c.Providers = with })
	for i := range 20 {
		b.charge(fmt.Sprint("strange ", i))
	}
	b.allSettled()
	b.noDuplicates()
	if n := b.scalar(`SELECT count(*) FROM outbox.outcomes e JOIN outbox.intents i ON i.id = e.intent_id JOIN outbox.catalog c ON c.id = i.catalog_id
		WHERE c.name = 'charge_card' AND e.state = 'succeeded' AND e.result IS NOT NULL AND e.provider_id LIKE 'ch_%'`); n != 20 {
		t.Errorf("%d of 20 recorded", n)
	}
}

// panicking is an adapter with a defect after the write.
type panicking struct{ providers.Provider }

func (p panicking) Send(ctx context.Context, r providers.Request, may providers.Permit) providers.Answer {
	p.Provider.Send(ctx, r, may)
	panic("defect")
}

func TestAnAdapterThatPanicsLeavesItsOutcomeUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.charges = neither
	with := b.accounts("acct_pay")
	with["payments"] = panicking{with["payments"]}
	b.run(func(c *dispatch.Config) { c.Providers = with })
	a := b.charge("defect")
	b.state(a.Reference, outbox.NeedsReview)
	b.effects(simulator.Charges, a.Reference, 1)
}
