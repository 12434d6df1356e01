-- +goose Up
-- What an operator does: each action is one function with an actor and a reason, which
-- holds the intent's outbox row while it decides, and either does all of it, history
-- included, or refuses as a value. None of them can send anything, or rewrite a fact.

CREATE TABLE outbox.lane_history (
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    until  timestamptz,
    lane   int         NOT NULL,
    action text        NOT NULL,
    actor  text        NOT NULL,
    reason text        NOT NULL,
    CONSTRAINT lane_history_lane_fkey FOREIGN KEY (lane) REFERENCES outbox.lanes (id),
    CONSTRAINT lane_history_action_known CHECK (action IN ('paused', 'resumed')),
    CONSTRAINT lane_history_until_of_pause CHECK ((action = 'paused') = (until IS NOT NULL))
);
COMMENT ON TABLE outbox.lane_history IS 'Who paused a lane until when (infinity: until it is resumed), who resumed it, and why: append-only. What a worker pauses because a provider asked for it stands in lanes alone.';
CREATE INDEX lane_history_lane_idx ON outbox.lane_history (lane, at);
CREATE TRIGGER lane_history_no_change BEFORE UPDATE OR DELETE ON outbox.lane_history FOR EACH ROW EXECUTE FUNCTION outbox.refuse_change();
CREATE TRIGGER lane_history_no_truncate BEFORE TRUNCATE ON outbox.lane_history FOR EACH STATEMENT EXECUTE FUNCTION outbox.refuse_change();

CREATE TYPE outbox.operated AS (
    answer     text,
    reference  text,
    operation  text,
    was        outbox.state,
    state      outbox.state,
    attempt    int,
    did        text,
    code       text,
    reason     text,
    hint       text,
    claimed_by text
);
COMMENT ON TYPE outbox.operated IS 'The answer to an operator: done (did says what), refused (code, reason, and in hint what to do instead), busy (outbox.replay_many only: a worker or another operator holds it just now) or not_found. was and state are those before and after; claimed_by is whose claim the review was.';

CREATE TYPE outbox.held AS (
    id         bigint,
    catalog_id int,
    settled    outbox.state,
    not_before timestamptz,
    reference  text,
    operation  text,
    answer     text,
    code       text,
    reason     text,
    hint       text,
    spec       jsonb,
    o          outbox.outbox
);
COMMENT ON TYPE outbox.held IS 'An intent whose outbox row, o, this transaction holds; settled is its outcome''s state. With an answer, nothing is held, and that is the answer.';

CREATE TYPE outbox.lane_operated AS (
    answer       text,
    lane         text,
    was_until    timestamptz,
    paused_until timestamptz,
    code         text,
    reason       text,
    hint         text
);
COMMENT ON TYPE outbox.lane_operated IS 'The answer to an operator who acts on a lane: done, refused or not_found.';

-- +goose StatementBegin
CREATE FUNCTION outbox.unsigned(actor text, reason text, OUT code text, OUT why text, OUT hint text)
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    CASE
        WHEN coalesce(btrim(unsigned.actor), '') = '' THEN
            code := 'actor_missing'; why := 'nobody is named as the one who acts'; hint := 'Say who acts.';
        WHEN length(unsigned.actor) > 255 THEN
            code := 'actor_too_long'; why := 'the actor has more than 255 characters'; hint := 'Name a person or a job.';
        WHEN coalesce(btrim(unsigned.reason), '') = '' THEN
            code := 'reason_missing'; why := 'no reason is given'; hint := 'Say why, for whoever reads the history.';
        WHEN length(unsigned.reason) > 1000 THEN
            code := 'reason_too_long'; why := 'the reason has more than 1,000 characters'; hint := 'Keep it short; what is long is evidence.';
        ELSE
            NULL;
    END CASE;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.unsigned IS 'What is wrong with actor and reason; all null when nothing is.';

-- +goose StatementBegin
CREATE FUNCTION outbox.hold(reference text, reason text, actor text, wait boolean DEFAULT true) RETURNS outbox.held
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    h outbox.held;
    row_of outbox.outbox;
