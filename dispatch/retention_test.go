package dispatch_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/dispatch"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

const (
	twoDays = 48 * time.Hour
	years   = 400 * 24 * time.Hour
)

// age makes the whole ledger older.
func (b *testBundle) age(by time.Duration) {
	b.t.Helper()
	b.must(pgx.BeginFunc(b.ctx, b.pool, func(tx pgx.Tx) error {
		for _, sql := range []string{
			`SET LOCAL session_replication_role = replica`, // facts are not rewritten otherwise
			fmt.Sprintf(`UPDATE outbox.catalog SET applied_at = applied_at - interval '%d s'`, int(by.Seconds())),
			fmt.Sprintf(`UPDATE outbox.outcomes SET settled_at = settled_at - interval '%d s'`, int(by.Seconds())),
			fmt.Sprintf(`UPDATE outbox.heads SET started_at = started_at - interval '%d s'`, int(by.Seconds())),
			fmt.Sprintf(`UPDATE outbox.retention SET through = through - interval '%d s'`, int(by.Seconds())),
		} {
			if _, err := tx.Exec(b.ctx, sql); err != nil {
				return err
			}
		}
		return nil
	}))
}

// forget trims all there is of a class, and returns how many intents that was.
func (b *testBundle) forget(operation string, class dispatch.Class, keep time.Duration) (total int) {
	b.t.Helper()
	for more := true; more; {
		n, again, err := dispatch.Trim(b.ctx, b.pool, operation, class, keep, 7)
		b.must(err)
		total, more = total+n, again
	}
	return total
}

func (b *testBundle) answered(o charge, kind outbox.AnswerKind, reference string) outbox.Answer {
	b.t.Helper()
	a := b.enqueue(outbox.Intent{Payload: o})
	if a.Kind != kind || a.Reference != reference {
		b.t.Errorf("%s asked again: %+v, want %s %s", o.OrderID, a, kind, reference)
	}
	return a
}

// What is settled is forgotten in two steps, and its effect happens once all the same: a
// late caller gets the outcome without details, then the key is free.
func TestWhatIsForgottenHappensNoSecondTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.run(func(c *dispatch.Config) { c.KeepAll = true })
	var references []string
	for i := range 20 {
		references = append(references, b.charge(fmt.Sprint(i)).Reference)
	}
	b.allSettled()
	if n := b.forget("charge_card.v1", dispatch.Details, twoDays); n != 0 {
		t.Errorf("%d forgotten at once, want none", n)
	}
	done := b.answered(charge{"0", 1200, "EUR"}, outbox.AnswerSettled, references[0])

	b.age(twoDays + time.Hour)
	if n := b.forget("charge_card.v1", dispatch.Details, twoDays); n != 20 {
		t.Errorf("details of %d forgotten, want 20", n)
	}
	if n := b.forget("charge_card.v1", dispatch.Details, twoDays); n != 0 {
		t.Errorf("and once more of %d", n)
	}
	for i, reference := range references {
		a := b.answered(charge{fmt.Sprint(i), 1200, "EUR"}, outbox.AnswerExpired, reference)
		if a.State != outbox.Succeeded || a.ProviderID == "" || a.Result != nil || (i == 0 && a.ProviderID != done.ProviderID) {
			t.Errorf("a late caller gets %+v", a)
		}
	}
	b.answered(charge{"0", 1300, "EUR"}, outbox.AnswerConflict, references[0])
	if n := b.scalar(`SELECT count(*) FROM outbox.intents i JOIN outbox.outcomes e ON e.intent_id = i.id JOIN outbox.catalog c ON c.id = i.catalog_id
		WHERE c.name = 'charge_card' AND i.payload IS NULL AND e.result IS NULL AND e.amount = 1200 AND e.currency = 'EUR'
			AND NOT EXISTS (SELECT FROM outbox.history h WHERE h.intent_id = i.id)`); n != 20 {
		t.Errorf("%d tombstones with their amount and without details, want 20", n)
	}
	b.allSettled()
	if n := len(b.sim.Effects(simulator.Charges)); n != 20 {
		t.Errorf("%d charges, want 20", n)
	}

	b.age(years)
	if n := b.forget("charge_card.v1", dispatch.Tombstones, years); n != 20 {
		t.Errorf("%d tombstones forgotten, want 20", n)
	}
	if n := b.scalar(`SELECT count(*) FROM outbox.intents i JOIN outbox.catalog c ON c.id = i.catalog_id WHERE c.name = 'charge_card'`); n != 0 {
		t.Errorf("%d charges are left", n)
	}
}

