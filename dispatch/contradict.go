package dispatch

import (
	"context"

	"github.com/cenkalti/backoff/v4"

	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/providers"
)

// contradictSQL opens a review where a success turned up beside a ledger that says
// otherwise: settled without the effect, settled with another effect, or about to send
// again. What is about to be sent is stopped; what is settled stays as it is. Where
// follow-ons are still to be created the review waits for them: see followedSQL.
const contradictSQL = `-- name: contradict
WITH s AS (
	SELECT $1::bigint AS id, $2::int AS attempt, $3::text AS provider_id, $4::text AS reason, $5::text AS actor
), stopped AS (
	UPDATE outbox.outbox o
	SET state = 'needs_review', phase = 'parked', next_at = NULL, unknown_attempt = s.attempt,
		review_since = clock_timestamp(), review_reason = s.reason
	FROM s, (SELECT x.intent_id, x.state FROM outbox.outbox x, s WHERE x.intent_id = s.id FOR UPDATE OF x) old
	WHERE o.intent_id = old.intent_id AND old.state IN ('failed_retryable', 'exhausted')
	RETURNING o.intent_id, old.state AS from_state
), beside AS (
	INSERT INTO outbox.outbox AS o (intent_id, lane, catalog_id, attempt, state, phase, tenant, review_since, review_reason)
	SELECT i.id, c.lane, i.catalog_id, e.attempt, e.state, 'parked', i.tenant, clock_timestamp(), s.reason
	FROM s JOIN outbox.intents i ON i.id = s.id JOIN outbox.catalog c ON c.id = i.catalog_id JOIN outbox.outcomes e ON e.intent_id = i.id
	WHERE e.state <> 'succeeded' OR e.provider_id <> s.provider_id
	ON CONFLICT ON CONSTRAINT outbox_pkey DO UPDATE SET review_reason = excluded.review_reason WHERE o.phase = 'following'
	RETURNING intent_id, state
), noted AS (
	INSERT INTO outbox.history (intent_id, attempt, from_state, to_state, event, actor, reason)
	SELECT st.intent_id, s.attempt, st.from_state, 'needs_review'::outbox.state, 'contradicted'::outbox.event, s.actor, s.reason FROM stopped st, s
	UNION ALL
	SELECT b.intent_id, s.attempt, b.state, b.state, 'review_opened', s.actor, s.reason FROM beside b, s
)
SELECT (SELECT count(*) FROM stopped) + (SELECT count(*) FROM beside)`

// contradict follows up a success that came too late to be the outcome.
func (w *Worker) contradict(ctx context.Context, s settlement) {
	if s.answer.Kind != providers.KindAccepted && s.verdict.event != outbox.LookupFound {
		return
	}
	reason := "a late success contradicts the ledger"
	if s.answer.ProviderID != "" {
		reason += ": the provider names it " + s.answer.ProviderID
	}
	n, err := backoff.RetryWithData(func() (int, error) {
		return count(ctx, w.cfg.Pool, contradictSQL, s.ID, s.Attempt, text(s.answer.ProviderID), text(reason), w.cfg.Name)
	}, w.patience())
	switch {
	case err != nil: // its late answer stands in the history all the same
		w.log.ErrorContext(ctx, "could not open a review", "intent", s.ID, "error", err)
	case n > 0:
		w.log.ErrorContext(ctx, "review opened: "+reason, "intent", s.ID, "attempt", s.Attempt)
	}
}
