package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
	"github.com/outbox-worker/outbox-worker/providers"
)

// ticket names an intent at an attempt: what a job carries, and what every step
// compares before it sets.
type ticket struct {
	ID      int64
	Attempt int
}

// candidate is an intent that may be claimed, with everything its request is made from.
type candidate struct {
	ticket
	state     outbox.State
	sends     int
	catalogID int32
	pins      pins
	paused    time.Duration // how long to wait because its lane is paused; 0: it is not
	trace     string
	expires   time.Time // its deadline, on this process's clock; zero: none
	intent    providers.Intent

	revision *catalog.Revision
	provider providers.Provider
	request  providers.Request
}

// pins are fixed by an intent's first attempt: another account, another preset or
// another request would be another effect.
type pins struct {
	account *string
	preset  *string
	hash    []byte
}

// allow reports whether a request may be sent under the pins, and if not, what differs.
func (p pins) allow(account, preset string, hash []byte) (string, bool) {
	switch {
	case p.account == nil:
		return "", true
	case *p.account != account:
		return fmt.Sprintf("account was %q and is %q", *p.account, account), false
	case *p.preset != preset:
		return fmt.Sprintf("preset was %q and is %q", *p.preset, preset), false
	case string(p.hash) != string(hash):
		return "the request would differ from the first attempt's", false
	}
	return "", true
}

// loadSQL reads what may still be claimed of a job: who is no longer at that attempt
// has been dealt with by somebody else.
//
// Here and below an outbox row is looked up by id in a subquery that cannot be flattened
// (OFFSET 0, FOR UPDATE). With statistics from when the outbox was empty the planner
// would join the other way round: through the whole outbox, and through all the ids for
// each of its rows.
const loadSQL = `-- name: load
SELECT o.intent_id, o.attempt, o.state::text, o.sends, o.catalog_id, o.account, o.preset, o.request_hash,
	CASE WHEN l.paused_until > clock_timestamp() THEN 1 END::float8,
	extract(epoch FROM o.deadline - clock_timestamp())::float8,
	i.reference, coalesce(p.reference, ''), i.tenant, coalesce(i.subject, ''), coalesce(i.trace, ''), i.payload::text
FROM unnest($1::bigint[], $2::int[]) s(id, attempt)
CROSS JOIN LATERAL (
	SELECT * FROM outbox.outbox o
	WHERE o.intent_id = s.id AND o.attempt = s.attempt AND o.state IN ('accepted', 'failed_retryable')
	OFFSET 0
) o
JOIN outbox.intents i ON i.id = s.id
JOIN outbox.lanes l ON l.id = o.lane
LEFT JOIN outbox.intents p ON p.id = i.parent_id`

func load(ctx context.Context, db batchSender, tickets []ticket) ([]*candidate, error) {
	ids, attempts := columns(tickets)
	asked := time.Now()
	got, err := collect(ctx, db, loadSQL, func(row pgx.CollectableRow) (*candidate, error) {
		var c candidate
		var paused, left *float64
		var payload string
		err := row.Scan(&c.ID, &c.Attempt, &c.state, &c.sends, &c.catalogID, &c.pins.account, &c.pins.preset, &c.pins.hash,
			&paused, &left, &c.intent.Reference, &c.intent.Parent, &c.intent.Tenant, &c.intent.Subject, &c.trace, &payload)
		c.intent.Payload = json.RawMessage(payload)
		if paused != nil {
			c.paused = seconds(*paused)
		}
		if left != nil {
			// Counted from before the question, so that it errs towards not sending.
			c.expires = asked.Add(seconds(*left))
		}
		return &c, err
	}, ids, attempts)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	return got, nil
}

