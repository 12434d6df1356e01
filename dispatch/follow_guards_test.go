package dispatch

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/outbox/canonical"
)

// succeeded writes an order that has succeeded and whose follow-ons are to be created.
func (b *stepBundle) succeeded(sets ...string) int64 {
	b.t.Helper()
	id := b.put("order", append([]string{pinned + `, state = 'succeeded', phase = 'following', attempt = 1`}, sets...)...)
	b.do(`INSERT INTO outbox.outcomes (intent_id, attempt, state, provider_id) VALUES ($1, 1, 'succeeded', 'ch_1')`, id)
	return id
}

// batch is what a worker would now create.
func (b *stepBundle) batch() (all []rendered) {
	b.t.Helper()
	parents, err := collect(b.ctx, b.pool, successesSQL, scanSuccess, followBatch, b.w.revisionIDs())
	b.must(err)
	for _, p := range parents {
		r, err := b.w.renderFollowOns(b.ctx, p)
		b.must(err)
		all = append(all, r)
	}
	return all
}

func (b *stepBundle) create(batch []rendered) error {
	ctx, cancel := context.WithTimeout(b.ctx, 15*time.Second)
	defer cancel()
	return inTx(ctx, b.pool, func(ctx context.Context, tx pgx.Tx) error { return b.w.createAll(ctx, tx, batch) })
}

// receipts are the follow-ons of a parent, as they are open.
func (b *stepBundle) receipts(parent int64) string {
	b.t.Helper()
	return b.ask(`SELECT string_agg(concat_ws(' ', o.state, o.phase, o.attempt, 'of ' || o.unknown_attempt, CASE WHEN o.holder IS NOT NULL THEN 'silent' END), ', ')
		FROM outbox.intents i JOIN outbox.outbox o ON o.intent_id = i.id WHERE i.parent_id = $1`, parent)
}

// Two workers may find and render the same success. One creates; the other does not even
// ask again.
func TestTwoWorkersWithTheSameBatchCreateEachFollowOnOnce(t *testing.T) {
	t.Parallel()
	b := steps(t)
	var parents []int64
	for range 20 {
		parents = append(parents, b.succeeded())
	}
	batch := b.batch()
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			if err := b.create(batch); err != nil {
				t.Error(err)
			}
		})
	}
	workers.Wait()
	b.must(b.create(batch))
	for _, id := range parents {
		b.is("follow-ons", b.receipts(id), "accepted due 0")
		b.is("parent", b.open(id), "")
		b.is("history", b.events(id), "1 follow_ons_created")
		b.is("which", b.ask(`SELECT h.evidence->>'receipt' = i.reference FROM outbox.history h JOIN outbox.intents i ON i.parent_id = h.intent_id WHERE h.intent_id = $1`, id), "true")
	}
	b.is("repeats", b.ask(`SELECT count(*) FROM outbox.repeats`), "0")
}

// And it does not wait for the one, whose transaction may be long.
func TestWhatAnotherWorkerFollowsUpIsLeftToIt(t *testing.T) {
	t.Parallel()
	b := steps(t)
	theirs := b.succeeded()
	batch := b.batch()
	ours := b.succeeded()
	tx, err := b.pool.Begin(b.ctx)
	b.must(err)
	defer func() { _ = tx.Rollback(b.ctx) }()
	b.must(b.w.createAll(b.ctx, tx, batch))
	b.must(b.create(b.batch()))
	b.is("ours", b.receipts(ours), "accepted due 0")
	b.is("theirs, not committed", b.receipts(theirs), "")
	b.must(tx.Commit(b.ctx))
	b.is("theirs", b.receipts(theirs), "accepted due 0")
	b.is("repeats", b.ask(`SELECT count(*) FROM outbox.repeats`), "0")
}

// What cannot be created goes before a person; its parent's success and the rest of the
// batch stay as they are.
func TestAFollowOnThatIsNotTakenSendsItsParentToReview(t *testing.T) {
	t.Parallel()
	b := steps(t)
	refused, conflicting, unrendered, whole := b.succeeded(), b.succeeded(), b.succeeded(), b.succeeded()
	batch := b.batch()
	for i := range batch {
		switch r := &batch[i]; r.ID {
		case refused:
			r.followOns[0].Operation = "gone.v1"
		case conflicting:
			other := []byte(`{"n":2}`)
			digest := canonical.Digest(other)
			b.do(`SELECT outbox.enqueue_follow_on($1, 'receipt', 'pay.v1', $2, $3)`, r.ID, string(other), digest[:])
		case unrendered:
			r.followOns, r.why = nil, "no address"
		}
	}
	b.must(b.create(batch))
	for id, why := range map[int64]string{refused: "refused operation_unknown", conflicting: "conflict", unrendered: "no address"} {
		b.is(why, b.open(id)+" "+b.outcome(id), "succeeded parked 1 succeeded 1 ch_1")
		b.is(why, b.events(id), "1 follow_on_rejected")
		if got := b.ask(`SELECT review_reason FROM outbox.outbox WHERE intent_id = $1 AND review_since IS NOT NULL AND next_at IS NULL`, id); !strings.Contains(got, why) {
			t.Errorf("%q does not say %q", got, why)
		}
	}
	b.is("the first under its key", b.receipts(conflicting), "accepted due 0")
	b.is("the whole one", b.open(whole)+b.receipts(whole), "accepted due 0")
	b.must(b.create(batch))
	b.is("in review it is left alone", b.events(refused), "1 follow_on_rejected")
	b.is("repeats", b.ask(`SELECT string_agg(answer, ' ') FROM outbox.repeats`), "conflict")
}

