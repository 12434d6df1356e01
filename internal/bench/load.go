package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

const producers = 8

// measured is what one round showed of one subject.
type measured struct {
	EnqueueAlone  float64 `json:"enqueue_commits_per_s"`
	Drain         float64 `json:"drain_intents_per_s"`
	LiveEnqueue   float64 `json:"live_enqueue_commits_per_s"`
	LiveDrain     float64 `json:"live_drain_intents_per_s"`
	SnapshotDrain float64 `json:"drain_under_old_snapshot_intents_per_s"`
	WALEnqueue    float64 `json:"wal_bytes_per_enqueue"`
	WALDrain      float64 `json:"wal_bytes_per_drained_intent"`
	CPUEnqueue    float64 `json:"server_cpu_us_per_enqueue"` // 0 where there is no /proc
	CPUDrain      float64 `json:"server_cpu_us_per_drained_intent"`
}

// round measures one subject: n intents enqueued one per commit, then drained; both at
// once for live; and a drain while somebody holds an old snapshot, which keeps vacuum
// from the rows that came and went.
func (b *subject) round(ctx context.Context, n int, live time.Duration) (m measured, err error) {
	var ignored float64
	timed := func(per, wal, cpu *float64, do func() error) error {
		before, err := b.spent(ctx)
		if err != nil {
			return err
		}
		start := time.Now()
		if err := do(); err != nil {
			return err
		}
		*per = float64(n) / time.Since(start).Seconds()
		after, err := b.spent(ctx)
		*wal, *cpu = float64(after.wal-before.wal)/float64(n), float64((after.cpu-before.cpu).Microseconds())/float64(n)
		return err
	}
	drain := func() error { _, err := b.drain(ctx, n, nil); return err }
	if err := timed(&m.EnqueueAlone, &m.WALEnqueue, &m.CPUEnqueue, func() error { _, err := b.produce(ctx, n, 0); return err }); err != nil {
		return m, err
	}
	if err := timed(&m.Drain, &m.WALDrain, &m.CPUDrain, drain); err != nil {
		return m, err
	}
	if err := b.live(ctx, live, &m); err != nil {
		return m, err
	}

	snapshot, err := b.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return m, err
	}
	defer snapshot.Rollback(ctx)
	if _, err := snapshot.Exec(ctx, "SELECT FROM outbox.ledger"); err != nil {
		return m, err
	}
	if err := b.bulk(ctx, n); err != nil {
		return m, err
	}
	return m, timed(&m.SnapshotDrain, &ignored, &ignored, drain)
}

// live runs the producers and the drain together; what is left is drained off the clock.
func (b *subject) live(ctx context.Context, d time.Duration, m *measured) error {
	var enqueued, drained int
	stop := make(chan struct{})
	err := together(func() (err error) {
		defer close(stop)
		enqueued, err = b.produce(ctx, 0, d)
		return err
	}, func() (err error) {
		drained, err = b.drain(ctx, 0, stop)
		return err
	})
	if err != nil {
		return err
	}
	m.LiveEnqueue, m.LiveDrain = float64(enqueued)/d.Seconds(), float64(drained)/d.Seconds()
	_, err = b.drain(ctx, enqueued-drained, nil)
	return err
}

// produce enqueues n intents, or for d, in one commit each.
func (b *subject) produce(ctx context.Context, n int, d time.Duration) (int, error) {
	first, end := b.begun+1, time.Now().Add(d)
	var next, done atomic.Int64
	err := together(fill(producers, func() error {
		for {
			i := next.Add(1) - 1
			if (n > 0 && i >= int64(n)) || (n == 0 && time.Now().After(end)) {
				return nil
			}
			if err := b.enqueue(ctx, first+i, 1); err != nil {
				return err
			}
			done.Add(1)
		}
	})...)
	b.begun += next.Load()
	return int(done.Load()), err
}

// together runs all at once and returns their errors.
func together(all ...func() error) error {
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, do := range all {
		running.Go(func() { errs[i] = do() })
	}
	running.Wait()
	return errors.Join(errs...)
}

// bulk enqueues n intents in transactions of 1,000.
func (b *subject) bulk(ctx context.Context, n int) error {
	for done := 0; done < n; done += 1000 {
		size := min(1000, n-done)
		if err := b.enqueue(ctx, b.begun+1, size); err != nil {
			return err
		}
		b.begun += int64(size)
	}
	return nil
}

// drain releases and works until n intents are settled, or until stop is closed.
func (b *subject) drain(ctx context.Context, n int, stop <-chan struct{}) (int, error) {
	if n == 0 && stop == nil {
		return 0, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var settled atomic.Int64
	var fail sync.Once
	var failure error
	failed := func(err error) {
		fail.Do(func() { failure = err; cancel() })
	}
	jobs := make(chan []ticket, jobLines)
	var lines sync.WaitGroup
	for range jobLines {
		lines.Go(func() {
			for job := range jobs {
				if err := b.work(ctx, job); err != nil {
					failed(err)
					continue
				}
				settled.Add(int64(len(job)))
			}
		})
	}
	sweeping, endSweep := context.WithCancel(ctx)
	var sweeper sync.WaitGroup
	sweeper.Go(func() {
		if err := b.sweepEverySecond(sweeping); err != nil {
			failed(err)
		}
	})
	for ctx.Err() == nil && (n == 0 || settled.Load() < int64(n)) && !stopped(stop) {
		got, err := b.release(ctx)
		if err != nil {
			failed(err)
			break
		}
		if len(got) == 0 {
			time.Sleep(time.Millisecond)
		}
		for job := range slices.Chunk(got, jobSize) {
			jobs <- job
		}
	}
	close(jobs)
	lines.Wait()
	endSweep()
	sweeper.Wait()
	return int(settled.Load()), failure
}

func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// spending is what the server has spent so far.
type spending struct {
	wal int64
	cpu time.Duration // of our sessions; other processes on the machine do not change it
}

func (b *subject) spent(ctx context.Context) (s spending, err error) {
	var pids []int32
	err = b.pool.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn() - '0/0', array_agg(pid)
		FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'`).Scan(&s.wal, &pids)
	for _, pid := range pids {
		text, readErr := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
		var ns int64
		if _, scanErr := fmt.Sscan(string(text), &ns); readErr == nil && scanErr == nil {
			s.cpu += time.Duration(ns)
		}
	}
	return s, err
}

func reference(n int64) string {
	sum := sha256.Sum256([]byte{'b', byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	return hex.EncodeToString(sum[:16])
}
