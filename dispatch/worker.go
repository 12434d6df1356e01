package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/outbox-worker/outbox-worker/migrations"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

// Worker causes the effects that intents ask for. Any number of workers, in any number
// of processes, may run on one database.
type Worker struct {
	cfg   Config
	log   *slog.Logger
	river *river.Client[pgx.Tx]
	slots *slots

	loads   *batcher[ticket, *candidate]
	claims  *batcher[*candidate, bool]
	settles *batcher[settlement, settled]

	succeeded chan struct{} // something may have follow-ons to create
	loops     sync.WaitGroup
	probing   sync.WaitGroup

	running   context.Context // ends when releasing, sweeping and following stop
	stopping  context.Context // ends when nothing new may be claimed
	calls     context.Context // ends when calls in flight are cut off
	recording context.Context // ends when nothing more can be recorded

	compiled compiled

	mu        sync.RWMutex
	lanes     map[int32]*lane
	revisions map[int32]*catalog.Revision
	services  map[int32]service
}

// How many statements of a kind run at once, and of how many intents each.
const (
	batchLines = 2
	batchMax   = 500
)

// New makes a worker; it does not touch the database yet. It refuses a Config that
// cannot work.
func New(cfg Config) (*Worker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	w := &Worker{
		cfg: cfg, log: cfg.Logger, slots: cfg.Calls.slots, succeeded: make(chan struct{}, 1),
		lanes: map[int32]*lane{}, revisions: map[int32]*catalog.Revision{}, services: map[int32]service{},
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &dispatcher{w: w})
	w.river, err = river.NewClient(riverpgxv5.New(cfg.Pool), &river.Config{
		Schema:  migrations.Schema,
		Workers: workers,
		// Lanes add theirs as they are found; River wants one to begin with.
		Queues:                      map[string]river.QueueConfig{"outbox": {MaxWorkers: 1, FetchPollInterval: time.Hour}},
		Logger:                      slog.New(quiet{cfg.Logger.Handler()}),
		JobTimeout:                  -1, // calls have their own deadlines
		FetchCooldown:               2 * time.Millisecond,
		FetchPollInterval:           cfg.poll(time.Second, 50*time.Millisecond), // a release notifies
		FetchOnlyKnownKinds:         true,
		CompletedJobRetentionPeriod: time.Minute, // what happened stands in the ledger
		DiscardedJobRetentionPeriod: time.Hour,   // jobs whose worker died; their intents went on without them
		RescueStuckJobsAfter:        10 * time.Minute,
		PollOnly:                    cfg.PollOnly,
	})
	if err != nil {
		return nil, fmt.Errorf("dispatch: set up River: %w", err)
	}
	return w, nil
}

// Run works until ctx ends, then stops gracefully: it releases and claims nothing more,
// lets calls in flight finish within StopTimeout and records what they brought, cuts off
// the rest and records it as unknown. It returns nil after such a stop, and an error if
// it could not start: no database, no schema, or a catalog that breaks a promise (a
// lease shorter than its call). Run it once.
func (w *Worker) Run(ctx context.Context) error {
	var endRunning, endStopping, endCalls, endRecording context.CancelFunc
	free := context.WithoutCancel(ctx)
	w.running, endRunning = context.WithCancel(free)
	defer endRunning()
	w.stopping, endStopping = context.WithCancel(free)
	defer endStopping()
	w.calls, endCalls = context.WithCancel(free)
	defer endCalls()
	w.recording, endRecording = context.WithCancel(free)
	defer endRecording()

	w.loads = newBatcher(batchLines, batchMax, w.loadEach)
	w.claims = newBatcher(batchLines, batchMax, func(ctx context.Context, all []*candidate) ([]bool, error) {
		return w.claim(ctx, w.cfg.Pool, all)
	})
	w.settles = newBatcher(batchLines, batchMax, w.settleBatch)

	if err := w.river.Start(free); err != nil {
		w.closeBatchers()
		return fmt.Errorf("dispatch: start River: %w", err)
	}
	err := w.refresh(w.running)
	if err == nil {
		w.loops.Go(func() { w.sweep(w.running) })
		w.loops.Go(func() { w.follow(w.running) })
		w.loops.Go(func() { w.refreshLoop(w.running) })
		if !w.cfg.KeepAll {
			w.loops.Go(func() { w.retain(w.running) })
		}
		if !w.cfg.PollOnly {
			w.loops.Go(func() { w.listen(w.running) })
		}
		w.log.InfoContext(ctx, "worker started", "name", w.cfg.Name, "id", w.cfg.holder, "operations", len(w.servedIDs()), "concurrency", w.cfg.Concurrency)
		w.warnOfFewConns(ctx)
		<-ctx.Done()
		w.log.InfoContext(ctx, "worker stopping", "name", w.cfg.Name, "timeout", w.cfg.StopTimeout)
	}
	endRunning()
	w.loops.Wait()
	endStopping()
	stopErr := w.stopRiver(free, endCalls, endRecording)
	if stopErr == nil {
		w.closeBatchers()
		w.log.InfoContext(ctx, "worker stopped", "name", w.cfg.Name)
	}
	if err = errors.Join(err, stopErr); err != nil {
		return fmt.Errorf("dispatch: %w", err)
	}
	return nil
}