BEGIN
    h.reference := hold.reference;
    SELECT 'refused', u.code, u.why, u.hint INTO h.answer, h.code, h.reason, h.hint FROM outbox.unsigned(hold.actor, hold.reason) u WHERE u.code IS NOT NULL;
    IF FOUND THEN
        RETURN h;
    END IF;
    SELECT i.id, i.catalog_id, i.not_before, c.operation, c.spec INTO h.id, h.catalog_id, h.not_before, h.operation, h.spec
    FROM outbox.intents i JOIN outbox.catalog c ON c.id = i.catalog_id WHERE i.reference = hold.reference;
    IF NOT FOUND THEN
        h.answer := 'not_found'; h.code := 'not_found'; h.reason := 'no intent has that reference'; h.hint := 'Give the whole reference.';
        RETURN h;
    END IF;

    -- What a person decided must not be forgotten, whatever the session says.
    IF current_setting('synchronous_commit') IN ('off', 'local') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF wait THEN
        IF NOT outbox.at_home() THEN
            h.answer := 'refused'; h.code := 'ledger_moved'; h.reason := 'after a failover, or in a copy, what the ledger says may be out of date';
            h.hint := 'Run a worker first: it recognises where the ledger is, and makes unknown what may have been sent.';
            RETURN h;
        END IF;
        SELECT * INTO row_of FROM outbox.outbox o WHERE o.intent_id = h.id FOR UPDATE;
    ELSE
        -- Whoever holds several rows must not wait for one, or two could wait for each other.
        SELECT * INTO row_of FROM outbox.outbox o WHERE o.intent_id = h.id FOR UPDATE SKIP LOCKED;
        IF NOT FOUND AND EXISTS (SELECT FROM outbox.outbox o WHERE o.intent_id = h.id) THEN
            h.answer := 'busy'; h.code := 'busy'; h.reason := 'a worker or another operator holds it just now'; h.hint := 'Ask again.';
            RETURN h;
        END IF;
    END IF;
    h.o := row_of;
    SELECT e.state INTO h.settled FROM outbox.outcomes e WHERE e.intent_id = h.id;
    IF h.settled IS NULL AND (h.o).intent_id IS NULL THEN
        h.answer := 'refused'; h.code := 'forgotten'; h.reason := 'retention has taken all but its key'; h.hint := 'Nothing can be done about it any more.';
    END IF;
    RETURN h;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.hold IS 'Locks what is open about an intent, so that what an action decides is still true when it is written. With wait it refuses in a ledger that has moved (see outbox.at_home); without, whoever calls it has asked.';

-- +goose StatementBegin
CREATE FUNCTION outbox.operated(h outbox.held, did text, state outbox.state, hint text DEFAULT NULL) RETURNS outbox.operated
LANGUAGE plpgsql STABLE AS $$
DECLARE
    a outbox.operated;
    until timestamptz;
BEGIN
    a.answer := 'done'; a.reference := h.reference; a.operation := h.operation; a.did := operated.did; a.hint := operated.hint;
    a.was := coalesce(h.settled, (h.o).state); a.state := operated.state; a.attempt := (h.o).attempt; a.claimed_by := (h.o).review_owner;
    IF a.state IN ('accepted', 'failed_retryable', 'outcome_unknown') THEN
        SELECT l.paused_until INTO until FROM outbox.lanes l WHERE l.id = (h.o).lane AND l.paused_until > clock_timestamp();
        IF FOUND THEN
            a.hint := concat_ws(' ', a.hint, 'Its lane is paused: nothing happens before the lane is resumed.');
        END IF;
    END IF;
    RETURN a;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.operated(outbox.held, text, outbox.state, text) IS 'The answer that says what was done.';

-- +goose StatementBegin
CREATE FUNCTION outbox.not_operated(h outbox.held, code text, reason text, hint text) RETURNS outbox.operated
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    a outbox.operated;
BEGIN
    a.answer := coalesce(h.answer, 'refused'); a.reference := h.reference; a.operation := h.operation;
    a.was := coalesce(h.settled, (h.o).state); a.state := a.was; a.attempt := (h.o).attempt; a.claimed_by := (h.o).review_owner;
    a.code := coalesce(h.code, not_operated.code); a.reason := coalesce(h.reason, not_operated.reason); a.hint := coalesce(h.hint, not_operated.hint);
    RETURN a;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.not_operated IS 'The answer that refuses: what outbox.hold found, or else the code given.';

-- +goose StatementBegin
CREATE FUNCTION outbox.wake(lane int) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- NOTIFY takes a global lock at commit, so only while somebody sleeps.
    PERFORM pg_notify('outbox_due', l.id::text) FROM outbox.lanes l WHERE l.id = wake.lane AND l.asleep;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.wake IS 'Tells the releaser of a lane that something is due.';

