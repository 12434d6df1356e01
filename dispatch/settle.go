package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cenkalti/backoff/v4"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/providers"
)

// settlement is the answer to one attempt, on its way into the ledger.
type settlement struct {
	ticket   // at the attempt that was sent, or that asked
	verdict  verdict
	answer   providers.Answer
	follow   bool // success leaves "follow-ons to create"
	probe    bool // it asked what became of an earlier one
	reported bool // of a probe: no straggler of the unknown attempt is left
}

// settleSQL records answers, fenced on the attempt: a worker that lost its lease must
// not overwrite a newer outcome. One exception, and it is no overwriting: the attempt
// whose outcome is unknown may still report what it knows of itself. Whatever else comes
// late is kept as evidence. No row true means stale, not failure.
const settleSQL = `-- name: settle
WITH s AS (
	SELECT id, attempt, event::outbox.event, to_state::outbox.state, retry_in, provider_id, code, reason, result::json, follow, probe, reported, n
	FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::float8[], $6::text[], $7::text[], $8::text[], $9::text[], $10::boolean[],
			$11::boolean[], $12::boolean[])
		WITH ORDINALITY AS s(id, attempt, event, to_state, retry_in, provider_id, code, reason, result, follow, probe, reported, n)
), held AS (
	SELECT s.*, o.intent_id, o.state AS from_state, o.account, o.claimed_at, o.claimed_by, clock_timestamp() AS at,
		s.to_state = 'failed_final' OR (s.to_state = 'succeeded' AND NOT s.follow) AS done
	FROM s CROSS JOIN LATERAL (
		SELECT o.intent_id, o.state, o.account, CASE o.state WHEN 'executing' THEN o.claimed_at END AS claimed_at, o.claimed_by FROM outbox.outbox o
		WHERE o.intent_id = s.id
			AND CASE
				WHEN o.state = 'executing' THEN NOT s.probe AND o.attempt = s.attempt
				WHEN o.state = 'outcome_unknown' AND s.probe AND o.phase = 'probing' AND o.attempt = s.attempt THEN true
				WHEN o.state = 'outcome_unknown' AND o.unknown_attempt = s.attempt
					THEN s.to_state = 'succeeded' OR (NOT s.probe AND s.to_state <> 'outcome_unknown')
				WHEN o.state = 'needs_review' THEN o.unknown_attempt = s.attempt AND s.to_state = 'succeeded'
				ELSE false END
		FOR UPDATE
	) o
), gone AS (
	DELETE FROM outbox.outbox o USING held h WHERE o.intent_id = h.intent_id AND h.done
), kept AS (
	UPDATE outbox.outbox o
	SET state = h.to_state,
		holder = CASE WHEN h.probe AND NOT h.reported THEN o.holder END,
		phase = CASE h.to_state WHEN 'succeeded' THEN 'following' WHEN 'failed_retryable' THEN 'due'
			WHEN 'outcome_unknown' THEN 'asking' ELSE 'parked' END::outbox.phase,
		next_at = CASE WHEN h.to_state = 'succeeded' THEN h.at
			WHEN h.to_state IN ('failed_retryable', 'outcome_unknown') THEN h.at + make_interval(secs => h.retry_in) END,
		unknown_attempt = CASE WHEN h.to_state IN ('outcome_unknown', 'needs_review') THEN coalesce(o.unknown_attempt, h.attempt) END,
		unknown_since = CASE WHEN h.to_state IN ('outcome_unknown', 'needs_review') THEN coalesce(o.unknown_since, h.at) END,
		review_since = CASE h.to_state WHEN 'needs_review' THEN h.at END,
		review_reason = CASE h.to_state WHEN 'needs_review' THEN h.reason END
	FROM held h
	WHERE o.intent_id = h.intent_id AND NOT h.done
), heard AS (
	-- It knows no more than before, but its worker has reported: no straggler of it is left.
	UPDATE outbox.outbox o SET holder = NULL FROM s
	WHERE o.intent_id = s.id AND o.state = 'outcome_unknown' AND o.unknown_attempt = s.attempt AND s.event = 'no_answer'
), ended AS (
	INSERT INTO outbox.outcomes (intent_id, attempt, state, provider_id, account, code, reason, result)
	SELECT intent_id, attempt, to_state, provider_id, account, code, CASE WHEN to_state <> 'succeeded' THEN reason END, result
	FROM held WHERE to_state IN ('succeeded', 'failed_final')
), noted AS (
	INSERT INTO outbox.history (intent_id, at, attempt, from_state, to_state, event, claimed_at, actor, claimed_by, reason)
	SELECT intent_id, at, attempt, from_state, CASE to_state WHEN 'exhausted' THEN 'failed_retryable' ELSE to_state END,
		event, claimed_at, $13, CASE WHEN claimed_at IS NOT NULL THEN nullif(claimed_by, $13) END, nullif(CASE WHEN probe THEN reason ELSE concat_ws(': ', code, reason) END, '')
	FROM held
), used_up AS (
	INSERT INTO outbox.history (intent_id, at, attempt, from_state, to_state, event, actor)
	SELECT intent_id, at + interval '1 microsecond', attempt, 'failed_retryable', 'exhausted', 'attempts_used', $13
	FROM held WHERE to_state = 'exhausted'
), late AS (
	INSERT INTO outbox.history (intent_id, attempt, from_state, to_state, event, actor, reason, evidence)
	SELECT s.id, s.attempt, now.state, now.state, 'late_answer', $13, nullif(concat_ws(': ', s.code, s.reason), ''),
		jsonb_strip_nulls(jsonb_build_object('event', s.event, 'provider_id', s.provider_id))
	FROM s
	CROSS JOIN LATERAL (
		SELECT coalesce((SELECT e.state FROM outbox.outcomes e WHERE e.intent_id = s.id),
			(SELECT o.state FROM outbox.outbox o WHERE o.intent_id = s.id)) AS state
	) now
	WHERE now.state IS NOT NULL AND s.event <> 'probed' AND (s.id, s.attempt) NOT IN (SELECT h.intent_id, h.attempt FROM held h)
)
SELECT (s.id, s.attempt) IN (SELECT h.intent_id, h.attempt FROM held h) FROM s ORDER BY s.n`