func (w *Worker) warnOfFewConns(ctx context.Context) {
	w.mu.RLock()
	lanes := len(w.lanes)
	w.mu.RUnlock()
	if have, want := w.cfg.Pool.Config().MaxConns, BusyConns(lanes); int(have) < want {
		w.log.WarnContext(ctx, "few connections: under load statements will wait for each other", "connections", have, "lanes", lanes, "advised", want)
	}
}

func (w *Worker) closeBatchers() {
	w.loads.close()
	w.claims.close()
	w.settles.close()
}

// recordTime is what cut-off calls get to record that their outcome is unknown.
const recordTime = 10 * time.Second

// stopRiver waits for running jobs, and with them for calls and their settlement.
func (w *Worker) stopRiver(ctx context.Context, endCalls, endRecording context.CancelFunc) error {
	patience, cancel := context.WithTimeout(ctx, w.cfg.StopTimeout)
	defer cancel()
	probed := make(chan struct{})
	go func() { w.probing.Wait(); close(probed) }()
	err := w.river.Stop(patience)
	select {
	case <-probed:
	case <-patience.Done():
		err = patience.Err()
	}
	if err == nil {
		return nil
	}
	w.log.WarnContext(ctx, "calls still in flight are cut off; their outcomes are unknown")
	endCalls()
	recorded := time.AfterFunc(recordTime, endRecording)
	defer recorded.Stop()
	patience, cancel = context.WithTimeout(ctx, recordTime+statementLimit)
	defer cancel()
	err = w.river.StopAndCancel(patience)
	select {
	case <-probed:
	case <-patience.Done():
		err = patience.Err()
	}
	if err != nil {
		return fmt.Errorf("stop: calls that ignore their deadline still run; their leases decide: %w", err)
	}
	return nil
}

// loadEach answers every ticket, with nil for those that are no longer to be sent.
func (w *Worker) loadEach(ctx context.Context, tickets []ticket) ([]*candidate, error) {
	got, err := load(ctx, w.cfg.Pool, tickets)
	if err != nil {
		return nil, err
	}
	byID := make(map[int64]*candidate, len(got))
	for _, c := range got {
		byID[c.ID] = c
	}
	each := make([]*candidate, len(tickets))
	for i, t := range tickets {
		if c := byID[t.ID]; c != nil && c.ticket == t {
			each[i] = c
			delete(byID, t.ID) // the same intent from two jobs of the batch: once
		}
	}
	return each, nil
}

func (w *Worker) refreshLoop(ctx context.Context) {
	every := time.NewTicker(refreshEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			w.refreshAndLog(ctx)
		}
	}
}

// listen wakes lanes whose releaser sleeps. A lost connection costs polls, no work.
func (w *Worker) listen(ctx context.Context) {
	for ctx.Err() == nil {
		if err := w.listenOnce(ctx); err != nil && ctx.Err() == nil {
			w.log.WarnContext(ctx, "notifications lost; polling meanwhile", "error", err)
			timer := time.NewTimer(errorPause)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

func (w *Worker) listenOnce(ctx context.Context) error {
	conn, err := w.cfg.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	// A connection that listens must not go back to the pool.
	raw := conn.Hijack()
	defer func() { _ = raw.Close(context.WithoutCancel(ctx)) }()
	if _, err := raw.Exec(ctx, ListenSQL); err != nil {
		return err
	}
	for {
		n, err := raw.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		id, err := strconv.ParseInt(n.Payload, 10, 32)
		if err != nil {
			return errors.New("notification without a lane: " + n.Payload)
		}
		if l := w.lane(int32(id)); l != nil {
			l.wake()
		}
	}
}

// quiet passes on River's warnings and errors only: its routine is not news here.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && q.Handler.Enabled(ctx, level)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }
func (q quiet) WithGroup(name string) slog.Handler       { return quiet{q.Handler.WithGroup(name)} }
