package outbox_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/outbox"
)

// A session keeps the plans that it makes while the tables are small, or that statistics
// from such a time suggest. They must hold when the tables have grown: whatever is asked,
// nothing is read from one end to the other.
func TestNoPlanReadsAWholeTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("ANALYZE") // "there is nothing in there"
	failed := b.accept(charge("failed", 1))
	b.settle(failed, outbox.FailedFinal)
	done := b.accept(charge("done", 1))
	b.settle(done, outbox.Succeeded)
	b.accept(search("settled"))
	b.settle(b.searchRef(1), outbox.Succeeded)
	b.age(window)

	doneID := query[int64](b, "SELECT id FROM outbox.intents WHERE reference = $1", done)
	conn, err := b.owner.Acquire(b.ctx)
	b.must(err)
	defer conn.Release()
	tx, err := conn.Begin(b.ctx)
	b.must(err)
	defer func() { _ = tx.Rollback(b.ctx) }()
	scans := func() map[string]int64 {
		b.t.Helper()
		rows, err := tx.Query(b.ctx, "SELECT relname, seq_scan FROM pg_stat_xact_user_tables WHERE schemaname = 'outbox'")
		b.must(err)
		type row struct {
			Table string
			Scans int64
		}
		all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
		b.must(err)
		m := map[string]int64{}
		for _, r := range all {
			m[r.Table] = r.Scans
		}
		return m
	}
	before := scans()
	undo := charge("undo", 1)
	undo.Compensates, undo.Parent = done, done
	for range 12 { // past the five after which a plan is kept for good
		_, err := tx.Exec(b.ctx, "SAVEPOINT once")
		b.must(err)
		for _, in := range []outbox.Intent{
			charge("new", 1), charge("new", 1), charge("new", 2), charge("done", 1), undo, search("settled"), search("settled"), search("new"),
			superseding(failed, "failed", 2), superseding(failed, "failed", 2), charge("failed", 2),
		} {
			b.enqueueIn(tx, in)
			var text string
			b.must(tx.QueryRow(b.ctx, callOf(in)).Scan(&text))
			_, err := outbox.EnqueueMany(b.ctx, tx, []outbox.Intent{in})
			b.must(err)
		}
		_, err = outbox.Get(b.ctx, tx, "acme", done)
		b.must(err)
		_, err = tx.Exec(b.ctx, "SELECT outbox.enqueue_follow_on($1, 'receipt', 'mail.v1', '{}', NULL)", doneID)
		b.must(err)
		_, err = tx.Exec(b.ctx, "ROLLBACK TO once")
		b.must(err)
	}
	for table, n := range scans() {
		if table != "ledger" && n > before[table] { // which has one row
			t.Errorf("%s was read as a whole %d times", table, n-before[table])
		}
	}
}
