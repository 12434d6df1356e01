package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/outbox-worker/outbox-worker/outbox/catalog"
	"github.com/outbox-worker/outbox-worker/providers"
)

// service is a revision of the catalog that this worker can perform.
type service struct {
	revision     *catalog.Revision
	provider     providers.Provider
	capabilities providers.Capabilities
}

// refreshEvery is how often the worker looks for new revisions and lanes.
const refreshEvery = 2 * time.Second

// refresh learns revisions that were applied since, and starts to serve their lanes. It
// returns why an operation in force cannot be served although its provider is here.
func (w *Worker) refresh(ctx context.Context) error {
	if err := w.recognise(ctx); err != nil {
		if errors.Is(err, ErrClone) {
			w.publish(nil, nil)
		}
		return err
	}
	revisions, err := w.catalog(ctx)
	if err != nil {
		return err
	}
	limits, err := w.laneLimits(ctx)
	if err != nil {
		return err
	}
	services, problems := w.judge(revisions, limits)
	w.publish(revisions, services)
	for _, s := range services {
		problems = append(problems, w.openLane(ctx, s.revision.LaneID, limits[s.revision.LaneID]))
	}
	return errors.Join(problems...)
}

// compiled is the catalog as it was last read. Revisions are immutable and never go away:
// as long as there are no more of them, it is up to date.
type compiled struct {
	mu        sync.Mutex
	rows      int
	revisions []*catalog.Revision
}

const catalogRowsSQL = `-- name: catalog_rows
SELECT count(*) FROM outbox.catalog`

func (w *Worker) catalog(ctx context.Context) ([]*catalog.Revision, error) {
	w.compiled.mu.Lock()
	defer w.compiled.mu.Unlock()
	rows, err := count(ctx, w.cfg.Pool, catalogRowsSQL)
	if err != nil {
		return nil, fmt.Errorf("look for new revisions: %w", err)
	}
	if rows == w.compiled.rows {
		return w.compiled.revisions, nil
	}
	revisions, err := catalog.Load(ctx, w.cfg.Pool)
	var newer *catalog.UnusableError
	if errors.As(err, &newer) {
		w.log.WarnContext(ctx, "left to a newer version of the worker", "error", err)
	} else if err != nil {
		return nil, fmt.Errorf("load the catalog: %w", err)
	}
	w.compiled.rows, w.compiled.revisions = rows, revisions
	return revisions, nil
}

// SetupError is why a worker refuses to start: the catalog in force and its providers
// make a promise that could not be kept. Trying again does not help.
type SetupError struct{ Err error }

func (e *SetupError) Error() string { return e.Err.Error() }
func (e *SetupError) Unwrap() error { return e.Err }

// judge parts what this worker can perform from what it cannot. An old revision that it
// cannot perform is a problem of the intents that still have it, and they wait for a
// worker that can; one in force is a problem of the set-up.
func (w *Worker) judge(revisions []*catalog.Revision, limits map[int32]laneLimit) (services map[int32]service, problems []error) {
	inForce := map[string]int{}
	for _, r := range revisions {
		inForce[r.Operation] = max(inForce[r.Operation], r.Revision)
	}
	services = map[int32]service{}
	for _, r := range revisions {
		provider := w.cfg.Providers[limits[r.LaneID].provider]
		if provider == nil {
			continue // another deployment's
		}
		caps, ok := provider.Serves(r.Spec.Name, r.Spec.Version)
		if !ok {
			continue
		}
		if err := Servable(r, provider); err == nil {
			services[r.ID] = service{revision: r, provider: provider, capabilities: caps}
		} else if r.Revision == inForce[r.Operation] && !r.Spec.Retired {
			problems = append(problems, &SetupError{err})
		}
	}
	return services, problems
}

func (w *Worker) publish(revisions []*catalog.Revision, services map[int32]service) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revisions, w.services = map[int32]*catalog.Revision{}, services
	for _, r := range revisions {
		w.revisions[r.ID] = r
	}
}

