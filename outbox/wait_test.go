package outbox_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/outbox-worker/outbox-worker/outbox"
)

// counter is a database that counts the queries it is asked, and how many of them run
// at once. asked hears, if it is set, how many references a query is about, before the
// query runs.
type counter struct {
	db      outbox.Querier
	queries atomic.Int64
	running atomic.Int64
	most    atomic.Int64
	asked   func(references int) error
}

func (c *counter) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	c.queries.Add(1)
	if n := c.running.Add(1); n > c.most.Load() {
		c.most.Store(n)
	}
	defer c.running.Add(-1)
	if c.asked != nil {
		if err := c.asked(len(args[0].([]string))); err != nil {
			return nil, err
		}
	}
	return c.db.Query(ctx, sql, args...)
}

type waitResult struct {
	answer outbox.Answer
	err    error
}

// wait waits in a goroutine of its own.
func wait(ctx context.Context, w *outbox.Waiter, tenant, reference string) <-chan waitResult {
	done := make(chan waitResult, 1)
	go func() {
		a, err := w.Wait(ctx, tenant, reference)
		done <- waitResult{a, err}
	}()
	return done
}

// However many wait, one query at a time asks for all of them, and one answer wakes all
// that it settles.
func TestAThousandWaitersShareOneQuery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const waiters = 1000
	ins := make([]outbox.Intent, waiters)
	for i := range ins {
		ins[i] = search(string(rune('가' + i)))
	}
	answers := b.enqueueMany(b.app, ins)

	// The database holds each query until it is about everybody: then all is settled, and
	// the next answer has to wake all.
	joined, settled := make(chan struct{}), make(chan struct{})
	var whole atomic.Int64 // queries about everybody
	db := &counter{db: b.app}
	db.asked = func(references int) error {
		if references == len(ins) && whole.Add(1) == 1 {
			close(joined)
			<-settled
		}
		return nil
	}
	w := outbox.NewWaiter(db)
	var all []<-chan waitResult
	for _, a := range answers {
		all = append(all, wait(b.ctx, w, "acme", a.Reference))
	}
	<-joined
	before := db.queries.Load()
	b.exec(`WITH gone AS (DELETE FROM outbox.outbox RETURNING intent_id)
		INSERT INTO outbox.outcomes (intent_id, attempt, state, provider_id) SELECT intent_id, 1, 'succeeded', 'ch_' || intent_id FROM gone`)
	close(settled)
	ids := map[string]int{}
	for _, done := range all {
		r := <-done
		if r.err != nil || r.answer.Kind != outbox.AnswerSettled || r.answer.State != outbox.Succeeded {
			t.Fatalf("%+v %v", r.answer, r.err)
		}
		ids[r.answer.ProviderID]++
	}
	if len(ids) != len(ins) {
		t.Errorf("%d outcomes for %d references", len(ids), len(ins))
	}
	if n := db.queries.Load() - before; n != 0 {
		t.Errorf("%d further queries: the one that was held knew everything", n)
	}
	if n := db.most.Load(); n != 1 {
		t.Errorf("%d queries at once", n)
	}
	b.wantRows(rows{intents: len(ins), outcomes: len(ins), heads: len(ins)}) // waiting is no repeat
}

func TestWaitReturnsEveryEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := outbox.NewWaiter(b.app)
	for _, state := range []outbox.State{outbox.Succeeded, outbox.FailedFinal, outbox.Cancelled} {
		ref := b.accept(charge(string(state), 1))
		var all []<-chan waitResult
		for range 20 { // for the same
			all = append(all, wait(b.ctx, w, "acme", ref))
		}
		b.settle(ref, state)
		for _, done := range all {
			if r := <-done; r.err != nil || r.answer.State != state || r.answer.Kind != outbox.AnswerSettled {
				t.Errorf("%s: %+v %v", state, r.answer, r.err)
			}
		}
		b.trim(ref)
		if r := <-wait(b.ctx, w, "acme", ref); r.err != nil || r.answer.Kind != outbox.AnswerExpired || r.answer.State != state {
			t.Errorf("%s, trimmed: %+v %v", state, r.answer, r.err)
		}
	}
}

func TestWaitForWhatNobodyKnowsReturnsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	db := &counter{db: b.app}
	w := outbox.NewWaiter(db)
	ref := b.accept(charge("1", 1))
	for _, x := range [][2]string{{"acme", "nobody"}, {"other", ref}, {"acme", ""}} {
		before := db.queries.Load()
		r := <-wait(b.ctx, w, x[0], x[1])
		if r.err != nil || r.answer.Kind != outbox.AnswerNotFound {
			t.Errorf("%q: %+v %v", x, r.answer, r.err)
		}
		if n := db.queries.Load() - before; n != 1 {
			t.Errorf("%q: %d queries", x, n)
		}
	}
}