// What is open, or has something open beside it, is passed over, and dealt with once that
// is closed.
func TestWhatIsOpenIsNotForgotten(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.run(func(c *dispatch.Config) { c.KeepAll = true })
	settled, reviewed := b.charge("settled"), b.charge("reviewed")
	b.allSettled()
	b.sim.HTTPDown()
	exhausted := b.charge("exhausted")
	b.state(exhausted.Reference, outbox.Exhausted)
	waiting := b.enqueue(outbox.Intent{Payload: charge{"waiting", 1200, "EUR"}, NotBefore: time.Now().Add(time.Hour)})
	_, err := b.pool.Exec(b.ctx, `INSERT INTO outbox.outbox (intent_id, lane, catalog_id, attempt, state, phase, tenant, review_since, review_reason)
		SELECT i.id, c.lane, c.id, 1, 'succeeded', 'parked', i.tenant, now(), 'a contradiction' FROM outbox.intents i JOIN outbox.catalog c ON c.id = i.catalog_id
		WHERE i.reference = $1`, reviewed.Reference)
	b.must(err)

	b.age(years + time.Hour)
	if d, s := b.forget("charge_card.v1", dispatch.Details, twoDays), b.forget("charge_card.v1", dispatch.Tombstones, years); d != 1 || s != 1 {
		t.Errorf("details of %d and %d tombstones forgotten, want one of each", d, s)
	}
	for _, o := range []struct {
		order string
		kind  outbox.AnswerKind
		of    outbox.Answer
	}{{"reviewed", outbox.AnswerSettled, reviewed}, {"exhausted", outbox.AnswerInFlight, exhausted}, {"waiting", outbox.AnswerInFlight, waiting}} {
		b.answered(charge{o.order, 1200, "EUR"}, o.kind, o.of.Reference)
	}
	_, err = b.pool.Exec(b.ctx, `DELETE FROM outbox.outbox WHERE review_reason = 'a contradiction'`)
	b.must(err)
	if n := b.forget("charge_card.v1", dispatch.Details, twoDays); n != 1 {
		t.Errorf("of what was reviewed %d forgotten, want one", n)
	}
	b.answered(charge{"reviewed", 1200, "EUR"}, outbox.AnswerExpired, reviewed.Reference)
	if got, err := outbox.Get(b.ctx, b.pool, "shop", settled.Reference); err != nil || got.Kind != outbox.AnswerNotFound {
		t.Errorf("what is forgotten for good: %+v, %v", got, err)
	}
}

// Generations of a key go together, with the latest: an enqueue that found the first one
// gone would take the key for a new one.
func TestGenerationsOfAKeyAreForgottenTogether(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must(b.sim.Script(simulator.Fault{Kind: simulator.Refuse, Service: simulator.Charges, Count: 1}))
	b.run(func(c *dispatch.Config) { c.KeepAll = true })
	first := b.charge("declined")
	b.state(first.Reference, outbox.FailedFinal)
	b.age(time.Hour)
	second := b.enqueue(outbox.Intent{Payload: charge{"declined", 900, "EUR"}, Supersedes: first.Reference})
	b.state(second.Reference, outbox.Succeeded)
	b.allSettled()

	b.age(years - 30*time.Minute) // the first is past its time, the second is not
	if n := b.forget("charge_card.v1", dispatch.Tombstones, years); n != 1 {
		t.Errorf("looked at %d, want the first", n)
	}
	b.answered(charge{"declined", 900, "EUR"}, outbox.AnswerSettled, second.Reference)
	b.age(time.Hour)
	b.forget("charge_card.v1", dispatch.Tombstones, years)
	if n := b.scalar(`SELECT (SELECT count(*) FROM outbox.intents i JOIN outbox.catalog c ON c.id = i.catalog_id WHERE c.name = 'charge_card') + (SELECT count(*) FROM outbox.heads)`); n != 0 {
		t.Errorf("%d generations and heads are left", n)
	}
	b.effects(simulator.Charges, first.Reference, 0)
	b.effects(simulator.Charges, second.Reference, 1)
}

