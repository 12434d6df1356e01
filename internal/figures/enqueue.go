package figures

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/outbox"
)

const bareSQL = `INSERT INTO outbox_bench.bare (tenant, key, payload) VALUES ($1, $2, $3) ON CONFLICT (key) DO NOTHING RETURNING id`

// bare is the least that could stand in the door's place: a row with a unique key.
func bare(ctx context.Context, db outbox.Querier, n int) error {
	rows, err := db.Query(ctx, bareSQL, tenant, keyOf(n), payloadOf(n))
	if err != nil {
		return err
	}
	rows.Close()
	return rows.Err()
}

func accept(ctx context.Context, db outbox.Querier, in outbox.Intent) error {
	return expect(ctx, db, in, outbox.AnswerAccepted)
}

func expect(ctx context.Context, db outbox.Querier, in outbox.Intent, want outbox.AnswerKind) error {
	a, err := outbox.Enqueue(ctx, db, in)
	if err == nil && a.Kind != want {
		err = fmt.Errorf("enqueue answered %s, not %s: %s %s", a.Kind, want, a.Code, a.Hint)
	}
	return err
}

// took measures one step.
func took(do func() error) (time.Duration, error) {
	began := time.Now()
	err := do()
	return time.Since(began), err
}

// fewest turns are taken however long they last.
const fewest = 5

// turns runs the value's and the baseline's step in turn, n times or for as long as the
// span, and gives the medians in milliseconds.
func (r *run) turns(n int, value, baseline func() error) (pair, error) {
	var values, baselines []float64
	began := time.Now()
	for i := range n {
		if i >= fewest && time.Since(began) > r.o.Span {
			break
		}
		b, err := took(baseline)
		if err != nil {
			return pair{}, fmt.Errorf("baseline: %w", err)
		}
		v, err := took(value)
		if err != nil {
			return pair{}, err
		}
		values, baselines = append(values, v.Seconds()*1e3), append(baselines, b.Seconds()*1e3)
	}
	return pair{median(values), median(baselines)}, nil
}

// enqueueAlone: one caller, each intent in a transaction of its own.
func (r *run) enqueueAlone(ctx context.Context, p *place) (got pair, err error) {
	err = p.session(ctx, func(c *pgx.Conn) error {
		got, err = r.turns(r.o.Latencies, func() error { return accept(ctx, c, intentOf(p.take())) }, func() error { return bare(ctx, c, p.take()) })
		return err
	})
	return got, err
}

const producers = 8

// enqueueTogether: several producers at once, for a while each.
func (r *run) enqueueTogether(ctx context.Context, p *place) (pair, error) {
	b, err := p.produce(ctx, r.o.Span, func(ctx context.Context, c *pgx.Conn, n int) error { return bare(ctx, c, n) })
	if err != nil {
		return pair{}, err
	}
	v, err := p.produce(ctx, r.o.Span, func(ctx context.Context, c *pgx.Conn, n int) error { return accept(ctx, c, intentOf(n)) })
	return pair{v, b}, err
}

// produce runs the producers for d, each on a connection of its own, and gives the rate
// at which their steps ended.
func (p *place) produce(ctx context.Context, d time.Duration, step func(context.Context, *pgx.Conn, int) error) (float64, error) {
	var next, done atomic.Int64
	next.Store(int64(p.next))
	var running sync.WaitGroup
	errs := make(chan error, producers)
	began := time.Now()
	for range producers {
		running.Go(func() {
			err := p.session(ctx, func(c *pgx.Conn) error {
				for time.Since(began) < d {
					if err := step(ctx, c, int(next.Add(1))); err != nil {
						return err
					}
					done.Add(1)
				}
				return nil
			})
			if err != nil {
				errs <- err
			}
		})
	}
	running.Wait()
	rate := float64(done.Load()) / time.Since(began).Seconds()
	p.next = int(next.Load())
	select {
	case err := <-errs:
		return 0, err
	default:
		return rate, nil
	}
}

// enqueueAmong: an order of three statements, with an intent and without.
func (r *run) enqueueAmong(ctx context.Context, p *place) (got pair, err error) {
	order := func(ctx context.Context, c *pgx.Conn, with bool) error {
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			var id int64
			if err := tx.QueryRow(ctx, "INSERT INTO outbox_bench.orders (customer, total) VALUES ('cus_9f3a61bb04', 24000) RETURNING id").Scan(&id); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "INSERT INTO outbox_bench.lines (order_id, item, quantity) VALUES ($1, 1, 2), ($1, 2, 1)", id); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "UPDATE outbox_bench.stock SET quantity = quantity - 2 WHERE item = $1", 1+id%100); err != nil {
				return err
			}
			if !with {
				return nil
			}
			return accept(ctx, tx, intentOf(p.take()))
		})
	}
	err = p.session(ctx, func(c *pgx.Conn) error {
		got, err = r.turns(r.o.Latencies, func() error { return order(ctx, c, true) }, func() error { return order(ctx, c, false) })
		return err
	})
	return got, err
}

// enqueueBulk: a thousand intents in a call, and a COPY of a thousand bare rows.
func (r *run) enqueueBulk(ctx context.Context, p *place) (got pair, err error) {
	const bulk = 1000
	err = p.session(ctx, func(c *pgx.Conn) error {
		got, err = r.turns(max(fewest, r.o.Latencies/100), func() error {
			ins := make([]outbox.Intent, bulk)
			for i := range ins {
				ins[i] = intentOf(p.take())
			}
			_, err := outbox.EnqueueMany(ctx, c, ins)
			return err
		}, func() error {
			rows := make([][]any, bulk)
			for i := range rows {
				n := p.take()
				rows[i] = []any{tenant, keyOf(n), payloadOf(n)}
			}
			_, err := c.CopyFrom(ctx, pgx.Identifier{benchSchema, "bare"}, []string{"tenant", "key", "payload"}, pgx.CopyFromRows(rows))
			return err
		})
		return err
	})
	return pair{bulk / got.Value * 1e3, bulk / got.Baseline * 1e3}, err
}

// answers to somebody who asks again: in conflict, in flight, or settled.
func (r *run) repeated(ctx context.Context, p *place, want outbox.AnswerKind) (got pair, err error) {
	err = p.session(ctx, func(c *pgx.Conn) error {
		known := intentOf(p.take())
		if err := accept(ctx, c, known); err != nil {
			return err
		}
		switch want {
		case outbox.AnswerConflict:
			known.Payload = json.RawMessage(fmt.Sprintf(`{"amount":1,"order_id":"%s"}`, keyOf(p.next)))
		case outbox.AnswerSettled:
			if err := p.drain(ctx, 0); err != nil {
				return err
			}
		}
		got, err = r.turns(r.o.Latencies, func() error { return expect(ctx, c, known, want) }, func() error { return accept(ctx, c, intentOf(p.take())) })
		return err
	})
	return got, err
}