// What no database can hold would fail the query that all waiters share.
func TestAReferenceThatPostgresCannotStoreHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := outbox.NewWaiter(b.app)
	ref := b.accept(charge("1", 1))
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	bad := []<-chan waitResult{wait(ctx, w, "acme", "a\x00b"), wait(ctx, w, "acme\xff", ref)}
	done := wait(b.ctx, w, "acme", ref)
	b.settle(ref, outbox.Succeeded)
	if r := <-done; r.err != nil || r.answer.State != outbox.Succeeded {
		t.Errorf("%+v %v", r.answer, r.err)
	}
	for _, done := range bad {
		if r := <-done; r.err != nil || r.answer.Kind != outbox.AnswerNotFound {
			t.Errorf("%+v %v", r.answer, r.err)
		}
	}
}

// The end of the context ends the wait, with what is known by then.
func TestTheEndOfTheContextReturnsTheLatestAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.accept(charge("1", 1))
	b.hold(ref, outbox.Executing)
	second := make(chan struct{})
	db := &counter{db: b.app}
	db.asked = func(int) error {
		if db.queries.Load() == 2 { // so the first has been answered
			close(second)
		}
		return nil
	}
	w := outbox.NewWaiter(db)
	ctx, cancel := context.WithCancel(b.ctx)
	done := wait(ctx, w, "acme", ref)
	<-second
	cancel()
	r := <-done
	if !errors.Is(r.err, context.Canceled) || r.answer.Kind != outbox.AnswerInFlight || r.answer.State != outbox.Executing || r.answer.Reference != ref {
		t.Errorf("%+v %v", r.answer, r.err)
	}
	// One who gives up takes nobody along, and one who comes later is served.
	other := wait(b.ctx, w, "acme", ref)
	ended, cancel := context.WithCancel(b.ctx)
	cancel()
	if r := <-wait(ended, w, "acme", ref); !errors.Is(r.err, context.Canceled) {
		t.Errorf("%+v %v", r.answer, r.err)
	}
	b.settle(ref, outbox.Succeeded)
	if r := <-other; r.err != nil || r.answer.State != outbox.Succeeded {
		t.Errorf("%+v %v", r.answer, r.err)
	}
}

// A database that fails or hangs is asked again until it answers.
func TestAWaiterSurvivesAFailingDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.accept(charge("1", 1))
	db := &counter{db: b.app}
	failed := make(chan struct{})
	db.asked = func(int) error {
		switch db.queries.Load() {
		case 1, 2, 3:
			return errors.New("the database is away")
		case 4:
			close(failed)
		}
		return nil
	}
	w := outbox.NewWaiter(db)
	done := wait(b.ctx, w, "acme", ref)
	<-failed
	b.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	b.settleAgain(ref)
	if r := <-done; r.err != nil || r.answer.State != outbox.Succeeded {
		t.Errorf("%+v %v", r.answer, r.err)
	}
	// And one that never answers bounds nobody's own deadline.
	closed := b.pool(asApp)
	closed.Close()
	ctx, cancel := context.WithTimeout(b.ctx, 50*time.Millisecond)
	defer cancel()
	if a, err := outbox.NewWaiter(closed).Wait(ctx, "acme", ref); !errors.Is(err, context.DeadlineExceeded) || a.Kind != "" {
		t.Errorf("%+v %v", a, err)
	}
}

// settleAgain is settle on connections that may have been cut off.
func (b *testBundle) settleAgain(reference string) {
	b.t.Helper()
	b.await("the owner is connected again", func() bool {
		var one int
		return b.owner.QueryRow(b.ctx, "SELECT 1").Scan(&one) == nil
	})
	b.await("the application is connected again", func() bool {
		_, err := outbox.Get(b.ctx, b.app, "acme", reference)
		return err == nil
	})
	b.settle(reference, outbox.Succeeded)
}

// A Waiter asks nothing while nobody waits, and leaves no goroutine behind.
func TestAWaiterRestsWhenNobodyWaits(t *testing.T) {
	b := setup(t) // not parallel: it looks at all goroutines
	db := &counter{db: b.app}
	w := outbox.NewWaiter(db)
	if n := db.queries.Load(); n != 0 {
		t.Errorf("%d queries before anybody waits", n)
	}
	ref := b.accept(charge("1", 1))
	before := goleak.IgnoreCurrent()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(b.ctx, 30*time.Millisecond)
			defer cancel()
			if a, err := w.Wait(ctx, "acme", ref); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%+v %v", a, err)
			}
		})
	}
	all.Wait()
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
	rested := db.queries.Load()
	b.settle(ref, outbox.Succeeded)
	if r := <-wait(b.ctx, w, "acme", ref); r.err != nil || r.answer.State != outbox.Succeeded {
		t.Errorf("after a rest: %+v %v", r.answer, r.err)
	}
	if n := db.queries.Load() - rested; n != 1 {
		t.Errorf("%d queries after a rest", n)
	}
}