-- +goose StatementBegin
CREATE FUNCTION outbox.remember(h outbox.held, from_state outbox.state, to_state outbox.state, event outbox.event, actor text, reason text, evidence jsonb DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO outbox.history (intent_id, attempt, from_state, to_state, event, actor, reason, evidence)
    VALUES (h.id, coalesce((h.o).attempt, 0), remember.from_state, remember.to_state, remember.event, remember.actor, remember.reason, remember.evidence);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.remember IS 'The history entry of an operator''s action.';

-- +goose StatementBegin
CREATE FUNCTION outbox.replay_verdict(o outbox.outbox, settled outbox.state, not_before timestamptz,
                                      OUT did text, OUT code text, OUT reason text, OUT hint text)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    opened outbox.event;
BEGIN
    CASE
        WHEN settled IS NOT NULL AND o.review_since IS NOT NULL THEN
            SELECT h.event INTO opened FROM outbox.history h
            WHERE h.intent_id = o.intent_id AND h.event IN ('follow_on_rejected', 'review_opened') ORDER BY h.at DESC LIMIT 1;
            IF settled = 'succeeded' AND opened = 'follow_on_rejected' THEN
                did := 'follow_ons_again';
            ELSE
                code := 'in_review'; reason := format('it is %s, and a review is open beside that', settled);
                hint := 'Look into the contradiction, and close the review with evidence.';
            END IF;
        WHEN settled = 'succeeded' AND o.phase = 'following' THEN
            code := 'already_happened'; reason := 'it succeeded, and its follow-ons are about to be created'; hint := 'Nothing is to be done.';
        WHEN settled = 'succeeded' THEN
            code := 'already_happened'; reason := 'it succeeded'; hint := 'Undo it by an intent that compensates it.';
        WHEN settled = 'exhausted' THEN
            code := 'superseded'; reason := 'another intent has taken its place'; hint := 'See what supersedes it.';
        WHEN settled IS NOT NULL THEN
            code := 'settled'; reason := format('it is %s for good', settled); hint := 'An intent that supersedes it opens the key again.';
        WHEN o.state IS NULL THEN
            code := 'forgotten'; reason := 'retention has taken all but its key'; hint := 'Nothing can be done about it any more.';
        WHEN o.state = 'needs_review' THEN
            code := 'in_review'; reason := 'it may have happened, and a person has to decide'; hint := 'Resolve it, with evidence.';
        WHEN o.state = 'executing' THEN
            code := 'in_flight'; reason := 'a worker is sending it'; hint := 'Wait for its answer, or for the end of its lease.';
        WHEN o.state = 'awaiting_approval' THEN
            code := 'awaiting_approval'; reason := 'nobody has approved it'; hint := 'Approve or reject it.';
        WHEN o.state = 'outcome_unknown' THEN
            did := 'asked_now';
        WHEN o.deadline <= clock_timestamp() THEN
            code := 'deadline_passed'; reason := 'it must not be sent after its deadline'; hint := 'An intent that supersedes it can have another deadline.';
        WHEN o.state = 'exhausted' THEN
            did := 'attempts_anew';
        WHEN not_before > clock_timestamp() THEN
            code := 'not_before'; reason := 'it must not be sent before its time'; hint := 'Cancel it, and supersede it by one without that time.';
        ELSE
            did := 'due_now';
    END CASE;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.replay_verdict IS 'What a replay would do (attempts_anew, due_now, asked_now, follow_ons_again), or why it is refused. Decides alike for a dry run and for outbox.replay.';

-- +goose StatementBegin
CREATE FUNCTION outbox.replay_held(h outbox.held, reason text, actor text) RETURNS outbox.operated
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v record;
BEGIN
    IF h.answer IS NOT NULL THEN
        RETURN outbox.not_operated(h, NULL, NULL, NULL);
    END IF;
    SELECT * INTO v FROM outbox.replay_verdict(h.o, h.settled, h.not_before);
    CASE v.did
        WHEN 'attempts_anew' THEN
            -- sends counts against the operation's attempts and begins anew; attempt goes on, and
            -- the pins stay.
            UPDATE outbox.outbox o SET state = 'failed_retryable', phase = 'due', next_at = clock_timestamp(), sends = 0 WHERE o.intent_id = h.id;
            PERFORM outbox.remember(h, 'exhausted', 'failed_retryable', 'replayed', replay_held.actor, replay_held.reason);
            PERFORM outbox.wake((h.o).lane);
            RETURN outbox.operated(h, v.did, 'failed_retryable');
        WHEN 'due_now' THEN
            UPDATE outbox.outbox o SET next_at = least(o.next_at, clock_timestamp()) WHERE o.intent_id = h.id AND o.phase = 'due';
            PERFORM outbox.remember(h, (h.o).state, (h.o).state, 'noted', replay_held.actor, 'due now: ' || replay_held.reason);
            PERFORM outbox.wake((h.o).lane);
            RETURN outbox.operated(h, v.did, (h.o).state);
        WHEN 'asked_now' THEN
            RETURN outbox.ask_held(h, replay_held.reason, replay_held.actor);
        WHEN 'follow_ons_again' THEN
            UPDATE outbox.outbox o
            SET phase = 'following', next_at = clock_timestamp(), review_since = NULL, review_owner = NULL, review_reason = NULL
            WHERE o.intent_id = h.id;
            PERFORM outbox.remember(h, h.settled, h.settled, 'noted', replay_held.actor, 'follow-ons again: ' || replay_held.reason);
            RETURN outbox.operated(h, v.did, h.settled);
        ELSE
            RETURN outbox.not_operated(h, v.code, v.reason, v.hint);
    END CASE;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.replay_held IS 'outbox.replay for an intent that is held.';

-- +goose StatementBegin
CREATE FUNCTION outbox.ask_held(h outbox.held, reason text, actor text) RETURNS outbox.operated
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- How it is asked, and whether anything may be sent for that, stays the worker's decision.
    UPDATE outbox.outbox o SET next_at = clock_timestamp() WHERE o.intent_id = h.id AND o.phase = 'asking';
    PERFORM outbox.remember(h, 'outcome_unknown', 'outcome_unknown', 'noted', ask_held.actor, 'ask now: ' || ask_held.reason);
    RETURN outbox.operated(h, 'asked_now', 'outcome_unknown', 'Nothing is sent blindly: a worker finds out what became of it, as the provider allows.');
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.ask_held IS 'Makes a held unknown outcome due for asking.';

CREATE FUNCTION outbox.replay(reference text, reason text, actor text) RETURNS outbox.operated
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.* FROM outbox.replay_held(outbox.hold($1, $2, $3), $2, $3) r
$$;
COMMENT ON FUNCTION outbox.replay IS 'Exhausted: tries anew, with all its attempts. Waiting for its time: due now, though no earlier than not_before and a lane''s pause allow. Unknown: never sent blindly, but asked about now. Succeeded with follow-ons in review: creates them again. Everything else is refused.';

-- +goose StatementBegin
CREATE FUNCTION outbox.replay_many(refs text[], reason text, actor text) RETURNS SETOF outbox.operated
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    one text;
    moved boolean := NOT outbox.at_home(); -- then hold refuses before it could wait
BEGIN
    FOR one IN SELECT DISTINCT r FROM unnest(refs) r WHERE r IS NOT NULL LOOP
        RETURN NEXT outbox.replay_held(outbox.hold(one, replay_many.reason, replay_many.actor, moved), replay_many.reason, replay_many.actor);
    END LOOP;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.replay_many IS 'outbox.replay for each reference, once, in no particular order. It waits for nobody: what somebody else holds is answered busy. Keep batches small (some hundreds): they hold what they replay until commit.';

-- +goose StatementBegin
CREATE FUNCTION outbox.reconcile(reference text, reason text, actor text) RETURNS outbox.operated
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    h outbox.held := outbox.hold(reconcile.reference, reconcile.reason, reconcile.actor);
BEGIN
    IF h.answer IS NOT NULL THEN
        RETURN outbox.not_operated(h, NULL, NULL, NULL);
    END IF;
    CASE coalesce(h.settled, (h.o).state)
        WHEN 'outcome_unknown' THEN
            RETURN outbox.ask_held(h, reconcile.reason, reconcile.actor);
        WHEN 'needs_review' THEN
            RETURN outbox.not_operated(h, 'in_review', 'asking has ended without a proof', 'Look at the provider yourself, and resolve it with what you found.');
        WHEN 'executing' THEN
            RETURN outbox.not_operated(h, 'in_flight', 'a worker is sending it', 'Wait for its answer, or for the end of its lease.');
        ELSE
            RETURN outbox.not_operated(h, 'not_unknown', format('it is %s: nothing is unknown about it', coalesce(h.settled, (h.o).state)), 'Show it to see how that is known.');
    END CASE;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.reconcile IS 'Has a worker ask the provider about an unknown outcome now, instead of when its turn comes.';

-- +goose StatementBegin
CREATE FUNCTION outbox.cancel(reference text, reason text, actor text) RETURNS outbox.operated
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    h outbox.held := outbox.hold(cancel.reference, cancel.reason, cancel.actor);
    at_state outbox.state := (h.o).state;
BEGIN
    IF h.answer IS NOT NULL THEN
        RETURN outbox.not_operated(h, NULL, NULL, NULL);
    END IF;
    CASE
        WHEN h.settled = 'succeeded' THEN
            RETURN outbox.not_operated(h, 'already_happened', 'it succeeded', 'Undo it by an intent that compensates it.');
        WHEN h.settled IS NOT NULL THEN
            RETURN outbox.not_operated(h, 'settled', format('it is %s already', h.settled), 'Nothing is to be done.');
        WHEN at_state = 'executing' THEN
            RETURN outbox.not_operated(h, 'in_flight', 'a worker is sending it', 'Wait for its answer; if it succeeds, undo it by an intent that compensates it.');
        WHEN at_state = 'outcome_unknown' THEN
            RETURN outbox.not_operated(h, 'unknown', 'it may have happened', 'Reconcile it, and cancel it if it turns out not to have.');
        WHEN at_state = 'needs_review' THEN
            RETURN outbox.not_operated(h, 'in_review', 'it may have happened, and a person has to decide', 'Resolve it, with evidence.');
        ELSE
            NULL;
    END CASE;
    DELETE FROM outbox.outbox o WHERE o.intent_id = h.id;
    INSERT INTO outbox.outcomes (intent_id, attempt, state, account, code, reason)
    VALUES (h.id, (h.o).attempt, 'cancelled', (h.o).account, 'cancelled', cancel.reason);
    IF at_state = 'exhausted' THEN
        -- The machine knows one way out for an operator; it is taken, and left again before
        -- anybody can send.
        PERFORM outbox.remember(h, 'exhausted', 'failed_retryable', 'replayed', cancel.actor, 'in order to cancel it');
        at_state := 'failed_retryable';
    ELSIF at_state = 'awaiting_approval' THEN
        INSERT INTO outbox.approvals (intent_id, approved, digest, actor, reason)
        SELECT i.id, false, i.digest, cancel.actor, cancel.reason FROM outbox.intents i WHERE i.id = h.id
        ON CONFLICT ON CONSTRAINT approvals_pkey DO NOTHING;
    END IF;
    PERFORM outbox.remember(h, at_state, 'cancelled', CASE at_state WHEN 'awaiting_approval' THEN 'rejected' ELSE 'cancelled' END::outbox.event, cancel.actor, cancel.reason);
    RETURN outbox.operated(h, 'cancelled', 'cancelled');
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.cancel IS 'Ends what is proven not to have been executed: accepted (also when it is with a worker that has not claimed it), failed_retryable, exhausted, and awaiting_approval, where it is a rejection.';

-- +goose StatementBegin
CREATE FUNCTION outbox.unproven(evidence jsonb, OUT code text, OUT why text, OUT hint text)
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF evidence IS NULL OR evidence IN ('null', '{}', '[]') OR (jsonb_typeof(evidence) = 'string' AND btrim(evidence #>> '{}') = '') THEN
        code := 'evidence_missing'; why := 'no evidence is given';
        hint := 'Say what you saw at the provider, and where: an id, a line of its journal, a ticket.';
    ELSIF octet_length(evidence::text) > 65536 THEN
        code := 'evidence_too_large'; why := 'the evidence has more than 64 KiB'; hint := 'Keep the document elsewhere, and give its address and its hash.';
    END IF;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.unproven IS 'What is wrong with evidence; all null when nothing is.';

-- +goose StatementBegin
CREATE FUNCTION outbox.resolve(reference text, outcome text, evidence jsonb, reason text, actor text,
                               provider_id text DEFAULT NULL, result json DEFAULT NULL, attempt int DEFAULT NULL) RETURNS outbox.operated
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    h outbox.held := outbox.hold(resolve.reference, resolve.reason, resolve.actor);
    bad record;
    follows boolean;
    opened outbox.event;
    note text;
BEGIN
    IF h.answer IS NOT NULL THEN
        RETURN outbox.not_operated(h, NULL, NULL, NULL);
    END IF;
    SELECT * INTO bad FROM outbox.unproven(resolve.evidence);
    CASE
        WHEN resolve.outcome IS NULL OR resolve.outcome NOT IN ('succeeded', 'failed', 'not_executed') THEN
            RETURN outbox.not_operated(h, 'outcome_invalid', 'that is no outcome', 'One of succeeded, failed, not_executed.');
        WHEN bad.code IS NOT NULL THEN
            RETURN outbox.not_operated(h, bad.code, bad.why, bad.hint);
        WHEN resolve.outcome <> 'succeeded' AND (resolve.provider_id IS NOT NULL OR resolve.result IS NOT NULL) THEN
            RETURN outbox.not_operated(h, 'result_without_success', 'a provider''s id and a result belong to a success', 'Put what you found into the evidence.');
        WHEN length(resolve.provider_id) > 1000 OR octet_length(resolve.result::text) > 65536 THEN
            RETURN outbox.not_operated(h, 'result_too_large', 'the id has more than 1,000 characters, or the result more than 64 KiB', 'Give what callers need; the rest is evidence.');
        WHEN h.settled IS NOT NULL AND (h.o).review_since IS NOT NULL THEN
            RETURN outbox.not_operated(h, 'settled', format('it is %s for good; the review is about what stands beside that', h.settled),
                'Replay it if its follow-ons are to be created again, or close the review with evidence.');
        WHEN h.settled IS NOT NULL THEN
            RETURN outbox.not_operated(h, 'settled', format('it is %s already', h.settled), 'Show it to see who settled it, and why.');
        WHEN (h.o).state = 'outcome_unknown' THEN
            RETURN outbox.not_operated(h, 'not_in_review', 'a worker is still finding out what became of it', 'Reconcile it; it goes to review if nothing can be proven.');
        WHEN (h.o).state <> 'needs_review' THEN
            RETURN outbox.not_operated(h, 'not_in_review', format('it is %s: there is nothing to decide', (h.o).state), 'Show it to see what happens next.');
        WHEN resolve.attempt <> (h.o).attempt THEN
            RETURN outbox.not_operated(h, 'moved_on', format('it is at attempt %s, not %s: this is another review than the one you looked at', (h.o).attempt, resolve.attempt),
                'Show it, and decide anew.');
        ELSE
            NULL;
    END CASE;

    IF resolve.outcome = 'not_executed' THEN
        SELECT e.event INTO opened FROM outbox.history e WHERE e.intent_id = h.id AND e.to_state = 'needs_review' AND e.from_state <> 'needs_review' ORDER BY e.at DESC LIMIT 1;
        note := concat_ws(' ',
            CASE WHEN (h.o).deadline <= clock_timestamp() THEN 'Its deadline has passed, so that it is not sent but ends as failed_final.' END,
            CASE WHEN opened = 'pins_differ' THEN 'It comes back to review unless account, preset and request are again those of its first attempt.' END,
            CASE WHEN (h.o).holder IS NOT NULL THEN format('The worker process %s never reported: make sure that it is gone.', (h.o).holder) END);
        UPDATE outbox.outbox o
        SET state = 'failed_retryable', phase = 'due', next_at = clock_timestamp(), holder = NULL,
            unknown_attempt = NULL, unknown_since = NULL, review_since = NULL, review_owner = NULL, review_reason = NULL
        WHERE o.intent_id = h.id;
        PERFORM outbox.remember(h, 'needs_review', 'failed_retryable', 'resolved_not_executed', resolve.actor, resolve.reason, resolve.evidence);
        PERFORM outbox.wake((h.o).lane);
        RETURN outbox.operated(h, 'resolved', 'failed_retryable', nullif(note, ''));
    END IF;

    INSERT INTO outbox.outcomes (intent_id, attempt, state, provider_id, account, code, reason, result)
    VALUES (h.id, coalesce((h.o).unknown_attempt, (h.o).attempt), CASE resolve.outcome WHEN 'succeeded' THEN 'succeeded' ELSE 'failed_final' END::outbox.state,
        resolve.provider_id, (h.o).account, CASE resolve.outcome WHEN 'failed' THEN 'resolved_failed' END,
        CASE resolve.outcome WHEN 'failed' THEN resolve.reason END, resolve.result);
    IF resolve.outcome = 'failed' THEN
        DELETE FROM outbox.outbox o WHERE o.intent_id = h.id;
        PERFORM outbox.remember(h, 'needs_review', 'failed_final', 'resolved_failed', resolve.actor, resolve.reason, resolve.evidence);
        RETURN outbox.operated(h, 'resolved', 'failed_final');
    END IF;
    follows := jsonb_typeof(h.spec -> 'follow_ons') = 'array' AND jsonb_array_length(h.spec -> 'follow_ons') > 0;
    IF follows THEN
        UPDATE outbox.outbox o
        SET state = 'succeeded', phase = 'following', next_at = clock_timestamp(), holder = NULL,
            unknown_attempt = NULL, unknown_since = NULL, review_since = NULL, review_owner = NULL, review_reason = NULL
        WHERE o.intent_id = h.id;
    ELSE
        DELETE FROM outbox.outbox o WHERE o.intent_id = h.id;
    END IF;
    PERFORM outbox.remember(h, 'needs_review', 'succeeded', 'resolved_succeeded', resolve.actor, resolve.reason, resolve.evidence);
    RETURN outbox.operated(h, 'resolved', 'succeeded', CASE WHEN follows THEN 'A worker creates its follow-ons.' END);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.resolve IS 'Decides what is in needs_review: succeeded, failed (for good), not_executed (sent again). evidence is what was seen at the provider, and is kept in the history. By whom it was claimed is no obstacle, but part of the answer. attempt, if given, is the one that was looked at: another means that this is a later review.';

-- +goose StatementBegin
CREATE FUNCTION outbox.review_claim(reference text, reason text, actor text) RETURNS outbox.operated
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    h outbox.held := outbox.hold(review_claim.reference, review_claim.reason, review_claim.actor);
    at_state outbox.state := coalesce(h.settled, (h.o).state);
BEGIN
    IF h.answer IS NOT NULL THEN
        RETURN outbox.not_operated(h, NULL, NULL, NULL);
    ELSIF (h.o).review_since IS NULL THEN
        RETURN outbox.not_operated(h, 'not_in_review', format('it is %s, and no review is open', at_state), 'List the reviews that are.');
    ELSIF (h.o).review_owner <> review_claim.actor THEN
        RETURN outbox.not_operated(h, 'claimed', format('%s has it', (h.o).review_owner), 'Ask them, or release it first.');
    END IF;
    UPDATE outbox.outbox o SET review_owner = review_claim.actor WHERE o.intent_id = h.id;
    PERFORM outbox.remember(h, at_state, at_state, 'review_claimed', review_claim.actor, review_claim.reason);
    h.o.review_owner := review_claim.actor;
    RETURN outbox.operated(h, 'claimed', at_state);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.review_claim IS 'Says who looks into a review, so that two do not. Somebody else''s claim is not taken over; it has to be released first.';

-- +goose StatementBegin
CREATE FUNCTION outbox.review_release(reference text, reason text, actor text) RETURNS outbox.operated
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    h outbox.held := outbox.hold(review_release.reference, review_release.reason, review_release.actor);
    at_state outbox.state := coalesce(h.settled, (h.o).state);
BEGIN
    IF h.answer IS NOT NULL THEN
        RETURN outbox.not_operated(h, NULL, NULL, NULL);
    ELSIF (h.o).review_since IS NULL THEN
        RETURN outbox.not_operated(h, 'not_in_review', format('it is %s, and no review is open', at_state), 'List the reviews that are.');
    ELSIF (h.o).review_owner IS NULL THEN
        RETURN outbox.not_operated(h, 'not_claimed', 'nobody has it', 'Claim it.');
    END IF;
    UPDATE outbox.outbox o SET review_owner = NULL WHERE o.intent_id = h.id;
    PERFORM outbox.remember(h, at_state, at_state, 'review_released', review_release.actor,
        CASE WHEN (h.o).review_owner <> review_release.actor THEN (h.o).review_owner || '''s claim: ' ELSE '' END || review_release.reason);
    RETURN outbox.operated(h, 'released', at_state);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.review_release IS 'Gives a review back: one''s own, or that of somebody who is not there; the answer and the history say whose claim it was.';

-- +goose StatementBegin
CREATE FUNCTION outbox.review_close(reference text, evidence jsonb, reason text, actor text) RETURNS outbox.operated
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    h outbox.held := outbox.hold(review_close.reference, review_close.reason, review_close.actor);
    bad record;
BEGIN
    IF h.answer IS NOT NULL THEN
        RETURN outbox.not_operated(h, NULL, NULL, NULL);
    END IF;
    SELECT * INTO bad FROM outbox.unproven(review_close.evidence);
    IF bad.code IS NOT NULL THEN
        RETURN outbox.not_operated(h, bad.code, bad.why, bad.hint);
    ELSIF (h.o).review_since IS NULL THEN
        RETURN outbox.not_operated(h, 'not_in_review', format('it is %s, and no review is open', coalesce(h.settled, (h.o).state)), 'List the reviews that are.');
    ELSIF h.settled IS NULL THEN
        RETURN outbox.not_operated(h, 'undecided', 'its outcome is not known, and somebody has to decide it', 'Resolve it, with evidence.');
    END IF;
    DELETE FROM outbox.outbox o WHERE o.intent_id = h.id;
    PERFORM outbox.remember(h, h.settled, h.settled, 'noted', review_close.actor, 'review closed: ' || review_close.reason, review_close.evidence);
    RETURN outbox.operated(h, 'closed', h.settled);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.review_close IS 'Ends a review beside a settled intent (follow-ons that could not be created and are not wanted any more, a contradiction that was dealt with): the outcome stays as it is.';

-- +goose StatementBegin
CREATE FUNCTION outbox.hold_lane(name text, reason text, actor text, OUT a outbox.lane_operated, OUT id int)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    u record;
    until timestamptz;
BEGIN
    a.lane := hold_lane.name;
    SELECT * INTO u FROM outbox.unsigned(hold_lane.actor, hold_lane.reason);
    IF u.code IS NOT NULL THEN
        a.answer := 'refused'; a.code := u.code; a.reason := u.why; a.hint := u.hint;
        RETURN;
    END IF;
    SELECT l.id, l.paused_until INTO id, until FROM outbox.lanes l WHERE l.name = hold_lane.name FOR UPDATE;
    IF NOT FOUND THEN
        a.answer := 'not_found'; a.code := 'not_found'; a.reason := 'no lane has that name'; a.hint := 'See the lanes of the catalog.';
        RETURN;
    END IF;
    a.was_until := CASE WHEN until > clock_timestamp() THEN until END;
    a.paused_until := a.was_until;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.hold_lane IS 'Locks a lane; with an answer in a, that is the answer.';

-- +goose StatementBegin
CREATE FUNCTION outbox.pause_lane(name text, reason text, actor text, until timestamptz DEFAULT NULL) RETURNS outbox.lane_operated
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    h record;
    a outbox.lane_operated;
    wanted timestamptz := coalesce(pause_lane.until, 'infinity');
BEGIN
    SELECT * INTO h FROM outbox.hold_lane(pause_lane.name, pause_lane.reason, pause_lane.actor);
    a := h.a;
    CASE
        WHEN a.answer IS NOT NULL THEN
            NULL;
        WHEN wanted <= clock_timestamp() THEN
            a.answer := 'refused'; a.code := 'until_passed'; a.reason := 'that time has passed'; a.hint := 'Give a later time, or none for a pause until the lane is resumed.';
        WHEN a.was_until > wanted THEN
            a.answer := 'refused'; a.code := 'paused_longer'; a.reason := 'it is paused for longer than that already'; a.hint := 'Resume it first if it is to be shorter.';
        ELSE
            UPDATE outbox.lanes l SET paused_until = wanted, pause_reason = pause_lane.reason, paused_by = pause_lane.actor WHERE l.id = h.id;
            INSERT INTO outbox.lane_history (lane, action, until, actor, reason) VALUES (h.id, 'paused', wanted, pause_lane.actor, pause_lane.reason);
            a.answer := 'done'; a.paused_until := wanted;
            a.hint := 'What workers have claimed is finished; nothing else is sent or asked.';
    END CASE;
    RETURN a;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.pause_lane IS 'Stops a lane for everybody, until a time or until it is resumed. It lengthens a pause and never shortens one.';

-- +goose StatementBegin
CREATE FUNCTION outbox.resume_lane(name text, reason text, actor text) RETURNS outbox.lane_operated
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    h record;
    a outbox.lane_operated;
BEGIN
    SELECT * INTO h FROM outbox.hold_lane(resume_lane.name, resume_lane.reason, resume_lane.actor);
    a := h.a;
    IF a.answer IS NOT NULL THEN
        RETURN a;
    ELSIF a.was_until IS NULL THEN
        a.answer := 'refused'; a.code := 'not_paused'; a.reason := 'it is not paused'; a.hint := 'Nothing is to be done.';
        RETURN a;
    END IF;
    UPDATE outbox.lanes l SET paused_until = NULL, pause_reason = NULL, paused_by = NULL WHERE l.id = h.id;
    INSERT INTO outbox.lane_history (lane, action, actor, reason) VALUES (h.id, 'resumed', resume_lane.actor, resume_lane.reason);
    PERFORM outbox.wake(h.id);
    a.answer := 'done'; a.paused_until := NULL;
    RETURN a;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.resume_lane IS 'Ends a lane''s pause, whoever paused it.';

-- +goose StatementBegin
CREATE FUNCTION outbox.money_of(payload json, spec jsonb, OUT amount numeric, OUT currency text)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    pointer text;
    found text;
    fields text[];
BEGIN
    FOREACH pointer IN ARRAY ARRAY[spec #>> '{money,amount}', nullif(spec #>> '{money,currency}', '')] LOOP
        CONTINUE WHEN pointer IS NULL OR payload IS NULL;
        SELECT array_agg(replace(replace(p, '~1', '/'), '~0', '~') ORDER BY n) INTO fields
        FROM unnest(string_to_array(substr(pointer, 2), '/')) WITH ORDINALITY AS t(p, n);
        found := payload #>> coalesce(fields, '{}');
        IF pointer = spec #>> '{money,amount}' AND found ~ '^-?[0-9]{1,40}(\.[0-9]{1,40})?$' THEN
            amount := found::numeric;
        ELSIF pointer = spec #>> '{money,currency}' AND length(found) <= 32 THEN
            currency := found;
        END IF;
    END LOOP;
    IF amount IS NULL THEN
        currency := NULL;
    END IF;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.money_of IS 'The amount that a payload is about, as the catalog''s money pointers find it; null when they find no number.';

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA outbox FROM PUBLIC;
GRANT SELECT ON outbox.lane_history TO outbox_operator, outbox_worker;
GRANT EXECUTE ON FUNCTION outbox.replay, outbox.replay_many, outbox.replay_verdict, outbox.reconcile, outbox.cancel, outbox.resolve,
    outbox.review_claim, outbox.review_release, outbox.review_close, outbox.pause_lane, outbox.resume_lane, outbox.money_of TO outbox_operator;

-- +goose Down
DROP FUNCTION outbox.money_of, outbox.resume_lane, outbox.pause_lane, outbox.hold_lane, outbox.review_close, outbox.review_release,
    outbox.review_claim, outbox.resolve, outbox.unproven, outbox.cancel, outbox.reconcile, outbox.replay_many, outbox.replay, outbox.ask_held,
    outbox.replay_held, outbox.replay_verdict, outbox.remember, outbox.wake, outbox.not_operated, outbox.operated(outbox.held, text, outbox.state, text),
    outbox.hold, outbox.unsigned;
DROP TYPE outbox.lane_operated, outbox.held, outbox.operated;
DROP TABLE outbox.lane_history;
