-- +goose Up
-- The ledger: what was intended, what is still open, how it ended, how it got there.
-- The schema itself is created by the migrator, before River's tables and these.

COMMENT ON SCHEMA outbox IS 'Outbox Worker: intents, their outcomes and the work still open. DROP SCHEMA outbox CASCADE removes everything.';

CREATE TYPE outbox.state AS ENUM (
    'awaiting_approval', 'accepted', 'executing', 'failed_retryable', 'outcome_unknown',
    'needs_review', 'exhausted', 'succeeded', 'failed_final', 'cancelled'
);
COMMENT ON TYPE outbox.state IS 'Where an intent is. Terminal: succeeded, failed_final, cancelled. The transitions are listed in docs/state-machine.md.';

CREATE TYPE outbox.event AS ENUM (
    'approved', 'rejected', 'approval_expired', 'claimed', 'cancelled', 'deadline_passed', 'input_rejected',
    'pins_differ', 'provider_accepted', 'provider_refused', 'not_sent', 'no_answer', 'lease_expired',
    'attempts_used', 'found', 'found_refused', 'proven_absent', 'not_proven', 'contradicted',
    'resolved_succeeded', 'resolved_failed', 'resolved_not_executed', 'replayed', 'superseded', 'ledger_moved',
    'late_answer', 'probed', 'resent', 'review_opened', 'review_claimed', 'review_released',
    'follow_ons_created', 'follow_on_rejected', 'noted'
);
COMMENT ON TYPE outbox.event IS 'Why a state changed. From late_answer on: recorded without a change of state.';

CREATE TYPE outbox.phase AS ENUM ('due', 'released', 'leased', 'asking', 'probing', 'following', 'parked');
COMMENT ON TYPE outbox.phase IS 'What next_at of an outbox row means: may be released, release lease, execution lease, next probe, probe lease, follow-ons to create, or nothing by itself.';

CREATE TYPE outbox.key_rule AS ENUM ('business', 'operation_id', 'arguments');
COMMENT ON TYPE outbox.key_rule IS 'How the key of an intent is decided: docs/keys.md.';

-- Domains where a CHECK of the table would do: a session keeps a domain's rule ready to
-- run, while it parses and plans a table's anew for every statement, at 8 µs each.
CREATE DOMAIN outbox.sha256 AS bytea CONSTRAINT sha256_form CHECK (octet_length(VALUE) = 32);
COMMENT ON DOMAIN outbox.sha256 IS 'A SHA-256.';
CREATE DOMAIN outbox.reference_text AS text COLLATE "C" CONSTRAINT reference_form CHECK (length(VALUE) = 32);
COMMENT ON DOMAIN outbox.reference_text IS 'A reference: what the provider is given as our key.';
CREATE DOMAIN outbox.generation AS int CONSTRAINT generation_positive CHECK (VALUE > 0);
COMMENT ON DOMAIN outbox.generation IS 'How often a key was used, the first time included.';

CREATE FUNCTION outbox.part(text) RETURNS bytea LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN int4send(octet_length($1)) || convert_to($1, 'UTF8');
COMMENT ON FUNCTION outbox.part IS 'A part of what is hashed to a reference: the text in UTF-8, after its length in four bytes.';

CREATE TABLE outbox.ledger (
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    system_identifier bigint,
    timeline          int,
    database          text,
    only_row          boolean     NOT NULL DEFAULT true,
    id                uuid        NOT NULL DEFAULT gen_random_uuid(),
    CONSTRAINT ledger_pkey PRIMARY KEY (only_row),
    CONSTRAINT ledger_one_row CHECK (only_row)
);
COMMENT ON TABLE outbox.ledger IS 'One row: this ledger''s random id, which goes into every reference so that a second ledger on the same provider account cannot collide, and the server and database it last ran on.';
INSERT INTO outbox.ledger DEFAULT VALUES;

CREATE FUNCTION outbox.ledger_part() RETURNS bytea LANGUAGE sql STABLE
BEGIN ATOMIC SELECT outbox.part(l.id::text) FROM outbox.ledger l; END;
COMMENT ON FUNCTION outbox.ledger_part IS 'The ledger''s own part of every reference.';

