-- +goose Up
-- Retention: what is settled is forgotten in two steps, details (payload, result, history)
-- first and the tombstone (key, digest, outcome) much later. Who trims has the role
-- outbox_retention, which may do nothing else.
--
-- What is due is found by the time of its outcome, without an index that every settlement
-- would pay for: outcomes are written in the order of their time, so a BRIN index knows
-- which pages to read, and each operation remembers how far it has got.
CREATE INDEX outcomes_settled_idx ON outbox.outcomes USING brin (settled_at) WITH (pages_per_range = 16, autosummarize = on);

-- What stays of the payload when it goes: see outbox.money_of.
ALTER TABLE outbox.outcomes ADD COLUMN amount numeric, ADD COLUMN currency text;
COMMENT ON COLUMN outbox.outcomes.amount IS 'What the payload was about, written when retention takes the payload.';

CREATE TYPE outbox.forgets AS ENUM ('details', 'tombstones');
COMMENT ON TYPE outbox.forgets IS 'What retention takes: payload, result and history; or all the rest.';

CREATE TABLE outbox.retention (
    through   timestamptz      NOT NULL,
    slice     interval         NOT NULL DEFAULT '1 second',
    class     outbox.forgets   NOT NULL,
    operation text COLLATE "C" NOT NULL,
    CONSTRAINT retention_pkey PRIMARY KEY (operation, class)
);
COMMENT ON TABLE outbox.retention IS 'How far retention has got with an operation: what was settled up to through is forgotten, or in retention_kept. slice is how much time it looks at next.';

CREATE TABLE outbox.retention_kept (
    intent_id bigint           NOT NULL,
    class     outbox.forgets   NOT NULL,
    operation text COLLATE "C" NOT NULL,
    CONSTRAINT retention_kept_pkey PRIMARY KEY (operation, class, intent_id)
);
COMMENT ON TABLE outbox.retention_kept IS 'What retention has passed over because something about it was still open, such as a review beside its outcome; it is looked at again.';

