-- +goose Up
-- The one door, for every language: outbox.enqueue. It prepares (rules, canonical
-- payload, key) and then records; outbox.enqueue_many does the same for thousands.

CREATE TYPE outbox.request AS (
    tenant       text,
    operation    text,
    payload      text,
    operation_id text,
    subject      text,
    principal    text[],
    task         text,
    parent       text,
    supersedes   text,
    compensates  text,
    not_before   timestamptz,
    deadline     timestamptz,
    priority     int,
    trace        text,
    digest       bytea
);
COMMENT ON TYPE outbox.request IS 'What a caller says about an intent; the parameters of outbox.enqueue.';

CREATE TYPE outbox.prepared AS (
    code           text,
    path           text,
    hint           text,
    catalog_id     int,
    parent_id      bigint,
    compensates_id bigint,
    scope          bytea,
    key            text,
    payload        text,
    digest         bytea,
    retired        boolean
);
COMMENT ON TYPE outbox.prepared IS 'A request under the rules of its operation: refused with a code, or ready to be recorded.';

CREATE TYPE outbox.answer AS (
    answer      text,
    reference   text,
    state       outbox.state,
    code        text,
    path        text,
    hint        text,
    differs     text[],
    operation   text,
    attempt     int,
    provider_id text,
    reason      text,
    result      json,
    created_at  timestamptz,
    settled_at  timestamptz
);
COMMENT ON TYPE outbox.answer IS 'accepted, busy, in_flight, settled, conflict, expired, refused; not_found from outbox.status. code, path and hint say what is wrong or what to do; differs names the fields of a conflict as JSON Pointers.';

