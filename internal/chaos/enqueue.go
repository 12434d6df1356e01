package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/outbox"
)

const (
	tenant = "chaos"
	// tryTime bounds one transaction of an enqueuer; then it asks again.
	tryTime  = 3 * time.Second
	tryPause = 50 * time.Millisecond
)

// order is what an enqueuer wants to happen once.
type order struct {
	name      string // its business key or operation id
	operation string
	payload   map[string]any

	rolledBack bool // its transaction is given up: nothing may come of it
	again      bool // it is asked for once more, later
	changed    bool // and with another amount under the same key
}

// draw makes the i-th order of a seed.
func draw(seed uint64, i int) order {
	chance := rand.New(rand.NewPCG(seed, uint64(i)+2))
	o := order{name: fmt.Sprintf("o%d", i), rolledBack: chance.IntN(20) == 0, again: chance.IntN(6) == 0, changed: chance.IntN(30) == 0}
	amount := 1 + chance.IntN(100000)
	switch n := chance.IntN(20); {
	case n < 9:
		o.operation, o.payload = "charge", map[string]any{"order_id": o.name, "amount": amount, "currency": "EUR", "receipt": n < 2}
	case n < 17:
		o.operation, o.payload = "book", map[string]any{"order_id": o.name, "amount": amount, "currency": "EUR"}
	default:
		o.operation, o.payload = "write", map[string]any{"to": o.name + "@customers.example", "subject": "Order", "text": fmt.Sprint(amount)}
	}
	return o
}

func (o order) intent() outbox.Intent {
	in := outbox.Intent{Tenant: tenant, Operation: o.operation + ".v1", Payload: o.payload}
	if o.operation == "write" {
		in.OperationID = o.name
	}
	return in
}

// other is the order with another amount.
func (o order) other() order {
	changed := map[string]any{}
	for k, v := range o.payload {
		changed[k] = v
	}
	if o.operation == "write" {
		changed["text"] = "changed"
	} else {
		changed["amount"] = 100001
	}
	o.payload = changed
	return o
}

// told is what an enqueuer was answered, and by whom it was committed.
type told struct {
	order  string
	answer outbox.Answer
	// first is set for the answer whose commit was acknowledged first.
	first bool
	// changed is set where another payload was given.
	changed bool
}

// book is what all enqueuers know.
type book struct {
	mu         sync.Mutex
	told       []told
	rolledBack []string
	lostCommit int // commits without an answer
}

func (b *book) write(t told) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, t)
}

// enqueueAll commits every order, one transaction each, spread over the run's duration.
func (r *run) enqueueAll(ctx context.Context) (*book, error) {
	config, err := pgxpool.ParseConfig(r.url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = enqueuers
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	b := &book{}
	began := time.Now()
	errs := make([]error, enqueuers)
	var all sync.WaitGroup
	for n := range enqueuers {
		all.Go(func() {
			var before []order // to ask for again
			for i := n; i < r.o.Intents; i += enqueuers {
				at := began.Add(r.o.Duration * time.Duration(i) / time.Duration(r.o.Intents))
				time.Sleep(time.Until(at))
				o := draw(r.o.Seed, i)
				if errs[n] = b.place(ctx, pool, o); errs[n] != nil {
					return
				}
				if o.rolledBack {
					continue
				}
				before = append(before, o)
				if earlier := before[len(before)/2]; o.again {
					errs[n] = b.insist(ctx, pool, earlier, false, false)
				}
				if o.changed && errs[n] == nil {
					errs[n] = b.insist(ctx, pool, o.other(), false, true)
				}
				if errs[n] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return b, errors.Join(errs...)
}

// place commits the order, or gives it up just before.
func (b *book) place(ctx context.Context, pool *pgxpool.Pool, o order) error {
	if !o.rolledBack {
		return b.insist(ctx, pool, o, true, false)
	}
	_, _ = b.try(ctx, pool, o, func(context.Context, pgxTx) error { return errGivenUp })
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rolledBack = append(b.rolledBack, o.name)
	return nil
}

// insist asks, with the same key, until a commit is acknowledged: what an application does
// that does not know whether its transaction went through.
func (b *book) insist(ctx context.Context, pool *pgxpool.Pool, o order, first, changed bool) error {
	for {
		a, err := b.try(ctx, pool, o, func(ctx context.Context, tx pgxTx) error { return tx.Commit(ctx) })
		if err == nil {
			b.write(told{order: o.name, answer: a, first: first, changed: changed})
			return nil
		}
		select {
		case <-time.After(tryPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errGivenUp = errors.New("given up")

type pgxTx interface {
	Commit(context.Context) error
}

// try is one transaction: the application's own row, and the intent.
func (b *book) try(ctx context.Context, pool *pgxpool.Pool, o order, finish func(context.Context, pgxTx) error) (a outbox.Answer, _ error) {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	tx, err := pool.Begin(ctx)
	if err != nil {
		return a, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit it does nothing
	if _, err := tx.Exec(ctx, `INSERT INTO chaos.orders (name) VALUES ($1) ON CONFLICT DO NOTHING`, o.name); err != nil {
		return a, err
	}
	if a, err = outbox.Enqueue(ctx, tx, o.intent()); err != nil {
		return a, err
	}
	if err := finish(ctx, tx); err != nil {
		if !errors.Is(err, errGivenUp) {
			b.mu.Lock()
			b.lostCommit++
			b.mu.Unlock()
		}
		return a, err
	}
	return a, nil
}