-- +goose StatementBegin
CREATE FUNCTION outbox.forget_details(ids bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE outbox.outcomes e SET result = NULL, reason = NULL, amount = m.amount, currency = m.currency
    FROM outbox.intents i JOIN outbox.catalog c ON c.id = i.catalog_id, outbox.money_of(i.payload, c.spec) m
    WHERE e.intent_id = ANY (ids) AND i.id = e.intent_id;
    UPDATE outbox.intents i SET payload = NULL, subject = NULL, task = NULL, trace = NULL WHERE i.id = ANY (ids);
    DELETE FROM outbox.history h WHERE h.intent_id = ANY (ids);
    DELETE FROM outbox.repeats r WHERE r.intent_id = ANY (ids);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.forget_details IS 'Leaves the tombstone: key, digest, outcome, reference, principal and amount.';

-- +goose StatementBegin
CREATE FUNCTION outbox.forget_tombstones(ids bigint[]) RETURNS SETOF bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    one record;
    generations bigint[];
BEGIN
    FOR one IN
        SELECT i.id, i.generation, outbox.scope_of(c.ledger_part, i.tenant, c.name_part, i.key) AS scope
        FROM outbox.intents i JOIN outbox.catalog c ON c.id = i.catalog_id WHERE i.id = ANY (ids)
    LOOP
        generations := ARRAY[one.id];
        -- A key with several generations is forgotten as a whole, with its latest: enqueue
        -- looks at the first one first, and would take the key for a new one.
        PERFORM 1 FROM outbox.heads h WHERE h.scope = sha256(one.scope);
        IF FOUND THEN
            PERFORM 1 FROM outbox.heads h WHERE h.scope = sha256(one.scope) AND h.generation = one.generation FOR UPDATE SKIP LOCKED;
            IF NOT FOUND THEN
                CONTINUE WHEN EXISTS (SELECT FROM outbox.heads h WHERE h.scope = sha256(one.scope) AND h.generation > one.generation);
                RETURN NEXT one.id; -- its head is in use: a new generation may begin
                CONTINUE;
            END IF;
            SELECT array_agg(i.id) INTO generations FROM generate_series(1, one.generation) g
            JOIN outbox.intents i ON i.reference = outbox.reference(one.scope, g);
            IF EXISTS (SELECT FROM outbox.outbox o WHERE o.intent_id = ANY (generations)) THEN
                RETURN NEXT one.id;
                CONTINUE;
            END IF;
            DELETE FROM outbox.heads h WHERE h.scope = sha256(one.scope);
        END IF;
        DELETE FROM outbox.history h WHERE h.intent_id = ANY (generations);
        DELETE FROM outbox.repeats r WHERE r.intent_id = ANY (generations);
        DELETE FROM outbox.approvals a WHERE a.intent_id = ANY (generations);
        DELETE FROM outbox.outcomes e WHERE e.intent_id = ANY (generations);
        DELETE FROM outbox.intents i WHERE i.id = ANY (generations);
    END LOOP;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.forget_tombstones IS 'Forgets intents for good; returns those that have to stay for now. Earlier generations of a key stay until its latest goes.';

-- +goose StatementBegin
CREATE FUNCTION outbox.trim(operation text, class outbox.forgets, keep interval, at_most int, OUT trimmed int, OUT more boolean)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    r outbox.retention;
    due record;
    ids bigint[];
    stay bigint[];
    until timestamptz;
    -- What is being written just now has its time already, and is not there yet.
    cutoff timestamptz := clock_timestamp() - greatest(keep, interval '1 minute');
BEGIN
    trimmed := 0; more := false;
    INSERT INTO outbox.retention (operation, class, through)
    SELECT trim.operation, trim.class, min(c.applied_at) FROM outbox.catalog c WHERE c.operation = trim.operation HAVING count(*) > 0
    ON CONFLICT ON CONSTRAINT retention_pkey DO NOTHING;
    SELECT * INTO r FROM outbox.retention t WHERE t.operation = trim.operation AND t.class = trim.class FOR UPDATE SKIP LOCKED;
    IF NOT FOUND OR at_most < 1 THEN
        RETURN; -- another replica is at it
    END IF;

    -- A slice of time, of which no more than at_most, the oldest first.
    until := least(cutoff, r.through + r.slice);
    IF until > r.through THEN
        SELECT array_agg(d.intent_id), count(*) AS n, max(d.settled_at) AS last INTO due FROM (
            SELECT e.intent_id, e.settled_at FROM outbox.outcomes e JOIN outbox.intents i ON i.id = e.intent_id
            WHERE e.settled_at > r.through AND e.settled_at <= until
                AND i.catalog_id IN (SELECT c.id FROM outbox.catalog c WHERE c.operation = trim.operation)
            ORDER BY e.settled_at FETCH FIRST at_most ROWS WITH TIES
        ) d;
        ids := coalesce(due.array_agg, '{}');
        IF due.n >= at_most THEN
            until := due.last;
            r.slice := greatest(1.5 * (until - r.through), interval '1 millisecond'); -- as much again, and a little more
        ELSIF due.n <= at_most / 4 THEN
            r.slice := least(r.slice * 2, interval '30 days');
        END IF;
        more := until < cutoff;
    END IF;
    -- And what had to be kept the last time.
    WITH again AS (
        DELETE FROM outbox.retention_kept k USING (
            SELECT x.intent_id FROM outbox.retention_kept x
            WHERE x.operation = trim.operation AND x.class = trim.class AND NOT EXISTS (SELECT FROM outbox.outbox o WHERE o.intent_id = x.intent_id)
            LIMIT at_most
        ) x WHERE k.operation = trim.operation AND k.class = trim.class AND k.intent_id = x.intent_id RETURNING k.intent_id
    )
    SELECT ids || coalesce(array_agg(intent_id), '{}') INTO ids FROM again;

    SELECT coalesce(array_agg(o.intent_id), '{}') INTO stay FROM outbox.outbox o WHERE o.intent_id = ANY (ids);
    ids := ARRAY(SELECT unnest(ids) EXCEPT SELECT unnest(stay));
    IF trim.class = 'details' THEN
        PERFORM outbox.forget_details(ids);
    ELSE
        stay := stay || ARRAY(SELECT outbox.forget_tombstones(ids));
    END IF;
    INSERT INTO outbox.retention_kept (operation, class, intent_id) SELECT trim.operation, trim.class, s FROM unnest(stay) s ON CONFLICT DO NOTHING;
    UPDATE outbox.retention t SET through = greatest(t.through, until), slice = r.slice WHERE t.operation = trim.operation AND t.class = trim.class;
    trimmed := cardinality(ids);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.trim IS 'Forgets at most so many intents of an operation that were settled longer than keep ago; more says whether to call it again. It waits for nobody, and holds up nobody for longer than its own transaction.';

REVOKE ALL ON FUNCTION outbox.forget_details, outbox.forget_tombstones, outbox.trim FROM PUBLIC;
GRANT EXECUTE ON FUNCTION outbox.forget_details, outbox.forget_tombstones, outbox.trim, outbox.money_of, outbox.scope_of, outbox.reference, outbox.base32hex TO outbox_retention;
GRANT SELECT ON outbox.catalog, outbox.outbox TO outbox_retention;
GRANT SELECT, INSERT, UPDATE, DELETE ON outbox.retention, outbox.retention_kept TO outbox_retention;
GRANT UPDATE (started_at) ON outbox.heads TO outbox_retention; -- so that it may lock one
GRANT SELECT ON outbox.retention, outbox.retention_kept TO outbox_worker, outbox_operator;

-- +goose Down
REVOKE ALL ON outbox.catalog, outbox.outbox FROM outbox_retention;
REVOKE UPDATE (started_at) ON outbox.heads FROM outbox_retention;
DROP FUNCTION outbox.trim, outbox.forget_tombstones, outbox.forget_details;
DROP TABLE outbox.retention_kept, outbox.retention;
DROP TYPE outbox.forgets;
ALTER TABLE outbox.outcomes DROP COLUMN amount, DROP COLUMN currency;
DROP INDEX outbox.outcomes_settled_idx;