CREATE TABLE outbox.lanes (
    tokens         double precision NOT NULL DEFAULT 0,
    rate           double precision,
    tokens_at      timestamptz      NOT NULL DEFAULT clock_timestamp(),
    paused_until   timestamptz,
    opened_at      timestamptz,
    id             int              GENERATED ALWAYS AS IDENTITY,
    concurrency    int              NOT NULL DEFAULT 20,
    burst          int              NOT NULL DEFAULT 1,
    failures       int              NOT NULL DEFAULT 0,
    asleep         boolean          NOT NULL DEFAULT false,
    name           text             NOT NULL,
    provider       text             NOT NULL,
    pause_reason   text,
    paused_by      text,
    cursor_tenant  text COLLATE "C" NOT NULL DEFAULT '',
    CONSTRAINT lanes_pkey PRIMARY KEY (id),
    CONSTRAINT lanes_name_key UNIQUE (name),
    CONSTRAINT lanes_name_form CHECK (name ~ '^[a-z][a-z0-9_-]{0,62}$'),
    CONSTRAINT lanes_concurrency_positive CHECK (concurrency > 0),
    CONSTRAINT lanes_rate_positive CHECK (rate > 0),
    CONSTRAINT lanes_burst_positive CHECK (burst > 0)
);
COMMENT ON TABLE outbox.lanes IS 'The path to one provider account: its concurrency (calls at once, over all replicas), rate (calls per second, a token bucket shared by all replicas; null is unlimited), breaker and pause. asleep: its releaser waits for a notification.';

CREATE TABLE outbox.catalog (
    applied_at   timestamptz      NOT NULL DEFAULT clock_timestamp(),
    window_length interval,
    id           int              GENERATED ALWAYS AS IDENTITY,
    version      int              NOT NULL,
    revision     int              NOT NULL,
    lane         int              NOT NULL,
    max_payload  int              NOT NULL DEFAULT 65536,
    key_rule     outbox.key_rule  NOT NULL,
    key_subject  boolean          NOT NULL DEFAULT false,
    key_version  boolean          NOT NULL DEFAULT false,
    approval     boolean          NOT NULL DEFAULT false,
    retired      boolean          NOT NULL DEFAULT false,
    operation    text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    key_fields   text[],
    defaults     text,
    ledger_part  bytea            NOT NULL DEFAULT outbox.ledger_part(),
    name_part    bytea            NOT NULL GENERATED ALWAYS AS (outbox.part(CASE WHEN key_version THEN operation ELSE name END)) STORED,
    digest       bytea            NOT NULL,
    applied_by   text             NOT NULL DEFAULT session_user,
    spec         jsonb            NOT NULL,
    CONSTRAINT catalog_pkey PRIMARY KEY (id),
    CONSTRAINT catalog_operation_revision_key UNIQUE (operation, revision),
    CONSTRAINT catalog_lane_fkey FOREIGN KEY (lane) REFERENCES outbox.lanes (id),
    CONSTRAINT catalog_name_form CHECK (name ~ '^[a-z][a-z0-9_]{0,62}$'),
    CONSTRAINT catalog_operation_form CHECK (operation = name || '.v' || version),
    CONSTRAINT catalog_version_positive CHECK (version > 0),
    CONSTRAINT catalog_revision_positive CHECK (revision > 0),
    CONSTRAINT catalog_business_has_fields CHECK ((key_rule = 'business') = (key_fields IS NOT NULL)),
    CONSTRAINT catalog_arguments_has_window CHECK ((key_rule = 'arguments') = (window_length IS NOT NULL))
);
COMMENT ON TABLE outbox.catalog IS 'Operations and their rules: immutable revisions, of which the highest of an operation is in force. The columns beside spec are what enqueue needs, taken from spec when it is applied; ledger_part and name_part go into references.';

