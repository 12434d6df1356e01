-- +goose Up
-- Applying a catalog, and who may do what.

-- +goose StatementBegin
CREATE FUNCTION outbox.apply_lane(name text, provider text, concurrency int, rate double precision, burst int) RETURNS int
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO outbox.lanes AS l (name, provider, concurrency, rate, burst) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT ON CONSTRAINT lanes_name_key DO UPDATE
    SET provider = excluded.provider, concurrency = excluded.concurrency, rate = excluded.rate, burst = excluded.burst
    RETURNING l.id
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.apply_lane IS 'Creates a lane or changes its limits; its pause and breaker stay as they are.';

-- +goose StatementBegin
CREATE FUNCTION outbox.apply_operation(
    name text, version int, lane text, key_rule text, key_fields text[], key_subject boolean, key_version boolean,
    window_length interval, max_payload int, defaults text, approval boolean, retired boolean, digest bytea, spec jsonb, actor text
) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    latest outbox.catalog;
    lane_id int;
    op text := apply_operation.name || '.v' || apply_operation.version;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('outbox.catalog ' || op, 0));
    SELECT * INTO latest FROM outbox.catalog c WHERE c.operation = op ORDER BY c.revision DESC LIMIT 1;
    IF latest.digest = apply_operation.digest THEN
        RETURN 0;
    END IF;
    SELECT l.id INTO STRICT lane_id FROM outbox.lanes l WHERE l.name = apply_operation.lane;
    INSERT INTO outbox.catalog (window_length, version, revision, lane, max_payload, key_rule, key_subject, key_version, approval,
        retired, operation, name, key_fields, defaults, digest, applied_by, spec)
    VALUES (apply_operation.window_length, apply_operation.version, coalesce(latest.revision, 0) + 1, lane_id, apply_operation.max_payload,
        apply_operation.key_rule::outbox.key_rule, apply_operation.key_subject, apply_operation.key_version, apply_operation.approval,
        apply_operation.retired, op, apply_operation.name, apply_operation.key_fields, apply_operation.defaults,
        apply_operation.digest, apply_operation.actor, apply_operation.spec);
    RETURN coalesce(latest.revision, 0) + 1;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.apply_operation IS 'Adds a revision of an operation and returns its number; 0 when the newest is the same already.';

-- Roles belong to the whole cluster, so they may exist, or be created by somebody else just now.
-- +goose StatementBegin
DO $$
DECLARE
    r text;
BEGIN
    FOREACH r IN ARRAY ARRAY['outbox_app', 'outbox_worker', 'outbox_operator', 'outbox_retention'] LOOP
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = r) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', r);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;
        END;
    END LOOP;
END $$;
-- +goose StatementEnd

REVOKE ALL ON SCHEMA outbox FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA outbox FROM PUBLIC;
GRANT USAGE ON SCHEMA outbox TO outbox_app, outbox_worker, outbox_operator, outbox_retention;

-- Applications: the door and the question, nothing else.
GRANT EXECUTE ON FUNCTION outbox.enqueue, outbox.enqueue_many, outbox.status TO outbox_app, outbox_worker, outbox_operator;

-- Workers: move open work, write outcomes and history; change no fact.
GRANT SELECT ON ALL TABLES IN SCHEMA outbox TO outbox_worker, outbox_operator;
GRANT INSERT, UPDATE, DELETE ON outbox.outbox TO outbox_worker;
GRANT INSERT ON outbox.outcomes, outbox.history TO outbox_worker;
GRANT UPDATE ON outbox.lanes TO outbox_worker;
GRANT EXECUTE ON FUNCTION outbox.enqueue_follow_on TO outbox_worker;
GRANT EXECUTE ON FUNCTION outbox.legal, outbox.fits TO outbox_worker; -- a CHECK runs as whoever writes
-- +goose StatementBegin
DO $$
DECLARE
    t record;
BEGIN
    FOR t IN SELECT c.relname, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE n.nspname = 'outbox' AND c.relname LIKE 'river\_%' AND c.relkind IN ('r', 'S') LOOP
        EXECUTE format('GRANT ALL ON %s outbox.%I TO outbox_worker', CASE t.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, t.relname);
    END LOOP;
    FOR t IN SELECT p.oid::regprocedure AS signature FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
             WHERE n.nspname = 'outbox' AND p.proname LIKE 'river\_%' LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO outbox_worker', t.signature);
    END LOOP;
END $$;
-- +goose StatementEnd

-- Operators: read, and act through functions.
GRANT EXECUTE ON FUNCTION outbox.apply_lane, outbox.apply_operation TO outbox_operator;

-- Retention: trims, and may do nothing else. What happened it can forget, not retell.
GRANT SELECT, UPDATE, DELETE ON outbox.intents, outbox.outcomes TO outbox_retention;
GRANT SELECT, DELETE ON outbox.history, outbox.repeats, outbox.approvals, outbox.heads TO outbox_retention;

-- +goose Down
-- The roles stay: another database of the cluster may use them.
DROP FUNCTION outbox.apply_operation, outbox.apply_lane;
-- +goose StatementBegin
DO $$
DECLARE
    r text;
BEGIN
    FOREACH r IN ARRAY ARRAY['outbox_app', 'outbox_worker', 'outbox_operator', 'outbox_retention'] LOOP
        EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA outbox FROM %I', r);
        EXECUTE format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA outbox FROM %I', r);
        EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA outbox FROM %I', r);
        EXECUTE format('REVOKE ALL ON SCHEMA outbox FROM %I', r);
    END LOOP;
END $$;
-- +goose StatementEnd