// claimSQL is the compare-and-set that lets one worker send: at this attempt, in a state
// from which sending is legal, before the deadline, under the pins. It commits before
// any byte leaves. A row that another transaction holds is being dealt with there. The
// claim stands in the outbox row until the attempt ends, and from then on in the history.
const claimSQL = `-- name: claim
WITH s AS (
	SELECT * FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::bytea[], $6::float8[])
		AS s(id, attempt, account, preset, hash, lease)
), held AS (
	SELECT o.intent_id, s.account, s.preset, s.hash, s.lease
	FROM s CROSS JOIN LATERAL (
		SELECT o.intent_id FROM outbox.outbox o
		WHERE o.intent_id = s.id AND o.attempt = s.attempt AND o.state IN ('accepted', 'failed_retryable') AND (SELECT outbox.at_home())
			AND (o.deadline IS NULL OR o.deadline > clock_timestamp())
			AND (o.account IS NULL OR (o.account = s.account AND o.preset = s.preset AND o.request_hash = s.hash))
		FOR UPDATE SKIP LOCKED
	) o
), claimed AS (
	UPDATE outbox.outbox o
	SET state = 'executing', phase = 'leased', attempt = o.attempt + 1, sends = o.sends + 1,
		next_at = clock_timestamp() + make_interval(secs => h.lease),
		claimed_at = clock_timestamp(), claimed_by = $8, first_sent_at = coalesce(o.first_sent_at, clock_timestamp()),
		account = h.account, preset = h.preset, request_hash = h.hash, holder = $7
	FROM held h WHERE o.intent_id = h.intent_id
	RETURNING o.intent_id, o.attempt
)
SELECT intent_id, attempt - 1 FROM claimed`

// claim claims the candidates and says for each whether it is ours to send. Two jobs
// that carry the same intent can meet in one batch: one of them gets it.
func (w *Worker) claim(ctx context.Context, db batchSender, candidates []*candidate) ([]bool, error) {
	n := len(candidates)
	ids, attempts := make([]int64, n), make([]int, n)
	accounts, presets, hashes, leases := make([]string, n), make([]string, n), make([][]byte, n), make([]float64, n)
	for i, c := range candidates {
		ids[i], attempts[i] = c.ID, c.Attempt
		accounts[i], presets[i], hashes[i] = c.provider.Account(), c.capabilities().Preset, c.request.Hash[:]
		leases[i] = c.revision.Spec.Timeouts.Lease.Seconds()
	}
	got, err := collect(ctx, db, claimSQL, scanTicket, ids, attempts, accounts, presets, hashes, leases, w.cfg.holder, w.cfg.Name)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return owned(candidates, got), nil
}

// owned hands each won ticket to one candidate.
func owned(candidates []*candidate, won []ticket) []bool {
	left := make(map[ticket]bool, len(won))
	for _, t := range won {
		left[t] = true
	}
	mine := make([]bool, len(candidates))
	for i, c := range candidates {
		mine[i] = left[c.ticket]
		delete(left, c.ticket)
	}
	return mine
}

func scanTicket(row pgx.CollectableRow) (t ticket, err error) {
	err = row.Scan(&t.ID, &t.Attempt)
	return t, err
}

func (c *candidate) capabilities() providers.Capabilities {
	caps, _ := c.provider.Serves(c.intent.Operation, c.intent.Version)
	return caps
}

// giveBackSQL undoes a release of what has not been claimed.
const giveBackSQL = `-- name: give_back
WITH held AS (
	SELECT o.intent_id
	FROM unnest($1::bigint[], $2::int[]) s(id, attempt) CROSS JOIN LATERAL (
		SELECT o.intent_id FROM outbox.outbox o
		WHERE o.intent_id = s.id AND o.attempt = s.attempt AND o.phase = 'released'
		FOR UPDATE
	) o
), back AS (
	UPDATE outbox.outbox o
	SET phase = 'due', next_at = clock_timestamp() + make_interval(secs => $3)
	FROM held h WHERE o.intent_id = h.intent_id
	RETURNING 1
)
SELECT count(*) FROM back`

func (w *Worker) giveBack(ctx context.Context, tickets []ticket, after time.Duration) {
	if len(tickets) == 0 {
		return
	}
	ids, attempts := columns(tickets)
	if _, err := count(ctx, w.cfg.Pool, giveBackSQL, ids, attempts, after.Seconds()); err != nil {
		// Not lost: the release lease brings them back.
		w.log.WarnContext(ctx, "could not give back what was released", "intents", len(tickets), "error", err)
	}
}

func columns(tickets []ticket) (ids []int64, attempts []int) {
	ids, attempts = make([]int64, len(tickets)), make([]int, len(tickets))
	for i, t := range tickets {
		ids[i], attempts[i] = t.ID, t.Attempt
	}
	return ids, attempts
}

// seconds is a duration from the database. What is further away than a duration can say
// is as good as never.
func seconds(s float64) time.Duration {
	const never = 1e9 // about 30 years
	return time.Duration(min(max(s, -never), never) * float64(time.Second))
}
