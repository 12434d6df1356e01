package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/dispatch"
	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/providers"
)

// many is one process at work for several databases.
type many struct {
	cfg       cli.Config
	providers map[string]providers.Provider
	calls     *dispatch.Calls
	log       *slog.Logger

	mu      sync.Mutex
	ledgers map[uuid.UUID]int // whose ledger each is, by the database's place in the list
}

// workMany works for the databases until ctx ends. What is wrong with the set-up of one
// when it is first looked at ends all, as it does with one database alone: a deployment
// that is half configured should be noticed. A database that cannot be reached, and what
// goes wrong later, concerns that database: it is tried again, and the others go on.
func workMany(ctx context.Context, cfg cli.Config, databases []cli.Database, log *slog.Logger) error {
	opened, err := openProviders(cfg)
	if err != nil {
		return err
	}
	m := &many{cfg: cfg, providers: opened, calls: dispatch.ShareCalls(cfg.Worker.Concurrency), log: log, ledgers: map[uuid.UUID]int{}}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var working sync.WaitGroup
	errs := make([]error, len(databases))
	for i, db := range databases {
		working.Go(func() {
			if errs[i] = m.work(ctx, i, db); errs[i] != nil {
				cancel(errs[i])
			}
		})
	}
	working.Wait()
	return errors.Join(errs...)
}

// Pauses before a database is tried again.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// work works for one database. It returns nil when ctx ends, and an error only for what
// ends the others, too.
func (m *many) work(ctx context.Context, i int, db cli.Database) error {
	if _, err := db.PoolConfig(""); err != nil {
		return err // not an address
	}
	log := m.log.With("database", db.Where())
	first := true
	pauses := backoff.NewExponentialBackOff(backoff.WithInitialInterval(firstRetry), backoff.WithMaxInterval(lastRetry), backoff.WithMaxElapsedTime(0))
	err := backoff.RetryNotify(func() error {
		looked, err := m.once(ctx, i, db, log)
		var setup *dispatch.SetupError
		switch {
		case ctx.Err() != nil:
			return backoff.Permanent(err) // a stop that could not finish is not tried again
		case first && looked && (errors.As(err, &setup) || errors.Is(err, dispatch.ErrClone) || errors.Is(err, errSameLedger)):
			return backoff.Permanent(fmt.Errorf("%s: %w", db.Where(), err))
		}
		first = first && !looked
		return err
	}, backoff.WithContext(pauses, ctx), func(err error, after time.Duration) {
		log.ErrorContext(ctx, "not working for this database; it is tried again", "error", err, "again_in", after)
	})
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil // it was not to be reached until the end
	}
	return err
}

// errSameLedger is two addresses of one ledger, or of a ledger and its copy.
var errSameLedger = errors.New("the same ledger as another database of this worker: name each database once, and a copy not at all")

// once connects and works until ctx ends. looked says whether the ledger was found.
func (m *many) once(ctx context.Context, i int, db cli.Database, log *slog.Logger) (looked bool, err error) {
	pool, err := cli.Connect(ctx, db, "outbox-worker run")
	if err != nil {
		return false, err
	}
	defer pool.Close()
	if err := m.know(ctx, pool, i); err != nil {
		return errors.Is(err, errSameLedger), err
	}
	settings := workerSettings(m.cfg, pool, m.providers, log)
	settings.Calls = m.calls
	return true, runWorker(ctx, settings)
}

const ledgerIDSQL = `-- name: ledger_id
SELECT id FROM outbox.ledger`

// know notes whose ledger it is, and refuses it to a second database.
func (m *many) know(ctx context.Context, pool *pgxpool.Pool, i int) error {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Database.ConnectTimeout)
	defer cancel()
	var id uuid.UUID
	if err := pool.QueryRow(ctx, ledgerIDSQL).Scan(&id); err != nil {
		return cli.Explain(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if other, known := m.ledgers[id]; known && other != i {
		return errSameLedger
	}
	m.ledgers[id] = i
	return nil
}
