-- +goose Up
-- The ledger must not go back in time. It remembers the server and the database it ran
-- on: after a failover or a restore (another timeline) what may have been sent is found
-- out before anything is sent again, and a clone sends nothing until told that it is the
-- original.

-- +goose StatementBegin
CREATE FUNCTION outbox.here(OUT system_identifier bigint, OUT timeline int, OUT database text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    BEGIN
        SELECT s.system_identifier INTO here.system_identifier FROM pg_control_system() s;
    EXCEPTION WHEN insufficient_privilege THEN
        here.system_identifier := 0; -- a service that hides it: timeline and name are left
    END;
    -- Not the control file's: that is the last checkpoint's, which a promotion precedes.
    here.timeline := ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int;
    here.database := current_database();
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.here IS 'Which server, timeline and database this is.';

-- +goose StatementBegin
CREATE FUNCTION outbox.at_home() RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ -- in SQL it would be planned anew each time
BEGIN
    RETURN (SELECT l.timeline IS NULL OR (l.database = current_database()
        AND l.timeline = ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int)
    FROM outbox.ledger l);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.at_home IS 'Whether the ledger is on the timeline it was last recognised on; asked by every release and claim, so that a worker that lives through a failover sends nothing before outbox.recognise has dealt with it.';

-- +goose StatementBegin
CREATE FUNCTION outbox.doubt_sent(actor text, reason text) RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    doubted int;
BEGIN
    -- What was due may have been claimed and sent in a future that this ledger has
    -- forgotten. What was not due cannot have been.
    WITH held AS (
        SELECT o.intent_id, o.state FROM outbox.outbox o
        WHERE o.state IN ('accepted', 'failed_retryable') AND (o.next_at <= clock_timestamp() OR o.phase = 'released' OR o.attempt > 0)
        FOR UPDATE
    ), moved AS (
        UPDATE outbox.outbox o
        SET state = 'outcome_unknown', phase = 'asking', next_at = clock_timestamp(), attempt = o.attempt + 1,
            unknown_attempt = o.attempt + 1, unknown_since = clock_timestamp(), holder = gen_random_uuid()
        FROM held h WHERE o.intent_id = h.intent_id
        RETURNING o.intent_id, o.attempt, h.state
    ), noted AS (
        INSERT INTO outbox.history (intent_id, attempt, from_state, to_state, event, actor, reason)
        SELECT m.intent_id, m.attempt, m.state, 'outcome_unknown', 'ledger_moved', doubt_sent.actor, doubt_sent.reason FROM moved m
    )
    SELECT count(*) INTO doubted FROM moved;
    -- And what succeeded may have had its follow-ons: they begin as unknown, too.
    UPDATE outbox.outbox o SET unknown_since = clock_timestamp() WHERE o.phase = 'following';
    RETURN doubted;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.doubt_sent IS 'Makes unknown what may have been sent and forgotten; its holder is nobody, so that absence alone is no proof.';

-- +goose StatementBegin
CREATE FUNCTION outbox.recognise(actor text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l outbox.ledger;
    h record;
    doubted int;
BEGIN
    SELECT * INTO h FROM outbox.here();
    SELECT * INTO STRICT l FROM outbox.ledger;
    IF (l.system_identifier, l.timeline, l.database) = (h.system_identifier, h.timeline, h.database) THEN
        RETURN 'same';
    END IF;
    SELECT * INTO STRICT l FROM outbox.ledger FOR UPDATE;
    CASE
        WHEN l.system_identifier IS NULL THEN
            UPDATE outbox.ledger SET system_identifier = h.system_identifier, timeline = h.timeline, database = h.database;
            RETURN 'first';
        WHEN l.system_identifier <> h.system_identifier OR l.database <> h.database THEN
            RETURN 'clone';
        WHEN l.timeline = h.timeline THEN
            RETURN 'same';
        ELSE
            doubted := outbox.doubt_sent(recognise.actor, format('the server moved from timeline %s to %s', l.timeline, h.timeline));
            UPDATE outbox.ledger SET timeline = h.timeline;
            RETURN 'moved, ' || doubted;
    END CASE;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.recognise IS 'Whether this is the server and database the ledger last ran on: first, same, moved (to another timeline: what may have been sent is unknown from now on), or clone.';

-- +goose StatementBegin
CREATE FUNCTION outbox.adopt(actor text, reason text) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    h record;
BEGIN
    IF coalesce(adopt.actor, '') = '' OR coalesce(adopt.reason, '') = '' THEN
        RAISE EXCEPTION 'actor and reason are required' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM 1 FROM outbox.ledger FOR UPDATE;
    SELECT * INTO h FROM outbox.here();
    UPDATE outbox.ledger SET system_identifier = h.system_identifier, timeline = h.timeline, database = h.database;
    RETURN outbox.doubt_sent(adopt.actor, 'adopted as the original: ' || adopt.reason);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.adopt IS 'An operator''s word that this ledger is the original and no copy of it sends. What may have been sent is unknown from now on.';

REVOKE ALL ON FUNCTION outbox.here, outbox.at_home, outbox.doubt_sent, outbox.recognise, outbox.adopt FROM PUBLIC;
GRANT EXECUTE ON FUNCTION outbox.here, outbox.at_home, outbox.recognise TO outbox_worker, outbox_operator;
GRANT EXECUTE ON FUNCTION outbox.adopt TO outbox_operator;

-- +goose Down
DROP FUNCTION outbox.adopt, outbox.recognise, outbox.doubt_sent, outbox.at_home, outbox.here;
