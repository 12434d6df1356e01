package outbox

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Waiter waits for intents to be settled. Any number of waiters share one query per
// poll, so make one Waiter per database and process. It owns no state: when the process
// dies, ask again with Get. Safe for concurrent use.
type Waiter struct {
	db Querier

	mu      sync.Mutex
	waiting map[waitKey]*waited
	polling bool
}

type waitKey struct{ tenant, reference string }

// waited is one reference that somebody waits for. done is closed when answer is final.
type waited struct {
	done    chan struct{}
	answer  Answer
	waiters int
	since   time.Time
}

// Polls start quick, because most outcomes are near, and calm down for the others.
const (
	pollQuick = 20 * time.Millisecond
	pollCalm  = 250 * time.Millisecond
	calmAfter = 2 * time.Second
	pollLimit = 10 * time.Second // for one query
)

// NewWaiter returns a Waiter that asks db: a *pgxpool.Pool. It runs no query until
// somebody waits.
func NewWaiter(db Querier) *Waiter {
	return &Waiter{db: db, waiting: map[waitKey]*waited{}}
}

// Wait blocks until the intent is settled, or ctx ends: then it returns the latest
// known answer with ctx's error. An unknown reference is AnswerNotFound at once. A
// database that does not answer is asked again until ctx ends.
func (w *Waiter) Wait(ctx context.Context, tenant, reference string) (Answer, error) {
	if !storable(tenant) || !storable(reference) {
		return notFound(), nil // the query that all share would fail
	}
	key := waitKey{tenant, reference}
	w.mu.Lock()
	e := w.waiting[key]
	if e == nil {
		e = &waited{done: make(chan struct{}), since: time.Now()}
		w.waiting[key] = e
	}
	e.waiters++
	if !w.polling {
		w.polling = true
		go w.poll(context.WithoutCancel(ctx))
	}
	w.mu.Unlock()

	var err error
	select {
	case <-e.done:
	case <-ctx.Done():
		err = fmt.Errorf("outbox: wait for %s: %w", reference, ctx.Err())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.waiters--; e.waiters == 0 && w.waiting[key] == e {
		delete(w.waiting, key)
	}
	return e.answer, err
}

// poll asks for everything that is waited for, until nobody waits.
func (w *Waiter) poll(ctx context.Context) {
	for {
		keys, pause := w.open()
		if keys == nil {
			return
		}
		w.ask(ctx, keys)
		time.Sleep(pause)
	}
}

// open lists what is waited for, and how long to pause after asking; nil ends polling.
func (w *Waiter) open() (keys []waitKey, pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pause = pollCalm
	for key, e := range w.waiting {
		keys = append(keys, key)
		if time.Since(e.since) < calmAfter {
			pause = pollQuick
		}
	}
	w.polling = len(keys) > 0
	return keys, pause
}

const statusManySQL = `-- name: status_many
SELECT ` + answerColumns + `
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY w(tenant, reference, n), outbox.status(w.tenant, w.reference) a ORDER BY w.n`

func (w *Waiter) ask(ctx context.Context, keys []waitKey) {
	ctx, cancel := context.WithTimeout(ctx, pollLimit)
	defer cancel()
	tenants, references := make([]string, len(keys)), make([]string, len(keys))
	for i, key := range keys {
		tenants[i], references[i] = key.tenant, key.reference
	}
	r, err := w.db.Query(ctx, statusManySQL, tenants, references)
	answers, err := scan(pgxRows{r}, err, "wait")
	if err != nil || len(answers) != len(keys) {
		return // asked again at the next poll; the waiters' own deadlines bound it
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, key := range keys {
		e := w.waiting[key]
		if e == nil {
			continue
		}
		e.answer = answers[i]
		if e.answer.Kind != AnswerInFlight {
			delete(w.waiting, key)
			close(e.done)
		}
	}
}