// settle records the answers and says for each whether it is the outcome (false: stale,
// kept as evidence). It takes one answer an intent: see rounds.
func (w *Worker) settle(ctx context.Context, db batchSender, all []settlement) ([]bool, error) {
	n := len(all)
	tickets := make([]ticket, n)
	events, states, retries, follows := make([]string, n), make([]string, n), make([]float64, n), make([]bool, n)
	probes, reported := make([]bool, n), make([]bool, n)
	ids, codes, reasons, results := make([]*string, n), make([]*string, n), make([]*string, n), make([]*string, n)
	for i, s := range all {
		tickets[i] = s.ticket
		events[i], states[i], retries[i], follows[i] = string(s.verdict.event), string(s.verdict.state), s.verdict.retryIn.Seconds(), s.follow
		ids[i], codes[i], reasons[i] = text(s.answer.ProviderID), text(s.answer.Code), text(s.answer.Reason)
		results[i] = document(s.answer.Result)
		probes[i], reported[i] = s.probe, s.reported
	}
	intents, attempts := columns(tickets)
	got, err := collect(ctx, db, settleSQL, pgx.RowTo[bool],
		intents, attempts, events, states, retries, ids, codes, reasons, results, follows, probes, reported, w.cfg.Name)
	if err != nil {
		return nil, fmt.Errorf("settle: %w", err)
	}
	return got, nil
}

// settled is what became of one settlement.
type settled struct {
	current bool // it is the outcome; false: stale, kept as evidence
	err     error
}

// settleBatch settles what several calls brought. Their answers share a statement and no
// fate: one that the database refuses fails by itself.
func (w *Worker) settleBatch(ctx context.Context, all []settlement) ([]settled, error) {
	results := make([]settled, len(all))
	for _, round := range rounds(all) {
		batch := make([]settlement, len(round))
		for i, at := range round {
			batch[i] = all[at]
		}
		got, err := w.settle(ctx, w.cfg.Pool, batch)
		for i, at := range round {
			switch {
			case err == nil:
				results[at].current = got[i]
			case refusedData(err):
				results[at].current, results[at].err = w.settleAlone(ctx, batch[i])
			default:
				results[at].err = err
			}
		}
	}
	return results, nil
}

// rounds parts a batch so that no round has two answers about one intent: a late answer
// and a probe's can meet, both fit the row as it was, and only one may have it.
func rounds(all []settlement) (parts [][]int) {
	seen := map[int64]int{}
	for i, s := range all {
		n := seen[s.ID]
		seen[s.ID]++
		if n == len(parts) {
			parts = append(parts, nil)
		}
		parts[n] = append(parts[n], i)
	}
	return parts
}

// settleAlone records an answer that the database refused in company; if it is the one,
// without its text, because that it happened matters more than what was said.
func (w *Worker) settleAlone(ctx context.Context, s settlement) (bool, error) {
	got, err := w.settle(ctx, w.cfg.Pool, []settlement{s})
	if err != nil && refusedData(err) {
		s.answer.Result, s.answer.Reason = nil, "the provider's answer could not be stored"
		got, err = w.settle(ctx, w.cfg.Pool, []settlement{s})
	}
	if err != nil {
		return false, err
	}
	return got[0], nil
}

