package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// statementLimit bounds every statement of the worker.
const statementLimit = 30 * time.Second

// tuneSQL runs before every statement that moves outbox rows, in the same transaction.
//
// Statistics lag behind a table that fills and empties all day: with "no such state yet"
// in them, a claim of 500 ids scans the whole table, or walks the primary key from its
// first row to merge it with them, past a million scheduled ones. All our access is by
// index, row by row. Up to Postgres 17 a plan that scans all the same (a table of two
// lanes has nothing better) then has a cost of 10^10, for which JIT would compile it: half
// a second per statement. And what we write must be durable whatever the session says: a
// claim that a crash can forget is a second charge.
//
// A process may stop for good between two statements of a transaction, its connection
// still open: its machine sleeps, or has lost its power or its network. The server then
// ends the transaction, so that what it has locked (a lane) holds up nobody for long. We
// pause for nothing inside a transaction.
const tuneSQL = `-- name: tune
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
	set_config('enable_mergejoin', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('jit', 'off', true),
	set_config('idle_in_transaction_session_timeout', '5s', true),
	set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
		THEN 'on' ELSE current_setting('synchronous_commit') END, true)`

// batchSender is a pool, or a transaction.
type batchSender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// collect runs one statement after tuneSQL in one round trip and one transaction, and
// returns its rows.
func collect[T any](ctx context.Context, db batchSender, sql string, to pgx.RowToFunc[T], args ...any) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	var batch pgx.Batch
	batch.Queue(tuneSQL)
	batch.Queue(sql, args...)
	results := db.SendBatch(ctx, &batch)
	if _, err := results.Exec(); err != nil {
		_ = results.Close() // the first error says more
		return nil, err
	}
	rows, err := results.Query()
	if err != nil {
		_ = results.Close()
		return nil, err
	}
	got, err := pgx.CollectRows(rows, to)
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return got, err
}

// count runs a statement that returns nothing but a number.
func count(ctx context.Context, db batchSender, sql string, args ...any) (int, error) {
	got, err := collect(ctx, db, sql, pgx.RowTo[int], args...)
	if err != nil {
		return 0, err
	}
	return got[0], nil
}

// inTx runs do in a transaction with a deadline.
func inTx(ctx context.Context, pool *pgxpool.Pool, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return do(ctx, tx) }); err != nil {
		return fmt.Errorf("transaction: %w", err)
	}
	return nil
}
