-- The shape that docs/adr/0001 compares ours with: a table of executions that is updated
-- in place (HOT), from the claim to the settlement and ever after. The outbox holds only
-- what is due. What is released or in flight stands in leases, a row for each batch, so
-- that neither the lane's limit nor the sweep looks at the executions.

-- name: schema
CREATE SCHEMA b;
CREATE TABLE b.intents (LIKE outbox.intents INCLUDING ALL);
CREATE TABLE b.history (LIKE outbox.history INCLUDING ALL);
CREATE TABLE b.outbox (
    intent_id  bigint           NOT NULL PRIMARY KEY,
    next_at    timestamptz      NOT NULL,
    deadline   timestamptz,
    lane       int              NOT NULL,
    catalog_id int              NOT NULL,
    attempt    int              NOT NULL DEFAULT 0,
    phase      outbox.phase     NOT NULL,
    rank       smallint         NOT NULL DEFAULT 0,
    tenant     text COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX ON b.outbox (lane, phase, tenant, rank, next_at);
CREATE INDEX ON b.outbox (deadline) WHERE deadline IS NOT NULL;
-- Half of each page is kept for the version that the settlement writes.
CREATE TABLE b.executions (
    intent_id       bigint       NOT NULL PRIMARY KEY,
    first_sent_at   timestamptz,
    unknown_since   timestamptz,
    review_since    timestamptz,
    settled_at      timestamptz,
    lease           bigint,
    attempt         int          NOT NULL,
    sends           int          NOT NULL DEFAULT 0,
    probes          int          NOT NULL DEFAULT 0,
    unknown_attempt int,
    state           outbox.state NOT NULL,
    holder          uuid,
    account         text,
    preset          text,
    request_hash    bytea,
    provider_id     text,
    code            text,
    reason          text,
    result          json
) WITH (fillfactor = 50);
CREATE INDEX ON b.executions (review_since) WHERE review_since IS NOT NULL;
CREATE SEQUENCE b.lease_ids;
CREATE TABLE b.leases (
    id    bigint      NOT NULL PRIMARY KEY,
    until timestamptz NOT NULL,
    lane  int         NOT NULL,
    open  int         NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE b.lease_members (
    id       bigint   NOT NULL PRIMARY KEY,
    ids      bigint[] NOT NULL,
    attempts int[]    NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- name: enqueue
WITH i AS (
    INSERT INTO b.intents (catalog_id, generation, priority, digest_version, tenant, reference, digest, key, payload)
    SELECT c.id, 1, 0, 1, $1, q.reference, sha256(q.reference::bytea), q.reference, $3::json
    FROM unnest($2::text[]) q(reference), outbox.catalog c
    RETURNING id, created_at, catalog_id, tenant
)
INSERT INTO b.outbox (intent_id, next_at, lane, catalog_id, phase, tenant)
SELECT i.id, i.created_at, 1, i.catalog_id, 'due', i.tenant FROM i

-- name: release
WITH RECURSIVE lane AS (
    SELECT l.id, l.cursor_tenant, l.rate, l.burst,
        least(l.burst::float8, l.tokens + l.rate * extract(epoch FROM clock_timestamp() - l.tokens_at)::float8) AS tokens,
        l.concurrency - (SELECT coalesce(sum(x.open), 0)::int FROM b.leases x WHERE x.lane = l.id) AS room
    FROM outbox.lanes l WHERE l.id = $1
), free AS (
    SELECT greatest(0, least(room, CASE WHEN rate IS NULL THEN room ELSE floor(tokens)::int END, $4::int)) AS n FROM lane
), walk AS (
    SELECT cursor_tenant AS tenant, 32767::smallint AS rank, false AS wrapped, 0 AS place FROM lane
    UNION ALL
    SELECT step.tenant, step.rank, step.wrapped, w.place + 1
    FROM walk w CROSS JOIN lane CROSS JOIN LATERAL (
        (SELECT o.tenant, o.rank, w.wrapped FROM b.outbox o
         WHERE o.lane = $1 AND o.phase = 'due' AND (o.tenant, o.rank) > (w.tenant, w.rank)
         ORDER BY o.tenant, o.rank LIMIT 1)
        UNION ALL
        (SELECT o.tenant, o.rank, true FROM b.outbox o
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
        SELECT o.intent_id, o.next_at FROM b.outbox o
        WHERE o.lane = $1 AND o.phase = 'due' AND o.tenant = w.tenant AND o.rank = w.rank
            AND o.next_at <= (SELECT clock_timestamp()) AND o.catalog_id = ANY ($2::int[])
            AND (o.deadline IS NULL OR o.deadline > clock_timestamp())
        ORDER BY o.next_at LIMIT (SELECT n FROM share)
    ) p
    WHERE w.place > 0
), chosen AS (
    SELECT intent_id, tenant, turn, place FROM picked ORDER BY turn, place LIMIT (SELECT n FROM free)
), released AS (
    DELETE FROM b.outbox o USING chosen c WHERE o.intent_id = c.intent_id AND o.phase = 'due'
    RETURNING o.intent_id, o.attempt, c.turn, c.place
), numbered AS (
    SELECT *, (row_number() OVER (ORDER BY turn, place) - 1) / 250 AS job FROM released
), leased AS MATERIALIZED (
    SELECT job, nextval('b.lease_ids') AS id, array_agg(intent_id) AS ids, array_agg(attempt) AS attempts FROM numbered GROUP BY job
), lease AS (
    INSERT INTO b.leases (id, until, lane, open)
    SELECT id, clock_timestamp() + make_interval(secs => $3), $1, cardinality(ids) FROM leased
), members AS (
    INSERT INTO b.lease_members SELECT id, ids, attempts FROM leased
), moved AS (
    UPDATE outbox.lanes l
    SET asleep = false, tokens = coalesce(lane.tokens - (SELECT count(*) FROM released), 0), tokens_at = clock_timestamp(),
        cursor_tenant = coalesce((SELECT tenant FROM chosen ORDER BY turn DESC, place DESC LIMIT 1), l.cursor_tenant)
    FROM lane WHERE l.id = lane.id AND EXISTS (SELECT FROM released)
)
SELECT n.intent_id, n.attempt, l.id FROM numbered n JOIN leased l USING (job) ORDER BY n.turn, n.place

-- name: load
SELECT s.id, s.attempt, coalesce(e.state, 'accepted')::text, coalesce(e.sends, 0), i.catalog_id, e.account, e.preset, e.request_hash,
    greatest(extract(epoch FROM l.paused_until - clock_timestamp()), 0)::float8,
    extract(epoch FROM i.deadline - clock_timestamp())::float8,
    i.reference, coalesce(p.reference, ''), i.tenant, coalesce(i.subject, ''), coalesce(i.trace, ''), i.payload::text
FROM unnest($1::bigint[], $2::int[]) s(id, attempt)
JOIN b.intents i ON i.id = s.id
JOIN outbox.catalog c ON c.id = i.catalog_id
JOIN outbox.lanes l ON l.id = c.lane
LEFT JOIN b.executions e ON e.intent_id = s.id
LEFT JOIN b.intents p ON p.id = i.parent_id
WHERE e.intent_id IS NULL OR (e.attempt = s.attempt AND e.state = 'failed_retryable')

-- name: claim
-- The unique key lets one first claim win, the condition one later claim.
WITH s AS (
    SELECT * FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::bytea[], $6::float8[], $9::bigint[])
        AS s(id, attempt, account, preset, hash, lease, released)
), l AS MATERIALIZED (
    SELECT nextval('b.lease_ids') AS id
), claimed AS (
    INSERT INTO b.executions AS e (intent_id, first_sent_at, lease, attempt, sends, state, holder, account, preset, request_hash)
    SELECT s.id, clock_timestamp(), l.id, s.attempt + 1, 1, 'executing', $7, s.account, s.preset, s.hash
    FROM s CROSS JOIN l JOIN b.intents i ON i.id = s.id
    WHERE i.deadline IS NULL OR i.deadline > clock_timestamp()
    ON CONFLICT (intent_id) DO UPDATE
    SET state = 'executing', lease = excluded.lease, attempt = excluded.attempt, sends = e.sends + 1, holder = excluded.holder
    WHERE e.attempt = excluded.attempt - 1 AND e.state = 'failed_retryable'
        AND e.account = excluded.account AND e.preset = excluded.preset AND e.request_hash = excluded.request_hash
    RETURNING intent_id, attempt
), new_lease AS (
    INSERT INTO b.leases (id, until, lane, open)
    SELECT l.id, clock_timestamp() + make_interval(secs => (SELECT max(lease) FROM s)), 1, count(*) FROM claimed, l GROUP BY l.id
), members AS (
    INSERT INTO b.lease_members SELECT l.id, array_agg(intent_id), array_agg(attempt) FROM claimed, l GROUP BY l.id
), freed AS (
    UPDATE b.leases x SET open = x.open - r.n
    FROM (SELECT released, count(*)::int AS n FROM s GROUP BY released) r WHERE x.id = r.released
), noted AS (
    INSERT INTO b.history (intent_id, attempt, from_state, to_state, event, actor)
    SELECT intent_id, attempt, CASE attempt WHEN 1 THEN 'accepted' ELSE 'failed_retryable' END::outbox.state, 'executing', 'claimed', $8 FROM claimed
)
SELECT intent_id, attempt - 1, l.id FROM claimed, l

-- name: settle
WITH s AS (
    SELECT id, attempt, event::outbox.event, to_state::outbox.state, retry_in, provider_id, code, reason, result::json, follow
    FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::float8[], $6::text[], $7::text[], $8::text[], $9::text[], $10::boolean[])
        AS s(id, attempt, event, to_state, retry_in, provider_id, code, reason, result, follow)
), held AS (
    SELECT s.*, e.intent_id, e.state AS from_state, e.lease, clock_timestamp() AS at,
        s.to_state = 'failed_final' OR (s.to_state = 'succeeded' AND NOT s.follow) AS over
    FROM s CROSS JOIN LATERAL (
        SELECT * FROM b.executions e
        WHERE e.intent_id = s.id AND ((e.state = 'executing' AND e.attempt = s.attempt)
            OR (e.state = 'outcome_unknown' AND e.unknown_attempt = s.attempt AND s.to_state <> 'outcome_unknown'))
        FOR UPDATE
    ) e
), kept AS (
    UPDATE b.executions e
    SET state = h.to_state, holder = NULL, lease = NULL,
        settled_at = CASE WHEN h.to_state IN ('succeeded', 'failed_final') THEN h.at END,
        preset = CASE WHEN NOT h.over THEN e.preset END, request_hash = CASE WHEN NOT h.over THEN e.request_hash END,
        first_sent_at = CASE WHEN NOT h.over THEN e.first_sent_at END,
        provider_id = h.provider_id, code = h.code, reason = h.reason, result = h.result,
        unknown_attempt = CASE h.to_state WHEN 'outcome_unknown' THEN h.attempt END,
        unknown_since = CASE h.to_state WHEN 'outcome_unknown' THEN h.at END
    FROM held h WHERE e.intent_id = h.intent_id
), due AS (
    INSERT INTO b.outbox (intent_id, next_at, deadline, lane, catalog_id, attempt, phase, tenant)
    SELECT h.intent_id, h.at + make_interval(secs => coalesce(h.retry_in, 0)), i.deadline, c.lane, i.catalog_id, h.attempt,
        CASE h.to_state WHEN 'succeeded' THEN 'following' WHEN 'outcome_unknown' THEN 'asking' ELSE 'due' END::outbox.phase, i.tenant
    FROM held h JOIN b.intents i ON i.id = h.intent_id JOIN outbox.catalog c ON c.id = i.catalog_id
    WHERE NOT h.over AND h.to_state <> 'exhausted'
    ON CONFLICT (intent_id) DO NOTHING
), locked AS (
    SELECT x.id, h.n FROM b.leases x JOIN (SELECT lease, count(*)::int AS n FROM held GROUP BY lease) h ON h.lease = x.id
    ORDER BY x.id FOR UPDATE OF x
), freed AS (
    UPDATE b.leases x SET open = x.open - k.n FROM locked k WHERE x.id = k.id
), noted AS (
    INSERT INTO b.history (intent_id, at, attempt, from_state, to_state, event, actor, reason)
    SELECT intent_id, at, attempt, from_state, CASE to_state WHEN 'exhausted' THEN 'failed_retryable' ELSE to_state END,
        event, $11, nullif(concat_ws(': ', code, reason), '')
    FROM held
), used_up AS (
    INSERT INTO b.history (intent_id, at, attempt, from_state, to_state, event, actor)
    SELECT intent_id, at + interval '1 microsecond', attempt, 'failed_retryable', 'exhausted', 'attempts_used', $11
    FROM held WHERE to_state = 'exhausted'
), late AS (
    INSERT INTO b.history (intent_id, attempt, from_state, to_state, event, actor, reason, evidence)
    SELECT s.id, s.attempt, e.state, e.state, 'late_answer', $11, nullif(concat_ws(': ', s.code, s.reason), ''),
        jsonb_strip_nulls(jsonb_build_object('event', s.event, 'provider_id', s.provider_id))
    FROM s JOIN b.executions e ON e.intent_id = s.id
    WHERE (s.id, s.attempt) NOT IN (SELECT h.intent_id, h.attempt FROM held h)
)
SELECT (s.id, s.attempt) IN (SELECT h.intent_id, h.attempt FROM held h) FROM s

-- name: expire_leases
WITH held AS (
    SELECT x.id, m.ids, m.attempts FROM b.leases x JOIN b.lease_members m ON m.id = x.id
    WHERE x.until <= clock_timestamp() AND x.open > 0 LIMIT $1 FOR UPDATE OF x SKIP LOCKED
), expired AS (
    UPDATE b.executions e SET state = 'outcome_unknown', lease = NULL, unknown_attempt = e.attempt, unknown_since = clock_timestamp()
    FROM held h, unnest(h.ids, h.attempts) s(id, attempt)
    WHERE e.intent_id = s.id AND e.attempt = s.attempt AND e.lease = h.id AND e.state = 'executing'
    RETURNING e.intent_id, e.attempt, e.holder
), asked AS (
    INSERT INTO b.outbox (intent_id, next_at, lane, catalog_id, attempt, phase, tenant)
    SELECT x.intent_id, clock_timestamp(), c.lane, c.id, x.attempt, 'asking', i.tenant
    FROM expired x JOIN b.intents i ON i.id = x.intent_id JOIN outbox.catalog c ON c.id = i.catalog_id
), noted AS (
    INSERT INTO b.history (intent_id, attempt, from_state, to_state, event, actor, reason)
    SELECT intent_id, attempt, 'executing', 'outcome_unknown', 'lease_expired', $2, 'worker ' || holder || ' did not report' FROM expired
), closed AS (
    UPDATE b.leases x SET open = 0 FROM held h WHERE x.id = h.id
)
SELECT count(*) FROM expired

-- name: forget_leases
WITH gone AS (DELETE FROM b.leases WHERE open = 0 RETURNING id), members AS (
    DELETE FROM b.lease_members m USING gone g WHERE m.id = g.id
)
SELECT count(*) FROM gone

-- name: ledger
WITH i AS (
    INSERT INTO b.intents (catalog_id, generation, priority, digest_version, tenant, reference, digest, key, payload)
    SELECT c.id, 1, 0, 1, 't' || n % 1000, substr(encode(sha256(n::text::bytea), 'hex'), 1, 32), sha256(n::text::bytea), n::text, $2::json
    FROM generate_series(1, $1::int) n, outbox.catalog c
    RETURNING id
), e AS (
    INSERT INTO b.executions (intent_id, settled_at, attempt, sends, state, account, provider_id)
    SELECT id, clock_timestamp(), 1, 1, 'succeeded', 'acct', 'ch_' || id FROM i
)
INSERT INTO b.history (intent_id, attempt, from_state, to_state, event, actor)
SELECT id, 1, h.f, h.t, h.e, 'bench/1' FROM i, (VALUES
    ('accepted'::outbox.state, 'executing'::outbox.state, 'claimed'::outbox.event),
    ('executing', 'succeeded', 'provider_accepted')) h(f, t, e)
