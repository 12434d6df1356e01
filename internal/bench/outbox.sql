-- A ledger of settled intents, for the plans.

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
INSERT INTO outbox.history (intent_id, attempt, from_state, to_state, event, claimed_at, actor)
SELECT id, 1, 'executing', 'succeeded', 'provider_accepted', clock_timestamp(), 'bench/1' FROM i
