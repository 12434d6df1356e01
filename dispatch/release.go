package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
)

// Paces of a lane's releaser. It polls fast while there is work, and tells the database
// that it sleeps when there has been none for a while; enqueue then wakes it.
const (
	busyPoll   = 10 * time.Millisecond
	otherPoll  = 100 * time.Millisecond // while another releases, or the lane is paused
	idleAfter  = 200 * time.Millisecond
	errorPause = time.Second
)

// A releaser that has little to release does so less often, so that what it does costs
// little and is worth a job: it rests restShare times as long as the last release took,
// and at most maxRest, unless there was as much as a release may take.
const (
	restShare = 4
	maxRest   = 20 * time.Millisecond
)

// How many intents one River job carries. A release is cut into jobsPerRelease, so that
// replicas share it, but into none that has fewer than smallJob or a quarter of what a
// process may have in flight, because a job of few costs as much as one of many.
const (
	maxJob         = 250
	smallJob       = 100
	jobsPerRelease = 16
)

// release runs until ctx ends: it moves the lane's due intents into River jobs.
func (w *Worker) release(ctx context.Context, l *lane) {
	lastWork := time.Now()
	for ctx.Err() == nil {
		began := time.Now()
		n, full, err := w.releaseOnce(ctx, l)
		switch {
		case err != nil:
			if ctx.Err() == nil {
				w.log.ErrorContext(ctx, "could not release", "lane", l.name, "error", err)
			}
			l.sleep(ctx, errorPause, nil)
		case n > 0:
			lastWork = time.Now()
			if n < maxJob*jobsPerRelease {
				l.sleep(ctx, min(maxRest, restShare*lastWork.Sub(began)), nil)
			}
		case full > 0:
			lastWork = time.Now()
			l.sleep(ctx, full, l.freed)
		case time.Since(lastWork) < idleAfter:
			l.sleep(ctx, busyPoll, l.freed)
		case !w.fallAsleep(ctx, l):
			// Just now asleep: look once more for what was committed before.
		case l.sleep(ctx, w.cfg.IdlePoll, l.woken):
			lastWork = time.Now()
		}
	}
}

const fallAsleepSQL = `-- name: fall_asleep
WITH slept AS (UPDATE outbox.lanes SET asleep = true WHERE id = $1 AND NOT asleep RETURNING 1)
SELECT count(*) FROM slept`

// fallAsleep asks enqueue to notify from now on; true if it does already.
func (w *Worker) fallAsleep(ctx context.Context, l *lane) bool {
	if w.cfg.PollOnly {
		return true
	}
	n, err := count(ctx, w.cfg.Pool, fallAsleepSQL, l.id)
	if err != nil && ctx.Err() == nil {
		w.log.WarnContext(ctx, "could not fall asleep", "lane", l.name, "error", err)
	}
	return n == 0
}

// lockLaneSQL makes one replica at a time release for a lane. Whoever finds it locked, or
// paused, or the ledger on another timeline, leaves it.
const lockLaneSQL = `-- name: lock_lane
SELECT cursor_tenant FROM outbox.lanes
WHERE id = $1 AND (paused_until IS NULL OR paused_until <= clock_timestamp()) AND (SELECT outbox.at_home())
FOR UPDATE SKIP LOCKED`

// releaseSQL releases as much as the lane may take: its concurrency, less what is
// released or in flight anywhere, and no more than the token bucket holds. So a lane's
// limit is one for all replicas, and a backlog cannot be released twice over.
//
// Tenants take turns. The walk visits tenants from where the last release stopped, all
// the way round at most, jumping through the index from one (tenant, rank) to the next;
// each gives its most urgent, oldest due intents; then the first of every tenant goes,
// the second of every tenant, and so on. So a tenant with a million waiting costs the
// others one place, and what is scheduled for later costs one index look: the time is a
// subquery because a condition on clock_timestamp() itself, which is volatile, is no
// bound for an index and would be checked on every row. A walk that has seen 256 places
// with nothing due goes on from there at the next release, so that they hide nobody.
const releaseSQL = `-- name: release
WITH RECURSIVE lane AS (
	SELECT l.id, l.cursor_tenant, l.rate, l.burst,
		least(l.burst::float8, l.tokens + l.rate * extract(epoch FROM clock_timestamp() - l.tokens_at)::float8) AS tokens,
		l.concurrency - (SELECT count(*)::int FROM outbox.outbox o
			WHERE o.lane = l.id AND (o.phase = 'due') IS FALSE AND o.phase IN ('released', 'leased')) AS room
	FROM outbox.lanes l WHERE l.id = $1
), free AS (
	SELECT greatest(0, least(room, CASE WHEN rate IS NULL THEN room ELSE floor(tokens)::int END, $4::int)) AS n FROM lane
), walk AS (
	SELECT cursor_tenant AS tenant, 32767::smallint AS rank, false AS wrapped, 0 AS place FROM lane
	UNION ALL
	SELECT step.tenant, step.rank, step.wrapped, w.place + 1
	FROM walk w CROSS JOIN lane CROSS JOIN LATERAL (
		(SELECT o.tenant, o.rank, w.wrapped FROM outbox.outbox o
		 WHERE o.lane = $1 AND o.phase = 'due' AND (o.tenant, o.rank) > (w.tenant, w.rank)
		 ORDER BY o.tenant, o.rank LIMIT 1)
		UNION ALL
		(SELECT o.tenant, o.rank, true FROM outbox.outbox o
		 WHERE NOT w.wrapped AND o.lane = $1 AND o.phase = 'due'
		 ORDER BY o.tenant, o.rank LIMIT 1)
		LIMIT 1
	) step
	WHERE w.place < 256 AND (SELECT n FROM free) > 0 AND NOT (step.wrapped AND step.tenant > lane.cursor_tenant)
), share AS (
	SELECT greatest(8, ceil(2.0 * (SELECT n FROM free) / count(DISTINCT tenant)))::int AS n FROM walk WHERE place > 0
), picked AS (
	SELECT p.intent_id, w.tenant, w.place,
		row_number() OVER (PARTITION BY w.tenant ORDER BY w.rank, p.next_at, p.intent_id) AS turn
	FROM walk w CROSS JOIN LATERAL (
		SELECT o.intent_id, o.next_at FROM outbox.outbox o
		WHERE o.lane = $1 AND o.phase = 'due' AND o.tenant = w.tenant AND o.rank = w.rank
			AND o.next_at <= (SELECT clock_timestamp()) AND o.catalog_id = ANY ($2::int[])
			AND (o.deadline IS NULL OR o.deadline > clock_timestamp())
		ORDER BY o.next_at LIMIT (SELECT n FROM share)
	) p
	WHERE w.place > 0
), chosen AS (
	SELECT intent_id, tenant, turn, place FROM picked ORDER BY turn, place LIMIT (SELECT n FROM free)
), released AS (
	UPDATE outbox.outbox o
	SET phase = 'released', next_at = clock_timestamp() + make_interval(secs => $3)
	FROM chosen c WHERE o.intent_id = c.intent_id AND o.phase = 'due'
	RETURNING o.intent_id, o.attempt, c.turn, c.place
), moved AS (
	UPDATE outbox.lanes l
	SET asleep = l.asleep AND NOT EXISTS (SELECT FROM released),
		tokens = coalesce(lane.tokens - (SELECT count(*) FROM released), 0), tokens_at = clock_timestamp(),
		cursor_tenant = coalesce((SELECT tenant FROM chosen ORDER BY turn DESC, place DESC LIMIT 1),
			(SELECT tenant FROM walk ORDER BY place DESC LIMIT 1))
	FROM lane WHERE l.id = lane.id AND (EXISTS (SELECT FROM released) OR (SELECT max(place) FROM walk) = 256)
)
SELECT intent_id, attempt FROM released ORDER BY turn, place`

