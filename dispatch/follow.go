package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

// followBatch is how many parents one transaction deals with.
const followBatch = 100

// successesSQL finds successes whose follow-ons are to be created. Two workers may find
// the same; rendering is without effect, and one of them creates.
const successesSQL = `-- name: successes
SELECT o.intent_id, o.attempt, o.catalog_id, i.reference, i.tenant, coalesce(i.subject, ''), i.payload::text,
	coalesce(e.provider_id, ''), coalesce(e.account, ''), e.result::text, e.settled_at
FROM outbox.outbox o
JOIN outbox.intents i ON i.id = o.intent_id
JOIN outbox.outcomes e ON e.intent_id = o.intent_id
WHERE o.lane = ANY (SELECT id FROM outbox.lanes) AND (o.phase = 'due') IS FALSE AND o.phase = 'following' AND o.next_at <= (SELECT clock_timestamp())
	AND o.catalog_id = ANY ($2::int[])
ORDER BY o.next_at LIMIT $1`

// keepSuccessesSQL locks those that are still to be dealt with.
const keepSuccessesSQL = `-- name: keep_successes
SELECT o.intent_id FROM unnest($1::bigint[]) s(id) CROSS JOIN LATERAL (
	SELECT o.intent_id FROM outbox.outbox o WHERE o.intent_id = s.id AND o.phase = 'following' FOR UPDATE SKIP LOCKED
) o`

// followedSQL ends the outbox row of a parent whose follow-ons stand beside it now, in
// the same transaction. If its success was contradicted meanwhile, the row has the reason
// for a review, which begins now: before, closing it would have lost the follow-ons.
const followedSQL = `-- name: followed
WITH s AS (
	SELECT id, attempt, evidence::jsonb FROM unnest($1::bigint[], $2::int[], $3::text[]) AS s(id, attempt, evidence)
), gone AS (
	DELETE FROM outbox.outbox o USING s WHERE o.intent_id = s.id AND o.phase = 'following' AND o.review_reason IS NULL RETURNING o.intent_id
), parked AS (
	UPDATE outbox.outbox o SET phase = 'parked', next_at = NULL, review_since = clock_timestamp()
	FROM s WHERE o.intent_id = s.id AND o.phase = 'following' AND o.review_reason IS NOT NULL RETURNING o.intent_id
), noted AS (
	INSERT INTO outbox.history (intent_id, attempt, from_state, to_state, event, actor, evidence)
	SELECT s.id, s.attempt, 'succeeded', 'succeeded', 'follow_ons_created', $4, s.evidence
	FROM s JOIN (SELECT * FROM gone UNION ALL SELECT * FROM parked) g ON g.intent_id = s.id
)
SELECT count(*) FROM s`

// notFollowedSQL sends what cannot be rendered to review. The parent stays succeeded.
const notFollowedSQL = `-- name: not_followed
WITH held AS (
	UPDATE outbox.outbox SET phase = 'parked', next_at = NULL, review_since = clock_timestamp(),
		review_reason = concat_ws('; ', review_reason, $3::text)
	WHERE intent_id = $1 AND phase = 'following' RETURNING intent_id
), noted AS (
	INSERT INTO outbox.history (intent_id, attempt, from_state, to_state, event, actor, reason)
	SELECT intent_id, $2, 'succeeded', 'succeeded', 'follow_on_rejected', $4, $3 FROM held
)
SELECT count(*) FROM held`

// success is a parent whose follow-ons are to be created.
type success struct {
	ticket
	catalogID int32
	parent    catalog.Parent
}