// A repeat that the ledger knows already is no rejection: it is the same follow-on.
func TestAFollowOnThatExistsIsTheFollowOn(t *testing.T) {
	t.Parallel()
	b := steps(t)
	id := b.succeeded()
	batch := b.batch()
	f := batch[0].followOns[0]
	b.do(`SELECT outbox.enqueue_follow_on($1, $2, $3, $4, $5)`, id, f.Name, f.Operation, string(f.Payload), f.Digest[:])
	b.must(b.create(batch))
	b.is("follow-ons", b.receipts(id), "accepted due 0")
	b.is("parent", b.open(id), "")
}

// After a failover the parent may have had its follow-ons in a future that the ledger has
// forgotten.
func TestFollowOnsOfADoubtedParentBeginAsUnknown(t *testing.T) {
	t.Parallel()
	b := steps(t)
	doubted := b.succeeded()
	b.do(`SELECT outbox.doubt_sent('tester', 'moved')`)
	sure := b.succeeded()
	b.must(b.create(b.batch()))
	b.is("doubted", b.receipts(doubted), "outcome_unknown asking 1 of 1 silent")
	b.is("sure", b.receipts(sure), "accepted due 0")
	b.is("its history", b.ask(`SELECT string_agg(h.attempt || ' ' || h.event, ', ') FROM outbox.history h JOIN outbox.intents i ON i.id = h.intent_id WHERE i.parent_id = $1`, doubted), "1 ledger_moved")
	b.is("the other's", b.ask(`SELECT count(*) FROM outbox.history h JOIN outbox.intents i ON i.id = h.intent_id WHERE i.parent_id = $1`, sure), "0")
}

// What may have been sent and forgotten becomes unknown; what was never due cannot have
// been, and what is open otherwise has its own way to end.
func TestWhatAFailoverPutsInDoubt(t *testing.T) {
	t.Parallel()
	b := steps(t)
	const later = `next_at = clock_timestamp() + interval '1 hour'`
	rows := []struct {
		claim string
		sets  []string
		want  string
		event string
	}{
		{"due", nil, "outcome_unknown asking 1 of 1", "1 ledger_moved"},
		{"released", []string{isReleased}, "outcome_unknown asking 1 of 1", "1 ledger_moved"},
		{"released, its release lease over", []string{isReleased, `next_at = clock_timestamp() - interval '1 second'`}, "outcome_unknown asking 1 of 1", "1 ledger_moved"},
		{"attempted, to be retried now", []string{isRetried}, "outcome_unknown asking 2 of 2", "2 ledger_moved"},
		{"attempted, to be retried later", []string{isRetried, later}, "outcome_unknown asking 2 of 2", "2 ledger_moved"},
		{"scheduled and never sent", []string{later}, "accepted due 0", ""},
		{"executing", []string{isLeased}, "executing leased 1", ""},
		{"unknown already", []string{isAsking}, "outcome_unknown asking 1 of 1", ""},
		{"being asked about", []string{isProbing}, "outcome_unknown probing 2 of 1", ""},
		{"in review", []string{isReviewed}, "needs_review parked 2 of 1", ""},
		{"awaiting approval", []string{`state = 'awaiting_approval', phase = 'parked'`}, "awaiting_approval parked 0", ""},
		{"given up", []string{isRetried, `state = 'exhausted', phase = 'parked', next_at = NULL`}, "exhausted parked 1", ""},
	}
	ids := make([]int64, len(rows))
	for i, r := range rows {
		ids[i] = b.put("pay", r.sets...)
	}
	b.is("doubted", b.ask(`SELECT outbox.doubt_sent('tester', 'moved')`), "5")
	for i, r := range rows {
		b.is(r.claim, b.open(ids[i]), r.want) // a holder that is nobody never reports
		b.is(r.claim, b.events(ids[i]), r.event)
	}
}