// lightlySQL comes last in a release, which need not be durable by itself: what a crash
// takes back is the release and its River job together, so that the intents are
// due as before, and a claim that follows is written behind it and flushes both. One wait for
// the disk less on the way from a commit to its call.
const lightlySQL = `-- name: lightly
SET LOCAL synchronous_commit = off`

// limitSQL: how long until a lane that released nothing may take something; 0 when it
// may take something now, so that nothing is due. $3 is where the walk began: if it has
// moved, there is more to walk.
const limitSQL = `-- name: limit
SELECT CASE
	WHEN l.cursor_tenant <> $3 THEN 0.000001
	WHEN l.concurrency <= (SELECT count(*) FROM outbox.outbox o WHERE o.lane = l.id AND (o.phase = 'due') IS FALSE AND o.phase IN ('released', 'leased'))
		THEN $2::float8
	ELSE greatest(0, (1 - l.tokens - l.rate * extract(epoch FROM clock_timestamp() - l.tokens_at)) / l.rate)::float8
END
FROM outbox.lanes l WHERE l.id = $1`

// releaseOnce releases what the lane may take now and returns how many intents that was;
// if none because the lane is at a limit, also how long to wait. Outbox rows and River
// jobs change in one transaction: neither without the other.
func (w *Worker) releaseOnce(ctx context.Context, l *lane) (released int, full time.Duration, err error) {
	err = inTx(ctx, w.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		cursor, err := collect(ctx, tx, lockLaneSQL, pgx.RowTo[string], l.id)
		if err != nil {
			return err
		}
		if len(cursor) == 0 {
			full = otherPoll // not ours to release now, and no reason to sleep
			return nil
		}
		tickets, err := collect(ctx, tx, releaseSQL, scanTicket, l.id, w.servedIDs(), w.cfg.ReleaseLease.Seconds(), maxJob*jobsPerRelease)
		if err != nil {
			return err
		}
		if len(tickets) == 0 {
			wait, err := collect(ctx, tx, limitSQL, pgx.RowTo[*float64], l.id, busyPoll.Seconds(), cursor[0])
			if err == nil && len(wait) == 1 && wait[0] != nil {
				full = seconds(*wait[0])
			}
			return err
		}
		if _, err := w.river.InsertManyFastTx(ctx, tx, jobs(l, tickets, w.cfg.Concurrency)); err != nil {
			return fmt.Errorf("insert jobs: %w", err)
		}
		released = len(tickets)
		_, err = tx.Exec(ctx, lightlySQL)
		return err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("release: %w", err)
	}
	return released, full, nil
}

// jobs cuts a release into River jobs for processes of that concurrency.
func jobs(l *lane, tickets []ticket, concurrency int) []river.InsertManyParams {
	size := min(maxJob, max(1, min(smallJob, concurrency/4), (len(tickets)+jobsPerRelease-1)/jobsPerRelease))
	var all []river.InsertManyParams
	for start := 0; start < len(tickets); start += size {
		ids, attempts := columns(tickets[start:min(start+size, len(tickets))])
		all = append(all, river.InsertManyParams{
			Args:       dispatchArgs{Lane: l.id, IDs: ids, Attempts: attempts},
			InsertOpts: &river.InsertOpts{Queue: l.queue(), MaxAttempts: 1},
		})
	}
	return all
}
