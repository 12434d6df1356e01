-- What the benchmark needs of our own shape beside the statements of package dispatch:
-- an enqueue that is nothing but its writes, and a ledger of settled intents.

-- name: enqueue
WITH i AS (
    INSERT INTO outbox.intents (catalog_id, generation, priority, digest_version, tenant, reference, digest, key, payload)
    SELECT c.id, 1, 0, 1, $1, q.reference, sha256(q.reference::bytea), q.reference, $3::json
    FROM unnest($2::text[]) q(reference), outbox.catalog c
    RETURNING id, created_at, catalog_id, tenant
)
INSERT INTO outbox.outbox (intent_id, next_at, lane, catalog_id, state, phase, tenant)
SELECT i.id, i.created_at, 1, i.catalog_id, 'accepted', 'due', i.tenant FROM i

-- name: ledger
WITH i AS (
    INSERT INTO outbox.intents (catalog_id, generation, priority, digest_version, tenant, reference, digest, key, payload)
    SELECT c.id, 1, 0, 1, 't' || n % 1000, substr(encode(sha256(n::text::bytea), 'hex'), 1, 32), sha256(n::text::bytea), n::text, $2::json
    FROM generate_series(1, $1::int) n, outbox.catalog c
    RETURNING id
), e AS (
    INSERT INTO outbox.outcomes (intent_id, attempt, state, provider_id, account)
    SELECT id, 1, 'succeeded', 'ch_' || id, 'acct' FROM i
)
INSERT INTO outbox.history (intent_id, attempt, from_state, to_state, event, actor)
SELECT id, 1, h.f, h.t, h.e, 'bench/1' FROM i, (VALUES
    ('accepted'::outbox.state, 'executing'::outbox.state, 'claimed'::outbox.event),
    ('executing', 'succeeded', 'provider_accepted')) h(f, t, e)