CREATE TABLE outbox.intents (
    id             bigint           GENERATED ALWAYS AS IDENTITY,
    created_at     timestamptz      NOT NULL DEFAULT clock_timestamp(),
    parent_id      bigint,
    supersedes_id  bigint,
    compensates_id bigint,
    not_before     timestamptz,
    deadline       timestamptz,
    catalog_id     int              NOT NULL,
    generation     outbox.generation NOT NULL,
    priority       smallint         NOT NULL,
    digest_version smallint         NOT NULL,
    tenant         text COLLATE "C" NOT NULL,
    reference      outbox.reference_text NOT NULL,
    digest         outbox.sha256    NOT NULL,
    key            text COLLATE "C" NOT NULL,
    subject        text,
    task           text,
    trace          text,
    principal      text[],
    payload        json,
    CONSTRAINT intents_pkey PRIMARY KEY (id),
    CONSTRAINT intents_reference_key UNIQUE (reference)
);
COMMENT ON TABLE outbox.intents IS 'One effect that somebody wants to happen once; immutable once committed, until retention takes the payload and leaves the tombstone. One row per tenant, operation name, key and generation: their hash, with the ledger''s id, is the reference.';
COMMENT ON COLUMN outbox.intents.key IS 'Canonical JSON: ["…"] of the named fields (business), "…" (operation id), {"arguments":…} (arguments within a window), {"follow_on":…,"parent":…} (follow-on).';
CREATE INDEX intents_parent_idx ON outbox.intents (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX intents_compensates_idx ON outbox.intents (compensates_id) WHERE compensates_id IS NOT NULL;

-- The scale factor counts where much is scheduled: with a million waiting, vacuum comes after
-- 20,000 dead versions instead of 200,000, and costs no more (500 a transaction beside 500,000
-- scheduled: 82.3 against 82.1 transactions/s). Measured and left out: no cost delay (a third
-- smaller, and a quarter slower on two cores), fillfactor (no update of this table is HOT),
-- fillfactor for lanes (every update is, either way), and all of them for river_job.
CREATE TABLE outbox.outbox (
    intent_id       bigint           NOT NULL,
    next_at         timestamptz,
    deadline        timestamptz,
    first_sent_at   timestamptz,
    unknown_since   timestamptz,
    resent_at       timestamptz,
    claimed_at      timestamptz,
    review_since    timestamptz,
    lane            int              NOT NULL,
    catalog_id      int              NOT NULL,
    attempt         int              NOT NULL DEFAULT 0,
    sends           int              NOT NULL DEFAULT 0,
    probes          int              NOT NULL DEFAULT 0,
    unknown_attempt int,
    state           outbox.state     NOT NULL,
    phase           outbox.phase     NOT NULL,
    rank            smallint         NOT NULL DEFAULT 0,
    tenant          text COLLATE "C" NOT NULL,
    holder          uuid,
    claimed_by      text,
    account         text,
    preset          text,
    request_hash    bytea,
    review_owner    text,
    review_reason   text,
    CONSTRAINT outbox_pkey PRIMARY KEY (intent_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON TABLE outbox.outbox IS 'Everything still open about an intent; committed with it, gone when it is settled. attempt numbers every send and probe and fences every later write; account, preset and request_hash are pinned by the first claim. claimed_at and claimed_by go into the history when the attempt ends. holder of an unknown outcome is null once every worker that sent has reported; resent_at is when it was last sent again to learn it.';

-- One CHECK by a function in plpgsql, which plans it once: a CHECK in SQL is planned anew
-- by every statement, and the five that this one stands for took 50 µs of each.
-- +goose StatementBegin
CREATE FUNCTION outbox.fits(o outbox.outbox) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    broken text;
BEGIN
    -- An intent on its way to its first attempt gets by on little: what is set up is most of
    -- the cost.
    IF o.state = 'accepted' AND o.phase IN ('due', 'released') AND o.next_at IS NOT NULL AND o.unknown_attempt IS NULL
       AND o.attempt = 0 AND o.sends = 0 AND o.probes = 0 THEN
        RETURN true;
    END IF;
    broken := CASE
        WHEN NOT CASE o.phase
            WHEN 'due' THEN o.state IN ('accepted', 'failed_retryable')
            WHEN 'released' THEN o.state IN ('accepted', 'failed_retryable')
            WHEN 'leased' THEN o.state = 'executing'
            WHEN 'asking' THEN o.state = 'outcome_unknown'
            WHEN 'probing' THEN o.state = 'outcome_unknown'
            WHEN 'following' THEN o.state = 'succeeded'
            WHEN 'parked' THEN o.state NOT IN ('executing', 'outcome_unknown')
            END THEN 'outbox_phase_of_state'
        WHEN o.next_at IS NULL AND o.phase NOT IN ('asking', 'parked') THEN 'outbox_time_of_phase'
        WHEN NOT CASE o.state
            WHEN 'outcome_unknown' THEN o.unknown_attempt IS NOT NULL
            WHEN 'needs_review' THEN true
            ELSE o.unknown_attempt IS NULL END THEN 'outbox_unknown_is_sticky'
        WHEN o.sends > 0 AND (o.account IS NULL OR o.preset IS NULL OR o.request_hash IS NULL) THEN 'outbox_pinned_once_sent'
        WHEN o.attempt < o.sends OR o.sends < 0 OR o.probes < 0 THEN 'outbox_attempt_counts'
        WHEN (o.state = 'accepted' AND o.attempt > 0) OR (o.state = 'failed_retryable' AND o.attempt = 0) THEN 'outbox_attempt_of_state'
        WHEN o.state = 'executing' AND (o.claimed_at IS NULL OR o.claimed_by IS NULL) THEN 'outbox_claim_is_known'
        END;
    IF broken IS NULL THEN
        RETURN true;
    END IF;
    RAISE check_violation USING SCHEMA = 'outbox', TABLE = 'outbox', CONSTRAINT = broken,
        MESSAGE = format('new row for relation "outbox" violates %s', broken), DETAIL = format('Failing row contains %s.', o);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.fits IS 'Whether what an outbox row says goes together; raises, with the name of the rule, where it does not.';
ALTER TABLE outbox.outbox ADD CONSTRAINT outbox_fits CHECK (outbox.fits(outbox));
-- Two indexes, of which a row is in one. What waits: column order serves the releaser,
-- tenant by tenant (fairness), the urgent first, the oldest first; what is scheduled for
-- later lies behind what is due. And what moves: leases of each kind are a range of it by
-- the time they run out, and it stays small however much waits. A statement has to repeat
-- its condition to get it: from phase = 'leased' alone the planner may not conclude it, or
-- with statistics of a quiet moment it would look up each of 500 ids by reading all of it.
CREATE INDEX outbox_due_idx ON outbox.outbox (lane, tenant, rank, next_at) WHERE phase = 'due';
CREATE INDEX outbox_open_idx ON outbox.outbox (lane, phase, next_at) WHERE (phase = 'due') IS FALSE;
CREATE INDEX outbox_deadline_idx ON outbox.outbox (deadline) WHERE deadline IS NOT NULL AND state IN ('accepted', 'failed_retryable');
CREATE INDEX outbox_review_idx ON outbox.outbox (review_since) WHERE review_since IS NOT NULL;

CREATE TABLE outbox.outcomes (
    intent_id   bigint       NOT NULL,
    settled_at  timestamptz  NOT NULL DEFAULT clock_timestamp(),
    attempt     int          NOT NULL,
    state       outbox.state NOT NULL,
    provider_id text,
    account     text,
    code        text,
    reason      text,
    result      json,
    CONSTRAINT outcomes_pkey PRIMARY KEY (intent_id),
    CONSTRAINT outcomes_state_is_final CHECK (state IN ('succeeded', 'failed_final', 'cancelled', 'exhausted'))
);
COMMENT ON TABLE outbox.outcomes IS 'How an intent ended, written once. exhausted stands here only when the intent has been superseded.';

-- The machine of package outbox, as the database enforces it; a test compares the two.
-- In plpgsql for the same reason as outbox.fits: in SQL, planning it took 160 µs of each statement.
-- +goose StatementBegin
CREATE FUNCTION outbox.legal(from_state outbox.state, event outbox.event, to_state outbox.state, claimed_at timestamptz) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    -- Whoever ends an attempt says when it was claimed, and nobody else.
    IF (claimed_at IS NOT NULL) <> (from_state = 'executing' AND to_state <> 'executing') THEN
        RETURN false;
    END IF;
    RETURN CASE event
        WHEN 'approved' THEN from_state = 'awaiting_approval' AND to_state = 'accepted'
        WHEN 'rejected' THEN from_state = 'awaiting_approval' AND to_state = 'cancelled'
        WHEN 'approval_expired' THEN from_state = 'awaiting_approval' AND to_state = 'cancelled'
        WHEN 'claimed' THEN from_state IN ('accepted', 'failed_retryable') AND to_state = 'executing'
        WHEN 'cancelled' THEN from_state IN ('accepted', 'failed_retryable') AND to_state = 'cancelled'
        WHEN 'deadline_passed' THEN from_state IN ('accepted', 'failed_retryable') AND to_state = 'failed_final'
        WHEN 'input_rejected' THEN from_state IN ('accepted', 'failed_retryable') AND to_state = 'failed_final'
        WHEN 'pins_differ' THEN from_state = 'failed_retryable' AND to_state = 'needs_review'
        WHEN 'provider_accepted' THEN from_state IN ('executing', 'outcome_unknown', 'needs_review') AND to_state = 'succeeded'
        WHEN 'provider_refused' THEN from_state IN ('executing', 'outcome_unknown') AND to_state = 'failed_final'
        WHEN 'not_sent' THEN from_state IN ('executing', 'outcome_unknown') AND to_state = 'failed_retryable'
        WHEN 'no_answer' THEN from_state = 'executing' AND to_state = 'outcome_unknown'
        WHEN 'lease_expired' THEN from_state = 'executing' AND to_state = 'outcome_unknown'
        WHEN 'attempts_used' THEN from_state = 'failed_retryable' AND to_state = 'exhausted'
        WHEN 'found' THEN from_state = 'outcome_unknown' AND to_state = 'succeeded'
        WHEN 'found_refused' THEN from_state = 'outcome_unknown' AND to_state = 'failed_final'
        WHEN 'proven_absent' THEN from_state = 'outcome_unknown' AND to_state = 'failed_retryable'
        WHEN 'not_proven' THEN from_state = 'outcome_unknown' AND to_state = 'needs_review'
        WHEN 'contradicted' THEN from_state IN ('outcome_unknown', 'failed_retryable', 'exhausted') AND to_state = 'needs_review'
        WHEN 'resolved_succeeded' THEN from_state = 'needs_review' AND to_state = 'succeeded'
        WHEN 'resolved_failed' THEN from_state = 'needs_review' AND to_state = 'failed_final'
        WHEN 'resolved_not_executed' THEN from_state = 'needs_review' AND to_state = 'failed_retryable'
        WHEN 'replayed' THEN from_state = 'exhausted' AND to_state = 'failed_retryable'
        WHEN 'superseded' THEN from_state = 'exhausted' AND to_state = 'exhausted'
        WHEN 'ledger_moved' THEN from_state IN ('accepted', 'failed_retryable') AND to_state = 'outcome_unknown'
        ELSE from_state = to_state
    END;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.legal IS 'Whether an event may lead from one state to the other (docs/state-machine.md), and the claim is known of every attempt that ends.';

CREATE TABLE outbox.history (
    intent_id  bigint       NOT NULL,
    at         timestamptz  NOT NULL DEFAULT clock_timestamp(),
    attempt    int          NOT NULL,
    from_state outbox.state NOT NULL,
    to_state   outbox.state NOT NULL,
    event      outbox.event NOT NULL,
    claimed_at timestamptz,
    actor      text         NOT NULL,
    claimed_by text,
    reason     text,
    evidence   jsonb,
    CONSTRAINT history_transition_legal CHECK (outbox.legal(from_state, event, to_state, claimed_at))
);
COMMENT ON TABLE outbox.history IS 'How it got there: append-only. An attempt is one entry, written when it ends, with when and by whom (null: by actor) it was claimed; until then its outbox row says so. The intent''s own row is its first entry (committed as accepted or awaiting_approval). The view outbox.timeline has an entry for each change of state.';
CREATE INDEX history_intent_idx ON outbox.history (intent_id);

CREATE TABLE outbox.repeats (
    intent_id bigint      NOT NULL,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    answer    text        NOT NULL,
    principal text[],
    CONSTRAINT repeats_answer_known CHECK (answer IN ('in_flight', 'settled', 'conflict', 'expired'))
);
COMMENT ON TABLE outbox.repeats IS 'Who asked again, when, and what was answered: append-only.';
CREATE INDEX repeats_intent_idx ON outbox.repeats (intent_id);

CREATE TABLE outbox.heads (
    started_at timestamptz NOT NULL,
    generation outbox.generation NOT NULL,
    scope      outbox.sha256 NOT NULL,
    CONSTRAINT heads_pkey PRIMARY KEY (scope)
);
COMMENT ON TABLE outbox.heads IS 'The current generation of a key that can have several: every key by arguments within a window, and any key that was superseded. Locked by upsert while a generation is decided. scope is the reference''s hash without the generation.';

CREATE TABLE outbox.approvals (
    intent_id bigint      NOT NULL,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    approved  boolean     NOT NULL,
    digest    bytea       NOT NULL,
    actor     text        NOT NULL,
    reason    text        NOT NULL,
    CONSTRAINT approvals_pkey PRIMARY KEY (intent_id, actor)
);
COMMENT ON TABLE outbox.approvals IS 'Who approved or rejected an intent, bound to its digest; one voice per person.';

-- Facts are not rewritten: only outbox_retention, which owns the retention functions,
-- may trim them. The owner of the table is refused like everybody else.
-- +goose StatementBegin
CREATE FUNCTION outbox.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_user = 'outbox_retention' THEN
        RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
    END IF;
    RAISE EXCEPTION 'outbox.% is append-only: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'insufficient_privilege',
              HINT = 'Facts are trimmed by retention only; record a correction as a new entry.';
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.refuse_change IS 'Trigger: refuses to change a fact, for everybody but outbox_retention.';

-- +goose StatementBegin
DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['catalog', 'intents', 'outcomes', 'history', 'repeats', 'approvals'] LOOP
        EXECUTE format('CREATE TRIGGER %I BEFORE UPDATE OR DELETE ON outbox.%I FOR EACH ROW EXECUTE FUNCTION outbox.refuse_change()', t || '_no_change', t);
        EXECUTE format('CREATE TRIGGER %I BEFORE TRUNCATE ON outbox.%I FOR EACH STATEMENT EXECUTE FUNCTION outbox.refuse_change()', t || '_no_truncate', t);
    END LOOP;
END $$;
-- +goose StatementEnd

CREATE VIEW outbox.timeline AS
SELECT i.id AS intent_id, i.created_at AS at, 0 AS attempt, NULL::outbox.state AS from_state,
       CASE WHEN c.approval THEN 'awaiting_approval' ELSE 'accepted' END::outbox.state AS to_state,
       'committed' AS event, coalesce(i.principal[1], i.tenant) AS actor, NULL::text AS reason, NULL::jsonb AS evidence
FROM outbox.intents i JOIN outbox.catalog c ON c.id = i.catalog_id
UNION ALL
-- Only the first attempt can have been claimed from accepted: see outbox_attempt_of_state.
SELECT intent_id, claimed_at, attempt, CASE attempt WHEN 1 THEN 'accepted' ELSE 'failed_retryable' END::outbox.state,
       'executing', 'claimed', coalesce(claimed_by, actor), NULL, NULL
FROM outbox.history WHERE claimed_at IS NOT NULL
UNION ALL
SELECT intent_id, claimed_at, attempt, CASE attempt WHEN 1 THEN 'accepted' ELSE 'failed_retryable' END::outbox.state,
       'executing', 'claimed', claimed_by, NULL, NULL
FROM outbox.outbox WHERE phase = 'leased'
UNION ALL
SELECT intent_id, at, attempt, from_state, to_state, event::text, actor, reason, evidence FROM outbox.history;
COMMENT ON VIEW outbox.timeline IS 'Every change of state of every intent, its commit and its claims included.';

-- +goose Down
DROP VIEW outbox.timeline;
ALTER TABLE outbox.outbox DROP CONSTRAINT outbox_fits;
DROP FUNCTION outbox.fits;
DROP TABLE outbox.approvals, outbox.heads, outbox.repeats, outbox.history, outbox.outcomes, outbox.outbox, outbox.intents, outbox.catalog, outbox.lanes;
DROP FUNCTION outbox.ledger_part;
DROP TABLE outbox.ledger;
DROP FUNCTION outbox.refuse_change(), outbox.legal, outbox.part;
DROP DOMAIN outbox.generation, outbox.reference_text, outbox.sha256;
DROP TYPE outbox.key_rule, outbox.phase, outbox.event, outbox.state;