-- +goose StatementBegin
CREATE FUNCTION outbox.base32hex(hash bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    digits CONSTANT text := '0123456789abcdefghijklmnopqrstuv';
    five bigint;
    out_text text := '';
BEGIN
    FOR i IN 0..3 LOOP
        five := ('x' || encode(substr(hash, i * 5 + 1, 5), 'hex'))::bit(40)::bigint;
        out_text := out_text
            || substr(digits, (five >> 35)::int + 1, 1)         || substr(digits, (five >> 30 & 31)::int + 1, 1)
            || substr(digits, (five >> 25 & 31)::int + 1, 1) || substr(digits, (five >> 20 & 31)::int + 1, 1)
            || substr(digits, (five >> 15 & 31)::int + 1, 1) || substr(digits, (five >> 10 & 31)::int + 1, 1)
            || substr(digits, (five >> 5 & 31)::int + 1, 1)  || substr(digits, (five & 31)::int + 1, 1);
    END LOOP;
    RETURN out_text;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.base32hex IS 'The first 160 bits in 32 characters of [0-9a-v].';

CREATE FUNCTION outbox.part(value text) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN int4send(octet_length(value)) || convert_to(value, 'UTF8');
COMMENT ON FUNCTION outbox.part IS 'A part of what a reference hashes: its length in four bytes, then its UTF-8.';

CREATE FUNCTION outbox.reference(scope bytea, generation int) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN outbox.base32hex(sha256(scope || outbox.part(generation::text)));
COMMENT ON FUNCTION outbox.reference IS 'What the provider is given as our key. scope: the parts ledger id, tenant, operation name (with its version where the catalog separates them) and key.';

-- +goose StatementBegin
CREATE FUNCTION outbox.differences(a json, b json, at text DEFAULT '') RETURNS text[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    found text[] := '{}';
    pair record;
BEGIN
    -- Both are canonical, so equal values are equal texts.
    IF a::text IS NOT DISTINCT FROM b::text THEN
        RETURN found;
    END IF;
    IF json_typeof(a) = 'object' AND json_typeof(b) = 'object' THEN
        FOR pair IN
            SELECT key, l.value AS l, r.value AS r
            FROM json_each(a) l FULL JOIN json_each(b) r USING (key) ORDER BY key COLLATE "C"
        LOOP
            found := found || outbox.differences(pair.l, pair.r, at || '/' || replace(replace(pair.key, '~', '~0'), '/', '~1'));
        END LOOP;
    ELSIF json_typeof(a) = 'array' AND json_typeof(b) = 'array' THEN
        FOR pair IN
            SELECT n, l.value AS l, r.value AS r
            FROM json_array_elements(a) WITH ORDINALITY l(value, n)
            FULL JOIN json_array_elements(b) WITH ORDINALITY r(value, n) USING (n) ORDER BY n
        LOOP
            found := found || outbox.differences(pair.l, pair.r, at || '/' || pair.n - 1);
        END LOOP;
    ELSE
        found := ARRAY[at];
    END IF;
    RETURN found[1:16];
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.differences IS 'JSON Pointers of what differs between two canonical documents, sixteen at most; never a value.';

-- +goose StatementBegin
CREATE FUNCTION outbox.refusal(r outbox.request) RETURNS outbox.prepared
LANGUAGE plpgsql STABLE AS $$
DECLARE
    p outbox.prepared;
BEGIN
    CASE
        WHEN r.tenant IS NULL OR r.tenant = '' OR length(r.tenant) > 255 THEN
            p.code := 'tenant_invalid'; p.hint := 'Give a tenant of 1 to 255 characters.';
        WHEN r.operation IS NULL OR r.operation = '' THEN
            p.code := 'operation_missing'; p.hint := 'Give the operation with its version, as in charge_card.v1.';
        WHEN r.payload IS NULL THEN
            p.code := 'payload_missing'; p.path := ''; p.hint := 'Give a JSON object.';
        WHEN length(r.operation_id) > 255 OR r.operation_id = '' THEN
            p.code := 'operation_id_invalid'; p.hint := 'Give an operation id of 1 to 255 characters, created and stored before the first attempt.';
        WHEN length(r.subject) > 255 OR length(r.task) > 255 OR length(r.trace) > 255 THEN
            p.code := 'text_too_long'; p.hint := 'subject, task and trace take 255 characters each.';
        WHEN cardinality(r.principal) > 0 AND (array_ndims(r.principal) > 1 OR array_lower(r.principal, 1) <> 1) THEN
            p.code := 'principal_invalid'; p.hint := 'Give the principals as a plain list.';
        WHEN cardinality(r.principal) > 16 OR length(array_to_string(r.principal, '')) > 1024 OR array_position(r.principal, NULL) IS NOT NULL THEN
            p.code := 'principal_invalid'; p.hint := 'Give at most 16 principals, 1,024 characters in all, none null.';
        WHEN r.priority NOT BETWEEN -100 AND 100 THEN
            p.code := 'priority_invalid'; p.hint := 'Give a priority from -100 to 100; higher goes sooner among the tenant''s own.';
        WHEN NOT isfinite(r.deadline) OR NOT isfinite(r.not_before) THEN
            p.code := 'time_not_finite'; p.hint := 'Leave the time out instead of giving infinity.';
        WHEN r.deadline <= coalesce(r.not_before, '-infinity') THEN
            p.code := 'deadline_before_start'; p.hint := 'The deadline must be later than not_before.';
        ELSE
            NULL;
    END CASE;
    RETURN p;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.refusal IS 'What is wrong with a request whatever its operation; all null when nothing is.';

-- +goose StatementBegin
CREATE FUNCTION outbox.key_of(c outbox.catalog, r outbox.request, doc json, digest bytea,
                              OUT key text, OUT code text, OUT path text, OUT hint text)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    field text;
    value json;
BEGIN
    IF c.key_rule <> 'operation_id' AND r.operation_id IS NOT NULL THEN
        code := 'operation_id_not_used';
        hint := format('The catalog decides the key of %s by %s; leave the operation id out.', c.operation, c.key_rule);
        RETURN;
    END IF;
    CASE c.key_rule
        WHEN 'business' THEN
            key := '';
            FOREACH field IN ARRAY c.key_fields LOOP
                value := doc #> field::text[];
                IF value IS NULL OR json_typeof(value) NOT IN ('string', 'number') OR value::text = '""' THEN
                    key := NULL;
                    code := 'key_field_missing';
                    path := '/' || array_to_string(field::text[], '/');
                    hint := 'This field forms the key: give a non-empty string or a number.';
                    RETURN;
                END IF;
                key := key || CASE WHEN key = '' THEN '[' ELSE ',' END || value::text;
            END LOOP;
            key := key || ']';
        WHEN 'operation_id' THEN
            IF r.operation_id IS NULL THEN
                code := 'operation_id_required';
                hint := 'Create an id (a UUIDv7), store it, and give it with every attempt.';
                RETURN;
            END IF;
            key := to_json(r.operation_id);
        WHEN 'arguments' THEN
            IF coalesce(r.principal[1], '') = '' THEN
                code := 'principal_required';
                hint := 'The key is decided by caller and arguments: name the caller as the first principal.';
                RETURN;
            END IF;
            key := format('{"arguments":"%s","caller":%s}', encode(digest, 'hex'), to_json(r.principal[1]));
    END CASE;
    IF c.key_subject THEN
        IF coalesce(r.subject, '') = '' THEN
            key := NULL;
            code := 'subject_required';
            hint := format('Keys of %s are per subject: give one.', c.operation);
            RETURN;
        END IF;
        key := format('{"key":%s,"subject":%s}', key, to_json(r.subject));
    END IF;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.key_of IS 'The key, as the operation''s rule decides it, in canonical JSON.';

CREATE FUNCTION outbox.scope_of(c outbox.catalog, tenant text, key text) RETURNS bytea
LANGUAGE sql STABLE
RETURN outbox.part((SELECT id::text FROM outbox.ledger)) || outbox.part(tenant)
    || outbox.part(CASE WHEN c.key_version THEN c.operation ELSE c.name END) || outbox.part(key);
COMMENT ON FUNCTION outbox.scope_of IS 'The bytes that name a key in this ledger; hashed with a generation they give the reference.';

-- +goose StatementBegin
CREATE FUNCTION outbox.prepare(r outbox.request, follow_on text DEFAULT NULL) RETURNS outbox.prepared
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    p outbox.prepared := outbox.refusal(r);
    c outbox.catalog;
    doc json;
BEGIN
    IF p.code IS NOT NULL THEN
        RETURN p;
    END IF;

    SELECT * INTO c FROM outbox.catalog k WHERE k.operation = r.operation ORDER BY k.revision DESC LIMIT 1;
    IF NOT FOUND THEN
        p.code := 'operation_unknown';
        p.hint := CASE WHEN r.operation ~ '\.v[0-9]+$' THEN format('%s is not offered: see outbox-worker catalog show.', r.operation)
            ELSE 'Give the operation with its version, as in charge_card.v1.' END;
        RETURN p;
    END IF;
    p.catalog_id := c.id;
    p.retired := c.retired;

    IF r.parent IS NOT NULL THEN
        SELECT i.id INTO p.parent_id FROM outbox.intents i WHERE i.reference = r.parent AND i.tenant = r.tenant;
        IF NOT FOUND THEN
            p.code := 'parent_unknown'; p.hint := 'No intent of this tenant has that reference.';
            RETURN p;
        END IF;
    END IF;
    IF r.compensates IS NOT NULL THEN
        SELECT i.id INTO p.compensates_id
        FROM outbox.intents i JOIN outbox.outcomes e ON e.intent_id = i.id AND e.state = 'succeeded'
        WHERE i.reference = r.compensates AND i.tenant = r.tenant;
        IF NOT FOUND THEN
            p.code := 'compensates_not_succeeded'; p.hint := 'Only an intent of this tenant that succeeded can be compensated.';
            RETURN p;
        END IF;
    END IF;

    -- A caller that gives the digest has canonicalised already (the Go package does).
    IF r.digest IS NULL THEN
        SELECT a.canonical, a.code, a.path INTO p.payload, p.code, p.path FROM outbox.admit(r.payload, c.max_payload) a;
    ELSIF octet_length(r.payload) > c.max_payload THEN
        p.code := 'too_large'; p.path := '';
    ELSIF r.digest <> outbox.digest(r.payload) THEN
        p.code := 'digest_mismatch';
    ELSE
        BEGIN
            doc := r.payload;
            p.payload := r.payload;
            IF json_typeof(doc) <> 'object' THEN
                p.code := 'not_an_object'; p.path := '';
            END IF;
        EXCEPTION WHEN invalid_text_representation OR statement_too_complex THEN
            p.code := 'invalid_json'; p.path := '';
        END;
    END IF;
    IF p.code IS NOT NULL THEN
        p.hint := CASE p.code
            WHEN 'number_not_exact' THEN 'Send amounts as integers of minor units or as strings.'
            WHEN 'too_large' THEN format('At most %s bytes; store the document and send its address.', c.max_payload)
            WHEN 'digest_mismatch' THEN 'The digest is SHA-256 of the canonical payload; leave it out to have it computed.'
            ELSE 'The payload must be a JSON object that RFC 8785 can express.' END;
        RETURN p;
    END IF;
    p.digest := r.digest;
    IF c.defaults IS NOT NULL THEN
        p.payload := outbox.fill(p.payload, c.defaults);
        p.digest := NULL;
    END IF;
    p.digest := coalesce(p.digest, outbox.digest(p.payload));

    IF follow_on IS NOT NULL THEN
        p.key := format('{"follow_on":%s,"parent":"%s"}', to_json(follow_on), r.parent);
    ELSE
        -- A follow-on that was refused for good is superseded under the key it had.
        IF r.supersedes IS NOT NULL THEN
            SELECT i.key INTO p.key FROM outbox.intents i
            WHERE i.reference = r.supersedes AND i.tenant = r.tenant AND i.key LIKE '{"follow_on":%';
        END IF;
        IF p.key IS NULL THEN
            SELECT k.key, k.code, k.path, k.hint INTO p.key, p.code, p.path, p.hint
            FROM outbox.key_of(c, r, p.payload::json, p.digest) k;
            IF p.code IS NOT NULL THEN
                RETURN p;
            END IF;
        END IF;
    END IF;
    p.scope := outbox.scope_of(c, r.tenant, p.key);
    RETURN p;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.prepare IS 'A request under its operation''s rules: defaults filled in, canonical payload, digest, key and scope; or a refusal.';

-- +goose StatementBegin
CREATE FUNCTION outbox.refused(code text, path text, hint text) RETURNS outbox.answer
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    a outbox.answer;
BEGIN
    a.answer := 'refused'; a.code := code; a.path := path; a.hint := hint;
    RETURN a;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.refused IS 'The answer to bad input.';

-- +goose StatementBegin
CREATE FUNCTION outbox.answer_of(tenant text, reference text) RETURNS outbox.answer
LANGUAGE plpgsql STABLE AS $$
DECLARE
    a outbox.answer;
BEGIN
    -- One statement, one snapshot: the outbox row goes as the outcome comes.
    SELECT CASE WHEN e.intent_id IS NULL THEN 'in_flight' WHEN i.payload IS NULL THEN 'expired' ELSE 'settled' END,
           i.reference, coalesce(e.state, o.state), e.code, c.operation, coalesce(e.attempt, o.attempt),
           e.provider_id, e.reason, e.result, i.created_at, e.settled_at
    INTO a.answer, a.reference, a.state, a.code, a.operation, a.attempt,
         a.provider_id, a.reason, a.result, a.created_at, a.settled_at
    FROM outbox.intents i
    JOIN outbox.catalog c ON c.id = i.catalog_id
    LEFT JOIN outbox.outcomes e ON e.intent_id = i.id
    LEFT JOIN outbox.outbox o ON o.intent_id = i.id
    WHERE i.reference = answer_of.reference AND i.tenant = answer_of.tenant;
    IF NOT FOUND THEN
        a.answer := 'not_found';
        a.hint := 'No intent of this tenant has that reference.';
    ELSIF a.answer = 'in_flight' THEN
        a.hint := CASE a.state
            WHEN 'exhausted' THEN 'Proven not executed and out of attempts: an operator may replay it, or supersede it with a new intent.'
            ELSE 'Ask for the status under this reference; do not resubmit.' END;
    END IF;
    RETURN a;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.answer_of IS 'What the ledger knows of a reference of a tenant.';

-- +goose StatementBegin
CREATE FUNCTION outbox.repeat_of(reference text, r outbox.request, p outbox.prepared) RETURNS outbox.answer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a outbox.answer := outbox.answer_of(r.tenant, repeat_of.reference);
    i outbox.intents;
BEGIN
    SELECT * INTO i FROM outbox.intents k WHERE k.reference = repeat_of.reference;
    IF NOT FOUND THEN
        -- Only a snapshot older than the other transaction's commit gets here.
        a := outbox.refused(NULL, NULL, 'Ask again with the same key.');
        a.answer := 'busy';
        RETURN a;
    END IF;
    IF i.digest <> p.digest THEN
        a.answer := 'conflict';
        a.code := 'payload_differs';
        a.hint := CASE WHEN a.operation = r.operation THEN 'This key is taken by an intent with another payload; nothing was recorded.'
            ELSE format('This key is taken by an intent of %s with another payload; nothing was recorded.', a.operation) END;
        a.differs := CASE WHEN i.payload IS NOT NULL THEN outbox.differences(i.payload, p.payload::json) END;
        a.provider_id := NULL; a.result := NULL; a.reason := NULL;
    END IF;
    INSERT INTO outbox.repeats (intent_id, answer, principal) VALUES (i.id, a.answer, r.principal);
    RETURN a;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.repeat_of IS 'The answer to somebody who asks again, recorded in repeats.';

-- +goose StatementBegin
CREATE FUNCTION outbox.insert_intent(r outbox.request, p outbox.prepared, generation int, supersedes_id bigint) RETURNS outbox.answer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a outbox.answer;
    c record;
    new_id bigint;
BEGIN
    a.reference := outbox.reference(p.scope, insert_intent.generation);
    a.created_at := clock_timestamp();
    INSERT INTO outbox.intents (created_at, parent_id, supersedes_id, compensates_id, not_before, deadline, catalog_id, generation,
        priority, digest_version, tenant, reference, digest, key, subject, task, trace, principal, payload)
    VALUES (a.created_at, p.parent_id, insert_intent.supersedes_id, p.compensates_id, r.not_before, r.deadline, p.catalog_id, insert_intent.generation,
        coalesce(r.priority, 0), 1, r.tenant, a.reference, p.digest, p.key, r.subject, r.task, r.trace, r.principal, p.payload::json)
    ON CONFLICT ON CONSTRAINT intents_reference_key DO NOTHING
    RETURNING id INTO new_id;
    IF new_id IS NULL THEN
        RETURN NULL;
    END IF;

    SELECT k.lane, k.approval, l.asleep INTO c
    FROM outbox.catalog k JOIN outbox.lanes l ON l.id = k.lane WHERE k.id = p.catalog_id;
    a.answer := 'accepted';
    a.operation := r.operation;
    a.attempt := 0;
    a.state := CASE WHEN c.approval THEN 'awaiting_approval' ELSE 'accepted' END;
    INSERT INTO outbox.outbox (intent_id, next_at, deadline, lane, catalog_id, state, phase, rank, tenant)
    VALUES (new_id, coalesce(r.not_before, a.created_at), r.deadline, c.lane, p.catalog_id, a.state,
        CASE WHEN c.approval THEN 'parked' ELSE 'due' END::outbox.phase, -coalesce(r.priority, 0), r.tenant);
    -- NOTIFY takes a global lock at commit, so only while somebody sleeps.
    IF c.asleep AND NOT c.approval THEN
        PERFORM pg_notify('outbox_due', c.lane::text);
    END IF;
    RETURN a;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.insert_intent IS 'Writes the intent and its outbox row; null when that generation of the key exists.';

-- +goose StatementBegin
CREATE FUNCTION outbox.supersede(r outbox.request, p outbox.prepared, latest int, acts boolean, OUT supersedes_id bigint, OUT code text, OUT hint text)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    old record;
BEGIN
    SELECT i.id, i.generation, coalesce(e.state, o.state) AS state, o.review_since, o.attempt, (e.intent_id IS NULL) AS open
    INTO old
    FROM outbox.intents i
    LEFT JOIN outbox.outcomes e ON e.intent_id = i.id
    LEFT JOIN outbox.outbox o ON o.intent_id = i.id
    WHERE i.reference = r.supersedes AND i.tenant = r.tenant;
    CASE
        WHEN old.id IS NULL THEN
            code := 'supersedes_unknown'; hint := 'No intent of this tenant has that reference.';
        WHEN outbox.reference(p.scope, old.generation) <> r.supersedes THEN
            code := 'supersedes_other_key'; hint := 'An intent supersedes one of its own operation and key.';
        WHEN old.generation < latest THEN
            supersedes_id := NULL; -- superseded before: what follows is a repeat of the latest
        WHEN old.state NOT IN ('failed_final', 'cancelled', 'exhausted') OR old.review_since IS NOT NULL THEN
            code := 'supersedes_not_proven';
            hint := format('It is %s%s; only what is proven not to have happened can be superseded.', old.state,
                CASE WHEN old.review_since IS NOT NULL THEN ' and in review' ELSE '' END);
        ELSE
            supersedes_id := old.id;
            IF old.open AND acts THEN
                DELETE FROM outbox.outbox o WHERE o.intent_id = old.id AND o.state = 'exhausted';
                IF NOT FOUND THEN
                    code := 'supersedes_not_proven'; hint := 'It was replayed just now; ask for its status.';
                    RETURN;
                END IF;
                INSERT INTO outbox.outcomes (intent_id, attempt, state, code) VALUES (old.id, old.attempt, 'exhausted', 'superseded');
                INSERT INTO outbox.history (intent_id, attempt, from_state, to_state, event, actor)
                VALUES (old.id, old.attempt, 'exhausted', 'exhausted', 'superseded', coalesce(r.principal[1], r.tenant));
            END IF;
    END CASE;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.supersede IS 'Decides whether a new generation may replace the one named. acts, under the head''s lock: and closes an exhausted one, so that nobody can replay it.';

-- +goose StatementBegin
CREATE FUNCTION outbox.record(r outbox.request, p outbox.prepared) RETURNS outbox.answer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a outbox.answer;
    head outbox.heads;
    latest outbox.answer;
    decided record;
    by_window boolean;
    replaced bigint;
BEGIN
    IF p.retired THEN
        -- It still answers for what it has. What would be new is undone.
        BEGIN
            p.retired := false;
            a := outbox.record(r, p);
            IF a.answer <> 'accepted' THEN
                RETURN a;
            END IF;
            RAISE SQLSTATE 'OBRET';
        EXCEPTION WHEN SQLSTATE 'OBRET' THEN
            RETURN outbox.refused('operation_retired', NULL, format('%s takes nothing new: see outbox-worker catalog show.', r.operation));
        END;
    END IF;

    by_window := p.key LIKE '{"arguments":%' OR p.key LIKE '{"key":{"arguments":%';
    IF NOT by_window AND r.supersedes IS NULL THEN
        a := outbox.insert_intent(r, p, 1, NULL);
        IF a.answer IS NOT NULL THEN
            RETURN a;
        END IF;
        SELECT * INTO head FROM outbox.heads h WHERE h.scope = sha256(p.scope);
        RETURN outbox.repeat_of(outbox.reference(p.scope, coalesce(head.generation, 1)), r, p);
    END IF;

    -- A refusal leaves nothing behind and holds nobody up, so it is looked for first.
    IF r.supersedes IS NOT NULL THEN
        SELECT * INTO head FROM outbox.heads h WHERE h.scope = sha256(p.scope);
        SELECT * INTO decided FROM outbox.supersede(r, p, coalesce(head.generation, 1), false);
        IF decided.code IS NOT NULL THEN
            RETURN outbox.refused(decided.code, NULL, decided.hint);
        END IF;
    END IF;

    -- Several generations: who decides holds the head until commit.
    INSERT INTO outbox.heads AS h (started_at, generation, scope) VALUES (clock_timestamp(), 1, sha256(p.scope))
    ON CONFLICT ON CONSTRAINT heads_pkey DO UPDATE SET generation = h.generation
    RETURNING * INTO head;

    IF r.supersedes IS NOT NULL THEN
        SELECT * INTO decided FROM outbox.supersede(r, p, head.generation, true);
        IF decided.code IS NOT NULL THEN
            RETURN outbox.refused(decided.code, NULL, decided.hint);
        END IF;
        replaced := decided.supersedes_id;
        head.generation := head.generation + CASE WHEN replaced IS NULL THEN 0 ELSE 1 END;
    ELSE
        -- The window slides from the generation's first intent, and a new one opens
        -- only when the last is settled as well: never while it is open, unknown or in review.
        latest := outbox.answer_of(r.tenant, outbox.reference(p.scope, head.generation));
        IF latest.settled_at IS NOT NULL
           AND clock_timestamp() >= head.started_at + (SELECT c.window_length FROM outbox.catalog c WHERE c.id = p.catalog_id)
           AND NOT EXISTS (SELECT FROM outbox.outbox o JOIN outbox.intents i ON i.id = o.intent_id
                           WHERE i.reference = latest.reference AND o.review_since IS NOT NULL) THEN
            head.generation := head.generation + 1;
        END IF;
    END IF;

    a := outbox.insert_intent(r, p, head.generation, replaced);
    IF a.answer IS NULL THEN
        RETURN outbox.repeat_of(outbox.reference(p.scope, head.generation), r, p);
    END IF;
    UPDATE outbox.heads h SET generation = head.generation, started_at = a.created_at WHERE h.scope = head.scope;
    RETURN a;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.record IS 'Records a prepared request, or answers for the intent that has its key.';

-- +goose StatementBegin
CREATE FUNCTION outbox.enqueue(
    tenant text, operation text, payload text,
    operation_id text DEFAULT NULL, subject text DEFAULT NULL, principal text[] DEFAULT NULL,
    task text DEFAULT NULL, parent text DEFAULT NULL, supersedes text DEFAULT NULL, compensates text DEFAULT NULL,
    not_before timestamptz DEFAULT NULL, deadline timestamptz DEFAULT NULL, priority int DEFAULT 0,
    trace text DEFAULT NULL, digest bytea DEFAULT NULL, nowait boolean DEFAULT false
) RETURNS outbox.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r outbox.request := ROW(tenant, operation, payload, operation_id, subject, principal, task, parent, supersedes, compensates,
                            not_before, deadline, priority, trace, digest);
    p outbox.prepared := outbox.prepare(r);
    a outbox.answer;
    patience text;
BEGIN
    IF p.code IS NOT NULL THEN
        RETURN outbox.refused(p.code, p.path, p.hint);
    END IF;
    IF NOT nowait THEN
        RETURN outbox.record(r, p);
    END IF;
    patience := current_setting('lock_timeout');
    BEGIN
        PERFORM set_config('lock_timeout', '1ms', true);
        a := outbox.record(r, p);
        PERFORM set_config('lock_timeout', patience, true);
        RETURN a;
    EXCEPTION WHEN lock_not_available THEN
        a := outbox.refused(NULL, NULL, 'Another transaction holds this key and has not committed: ask again with the same key.');
        a.answer := 'busy';
        RETURN a;
    END;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.enqueue IS 'Records an intent in the caller''s transaction: the effect happens if and only if that commits. Always answers, at READ COMMITTED, and leaves the transaction usable. See docs/enqueue-from-sql.md.';

-- +goose StatementBegin
CREATE FUNCTION outbox.prepare_element(element json, OUT r outbox.request, OUT p outbox.prepared)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    BEGIN
        r := json_populate_record(NULL::outbox.request, element);
    EXCEPTION WHEN data_exception THEN
        p.hint := SQLERRM || '. ';
    END;
    IF p.hint IS NOT NULL OR json_typeof(element) <> 'object' THEN
        p.code := 'request_invalid';
        p.hint := concat(p.hint, 'Give an object whose members have the names and types of outbox.enqueue''s parameters.');
    ELSE
        p := outbox.prepare(r);
    END IF;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.prepare_element IS 'One element of a bulk as a request, prepared.';

-- +goose StatementBegin
CREATE FUNCTION outbox.enqueue_many(requests json) RETURNS SETOF outbox.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    item record;
    a outbox.answer;
    answers outbox.answer[] := '{}';
BEGIN
    -- In the order of the keys, so that two bulks cannot deadlock; answered in the order given.
    FOR item IN
        SELECT j.n, e.r, e.p
        FROM json_array_elements(requests) WITH ORDINALITY j(value, n), outbox.prepare_element(j.value) e
        ORDER BY (e.p).scope, j.n
    LOOP
        IF (item.p).code IS NOT NULL THEN
            a := outbox.refused((item.p).code, (item.p).path, (item.p).hint);
        ELSE
            a := outbox.record(item.r, item.p);
        END IF;
        answers[item.n] := a;
    END LOOP;
    RETURN QUERY SELECT * FROM unnest(answers);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.enqueue_many IS 'outbox.enqueue for an array of requests (objects with its parameters, nowait apart), one answer each, in their order.';

CREATE FUNCTION outbox.status(tenant text, reference text) RETURNS outbox.answer
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN outbox.answer_of(tenant, reference);
COMMENT ON FUNCTION outbox.status IS 'What became of a reference of this tenant: in_flight, settled, expired or not_found.';

-- +goose StatementBegin
CREATE FUNCTION outbox.enqueue_follow_on(parent_id bigint, name text, operation text, payload text, digest bytea) RETURNS outbox.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    i outbox.intents;
    r outbox.request;
    p outbox.prepared;
    a outbox.answer;
BEGIN
    SELECT * INTO STRICT i FROM outbox.intents k WHERE k.id = enqueue_follow_on.parent_id;
    r.tenant := i.tenant; r.operation := enqueue_follow_on.operation; r.payload := enqueue_follow_on.payload;
    r.digest := enqueue_follow_on.digest; r.parent := i.reference; r.subject := i.subject; r.principal := i.principal;
    r.task := i.task; r.trace := i.trace; r.priority := i.priority;
    p := outbox.prepare(r, enqueue_follow_on.name);
    IF p.code IS NOT NULL THEN
        RETURN outbox.refused(p.code, p.path, p.hint);
    END IF;
    a := outbox.record(r, p);
    -- After a failover the parent may have had this follow-on in a future that the ledger
    -- has forgotten (see outbox.doubt_sent): then it begins as unknown.
    IF a.answer = 'accepted' AND EXISTS (SELECT FROM outbox.outbox o WHERE o.intent_id = i.id AND o.phase = 'following' AND o.unknown_since IS NOT NULL) THEN
        UPDATE outbox.outbox o
        SET state = 'outcome_unknown', phase = 'asking', next_at = clock_timestamp(), attempt = 1, unknown_attempt = 1,
            unknown_since = clock_timestamp(), holder = gen_random_uuid()
        FROM outbox.intents k WHERE k.reference = a.reference AND o.intent_id = k.id AND o.state = 'accepted';
        INSERT INTO outbox.history (intent_id, attempt, from_state, to_state, event, actor, reason)
        SELECT k.id, 1, 'accepted', 'outcome_unknown', 'ledger_moved', 'outbox', 'its parent''s follow-ons may have been created before the failover'
        FROM outbox.intents k WHERE k.reference = a.reference;
    END IF;
    RETURN a;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.enqueue_follow_on IS 'Records a follow-on of a succeeded intent under the key (parent reference, name); for the worker.';

-- +goose Down
DROP FUNCTION outbox.enqueue_follow_on, outbox.status, outbox.enqueue_many, outbox.prepare_element, outbox.enqueue, outbox.record, outbox.supersede,
    outbox.insert_intent, outbox.repeat_of, outbox.answer_of, outbox.refused, outbox.prepare, outbox.scope_of, outbox.key_of,
    outbox.refusal, outbox.differences, outbox.reference, outbox.part, outbox.base32hex;
DROP TYPE outbox.answer, outbox.prepared, outbox.request;