// Servable says why a worker refuses to perform an operation with a provider that knows
// it: a lease that does not cover the call, a provider that can neither recognise our
// key nor be asked, without a choice of what to risk, or a key that is forgotten before
// the provider forgets it. nil when it does not refuse.
func Servable(r *catalog.Revision, p providers.Provider) error {
	call, lease := r.Spec.Timeouts.Call.Duration, r.Spec.Timeouts.Lease.Duration
	if lease < call+LeaseMargin {
		return fmt.Errorf("%s: a lease of %s does not cover a call of %s and the margin of %s: raise timeouts.lease in the catalog",
			r.Operation, lease, call, LeaseMargin)
	}
	caps, _ := p.Serves(r.Spec.Name, r.Spec.Version)
	if _, local := p.(Local); !local && caps.KeyMemory == 0 && !caps.Lookup && r.Spec.Unknown == "" {
		return fmt.Errorf("%s: its provider neither remembers keys nor can be asked, so an unknown outcome cannot be found out: declare unknown: at_most_once or at_least_once in the catalog",
			r.Operation)
	}
	if keep := r.Spec.Retention.Tombstone.Duration; keep < caps.KeyMemory {
		return fmt.Errorf("%s: its key is forgotten after %s, and the provider remembers it for %s, so a late repeat would be answered by an earlier effect: raise retention.tombstone in the catalog",
			r.Operation, keep, caps.KeyMemory)
	}
	return nil
}

// laneLimit is what the database says of a lane.
type laneLimit struct {
	name        string
	provider    string
	concurrency int
}

const laneLimitsSQL = `-- name: lane_limits
SELECT id, name, provider, concurrency FROM outbox.lanes`

func (w *Worker) laneLimits(ctx context.Context) (map[int32]laneLimit, error) {
	limits := map[int32]laneLimit{}
	_, err := collect(ctx, w.cfg.Pool, laneLimitsSQL, func(row pgx.CollectableRow) (int32, error) {
		var id int32
		var l laneLimit
		err := row.Scan(&id, &l.name, &l.provider, &l.concurrency)
		limits[id] = l
		return id, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the lanes: %w", err)
	}
	return limits, nil
}

// openLane starts to release and to work for a lane, once, and keeps to its limit as the
// catalog changes it.
func (w *Worker) openLane(ctx context.Context, id int32, limit laneLimit) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.lanes[id]; l != nil {
		l.resize(limit.concurrency)
		return nil
	}
	l := newLane(id, limit.name, limit.concurrency)
	if err := w.river.Queues().Add(l.queue(), river.QueueConfig{MaxWorkers: w.cfg.Concurrency}); err != nil {
		return fmt.Errorf("work for lane %s: %w", limit.name, err)
	}
	w.lanes[id] = l
	w.loops.Go(func() { w.release(ctx, l) })
	w.loops.Go(func() { w.reconcile(ctx, l) })
	w.log.InfoContext(ctx, "serving lane", "lane", limit.name, "provider", limit.provider, "concurrency", limit.concurrency)
	return nil
}

func (w *Worker) lane(id int32) *lane {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.lanes[id]
}

// served returns how to perform a revision; one that is not known is looked up, because
// it may have been applied a moment ago.
func (w *Worker) served(ctx context.Context, catalogID int32) (service, bool) {
	w.mu.RLock()
	s, ok := w.services[catalogID]
	_, known := w.revisions[catalogID]
	w.mu.RUnlock()
	if ok || known {
		return s, ok
	}
	w.refreshAndLog(ctx)
	w.mu.RLock()
	defer w.mu.RUnlock()
	s, ok = w.services[catalogID]
	return s, ok
}

func (w *Worker) revision(catalogID int32) *catalog.Revision {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.revisions[catalogID]
}

// servedOf returns what this worker performs in a lane.
func (w *Worker) servedOf(lane int32) (served []service) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, s := range w.services {
		if s.revision.LaneID == lane {
			served = append(served, s)
		}
	}
	return served
}

func (w *Worker) servedIDs() []int32 {
	w.mu.RLock()
	defer w.mu.RUnlock()
	ids := make([]int32, 0, len(w.services))
	for id := range w.services {
		ids = append(ids, id)
	}
	return ids
}

func (w *Worker) refreshAndLog(ctx context.Context) {
	if err := w.refresh(w.running); err != nil && ctx.Err() == nil {
		w.log.ErrorContext(ctx, "part of the catalog cannot be served", "error", err)
	}
}

func (w *Worker) revisionIDs() []int32 {
	w.mu.RLock()
	defer w.mu.RUnlock()
	ids := make([]int32, 0, len(w.revisions))
	for id := range w.revisions {
		ids = append(ids, id)
	}
	return ids
}
