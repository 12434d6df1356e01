package outbox_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/outbox"
)

// Above READ COMMITTED a snapshot may be older than what holds the key: Postgres raises,
// the caller retries, and nothing is lost or doubled.
func TestAnOldSnapshotRaisesASerializationFailure(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		for _, in := range []outbox.Intent{charge(string(level), 1), search(string(level))} {
			tx, err := b.app.BeginTx(b.ctx, pgx.TxOptions{IsoLevel: level})
			b.must(err)
			b.enqueueIn(tx, charge("first of "+string(level)+in.Operation, 1)) // takes the snapshot
			ref := b.accept(in)
			if _, err := outbox.Enqueue(b.ctx, tx, in); codeOf(err) != "40001" {
				t.Errorf("%s, %s: %v", level, in.Operation, err)
			}
			b.must(tx.Rollback(b.ctx))

			tx, err = b.app.BeginTx(b.ctx, pgx.TxOptions{IsoLevel: level})
			b.must(err)
			if a := b.enqueueIn(tx, in); a.Kind != outbox.AnswerInFlight || a.Reference != ref {
				t.Errorf("%s, %s, again: %+v", level, in.Operation, a)
			}
			b.must(tx.Commit(b.ctx))
		}
	}
	b.wantRows(rows{intents: 4, open: 4, repeats: 4, heads: 2})
}

// The caller's own limits hold, and a savepoint saves its transaction.
func TestACallersOwnLimitsHold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	holder := b.begin()
	b.enqueueIn(holder, charge("1", 1))
	for setting, code := range map[string]string{"lock_timeout": "55P03", "statement_timeout": "57014"} {
		tx := b.begin()
		_, err := tx.Exec(b.ctx, "SET LOCAL "+setting+" = '20ms'")
		b.must(err)
		savepoint, err := tx.Begin(b.ctx)
		b.must(err)
		if _, err := outbox.Enqueue(b.ctx, savepoint, charge("1", 1)); codeOf(err) != code {
			t.Errorf("%s: %v", setting, err)
		}
		b.must(savepoint.Rollback(b.ctx))
		_, err = tx.Exec(b.ctx, "SET LOCAL "+setting+" = 0") // or a busy machine needs longer
		b.must(err)
		if a := b.enqueueIn(tx, charge(setting, 1)); a.Kind != outbox.AnswerAccepted {
			t.Errorf("%s: %+v", setting, a)
		}
		b.must(tx.Commit(b.ctx))
	}
	b.must(holder.Rollback(b.ctx))
	b.wantRows(rows{intents: 2, open: 2})

	tx, err := b.app.BeginTx(b.ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	b.must(err)
	if _, err := outbox.Enqueue(b.ctx, tx, charge("2", 1)); codeOf(err) != "25006" {
		t.Errorf("read-only: %v", err)
	}
	b.must(tx.Rollback(b.ctx))
}