// follow runs until ctx ends: it creates the follow-ons of what succeeded.
func (w *Worker) follow(ctx context.Context) {
	for ctx.Err() == nil {
		n, err := w.followOnce(ctx)
		if err != nil && ctx.Err() == nil {
			w.log.ErrorContext(ctx, "could not create follow-ons", "error", err)
		}
		if err == nil && n == followBatch {
			continue
		}
		timer := time.NewTimer(w.cfg.IdlePoll)
		select {
		case <-ctx.Done():
		case <-w.succeeded:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// renderLimit is how long a batch is rendered before what there is gets written: a jq
// expression that does not end must not hold up the others.
const renderLimit = 2 * time.Second

// rendered is a success with its follow-ons, or why some of them cannot be.
type rendered struct {
	success
	followOns []catalog.FollowOn
	why       string
}

// followOnce turns up to followBatch successes into their follow-ons, in one
// transaction: a crash leaves all or none, and their keys (parent's reference and name)
// make doing it twice harmless.
func (w *Worker) followOnce(ctx context.Context) (done int, _ error) {
	parents, err := collect(ctx, w.cfg.Pool, successesSQL, scanSuccess, followBatch, w.revisionIDs())
	if err != nil {
		return 0, fmt.Errorf("follow: %w", err)
	}
	var batch []rendered
	for began := time.Now(); len(batch) < len(parents) && (len(batch) == 0 || time.Since(began) < renderLimit); {
		r, err := w.renderFollowOns(ctx, parents[len(batch)])
		if err != nil {
			return 0, fmt.Errorf("follow: %w", err)
		}
		batch = append(batch, r)
	}
	if len(batch) == 0 {
		return 0, nil
	}
	if err := inTx(ctx, w.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error { return w.createAll(ctx, tx, batch) }); err != nil {
		return 0, fmt.Errorf("follow: %w", err)
	}
	if len(batch) < len(parents) {
		return followBatch, nil // there is more
	}
	return len(batch), nil
}

// renderFollowOns renders what follows; the error is ctx's end and says nothing.
func (w *Worker) renderFollowOns(ctx context.Context, s success) (r rendered, err error) {
	r.success = s
	defer func() {
		if v := recover(); v != nil {
			r.followOns, r.why, err = nil, fmt.Sprint("panic: ", v), nil
		}
	}()
	var bad *catalog.RenderError
	r.followOns, err = w.revision(s.catalogID).FollowOns(ctx, s.parent)
	if errors.As(err, &bad) {
		r.why, err = bad.Error(), nil
	}
	return r, err
}

func (w *Worker) createAll(ctx context.Context, tx pgx.Tx, batch []rendered) error {
	wanted := make([]int64, len(batch))
	for i, r := range batch {
		wanted[i] = r.ID
	}
	held, err := collect(ctx, tx, keepSuccessesSQL, pgx.RowTo[int64], wanted)
	if err != nil {
		return err
	}
	var tickets []ticket
	var evidence []string
	for _, r := range batch {
		if !slices.Contains(held, r.ID) {
			continue // another worker's
		}
		created, why, err := w.createFollowOns(ctx, tx, r)
		if err != nil {
			return err
		}
		if why != "" {
			w.log.ErrorContext(ctx, "follow-on sent to review", "reference", r.parent.Intent.Reference, "reason", why)
			if _, err := count(ctx, tx, notFollowedSQL, r.ID, r.Attempt, text(why), w.cfg.Name); err != nil {
				return err
			}
			continue
		}
		note, err := json.Marshal(created)
		if err != nil {
			return err
		}
		tickets, evidence = append(tickets, r.ticket), append(evidence, string(note))
	}
	if len(tickets) == 0 {
		return nil
	}
	ids, attempts := columns(tickets)
	_, err = count(ctx, tx, followedSQL, ids, attempts, evidence, w.cfg.Name)
	return err
}

const enqueueFollowOnSQL = `-- name: enqueue_follow_on
SELECT a.answer, coalesce(a.reference, ''), concat_ws(' ', a.code, a.path, a.hint)
FROM outbox.enqueue_follow_on($1, $2, $3, $4, $5) a`

// createFollowOns records a parent's follow-ons and returns their references by name.
// Those that can be created are, whatever the others do; why tells what could not be.
func (w *Worker) createFollowOns(ctx context.Context, tx pgx.Tx, r rendered) (created map[string]string, why string, _ error) {
	created, why = map[string]string{}, r.why
	for _, f := range r.followOns {
		var answer outbox.AnswerKind
		var reference, refusal string
		row := tx.QueryRow(ctx, enqueueFollowOnSQL, r.ID, f.Name, f.Operation, string(f.Payload), f.Digest[:])
		if err := row.Scan(&answer, &reference, &refusal); err != nil {
			return nil, "", fmt.Errorf("follow-on %s of %s: %w", f.Name, r.parent.Intent.Reference, err)
		}
		switch answer {
		case outbox.AnswerAccepted, outbox.AnswerInFlight, outbox.AnswerSettled, outbox.AnswerExpired:
			created[f.Name] = reference
		default:
			why = fmt.Sprintf("follow-on %s: %s %s", f.Name, answer, refusal)
		}
	}
	return created, why, nil
}

func scanSuccess(row pgx.CollectableRow) (success, error) {
	var s success
	intent, outcome := &s.parent.Intent, &s.parent.Outcome
	var payload string
	var result *string
	err := row.Scan(&s.ID, &s.Attempt, &s.catalogID, &intent.Reference, &intent.Tenant, &intent.Subject, &payload,
		&outcome.ProviderID, &outcome.Account, &result, &outcome.SettledAt)
	intent.Payload = json.RawMessage(payload)
	if result != nil {
		outcome.Result = json.RawMessage(*result)
	}
	return s, err
}
