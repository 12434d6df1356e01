-- +goose Up
-- The one door, for every language: outbox.enqueue. It prepares (rules, canonical
-- payload, key) and then records; outbox.enqueue_many does the same for thousands.
--
-- The functions for callers turn sequential scans off: a session keeps its plans, and one
-- that was made while a table was small would read all of it long after it has grown. The
-- price that makes a scan unattractive would set off JIT compilation, so that is off too.

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
    parent_id      bigint,
    compensates_id bigint,
    window_length  interval,
    catalog_id     int,
    lane           int,
    approval       boolean,
    retired        boolean,
    scope          bytea,
    key            text,
    digest         bytea,
    payload        json
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

-- What runs for every intent is in plpgsql, whose plans a session keeps: a function in SQL
-- that cannot be inlined is planned anew for every statement.

-- +goose StatementBegin
CREATE FUNCTION outbox.base32hex(hash bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    eight bigint; -- digits, a byte each
    digits bytea := '';
BEGIN
    FOR i IN 0..15 BY 5 LOOP
        -- Forty bits are halved three times, each half moved to its place.
        eight := (get_byte(hash, i)::bigint << 32) | (get_byte(hash, i + 1)::bigint << 24) | (get_byte(hash, i + 2)::bigint << 16)
               | (get_byte(hash, i + 3)::bigint << 8) | get_byte(hash, i + 4);
        eight := ((eight & x'FFFFF00000'::bigint) << 12)        | (eight & x'FFFFF'::bigint);
        eight := ((eight & x'000FFC00000FFC00'::bigint) << 6)   | (eight & x'000003FF000003FF'::bigint);
        eight := ((eight & x'03E003E003E003E0'::bigint) << 3)   | (eight & x'001F001F001F001F'::bigint);
        -- '0' and up; from ten on, which adding 22 carries to the sixth bit, 39 more: 'a' and up.
        digits := digits || int8send(eight + x'3030303030303030'::bigint
            + ((eight + x'1616161616161616'::bigint & x'2020202020202020'::bigint) >> 5) * 39);
    END LOOP;
    RETURN convert_from(digits, 'UTF8');
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.base32hex IS 'The first 160 bits in 32 characters of [0-9a-v].';

-- Functions in SQL from here on are so plain that Postgres puts their bodies in the place
-- of a call. It does so only where they claim no more than what they call: convert_to is
-- stable.
CREATE FUNCTION outbox.scope_of(ledger_part bytea, tenant text, name_part bytea, key text) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
RETURN ledger_part || int4send(octet_length(tenant)) || convert_to(tenant, 'UTF8') || name_part || int4send(octet_length(key)) || convert_to(key, 'UTF8');
COMMENT ON FUNCTION outbox.scope_of IS 'The bytes that name a key in a ledger: four parts, each after its length in four bytes. The catalog has the ledger''s and the operation name''s (with its version where the catalog separates them).';

CREATE FUNCTION outbox.reference(scope bytea, generation int) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN outbox.base32hex(sha256(scope || int4send(length(generation::text)) || convert_to(generation::text, 'UTF8')));
COMMENT ON FUNCTION outbox.reference IS 'What the provider is given as our key: the hash of a scope and a generation, its fifth part.';

-- +goose StatementBegin
CREATE FUNCTION outbox.differences(a json, b json, at text DEFAULT '') RETURNS text[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    found text[];
BEGIN
    -- Both are canonical, so equal values are equal texts.
    IF json_typeof(a) = 'object' AND json_typeof(b) = 'object' THEN
        SELECT array_agg(d.path ORDER BY key COLLATE "C", d.n) INTO found
        FROM json_each(a) l FULL JOIN json_each(b) r USING (key),
            unnest(outbox.differences(l.value, r.value, at || '/' || replace(replace(key, '~', '~0'), '/', '~1'))) WITH ORDINALITY d(path, n)
        WHERE l.value::text IS DISTINCT FROM r.value::text;
    ELSIF json_typeof(a) = 'array' AND json_typeof(b) = 'array' THEN
        SELECT array_agg(d.path ORDER BY i, d.n) INTO found
        FROM json_array_elements(a) WITH ORDINALITY l(value, i) FULL JOIN json_array_elements(b) WITH ORDINALITY r(value, i) USING (i),
            unnest(outbox.differences(l.value, r.value, at || '/' || i - 1)) WITH ORDINALITY d(path, n)
        WHERE l.value::text IS DISTINCT FROM r.value::text;
    ELSE
        found := ARRAY[at];
    END IF;
    RETURN found[1:16];
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.differences IS 'JSON Pointers of what differs between two canonical documents that are not equal, sixteen at most; never a value.';

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
CREATE FUNCTION outbox.key_of(operation text, rule outbox.key_rule, fields text[], by_subject boolean,
                              operation_id text, subject text, caller text, doc json, digest bytea,
                              OUT key text, OUT code text, OUT path text, OUT hint text)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    field text;
    value json;
BEGIN
    IF rule <> 'operation_id' AND operation_id IS NOT NULL THEN
        code := 'operation_id_not_used';
        hint := format('The catalog decides the key of %s by %s; leave the operation id out.', operation, rule);
        RETURN;
    END IF;
    CASE rule
        WHEN 'business' THEN
            FOREACH field IN ARRAY fields LOOP
                value := doc #> field::text[];
                IF value IS NULL OR json_typeof(value) NOT IN ('string', 'number') OR value::text = '""' THEN
                    key := NULL;
                    code := 'key_field_missing';
                    path := '/' || array_to_string(field::text[], '/');
                    hint := 'This field forms the key: give a non-empty string or a number.';
                    RETURN;
                END IF;
                key := coalesce(key || ',', '[') || value::text;
            END LOOP;
            key := key || ']';
        WHEN 'operation_id' THEN
            IF operation_id IS NULL THEN
                code := 'operation_id_required';
                hint := 'Create an id (a UUIDv7), store it, and give it with every attempt.';
                RETURN;
            END IF;
            key := to_json(operation_id);
        WHEN 'arguments' THEN
            IF caller IS NULL OR caller = '' THEN
                code := 'principal_required';
                hint := 'The key is decided by caller and arguments: name the caller as the first principal.';
                RETURN;
            END IF;
            key := format('{"arguments":"%s","caller":%s}', encode(digest, 'hex'), to_json(caller));
    END CASE;
    IF by_subject THEN
        IF subject IS NULL OR subject = '' THEN
            key := NULL;
            code := 'subject_required';
            hint := format('Keys of %s are per subject: give one.', operation);
            RETURN;
        END IF;
        key := format('{"key":%s,"subject":%s}', key, to_json(subject));
    END IF;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.key_of IS 'The key, as the operation''s rule decides it, in canonical JSON.';

-- +goose StatementBegin
CREATE FUNCTION outbox.prepare(r outbox.request, follow_on text DEFAULT NULL) RETURNS outbox.prepared
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    p outbox.prepared := outbox.refusal(r);
    c record;
    k record;
    canonical text := r.payload;
BEGIN
    IF p.code IS NOT NULL THEN
        RETURN p;
    END IF;

    SELECT o.* INTO c
    FROM outbox.catalog o WHERE o.operation = r.operation ORDER BY o.revision DESC; -- INTO takes the first
    IF NOT FOUND THEN
        p.code := 'operation_unknown';
        p.hint := CASE WHEN r.operation ~ '\.v[0-9]+$' THEN format('%s is not offered: see outbox-worker catalog show.', r.operation)
            ELSE 'Give the operation with its version, as in charge_card.v1.' END;
        RETURN p;
    END IF;
    p.catalog_id := c.id;
    p.lane := c.lane;
    p.approval := c.approval;
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
    p.digest := r.digest;
    IF p.digest IS NULL THEN
        SELECT a.canonical, a.code, a.path INTO canonical, p.code, p.path FROM outbox.admit(r.payload, c.max_payload) a;
    ELSIF octet_length(canonical) > c.max_payload THEN
        p.code := 'too_large'; p.path := '';
    ELSIF p.digest <> sha256(convert_to(canonical, 'UTF8')) THEN
        p.code := 'digest_mismatch';
    END IF;
    IF p.code IS NULL THEN
        BEGIN
            p.payload := canonical;
            IF json_typeof(p.payload) <> 'object' THEN
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
    IF c.defaults IS NOT NULL THEN
        canonical := outbox.fill(canonical, c.defaults);
        p.payload := canonical;
        p.digest := NULL;
    END IF;
    IF p.digest IS NULL THEN
        p.digest := outbox.digest(canonical);
    END IF;

    IF follow_on IS NOT NULL THEN
        p.key := format('{"follow_on":%s,"parent":"%s"}', to_json(follow_on), r.parent);
    ELSIF r.supersedes IS NOT NULL THEN
        -- A follow-on that was refused for good is superseded under the key it had.
        SELECT i.key INTO p.key FROM outbox.intents i
        WHERE i.reference = r.supersedes AND i.tenant = r.tenant AND i.key LIKE '{"follow_on":%';
    END IF;
    IF p.key IS NULL THEN
        k := outbox.key_of(r.operation, c.key_rule, c.key_fields, c.key_subject, r.operation_id, r.subject, r.principal[1], p.payload, p.digest);
        IF k.code IS NOT NULL THEN
            p.code := k.code; p.path := k.path; p.hint := k.hint;
            RETURN p;
        END IF;
        p.key := k.key;
        p.window_length := c.window_length;
    END IF;
    p.scope := outbox.scope_of(c.ledger_part, r.tenant, c.name_part, p.key);
    RETURN p;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.prepare IS 'A request under its operation''s rules: defaults filled in, canonical payload, digest, key and scope; or a refusal. window_length is that of a key by arguments.';

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

CREATE FUNCTION outbox.hint_of(state outbox.state) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE state
    WHEN 'exhausted' THEN 'Proven not executed and out of attempts: an operator may replay it, or supersede it with a new intent.'
    ELSE 'Ask for the status under this reference; do not resubmit.' END;
COMMENT ON FUNCTION outbox.hint_of IS 'What to do about an intent that is in flight.';

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
        a.hint := outbox.hint_of(a.state);
    END IF;
    RETURN a;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.answer_of IS 'What the ledger knows of a reference of a tenant.';

-- +goose StatementBegin
CREATE FUNCTION outbox.repeat_of(reference text, scope bytea, operation text, digest bytea, payload json, principal text[]) RETURNS outbox.answer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a outbox.answer;
BEGIN
    -- One statement, one snapshot: the outbox row goes as the outcome comes.
    WITH known AS (
        SELECT i.id, i.digest <> repeat_of.digest AS differs, i.reference, i.payload, i.created_at, c.operation, coalesce(e.state, o.state) AS state,
            coalesce(e.attempt, o.attempt) AS attempt, e.code, e.provider_id, e.reason, e.result, e.settled_at,
            CASE WHEN i.digest <> repeat_of.digest THEN 'conflict' WHEN e.intent_id IS NULL THEN 'in_flight' WHEN i.payload IS NULL THEN 'expired' ELSE 'settled' END AS answer
        FROM outbox.intents i
        JOIN outbox.catalog c ON c.id = i.catalog_id
        LEFT JOIN outbox.outcomes e ON e.intent_id = i.id
        LEFT JOIN outbox.outbox o ON o.intent_id = i.id
        WHERE i.reference = repeat_of.reference
          AND NOT EXISTS (SELECT FROM outbox.heads h WHERE h.scope = sha256(repeat_of.scope) AND h.generation > i.generation)
    ), noted AS (
        INSERT INTO outbox.repeats (intent_id, answer, principal) SELECT k.id, k.answer, repeat_of.principal FROM known k
    )
    SELECT k.answer, k.reference, k.state, CASE WHEN k.differs THEN 'payload_differs' ELSE k.code END, NULL,
        CASE WHEN k.differs THEN format('This key is taken by an intent%s with another payload; nothing was recorded.',
                CASE WHEN k.operation <> repeat_of.operation THEN ' of ' || k.operation END)
            WHEN k.answer = 'in_flight' THEN outbox.hint_of(k.state) END,
        CASE WHEN k.differs AND k.payload IS NOT NULL THEN outbox.differences(k.payload, repeat_of.payload) END,
        k.operation, k.attempt, CASE WHEN NOT k.differs THEN k.provider_id END, CASE WHEN NOT k.differs THEN k.reason END,
        CASE WHEN NOT k.differs THEN k.result END, k.created_at, k.settled_at
    INTO a FROM known k;
    RETURN a;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.repeat_of IS 'The answer to somebody who asks again, recorded in repeats. Null where the reference is not in sight, or its scope has a later generation.';

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
CREATE FUNCTION outbox.generation_of(r outbox.request, p outbox.prepared, OUT generation int, OUT supersedes_id bigint, OUT code text, OUT hint text)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    head outbox.heads;
    latest outbox.answer;
    decided record;
BEGIN
    -- A refusal leaves nothing behind and holds nobody up, so it is looked for first.
    IF r.supersedes IS NOT NULL THEN
        SELECT * INTO head FROM outbox.heads h WHERE h.scope = sha256(p.scope);
        decided := outbox.supersede(r, p, coalesce(head.generation, 1), false);
        IF decided.code IS NOT NULL THEN
            code := decided.code; hint := decided.hint;
            RETURN;
        END IF;
    END IF;

    -- Who decides holds the head until commit.
    INSERT INTO outbox.heads AS h (started_at, generation, scope) VALUES (clock_timestamp(), 1, sha256(p.scope))
    ON CONFLICT ON CONSTRAINT heads_pkey DO UPDATE SET generation = h.generation
    RETURNING * INTO head;
    generation := head.generation;

    IF r.supersedes IS NOT NULL THEN
        decided := outbox.supersede(r, p, head.generation, true);
        supersedes_id := decided.supersedes_id; code := decided.code; hint := decided.hint;
        IF supersedes_id IS NOT NULL THEN
            generation := generation + 1;
        END IF;
        RETURN;
    END IF;

    -- The window slides from the generation's first intent, and a new one opens only when
    -- the last is settled as well: never while it is open, unknown or in review.
    IF clock_timestamp() >= head.started_at + p.window_length THEN
        latest := outbox.answer_of(r.tenant, outbox.reference(p.scope, head.generation));
        IF latest.settled_at IS NOT NULL
           AND NOT EXISTS (SELECT FROM outbox.outbox o JOIN outbox.intents i ON i.id = o.intent_id
                           WHERE i.reference = latest.reference AND o.review_since IS NOT NULL) THEN
            generation := generation + 1;
        END IF;
    END IF;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.generation_of IS 'Locks the head of a key that can have several generations and decides which one a request is for; or refuses.';

-- +goose StatementBegin
CREATE FUNCTION outbox.record(r outbox.request, p outbox.prepared) RETURNS outbox.answer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a outbox.answer;
    g record;
    several boolean := p.window_length IS NOT NULL OR r.supersedes IS NOT NULL;
    gen int := 1;
    supersedes_id bigint;
    reference text;
    recorded_at timestamptz;
    intent_id bigint;
    asleep boolean;
BEGIN
    IF p.retired THEN
        RETURN outbox.record_retired(r, p);
    END IF;
    IF several THEN
        g := outbox.generation_of(r, p);
        IF g.code IS NOT NULL THEN
            RETURN outbox.refused(g.code, NULL, g.hint);
        END IF;
        gen := g.generation; supersedes_id := g.supersedes_id;
    END IF;

    reference := outbox.reference(p.scope, gen);
    recorded_at := clock_timestamp();
    INSERT INTO outbox.intents AS i (created_at, parent_id, supersedes_id, compensates_id, not_before, deadline, catalog_id, generation,
        priority, digest_version, tenant, reference, digest, key, subject, task, trace, principal, payload)
    VALUES (recorded_at, p.parent_id, supersedes_id, p.compensates_id, r.not_before, r.deadline, p.catalog_id, gen,
        coalesce(r.priority, 0), 1, r.tenant, reference, p.digest, p.key, r.subject, r.task, r.trace, r.principal, p.payload)
    ON CONFLICT ON CONSTRAINT intents_reference_key DO NOTHING
    RETURNING i.id INTO intent_id;
    IF intent_id IS NULL THEN
        a := outbox.repeat_of(reference, p.scope, r.operation, p.digest, p.payload, r.principal);
        IF a.answer IS NULL AND NOT several THEN
            SELECT h.generation INTO gen FROM outbox.heads h WHERE h.scope = sha256(p.scope);
            a := outbox.repeat_of(outbox.reference(p.scope, gen), p.scope, r.operation, p.digest, p.payload, r.principal);
        END IF;
        IF a.answer IS NULL THEN
            -- Only a snapshot older than the other transaction's commit gets here.
            a := outbox.refused(NULL, NULL, 'Ask again with the same key.');
            a.answer := 'busy';
        END IF;
        RETURN a;
    END IF;

    INSERT INTO outbox.outbox (intent_id, next_at, deadline, lane, catalog_id, state, phase, rank, tenant)
    VALUES (intent_id, coalesce(r.not_before, recorded_at), r.deadline, p.lane, p.catalog_id,
        CASE WHEN p.approval THEN 'awaiting_approval' ELSE 'accepted' END::outbox.state,
        CASE WHEN p.approval THEN 'parked' ELSE 'due' END::outbox.phase, -coalesce(r.priority, 0), r.tenant)
    RETURNING (SELECT l.asleep FROM outbox.lanes l WHERE l.id = p.lane) INTO asleep;
    IF several THEN
        UPDATE outbox.heads h SET generation = gen, started_at = recorded_at WHERE h.scope = sha256(p.scope);
    END IF;
    -- NOTIFY takes a global lock at commit, so only while somebody sleeps.
    IF asleep AND NOT p.approval THEN
        PERFORM pg_notify('outbox_due', p.lane::text);
    END IF;

    a.answer := 'accepted';
    a.reference := reference;
    a.state := CASE WHEN p.approval THEN 'awaiting_approval' ELSE 'accepted' END;
    a.operation := r.operation;
    a.attempt := 0;
    a.created_at := recorded_at;
    RETURN a;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.record IS 'Records a prepared request, or answers for the intent that has its key.';

-- +goose StatementBegin
CREATE FUNCTION outbox.record_retired(r outbox.request, p outbox.prepared) RETURNS outbox.answer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a outbox.answer;
BEGIN
    p.retired := false;
    a := outbox.record(r, p);
    IF a.answer = 'accepted' THEN
        RAISE SQLSTATE 'OBRET';
    END IF;
    RETURN a;
EXCEPTION WHEN SQLSTATE 'OBRET' THEN
    RETURN outbox.refused('operation_retired', NULL, format('%s takes nothing new: see outbox-worker catalog show.', r.operation));
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.record_retired IS 'A retired operation answers for what it has; what would be new is undone and refused.';

-- The short way is for what most callers send: a payload that they have canonicalised,
-- under a key of one field or an operation id. It takes few and large expressions, because
-- each is set up anew in every transaction, and one statement per step, because each costs
-- more to start and end than to run. What is unusual or wrong goes the long way, and
-- nobody can tell by the rows or the answer which way it was.

CREATE FUNCTION outbox.plain(
    tenant text, payload text, operation_id text, subject text, principal text[], task text,
    not_before timestamptz, deadline timestamptz, priority int, trace text, digest bytea
) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
RETURN digest = sha256(convert_to(payload, 'UTF8')) AND tenant <> '' AND length(tenant) <= 255
    AND (operation_id <> '' AND length(operation_id) <= 255) IS NOT FALSE
    AND coalesce(length(subject), 0) <= 255 AND coalesce(length(task), 0) <= 255 AND coalesce(length(trace), 0) <= 255
    AND (principal IS NULL OR array_ndims(principal) = 1 AND array_lower(principal, 1) = 1 AND cardinality(principal) <= 16
         AND length(array_to_string(principal, '')) <= 1024 AND array_position(principal, NULL) IS NULL)
    AND (priority >= -100 AND priority <= 100 AND isfinite(not_before) AND isfinite(deadline) AND deadline > not_before) IS NOT FALSE;
COMMENT ON FUNCTION outbox.plain IS 'Whether a request may go the short way, whatever its operation. The limits are those of outbox.refusal.';

CREATE FUNCTION outbox.plain_key(rule outbox.key_rule, fields int, operation_id text, value json) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE
    WHEN rule = 'operation_id' THEN to_json(operation_id)::text
    WHEN operation_id IS NULL AND fields = 1 AND json_typeof(value) IN ('string', 'number') AND value::text <> '""' THEN '[' || value::text || ']' END;
COMMENT ON FUNCTION outbox.plain_key IS 'The key of a request on the short way, as outbox.key_of decides it: the operation id, or the value of the only field. Null where it is not that easy.';

-- +goose StatementBegin
CREATE FUNCTION outbox.enqueue(
    tenant text, operation text, payload text,
    operation_id text DEFAULT NULL, subject text DEFAULT NULL, principal text[] DEFAULT NULL,
    task text DEFAULT NULL, parent text DEFAULT NULL, supersedes text DEFAULT NULL, compensates text DEFAULT NULL,
    not_before timestamptz DEFAULT NULL, deadline timestamptz DEFAULT NULL, priority int DEFAULT 0,
    trace text DEFAULT NULL, digest bytea DEFAULT NULL, nowait boolean DEFAULT false
) RETURNS outbox.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    r outbox.request;
    p outbox.prepared;
    a outbox.answer;
    patience text;
    c record;
    doc json;
    key text;
    scope bytea;
    ref text;
    intent_id bigint;
    recorded_at timestamptz;
    asleep boolean;
BEGIN
    <<short>>
    BEGIN
        EXIT short WHEN nowait OR coalesce(parent, supersedes, compensates) IS NOT NULL
            OR outbox.plain(tenant, payload, operation_id, subject, principal, task, not_before, deadline, priority, trace, digest) IS NOT TRUE;
        BEGIN
            doc := payload;
        EXCEPTION WHEN invalid_text_representation OR statement_too_complex THEN
            EXIT short;
        END;
        SELECT o.id, o.lane, o.approval, o.key_rule, o.ledger_part, o.name_part, cardinality(o.key_fields) AS fields, doc #> o.key_fields[1]::text[] AS value,
            CASE WHEN o.approval THEN 'awaiting_approval' ELSE 'accepted' END::outbox.state AS state,
            octet_length(payload) <= o.max_payload AND o.defaults IS NULL AND NOT o.key_subject AND NOT o.retired AND json_typeof(doc) = 'object' AS plain
        INTO c FROM outbox.catalog o WHERE o.operation = enqueue.operation ORDER BY o.revision DESC; -- INTO takes the first
        key := CASE WHEN c.plain THEN outbox.plain_key(c.key_rule, c.fields, operation_id, c.value) END;
        EXIT short WHEN key IS NULL;
        scope := outbox.scope_of(c.ledger_part, tenant, c.name_part, key);
        ref := outbox.reference(scope, 1);

        INSERT INTO outbox.intents AS i (created_at, not_before, deadline, catalog_id, generation, priority, digest_version,
            tenant, reference, digest, key, subject, task, trace, principal, payload)
        VALUES (clock_timestamp(), not_before, deadline, c.id, 1, coalesce(priority, 0), 1,
            tenant, ref, digest, key, subject, task, trace, principal, doc)
        ON CONFLICT ON CONSTRAINT intents_reference_key DO NOTHING
        RETURNING i.id, i.created_at INTO intent_id, recorded_at;
        IF intent_id IS NULL THEN
            a := outbox.repeat_of(ref, scope, operation, digest, doc, principal);
            EXIT short WHEN a.answer IS NULL;
            RETURN a;
        END IF;
        INSERT INTO outbox.outbox (intent_id, next_at, deadline, lane, catalog_id, state, phase, rank, tenant)
        VALUES (intent_id, coalesce(not_before, recorded_at), deadline, c.lane, c.id, c.state,
            CASE WHEN c.approval THEN 'parked' ELSE 'due' END::outbox.phase, -coalesce(priority, 0), tenant)
        RETURNING NOT c.approval AND (SELECT l.asleep FROM outbox.lanes l WHERE l.id = c.lane) INTO asleep;
        -- NOTIFY takes a global lock at commit, so only while somebody sleeps.
        IF asleep THEN
            PERFORM pg_notify('outbox_due', c.lane::text);
        END IF;
        RETURN ROW('accepted'::text, ref, c.state, NULL::text, NULL::text, NULL::text, NULL::text[], operation, 0, NULL::text, NULL::text, NULL::json,
            recorded_at, NULL::timestamptz);
    END;

    r := ROW(tenant, operation, payload, operation_id, subject, principal, task, parent, supersedes, compensates,
             not_before, deadline, priority, trace, digest);
    p := outbox.prepare(r);
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
CREATE FUNCTION outbox.accept_many(requests json) RETURNS outbox.answer[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    answers outbox.answer[];
    lanes int[];
BEGIN
    WITH asked AS MATERIALIZED (
        SELECT r.*, r.payload::json AS doc FROM json_populate_recordset(NULL::outbox.request, requests) WITH ORDINALITY r
    ), ruled AS MATERIALIZED (
        SELECT r.*, o.id AS catalog_id, o.lane, o.approval, o.key_rule, o.ledger_part, o.name_part,
            CASE WHEN r.parent IS NULL AND r.supersedes IS NULL AND r.compensates IS NULL
                AND octet_length(r.payload) <= o.max_payload AND o.defaults IS NULL AND NOT o.key_subject AND NOT o.retired AND json_typeof(r.doc) = 'object'
                AND outbox.plain(r.tenant, r.payload, r.operation_id, r.subject, r.principal, r.task, r.not_before, r.deadline, r.priority, r.trace, r.digest)
            THEN outbox.plain_key(o.key_rule, cardinality(o.key_fields), r.operation_id, r.doc #> o.key_fields[1]::text[]) END AS key
        FROM asked r LEFT JOIN LATERAL (
            SELECT * FROM outbox.catalog c WHERE c.operation = r.operation ORDER BY c.revision DESC LIMIT 1
        ) o ON true
    ), scoped AS MATERIALIZED (
        SELECT r.*, outbox.scope_of(r.ledger_part, r.tenant, r.name_part, r.key) AS scope FROM ruled r
        -- A key that several may ask for, each his way, is taken in one order by everybody,
        -- or two bulks could deadlock: so all of those here, or none.
        WHERE r.key IS NOT NULL AND NOT EXISTS (SELECT FROM ruled k WHERE k.key IS NULL AND k.key_rule <> 'arguments' AND k.supersedes IS NULL)
    ), firsts AS MATERIALIZED (
        SELECT DISTINCT ON (s.scope) s.*, outbox.reference(s.scope, 1) AS reference FROM scoped s ORDER BY s.scope, s.ordinality
    ), i AS (
        INSERT INTO outbox.intents AS i (created_at, not_before, deadline, catalog_id, generation, priority, digest_version,
            tenant, reference, digest, key, subject, task, trace, principal, payload)
        SELECT clock_timestamp(), f.not_before, f.deadline, f.catalog_id, 1, coalesce(f.priority, 0), 1,
            f.tenant, f.reference, f.digest, f.key, f.subject, f.task, f.trace, f.principal, f.doc
        FROM firsts f ORDER BY f.scope
        ON CONFLICT ON CONSTRAINT intents_reference_key DO NOTHING
        RETURNING i.id, i.reference, i.created_at
    ), accepted AS MATERIALIZED (
        SELECT f.*, i.id, i.created_at, CASE WHEN f.approval THEN 'awaiting_approval' ELSE 'accepted' END::outbox.state AS state
        FROM i JOIN firsts f ON f.reference = i.reference
    ), o AS (
        INSERT INTO outbox.outbox (intent_id, next_at, deadline, lane, catalog_id, state, phase, rank, tenant)
        SELECT a.id, coalesce(a.not_before, a.created_at), a.deadline, a.lane, a.catalog_id, a.state,
            CASE WHEN a.approval THEN 'parked' ELSE 'due' END::outbox.phase, -coalesce(a.priority, 0), a.tenant
        FROM accepted a
    )
    SELECT array_agg(CASE WHEN a.id IS NOT NULL THEN ROW('accepted', a.reference, a.state, NULL, NULL, NULL, NULL, a.operation, 0,
            NULL, NULL, NULL, a.created_at, NULL)::outbox.answer END ORDER BY r.ordinality),
        array_agg(DISTINCT a.lane) FILTER (WHERE NOT a.approval)
    INTO answers, lanes
    FROM asked r LEFT JOIN accepted a ON a.ordinality = r.ordinality;
    PERFORM pg_notify('outbox_due', l.id::text) FROM outbox.lanes l WHERE l.id = ANY (lanes) AND l.asleep;
    RETURN answers;
EXCEPTION WHEN data_exception OR statement_too_complex THEN
    RETURN NULL; -- one element is no request: the long way says which
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.accept_many IS 'The short way for a bulk: answers for what is plain and new, null for the rest.';

-- +goose StatementBegin
CREATE FUNCTION outbox.enqueue_many(requests json) RETURNS SETOF outbox.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    item record;
    a outbox.answer;
    answers outbox.answer[] := outbox.accept_many(requests);
BEGIN
    -- In the order of the keys, so that two bulks cannot deadlock; answered in the order
    -- given. Those of several generations, which lock a head, come after those of one.
    FOR item IN
        SELECT j.n, e.r, e.p
        FROM json_array_elements(requests) WITH ORDINALITY j(value, n)
        LEFT JOIN unnest(answers) WITH ORDINALITY known ON known.ordinality = j.n,
            outbox.prepare_element(j.value) e
        WHERE known.answer IS NULL
        ORDER BY (e.p).window_length IS NOT NULL OR (e.r).supersedes IS NOT NULL, (e.p).scope, j.n
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

-- +goose StatementBegin
CREATE FUNCTION outbox.status(tenant text, reference text) RETURNS outbox.answer
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
    RETURN outbox.answer_of(tenant, reference);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.status IS 'What became of a reference of this tenant: in_flight, settled, expired or not_found.';

-- +goose StatementBegin
CREATE FUNCTION outbox.enqueue_follow_on(parent_id bigint, name text, operation text, payload text, digest bytea) RETURNS outbox.answer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
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
DROP FUNCTION outbox.enqueue_follow_on, outbox.status, outbox.enqueue_many, outbox.accept_many, outbox.prepare_element, outbox.enqueue, outbox.plain_key, outbox.plain, outbox.record_retired, outbox.record,
    outbox.generation_of, outbox.supersede, outbox.repeat_of, outbox.answer_of, outbox.hint_of, outbox.refused, outbox.prepare, outbox.scope_of, outbox.key_of,
    outbox.refusal, outbox.differences, outbox.reference, outbox.base32hex;
DROP TYPE outbox.answer, outbox.prepared, outbox.request;