// refusedData reports whether the database refused what it was given (SQLSTATE class 22
// or 23, or a program limit), as against being unable to answer.
func refusedData(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	return strings.HasPrefix(pg.Code, "22") || strings.HasPrefix(pg.Code, "23") || strings.HasPrefix(pg.Code, "54")
}

// record settles one attempt through the batch. A known outcome must not be lost to a
// database that is away, so it is tried for as long as the worker lives: also after its
// lease, because what the attempt knows of itself is then the best evidence there is.
func (w *Worker) record(ctx context.Context, s settlement) (bool, error) {
	return backoff.RetryNotifyWithData(func() (bool, error) {
		got, err := w.settles.Submit(ctx, s)
		if err != nil {
			return false, err
		}
		return got[0].current, got[0].err
	}, w.patience(), func(err error, after time.Duration) {
		w.log.WarnContext(ctx, "outcome not recorded yet", "intent", s.ID, "attempt", s.Attempt, "again_in", after, "error", err)
	})
}

// patience is for what must be written down: as long as the worker lives.
func (w *Worker) patience() backoff.BackOff {
	return backoff.WithContext(backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0),
	), w.recording)
}

// text makes a provider's words storable: valid UTF-8, no NUL, not endless.
func text(s string) *string {
	if s == "" {
		return nil
	}
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return &s
}

// Bounds on what is kept of a provider's answer, in bytes.
const (
	maxText   = 1000
	maxResult = 64 << 10
)

// document makes a result storable; what is no JSON document is kept as a JSON string.
func document(result json.RawMessage) *string {
	if len(result) == 0 {
		return nil
	}
	if s := string(result); len(s) <= maxResult && utf8.ValidString(s) && json.Valid(result) {
		return &s
	}
	kept, _ := json.Marshal(text(string(result))) // a string cannot fail
	s := string(kept)
	return &s
}

// unstarted is what ends an intent before it is sent: its input is no good, or its pins
// no longer hold.
type unstarted struct {
	ticket
	event  outbox.Event
	from   outbox.State
	code   string
	reason string
}

// endUnstartedSQL ends what was never sent at this attempt: for good, or into review.
const endUnstartedSQL = `-- name: end_unstarted
WITH s AS (
	SELECT id, attempt, from_state::outbox.state, to_state::outbox.state, event::outbox.event, code, reason
	FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
		AS s(id, attempt, from_state, to_state, event, code, reason)
), held AS (
	SELECT s.*, o.intent_id, o.account FROM s CROSS JOIN LATERAL (
		SELECT o.intent_id, o.account FROM outbox.outbox o
		WHERE o.intent_id = s.id AND o.attempt = s.attempt AND o.state = s.from_state
		FOR UPDATE
	) o
), gone AS (
	DELETE FROM outbox.outbox o USING held h WHERE o.intent_id = h.intent_id AND h.to_state = 'failed_final'
), reviewed AS (
	UPDATE outbox.outbox o
	SET state = h.to_state, phase = 'parked', next_at = NULL, review_since = clock_timestamp(), review_reason = h.reason
	FROM held h WHERE o.intent_id = h.intent_id AND h.to_state = 'needs_review'
), ended AS (
	INSERT INTO outbox.outcomes (intent_id, attempt, state, account, code, reason)
	SELECT intent_id, attempt, to_state, account, code, reason FROM held WHERE to_state = 'failed_final'
), noted AS (
	INSERT INTO outbox.history (intent_id, attempt, from_state, to_state, event, actor, reason)
	SELECT intent_id, attempt, from_state, to_state, event, $8, nullif(concat_ws(': ', code, reason), '') FROM held
)
SELECT count(*) FROM held`

func (w *Worker) endUnstarted(ctx context.Context, all []unstarted) error {
	if len(all) == 0 {
		return nil
	}
	n := len(all)
	tickets := make([]ticket, n)
	from, to, events := make([]string, n), make([]string, n), make([]string, n)
	codes, reasons := make([]*string, n), make([]*string, n)
	for i, u := range all {
		state, ok := u.from.Next(u.event)
		if !ok {
			return fmt.Errorf("end unstarted: %s cannot happen in %s", u.event, u.from)
		}
		tickets[i], from[i], to[i], events[i] = u.ticket, string(u.from), string(state), string(u.event)
		codes[i], reasons[i] = text(u.code), text(u.reason)
	}
	ids, attempts := columns(tickets)
	if _, err := count(ctx, w.cfg.Pool, endUnstartedSQL, ids, attempts, from, to, events, codes, reasons, w.cfg.Name); err != nil {
		return fmt.Errorf("end unstarted: %w", err)
	}
	return nil
}
