package figures

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// noopArgs is a bare River job with the payload of an intent.
type noopArgs struct {
	Payload string `json:"payload"`
}

func (noopArgs) Kind() string { return "noop" }

type noopWorker struct {
	river.WorkerDefaults[noopArgs]
	delay time.Duration
	done  atomic.Int64
}

func (w *noopWorker) Work(ctx context.Context, _ *river.Job[noopArgs]) error {
	if w.delay > 0 {
		timer := time.NewTimer(w.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	w.done.Add(1)
	return nil
}

// bareRiver is a River client with the settings of River's own benchmark.
func (p *place) bareRiver(with *noopWorker, concurrency int) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, with)
	return river.NewClient(riverpgxv5.New(p.pool), &river.Config{
		Schema: benchSchema, Workers: workers, Logger: slog.New(slog.DiscardHandler),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: concurrency}},
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
	})
}

// riverDrained preloads n jobs and gives the rate at which River completes them, from its
// start until the last one is completed in the table.
func (p *place) riverDrained(ctx context.Context, n int, delay time.Duration, concurrency int) (rate float64, err error) {
	if _, err := p.pool.Exec(ctx, "TRUNCATE outbox_bench.river_job"); err != nil {
		return 0, err
	}
	with := &noopWorker{delay: delay}
	client, err := p.bareRiver(with, concurrency)
	if err != nil {
		return 0, err
	}
	for done := 0; done < n; {
		jobs := make([]river.InsertManyParams, min(n-done, 1000))
		for i := range jobs {
			jobs[i].Args = noopArgs{string(payloadOf(p.take()))}
		}
		if _, err := client.InsertManyFast(ctx, jobs); err != nil {
			return 0, err
		}
		done += len(jobs)
	}
	if err := p.calm(ctx, "outbox_bench.river_job"); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Stop(context.WithoutCancel(ctx))) }()
	for {
		var open bool
		if with.done.Load() >= int64(n) {
			err := p.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM outbox_bench.river_job WHERE state <> 'completed' LIMIT 1)").Scan(&open)
			if err != nil {
				return 0, err
			}
			if !open {
				return float64(n) / time.Since(began).Seconds(), nil
			}
		}
		timer := time.NewTimer(settledPoll)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return 0, ctx.Err()
		}
	}
}
