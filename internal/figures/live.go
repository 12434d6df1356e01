package figures

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// live: eight producers commit intent by intent while a worker drains. The rate is that
// of what was settled while they did.
func (r *run) live(ctx context.Context, p *place) (rate float64, err error) {
	if err := p.calm(ctx, "outbox.outbox", "outbox.river_job"); err != nil {
		return 0, err
	}
	with := &provider{}
	err = p.work(ctx, with, noLimit, func(ctx context.Context) error {
		// A worker in its stride: the first commits wake it.
		if _, err := p.produce(ctx, r.o.Span/4, func(ctx context.Context, c *pgx.Conn, n int) error { return accept(ctx, c, intentOf(n)) }); err != nil {
			return err
		}
		before, err := p.settled(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		if _, err := p.produce(ctx, r.o.Span, func(ctx context.Context, c *pgx.Conn, n int) error { return accept(ctx, c, intentOf(n)) }); err != nil {
			return err
		}
		after, err := p.settled(ctx)
		rate = float64(after-before) / time.Since(began).Seconds()
		return errors.Join(err, p.awaitSettled(ctx))
	})
	return rate, err
}

// settled counts outcomes by the sequence of intents less what is open: reading the
// ledger from end to end would be a load of its own.
func (p *place) settled(ctx context.Context) (n int, err error) {
	err = p.pool.QueryRow(ctx, "SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence('outbox.intents', 'id')), 0) - (SELECT count(*) FROM outbox.outbox)").Scan(&n)
	return n, err
}

// riverLive is the same with River: an application row and a job in one transaction, and
// its worker draining.
func (r *run) riverLive(ctx context.Context, p *place) (rate float64, err error) {
	if _, err := p.pool.Exec(ctx, "TRUNCATE outbox_bench.river_job"); err != nil {
		return 0, err
	}
	with := &noopWorker{}
	client, err := p.bareRiver(with, noLimit)
	if err != nil {
		return 0, err
	}
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Stop(context.WithoutCancel(ctx))) }()
	step := func(ctx context.Context, c *pgx.Conn, n int) error {
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			if err := bare(ctx, tx, n); err != nil {
				return err
			}
			_, err := client.InsertTx(ctx, tx, noopArgs{string(payloadOf(n))}, nil)
			return err
		})
	}
	if _, err := p.produce(ctx, r.o.Span/4, step); err != nil {
		return 0, err
	}
	began, before := time.Now(), with.done.Load()
	if _, err := p.produce(ctx, r.o.Span, step); err != nil {
		return 0, err
	}
	return float64(with.done.Load()-before) / time.Since(began).Seconds(), nil
}

// floorLive is the least that such a system could do: producers commit one bare row each,
// and batches of at most 500 of them get a new state and a history row.
func (r *run) floorLive(ctx context.Context, p *place) (rate float64, err error) {
	committed := make(chan int64, 100_000)
	step := func(ctx context.Context, c *pgx.Conn, n int) error {
		var id int64
		err := c.QueryRow(ctx, floorInsertSQL, tenant, keyOf(n), payloadOf(n)).Scan(&id)
		committed <- id
		return err
	}
	var settled atomic.Int64
	ended := make(chan error, 1)
	go func() {
		ended <- p.session(ctx, func(c *pgx.Conn) error {
			for first := range committed {
				batch := collectBatch(first, committed, 500)
				if _, err := c.Exec(ctx, floorSettleSQL, batch); err != nil {
					return err
				}
				settled.Add(int64(len(batch)))
			}
			return nil
		})
	}()
	_, err = p.produce(ctx, r.o.Span/4, step)
	began, before := time.Now(), settled.Load()
	if err == nil {
		_, err = p.produce(ctx, r.o.Span, step)
	}
	rate = float64(settled.Load()-before) / time.Since(began).Seconds()
	close(committed)
	return rate, errors.Join(err, <-ended)
}

const (
	floorInsertSQL = `INSERT INTO outbox_bench.floor (tenant, key, payload) VALUES ($1, $2, $3) ON CONFLICT (key) DO NOTHING RETURNING id`
	floorSettleSQL = `WITH moved AS (UPDATE outbox_bench.floor SET state = 1 WHERE id = ANY ($1) RETURNING id)
		INSERT INTO outbox_bench.steps (id, step, actor) SELECT id, 1, 'bench' FROM moved`
)

// collectBatch takes what is there, at most n.
func collectBatch(first int64, more <-chan int64, n int) []int64 {
	batch := []int64{first}
	for len(batch) < n {
		select {
		case id, ok := <-more:
			if !ok {
				return batch
			}
			batch = append(batch, id)
		default:
			return batch
		}
	}
	return batch
}
