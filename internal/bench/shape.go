package main

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/internal/pgtemp"
	"github.com/outbox-worker/outbox-worker/migrations"
)

// Sizes of a step, as the worker takes them under load.
const (
	concurrency  = 2000
	releaseLimit = 1000
	jobSize      = 250
	jobLines     = 2 // jobs at once; each loads, claims and settles
)

var (
	//go:embed outbox.sql
	outboxSQL string
	//go:embed executions.sql
	executionsSQL string
)

// shape is a way to keep open work: its statements take the same parameters.
type shape struct {
	name   string
	schema string
	sql    statements
	worker statements // of package dispatch, for what is the same in every shape
	sweep  []string   // run once a second, with sweepArgs
	leased bool       // a ticket carries its lease, and the claim wants it

	facts []string // tables that stay as large as the ledger
	open  []string // tables that hold open work only
}

func shapes() ([]shape, error) {
	ours, err := dispatchStatements()
	if err != nil {
		return nil, err
	}
	worker := maps.Clone(ours)
	maps.Copy(ours, sections(outboxSQL))
	return []shape{
		{
			name: "A outbox row", sql: ours, worker: worker, sweep: []string{"expire_leases", "expire_releases", "expire_deadlines"},
			facts: []string{"outbox.intents", "outbox.outcomes", "outbox.history"},
			open:  []string{"outbox.outbox"},
		},
		{
			name: "B executions", schema: "schema", sql: sections(executionsSQL), worker: worker, sweep: []string{"expire_leases", "forget_leases"}, leased: true,
			facts: []string{"b.intents", "b.executions", "b.history"},
			open:  []string{"b.outbox", "b.leases", "b.lease_members"},
		},
	}, nil
}

// subject is a shape in a database of its own.
type subject struct {
	shape
	pool   *pgxpool.Pool
	holder uuid.UUID
	begun  int64 // intents enqueued; names the next
}

// newSubject makes the database, the schema and a ledger of settled intents.
func newSubject(ctx context.Context, server *pgtemp.Server, s shape, database string, ledger int) (*subject, error) {
	pool, err := newDatabase(ctx, server, database)
	if err != nil {
		return nil, err
	}
	b := &subject{shape: s, pool: pool, holder: uuid.New()}
	if s.schema != "" {
		if _, err := pool.Exec(ctx, s.sql.get(s.schema)); err != nil {
			return nil, fmt.Errorf("%s: schema: %w", s.name, err)
		}
	}
	if ledger > 0 {
		if _, err := pool.Exec(ctx, s.sql.get("ledger"), ledger, payload); err != nil {
			return nil, fmt.Errorf("%s: ledger: %w", s.name, err)
		}
	}
	_, err = pool.Exec(ctx, "VACUUM ANALYZE")
	return b, err
}

// newDatabase is a migrated database with one lane and one operation.
func newDatabase(ctx context.Context, server *pgtemp.Server, database string) (*pgxpool.Pool, error) {
	admin, err := pgx.Connect(ctx, server.URL())
	if err != nil {
		return nil, err
	}
	defer admin.Close(ctx)
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+database); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(server.URL())
	if err != nil {
		return nil, err
	}
	config.ConnConfig.Database, config.MaxConns = database, producers+jobLines+4
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := migrations.Up(ctx, pool); err != nil {
		return nil, err
	}
	_, err = pool.Exec(ctx, `SELECT outbox.apply_lane('payments', 'payments', $1, NULL, 1),
		outbox.apply_operation('charge_card', 1, 'payments', 'business', ARRAY['{order_id}'], false, false, NULL, 65536, NULL, false, false, 'x', '{}', 'bench')`, concurrency)
	return pool, err
}

const payload = `{"amount":24000,"card":"c_71","currency":"EUR","order_id":"1042"}`

// enqueue commits n intents in one transaction.
func (b *subject) enqueue(ctx context.Context, first int64, n int) error {
	references := make([]string, n)
	for i := range references {
		references[i] = reference(first + int64(i))
	}
	_, err := b.pool.Exec(ctx, b.sql.get("enqueue"), fmt.Sprintf("t%d", first%10), references, payload)
	return err
}

