package dispatch

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// sweepLimit is how many rows one statement of the sweep deals with. The times in them
// are subqueries so that they bound the index: see releaseSQL.
const sweepLimit = 500

// overdueSQL says which of the statements below have something to do, in their order:
// mostly none has.
const overdueSQL = `-- name: overdue
SELECT ARRAY[
	EXISTS (SELECT FROM outbox.outbox o WHERE o.lane = ANY (SELECT id FROM outbox.lanes) AND (o.phase = 'due') IS FALSE AND o.phase = 'leased' AND o.next_at <= (SELECT clock_timestamp())),
	EXISTS (SELECT FROM outbox.outbox o WHERE o.lane = ANY (SELECT id FROM outbox.lanes) AND (o.phase = 'due') IS FALSE AND o.phase = 'probing' AND o.next_at <= (SELECT clock_timestamp())),
	EXISTS (SELECT FROM outbox.outbox o WHERE o.lane = ANY (SELECT id FROM outbox.lanes) AND (o.phase = 'due') IS FALSE AND o.phase = 'released' AND o.next_at <= (SELECT clock_timestamp())),
	EXISTS (SELECT FROM outbox.outbox o WHERE o.deadline <= (SELECT clock_timestamp()) AND o.state IN ('accepted', 'failed_retryable'))
]`

// expireLeasesSQL: who holds the lease has not reported. It may have sent, so the
// outcome is unknown. Rows that are being settled just now are skipped.
const expireLeasesSQL = `-- name: expire_leases
WITH held AS (
	SELECT o.intent_id, o.attempt, o.holder, o.claimed_at, o.claimed_by FROM outbox.outbox o
	WHERE o.lane = ANY (SELECT id FROM outbox.lanes) AND (o.phase = 'due') IS FALSE AND o.phase = 'leased' AND o.next_at <= (SELECT clock_timestamp())
	LIMIT $1 FOR UPDATE SKIP LOCKED
), expired AS (
	UPDATE outbox.outbox o
	SET state = 'outcome_unknown', phase = 'asking', next_at = clock_timestamp(), unknown_attempt = o.attempt, unknown_since = clock_timestamp()
	FROM held h WHERE o.intent_id = h.intent_id
), noted AS (
	INSERT INTO outbox.history (intent_id, attempt, from_state, to_state, event, claimed_at, actor, claimed_by, reason)
	SELECT intent_id, attempt, 'executing', 'outcome_unknown', 'lease_expired', claimed_at, $2, claimed_by, 'worker ' || holder || ' did not report' FROM held
)
SELECT count(*) FROM held`

// expireProbesSQL: who asked has not reported. Asking again is always safe: whether a
// resend is, is decided anew.
const expireProbesSQL = `-- name: expire_probes
WITH held AS (
	SELECT o.intent_id FROM outbox.outbox o
	WHERE o.lane = ANY (SELECT id FROM outbox.lanes) AND (o.phase = 'due') IS FALSE AND o.phase = 'probing' AND o.next_at <= (SELECT clock_timestamp())
	LIMIT $1 FOR UPDATE SKIP LOCKED
), due AS (
	UPDATE outbox.outbox o SET phase = 'asking' FROM held h WHERE o.intent_id = h.intent_id
)
SELECT count(*) FROM held`

// expireReleasesSQL: a job that carried them was lost or is late; they may go again,
// and if the job was only late, one claim wins.
const expireReleasesSQL = `-- name: expire_releases
WITH held AS (
	SELECT o.intent_id FROM outbox.outbox o
	WHERE o.lane = ANY (SELECT id FROM outbox.lanes) AND (o.phase = 'due') IS FALSE AND o.phase = 'released' AND o.next_at <= (SELECT clock_timestamp())
	LIMIT $1 FOR UPDATE SKIP LOCKED
), due AS (
	UPDATE outbox.outbox o SET phase = 'due' FROM held h WHERE o.intent_id = h.intent_id
)
SELECT count(*) FROM held`

// expireDeadlinesSQL: "never send after" has come for what is proven unsent.
const expireDeadlinesSQL = `-- name: expire_deadlines
WITH held AS (
	SELECT o.intent_id, o.attempt, o.state, o.account FROM outbox.outbox o
	WHERE o.deadline <= (SELECT clock_timestamp()) AND o.state IN ('accepted', 'failed_retryable')
	ORDER BY o.deadline LIMIT $1 FOR UPDATE SKIP LOCKED
), gone AS (
	DELETE FROM outbox.outbox o USING held h WHERE o.intent_id = h.intent_id
), ended AS (
	INSERT INTO outbox.outcomes (intent_id, attempt, state, account, code, reason)
	SELECT intent_id, attempt, 'failed_final', account, 'deadline_passed', 'not executed before its deadline' FROM held
), noted AS (
	INSERT INTO outbox.history (intent_id, attempt, from_state, to_state, event, actor)
	SELECT intent_id, attempt, state, 'failed_final', 'deadline_passed', $2 FROM held
)
SELECT count(*) FROM held`

// sweep runs until ctx ends: whatever happened to a job, a leader or a worker, the time
// of its outbox row comes round.
func (w *Worker) sweep(ctx context.Context) {
	every := time.NewTicker(w.cfg.SweepEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			w.sweepOnce(ctx)
		}
	}
}

func (w *Worker) sweepOnce(ctx context.Context) {
	overdue, err := collect(ctx, w.cfg.Pool, overdueSQL, pgx.RowTo[[]bool])
	if err != nil {
		if ctx.Err() == nil {
			w.log.ErrorContext(ctx, "could not look for what is overdue", "error", err)
		}
		return
	}
	for i, s := range []struct {
		what string
		sql  string
		args []any
	}{
		{"leases that ran out: outcome unknown", expireLeasesSQL, []any{sweepLimit, w.cfg.Name}},
		{"probes that ran out: to be asked again", expireProbesSQL, []any{sweepLimit}},
		{"releases that nobody claimed: due again", expireReleasesSQL, []any{sweepLimit}},
		{"deadlines that passed: not sent", expireDeadlinesSQL, []any{sweepLimit, w.cfg.Name}},
	} {
		if !overdue[0][i] {
			continue
		}
		for n := sweepLimit; n == sweepLimit; {
			var err error
			if n, err = count(ctx, w.cfg.Pool, s.sql, s.args...); err != nil {
				if ctx.Err() == nil {
					w.log.ErrorContext(ctx, "could not sweep", "what", s.what, "error", err)
				}
				break
			}
			if n > 0 {
				w.log.WarnContext(ctx, "swept "+s.what, "intents", n)
			}
		}
	}
}
