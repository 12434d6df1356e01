package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

// TrimBatch is how many intents one transaction of retention forgets: some 20 ms.
const TrimBatch = 500

// Class is what retention takes of a settled intent.
type Class string

// The two steps of forgetting.
const (
	Details    Class = "details"    // payload, result and history
	Tombstones Class = "tombstones" // key, digest and outcome: the key may be used anew
)

// Keep is how long an operation's settled intents keep what a class takes.
func (c Class) Keep(spec catalog.Operation) time.Duration {
	if c == Details {
		return spec.Retention.Details.Duration
	}
	return spec.Retention.Tombstone.Duration
}

// ErrMayNotTrim is why nothing is forgotten: whoever the pool connects as has not been
// granted outbox_retention.
var ErrMayNotTrim = errors.New("retention: GRANT outbox_retention to this login")

const (
	trimRoleSQL = `-- name: trim_role
SET LOCAL ROLE outbox_retention`
	trimSQL = `-- name: trim
SELECT trimmed, more FROM outbox.trim($1, $2::outbox.forgets, make_interval(secs => $3), $4)`
)

// Trim forgets, in one transaction, at most n intents of an operation that were settled
// longer than keep ago. more says that there may be more to forget now; false also while
// another replica is at it. It takes no lock that a worker or an enqueue waits for.
func Trim(ctx context.Context, pool *pgxpool.Pool, operation string, class Class, keep time.Duration, n int) (trimmed int, more bool, err error) {
	err = inTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, trimRoleSQL); err != nil {
			var pg *pgconn.PgError
			if errors.As(err, &pg) && pg.Code == "42501" { // insufficient_privilege
				return ErrMayNotTrim
			}
			return err
		}
		return tx.QueryRow(ctx, trimSQL, operation, class, keep.Seconds(), n).Scan(&trimmed, &more)
	})
	if err != nil {
		return 0, false, fmt.Errorf("trim %s of %s: %w", class, operation, err)
	}
	return trimmed, more, nil
}

// retain runs until ctx ends: it forgets what is past its retention, of every operation
// in the catalog, whoever serves it. It works half of the time at most, so that it keeps
// up with what is settled and disturbs nobody.
func (w *Worker) retain(ctx context.Context) {
	every := time.NewTicker(w.cfg.TrimEvery)
	defer every.Stop()
	for {
		for _, r := range w.inForce() {
			for _, class := range []Class{Details, Tombstones} {
				if err := w.trim(ctx, r, class); errors.Is(err, ErrMayNotTrim) {
					w.log.WarnContext(ctx, "nothing is forgotten by this worker", "error", ErrMayNotTrim)
					return
				} else if err != nil && ctx.Err() == nil {
					w.log.ErrorContext(ctx, "could not forget what is past its retention", "error", err)
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

func (w *Worker) trim(ctx context.Context, r *catalog.Revision, class Class) error {
	total := 0
	for more := true; more && ctx.Err() == nil; {
		began := time.Now()
		n, again, err := Trim(ctx, w.cfg.Pool, r.Operation, class, class.Keep(r.Spec), TrimBatch)
		if err != nil {
			return err
		}
		total, more = total+n, again
		if n > 0 {
			timer := time.NewTimer(time.Since(began))
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
		}
	}
	if total > 0 {
		w.log.InfoContext(ctx, "past their retention: "+string(class)+" forgotten", "operation", r.Operation, "intents", total)
	}
	return nil
}

// inForce are the newest revisions of all operations.
func (w *Worker) inForce() []*catalog.Revision {
	w.mu.RLock()
	defer w.mu.RUnlock()
	newest := map[string]*catalog.Revision{}
	for _, r := range w.revisions {
		if have := newest[r.Operation]; have == nil || have.Revision < r.Revision {
			newest[r.Operation] = r
		}
	}
	all := make([]*catalog.Revision, 0, len(newest))
	for _, r := range newest {
		all = append(all, r)
	}
	return all
}