// An answer that comes when the details are gone is kept, and contradicts all the same.
func TestALateAnswerAboutWhatIsForgottenStillCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.patient()
	b.must(b.sim.Script(simulator.Fault{Kind: simulator.Refuse, Service: simulator.Charges, Count: 1}))
	wake := make(chan struct{})
	stop := b.run(func(c *dispatch.Config) {
		c.KeepAll = true
		c.Hooks.BeforeSettle = func(string) { <-wake }
	})
	a := b.charge("late")
	b.await(`EXISTS (SELECT FROM outbox.outbox WHERE state = 'executing')`)
	// Somebody has settled it meanwhile, long ago; and its answer is a success.
	b.must(pgx.BeginFunc(b.ctx, b.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(b.ctx, `INSERT INTO outbox.outcomes (intent_id, attempt, state) SELECT intent_id, 2, 'succeeded' FROM outbox.outbox`); err != nil {
			return err
		}
		_, err := tx.Exec(b.ctx, `DELETE FROM outbox.outbox`)
		return err
	}))
	b.age(twoDays + time.Hour)
	if n := b.forget("charge_card.v1", dispatch.Details, twoDays); n != 1 {
		t.Fatalf("%d forgotten", n)
	}
	close(wake)
	b.await(`EXISTS (SELECT FROM outbox.history WHERE event = 'late_answer')`)
	stop()
	if got := b.answered(charge{"late", 1200, "EUR"}, outbox.AnswerExpired, a.Reference); got.State != outbox.Succeeded {
		t.Errorf("the outcome is %s", got.State)
	}
}

// Workers forget by themselves, several at once, under load; one that may not says so and
// goes on with its work.
func TestWorkersForgetUnderLoadAndLoseNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 2 {
		b.run(func(c *dispatch.Config) { c.TrimEvery = 10 * time.Millisecond })
	}
	b.run(func(c *dispatch.Config) {
		c.Pool, c.TrimEvery = b.openURL(b.login("outbox_worker"), 8), 10*time.Millisecond
	})
	const n = 60
	var all sync.WaitGroup
	for half := range 2 {
		all.Go(func() {
			for i := range n {
				if i%2 == half {
					b.charge(fmt.Sprint(i))
				}
			}
		})
	}
	all.Wait()
	b.allSettled()
	b.age(twoDays + time.Hour)
	more := b.charge("more") // while the others are forgotten
	b.await(`NOT EXISTS (SELECT FROM outbox.intents i JOIN outbox.outcomes e ON e.intent_id = i.id WHERE e.settled_at < now() - interval '2 days' AND i.payload IS NOT NULL)`)
	b.state(more.Reference, outbox.Succeeded)
	b.allSettled()
	if c, s := len(b.sim.Effects(simulator.Charges)), len(b.sim.Effects(simulator.Shipments)); c != n+1 || s != n+1 {
		t.Errorf("%d charges and %d shipments, want %d of each", c, s, n+1)
	}
	b.noDuplicates()
}

// While one replica forgets, another has nothing to do; and nobody without the role can.
func TestOneReplicaAtATimeForgets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.run(func(c *dispatch.Config) { c.KeepAll = true })
	b.charge("1")
	b.allSettled()
	b.age(twoDays + time.Hour)
	b.forget("ship.v1", dispatch.Details, years) // so that there is a row to hold
	_, _, err := dispatch.Trim(b.ctx, b.pool, "charge_card.v1", dispatch.Details, years, 1)
	b.must(err)
	other, err := b.pool.Begin(b.ctx)
	b.must(err)
	if _, err := other.Exec(b.ctx, `SELECT FROM outbox.retention FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if n, more, err := dispatch.Trim(b.ctx, b.pool, "charge_card.v1", dispatch.Details, twoDays, 10); n != 0 || more || err != nil {
		t.Errorf("while another is at it: %d, %v, %v", n, more, err)
	}
	b.must(other.Rollback(b.ctx))
	_, _, err = dispatch.Trim(b.ctx, b.openURL(b.login("outbox_worker"), 4), "charge_card.v1", dispatch.Details, twoDays, 10)
	if !errors.Is(err, dispatch.ErrMayNotTrim) {
		t.Errorf("without the role: %v", err)
	}
	if n := b.forget("charge_card.v1", dispatch.Details, twoDays); n != 1 {
		t.Errorf("after all %d forgotten, want 1", n)
	}
}