// ticket is an intent at an attempt, and its lease where the shape has one.
type ticket struct {
	id      int64
	attempt int
	lease   int64
}

// collect runs a statement as the worker does: after its settings, in one round trip.
func (b *subject) collect(ctx context.Context, db interface {
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
}, sql string, args ...any,
) ([]ticket, error) {
	var batch pgx.Batch
	batch.Queue(b.worker.get("tune"))
	batch.Queue(sql, args...)
	results := db.SendBatch(ctx, &batch)
	defer results.Close()
	if _, err := results.Exec(); err != nil {
		return nil, err
	}
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	got, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t ticket, err error) {
		switch len(row.FieldDescriptions()) {
		case 2:
			err = row.Scan(&t.id, &t.attempt)
		case 3:
			err = row.Scan(&t.id, &t.attempt, &t.lease)
		}
		return t, err
	})
	if err != nil {
		return nil, err
	}
	return got, results.Close()
}

// release moves what may go now, in one transaction with what would be River's jobs.
func (b *subject) release(ctx context.Context) (got []ticket, err error) {
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, b.worker.get("lock_lane"), 1); err != nil {
			return err
		}
		got, err = b.collect(ctx, tx, b.sql.get("release"), 1, []int32{1}, 30.0, releaseLimit)
		return err
	})
	return got, err
}

// work is a job whose calls all succeed at once.
func (b *subject) work(ctx context.Context, job []ticket) error {
	ids, attempts, leases := columns(job)
	if _, err := b.collect(ctx, b.pool, b.sql.get("load"), ids, attempts); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	n := len(job)
	args := []any{ids, attempts, fill(n, "acct"), fill(n, "stripe-2024.1"), fill(n, make([]byte, 32)), fill(n, 15.0), b.holder, "bench/1"}
	if b.leased {
		args = append(args, leases)
	}
	claimed, err := b.collect(ctx, b.pool, b.sql.get("claim"), args...)
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	if len(claimed) != n {
		return fmt.Errorf("claimed %d of %d", len(claimed), n)
	}
	for i := range attempts {
		attempts[i]++
	}
	_, err = b.collect(ctx, b.pool, b.sql.get("settle"), succeeded(b.sql.get("settle"), ids, attempts)...)
	if err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	return nil
}

var columnList = regexp.MustCompile(`AS s\(([a-z_, ]+)\)`)

// succeeded are the parameters of a settle statement for calls that all succeeded: a
// list for each of the columns that it unnests, then who acts.
func succeeded(settle string, ids []int64, attempts []int) []any {
	n := len(ids)
	known := map[string]any{
		"id": ids, "attempt": attempts, "event": fill(n, "provider_accepted"), "to_state": fill(n, "succeeded"),
		"provider_id": fill(n, "ch_3MmlLrLkdIwHu7ix0snN0B15"), "retry_in": make([]float64, n), "send_before": make([]float64, n),
		"follow": make([]bool, n), "probe": make([]bool, n), "reported": make([]bool, n),
	}
	var args []any
	for name := range strings.SplitSeq(columnList.FindStringSubmatch(settle)[1], ", ") {
		value, ok := known[name]
		if !ok {
			value = make([]*string, n)
		}
		args = append(args, value)
	}
	return append(args, "bench/1")
}

// sweepEverySecond runs until ctx ends.
func (b *subject) sweepEverySecond(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, name := range b.sweep {
			args := []any{500, "bench/1"}
			switch name {
			case "expire_releases":
				args = args[:1]
			case "forget_leases":
				args = nil
			}
			if _, err := b.pool.Exec(ctx, b.sql.get(name), args...); err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
}

func columns(tickets []ticket) (ids []int64, attempts []int, leases []int64) {
	for _, t := range tickets {
		ids, attempts, leases = append(ids, t.id), append(attempts, t.attempt), append(leases, t.lease)
	}
	return ids, attempts, leases
}

func fill[T any](n int, value T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = value
	}
	return all
}
