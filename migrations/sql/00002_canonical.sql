-- +goose Up
-- The canonical payload and its digest: the twin of the Go package outbox/canonical,
-- whose comment holds the rules (what is refused, in which order, where the path
-- points). Both sides give the same bytes, or the same code and path. A change to one
-- is a change to both; a change to any byte of the output is a new digest version.
--
-- The type json serves because it keeps what jsonb loses: repeated names, their order,
-- and the text of numbers.
--
-- Literals with a backslash are written E'', which does not depend on
-- standard_conforming_strings. The functions for callers fix the search path; the
-- others run below them.

-- +goose StatementBegin
CREATE FUNCTION outbox.canonical_order(name text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    -- The order of UTF-8 bytes is that of UTF-16 code units but for one thing: the
    -- surrogates of a character beyond U+FFFF come before U+E000. So U+10FFFF is put in
    -- front of U+E000 to U+FFFF, and makes way for that where it occurs itself.
    SELECT CASE
        WHEN octet_length(name) = length(name) THEN name
        ELSE regexp_replace(
            replace(replace(name,
                E'\U0010FFFE', E'\U0010FFFEa'),
                E'\U0010FFFF', E'\U0010FFFEb'),
            E'([\uE000-\uFFFF])' COLLATE "C", E'\U0010FFFF\\1', 'g')
    END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.canonical_order IS 'Sort key of a member name: in COLLATE "C" it has the order of the name''s UTF-16 code units (RFC 8785, 3.2.3).';

-- +goose StatementBegin
CREATE FUNCTION outbox.decimal(literal text, OUT digits text, OUT point bigint)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT
AS $$
DECLARE
    mantissa text := split_part(lower(ltrim(literal, '-')), 'e', 1);
    power    text := split_part(lower(literal), 'e', 2);
    whole    text := split_part(mantissa, '.', 1);
    fraction text := split_part(mantissa, '.', 2);
    exponent text := ltrim(power, '+-0');
BEGIN
    digits := ltrim(whole || fraction, '0');
    point := length(digits) - length(fraction);
    digits := rtrim(digits, '0');
    IF exponent <> '' THEN
        -- Beyond a billion the exact value does not matter: it is more than any text
        -- has digits to make up for.
        exponent := CASE WHEN length(exponent) > 9 THEN '1000000000' ELSE exponent END;
        point := point + CASE WHEN starts_with(power, '-') THEN -exponent::bigint ELSE exponent::bigint END;
    END IF;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.decimal IS 'The size of a number literal, 0.DIGITS × 10^point, where DIGITS neither begin nor end with 0. Zero has no digits.';

-- +goose StatementBegin
CREATE FUNCTION outbox.decimal_is_exact(digits text, point bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE
        WHEN digits = '' THEN true
        WHEN point >= length(digits) THEN -- an integer, up to 2^53-1
            point < 16 OR point = 16 AND rpad(digits, 16, '0') COLLATE "C" <= '9007199254740991'
        ELSE -- a fraction; one of 15 digits is below 10^14, and so below 2^53
            length(digits) <= 15
            AND (point > -307 OR point = -307 AND digits COLLATE "C" >= '22250738585072014')
    END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.decimal_is_exact IS 'Whether a double holds the decimal so that no other admitted decimal is held alike: an integer up to 2^53-1, or at most 15 significant digits not below the smallest normal double.';

-- +goose StatementBegin
CREATE FUNCTION outbox.decimal_nearest(literal text, INOUT digits text, INOUT point bigint)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET extra_float_digits = 1 -- the shortest digits that lead back to the double
AS $$
DECLARE
    double  float8;
    shorter text;
BEGIN
    -- float8 raises where a number rounds to zero or to infinity. Those start at half
    -- the smallest double, 2^-1075 = 5^1075 / 10^1075, and half a step beyond the
    -- largest, 2^1024 - 2^970, both of which round to even.
    IF digits = '' OR point < -323 OR point = -323 AND digits COLLATE "C" <= trunc(power(5::numeric, 1075))::text THEN
        digits := '';
        RETURN;
    ELSIF point > 309 OR point = 309
          AND digits COLLATE "C" >= trunc(power(2::numeric, 1024) - power(2::numeric, 970))::text THEN
        digits := NULL;
        RETURN;
    END IF;
    double := abs(literal::float8);
    SELECT d.digits, d.point INTO digits, point FROM outbox.decimal(double::text) d;
    IF length(digits) < 16 OR point = 309 THEN
        RETURN;
    END IF;
    -- Postgres leaves out a shorter decimal that lies halfway to the next double, and
    -- reads as this one because it is the even one: 1e23, not 9.999999999999999e+22.
    FOREACH shorter IN ARRAY ARRAY[left(digits, -1), (left(digits, -1)::numeric + 1)::text] LOOP
        shorter := shorter || 'e' || (point - length(digits) + 1);
        IF shorter::float8 = double THEN
            SELECT d.digits, d.point INTO digits, point FROM outbox.decimal(shorter) d;
            RETURN;
        END IF;
    END LOOP;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.decimal_nearest IS 'The shortest decimal that stands for the same double, the nearest of those, as ECMAScript prints it; NULL beyond the largest double.';

-- +goose StatementBegin
CREATE FUNCTION outbox.decimal_text(negative boolean, digits text, point bigint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN negative AND digits <> '' THEN '-' ELSE '' END || CASE
        WHEN digits = '' THEN '0'
        WHEN point BETWEEN length(digits) AND 21 THEN rpad(digits, point::int, '0')
        WHEN point BETWEEN 1 AND 21 THEN left(digits, point::int) || '.' || substr(digits, point::int + 1)
        WHEN point BETWEEN -5 AND 0 THEN '0.' || repeat('0', -point::int) || digits
        ELSE left(digits, 1) || CASE WHEN length(digits) > 1 THEN '.' ELSE '' END || substr(digits, 2)
             || CASE WHEN point > 0 THEN 'e+' ELSE 'e' END || (point - 1)::text
    END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.decimal_text IS 'A decimal as ECMAScript writes it (Number::toString).';

-- +goose StatementBegin
CREATE FUNCTION outbox.canonical_number(literal text, exact boolean) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT
AS $$
DECLARE
    d record := outbox.decimal(literal);
BEGIN
    IF NOT exact THEN
        d := outbox.decimal_nearest(literal, d.digits, d.point);
    ELSIF NOT outbox.decimal_is_exact(d.digits, d.point) THEN
        RETURN NULL;
    END IF;
    -- What is exact has the same digits as a double and as a decimal.
    RETURN outbox.decimal_text(starts_with(literal, '-'), d.digits, d.point);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.canonical_number IS 'The canonical form of a JSON number; NULL beyond the largest double or, if exact is set, for a number that is not exact.';

-- +goose StatementBegin
CREATE FUNCTION outbox.canonical_value(doc json, exact boolean, levels int) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT
AS $$
DECLARE
    kind    text := json_typeof(doc);
    literal text;
    written text;
BEGIN
    IF kind = 'object' AND levels > 0 THEN
        -- OFFSET 0 keeps each value from being written once for every mention.
        SELECT CASE WHEN count(*) = count(m.value) AND count(*) = count(DISTINCT m.name)
               THEN '{' || coalesce(string_agg(to_json(m.name) || ':' || m.value, ','
                                               ORDER BY outbox.canonical_order(m.name) COLLATE "C"), '') || '}' END
        INTO written
        FROM (SELECT e.key COLLATE "C" AS name, outbox.canonical_value(e.value, exact, levels - 1) AS value
              FROM json_each(doc) e OFFSET 0) m;
        RETURN written;
    ELSIF kind = 'array' AND levels > 0 THEN
        SELECT CASE WHEN count(*) = count(m.value)
               THEN '[' || coalesce(string_agg(m.value, ',' ORDER BY m.index), '') || ']' END
        INTO written
        FROM (SELECT e.index, outbox.canonical_value(e.value, exact, levels - 1) AS value
              FROM json_array_elements(doc) WITH ORDINALITY e(value, index) OFFSET 0) m;
        RETURN written;
    ELSIF kind IN ('object', 'array') THEN
        RETURN NULL;
    END IF;
    literal := doc::text;
    IF kind = 'string' AND strpos(literal, E'\\') > 0 THEN
        RETURN to_json(doc #>> '{}')::text;
    ELSIF kind = 'number' AND literal !~ '^(?:0|-?[1-9][0-9]{0,14}|-?(?:0|[1-9][0-9]{0,8})[.][0-9]{0,5}[1-9])$' COLLATE "C" THEN
        RETURN outbox.canonical_number(literal, exact);
    END IF;
    RETURN literal; -- canonical as it stands
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.canonical_value IS 'The canonical form of a value; NULL for a repeated name, a number that canonical_number refuses, or nesting beyond levels. Raises where a string cannot be decoded.';

-- +goose StatementBegin
CREATE FUNCTION outbox.canonical(doc text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    written text := outbox.canonical_value(btrim(doc, E' \t\n\r')::json, false, 2147483647);
    fault   record;
BEGIN
    IF written IS NULL THEN
        fault := outbox.canonical_fault(doc, false);
        RAISE EXCEPTION '% at "%"', fault.code, fault.path USING ERRCODE = 'invalid_json_text';
    END IF;
    RETURN written;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.canonical IS 'The canonical form of any JSON value by RFC 8785, without the rules of admission. Raises for what the RFC cannot express and, unlike the Go package, for U+0000, which text cannot hold.';

-- +goose StatementBegin
CREATE FUNCTION outbox.canonical_text_fault(literal text, admission boolean) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT
AS $$
DECLARE
    found text;
BEGIN
    IF strpos(literal, E'\\u') = 0 THEN
        RETURN NULL;
    END IF;
    -- Escaped backslashes go first and pairs second: a surrogate that is left is alone.
    found := substring(
        regexp_replace(replace(literal, E'\\\\', '__'),
            E'\\\\u[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}' COLLATE "C", '__', 'g')
        FROM CASE WHEN admission THEN E'\\\\u(0000|[dD][89a-fA-F])' ELSE E'\\\\u([dD][89a-fA-F])' END COLLATE "C");
    RETURN CASE WHEN found = '0000' THEN 'nul_character' WHEN found IS NOT NULL THEN 'lone_surrogate' END;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.canonical_text_fault IS 'The first fault of a string literal: lone_surrogate or, on admission, nul_character; else NULL.';

-- +goose StatementBegin
CREATE FUNCTION outbox.canonical_fault(doc text, admission boolean, OUT code text, OUT path text)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT
AS $$
DECLARE
    -- A string, a number or word, or a bracket or comma. The text is valid JSON, so
    -- colons and white space say nothing more.
    tokens CONSTANT text := E'"(?:[^"\\\\]|\\\\.)*"|[-+.0-9A-Za-z]+|[][{},]';
    token     text;
    -- Objects and arrays are numbered as they open; 0 is the outside. Of each: its
    -- bracket, the one around it, its step of the path in there, its elements so far.
    here      int := 0;
    latest    int := 0;
    depth     int := 0;
    opening   text[];
    around    int[];
    steps     text[];
    elements  int[];
    name_due  boolean := false;
    step      text;   -- of the present value
    owners    int[];  -- of the names so far
    names     text[];
    repeated  record;
BEGIN
    FOR token IN SELECT m.parts[1] FROM regexp_matches(doc COLLATE "C", tokens, 'g') m(parts) LOOP
        IF token IN ('}', ']') THEN
            here := around[here];
            depth := depth - 1;
        ELSIF token = ',' THEN
            name_due := opening[here] = '{';
        ELSIF name_due THEN
            code := outbox.canonical_text_fault(token, admission);
            IF code IS NOT NULL THEN
                step := NULL; -- a name at fault cannot be written in a path
                EXIT;
            END IF;
            step := token::json #>> '{}';
            owners := owners || here;
            names := names || step;
            name_due := false;
        ELSE
            IF opening[here] = '[' THEN
                step := elements[here];
                elements[here] := elements[here] + 1;
            END IF;
            code := CASE
                WHEN here = 0 AND token <> '{' AND admission THEN 'not_an_object'
                WHEN starts_with(token, '"') THEN outbox.canonical_text_fault(token, admission)
                WHEN token IN ('{', '[') THEN CASE WHEN depth = 64 AND admission THEN 'too_deep' END
                WHEN token ~ '^[-0-9]' AND outbox.canonical_number(token, admission) IS NULL THEN 'number_not_exact'
            END;
            EXIT WHEN code IS NOT NULL;
            IF token IN ('{', '[') THEN
                latest := latest + 1;
                opening[latest] := token;
                around[latest] := here;
                steps[latest] := step;
                elements[latest] := 0;
                here := latest;
                depth := depth + 1;
                name_due := token = '{';
            END IF;
        END IF;
    END LOOP;

    -- All names were read before the place of the fault: a repeated one is earlier.
    SELECT n.owner, n.name INTO repeated
    FROM (SELECT u.owner, u.name, u.place,
                 row_number() OVER (PARTITION BY u.owner, u.name COLLATE "C" ORDER BY u.place) AS occurrence
          FROM unnest(owners, names) WITH ORDINALITY u(owner, name, place)) n
    WHERE n.occurrence = 2
    ORDER BY n.place LIMIT 1;
    IF FOUND THEN
        code := 'duplicate_member';
        here := repeated.owner;
        step := repeated.name;
    END IF;

    IF code IS NULL THEN
        RETURN;
    END IF;
    path := coalesce('/' || outbox.pointer_step(step), '');
    WHILE around[here] > 0 LOOP -- the outermost has no step
        path := '/' || outbox.pointer_step(steps[here]) || path;
        here := around[here];
    END LOOP;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.canonical_fault IS 'The first fault of a valid JSON text in document order and its JSON Pointer, by RFC 8785 alone or with the rules of admission; NULL if there is none. The slow way, for texts that canonical_value did not take.';

-- +goose StatementBegin
CREATE FUNCTION outbox.pointer_step(step text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT replace(replace(step, '~', '~0'), '/', '~1') $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.pointer_step IS 'A member name as one step of a JSON Pointer (RFC 6901).';

-- +goose StatementBegin
CREATE FUNCTION outbox.json_is_valid(doc text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT
AS $$
DECLARE
    -- A string, a number, a word, or one character that is no space.
    tokens CONSTANT text :=
        E'"(?:[^"\\\\\u0001-\u001f]|\\\\(?:["\\\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
        || '|-?(?:0|[1-9][0-9]*)(?:[.][0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null'
        || E'|[^ \t\n\r]';
    token   text;
    opening text[] := '{}'; -- the brackets around the token, outermost first
    depth   int := 0;
    -- What may come: a value; an element or ]; a member or }; a name; a colon; next, a
    -- comma or the closing bracket.
    due     text := 'value';
BEGIN
    FOR token IN SELECT m.parts[1] FROM regexp_matches(doc COLLATE "C", tokens, 'g') m(parts) LOOP
        IF due = 'colon' AND token = ':' THEN
            due := 'value';
        ELSIF due IN ('name', 'member') AND starts_with(token, '"') AND length(token) > 1 THEN
            due := 'colon';
        ELSIF due IN ('value', 'element') AND token IN ('{', '[') THEN
            depth := depth + 1;
            opening[depth] := token;
            due := CASE token WHEN '{' THEN 'member' ELSE 'element' END;
        ELSIF due IN ('value', 'element') AND (length(token) > 1 OR token ~ '[0-9]') THEN
            due := 'next';
        ELSIF due = 'next' AND token = ',' AND depth > 0 THEN
            due := CASE opening[depth] WHEN '{' THEN 'name' ELSE 'value' END;
        ELSIF depth > 0 AND (token = '}' AND opening[depth] = '{' AND due IN ('next', 'member')
                          OR token = ']' AND opening[depth] = '[' AND due IN ('next', 'element')) THEN
            depth := depth - 1;
            due := 'next';
        ELSE
            RETURN false;
        END IF;
    END LOOP;
    RETURN due = 'next' AND depth = 0;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.json_is_valid IS 'Whether a text is one JSON value, however deeply nested. The slow way, for texts that exhaust the stack of the type json.';

-- +goose StatementBegin
CREATE FUNCTION outbox.admit(doc text, max_bytes int DEFAULT 65536, OUT canonical text, OUT code text, OUT path text)
LANGUAGE plpgsql IMMUTABLE PARALLEL UNSAFE -- before Postgres 17, an exception block fails in a parallel query
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    parsed json;
    valid  boolean := doc IS NOT NULL;
BEGIN
    path := '';
    IF octet_length(doc) > coalesce(nullif(greatest(max_bytes, 0), 0), 65536) THEN
        code := 'too_large';
        RETURN;
    END IF;
    BEGIN
        parsed := doc;
        IF json_typeof(parsed) = 'object' THEN
            canonical := outbox.canonical_value(parsed, true, 64);
        END IF;
    EXCEPTION
        WHEN invalid_text_representation OR untranslatable_character THEN
            valid := parsed IS NOT NULL; -- then it is a string that text cannot hold
        WHEN statement_too_complex THEN
            valid := parsed IS NOT NULL OR outbox.json_is_valid(doc);
    END;
    IF canonical IS NOT NULL THEN
        path := NULL;
    ELSIF NOT valid THEN
        code := 'invalid_json';
    ELSE
        -- Without a fault it was the session's max_stack_depth that did not suffice.
        SELECT coalesce(f.code, 'too_deep'), coalesce(f.path, '') INTO code, path
        FROM outbox.canonical_fault(doc, true) f;
    END IF;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.admit IS 'Checks that a text may be a payload: its canonical form, or the code of the first rule it breaks and the JSON Pointer of the place. Never raises. max_bytes bounds the text; zero or less, or NULL, means 65536.';

-- +goose StatementBegin
CREATE FUNCTION outbox.filled(doc json, defaults json) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT
AS $$
BEGIN
    RETURN (
        SELECT '{' || coalesce(string_agg(
            to_json(coalesce(d.key, f.key)) || ':' || CASE
                WHEN json_typeof(d.value) = 'object' AND json_typeof(f.value) = 'object' THEN outbox.filled(d.value, f.value)
                ELSE coalesce(d.value, f.value)::text END,
            ',' ORDER BY outbox.canonical_order(coalesce(d.key, f.key)) COLLATE "C"), '') || '}'
        FROM json_each(doc) d FULL JOIN json_each(defaults) f ON d.key = f.key COLLATE "C");
END
$$;
-- +goose StatementEnd

COMMENT ON FUNCTION outbox.filled IS 'outbox.fill, level by level.';

-- +goose StatementBegin
CREATE FUNCTION outbox.fill(doc text, defaults text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
SET search_path = pg_catalog, pg_temp
AS $$ SELECT outbox.filled(doc::json, defaults::json) $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.fill IS 'doc with the members of defaults that it lacks, at any depth of objects; what doc has stands, null and arrays included. Both are canonical objects, and so is the result.';

-- +goose StatementBegin
CREATE FUNCTION outbox.digest(canonical text) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$ SELECT pg_catalog.sha256(pg_catalog.convert_to(canonical, 'UTF8')) $$;
-- +goose StatementEnd
COMMENT ON FUNCTION outbox.digest IS 'Digest version 1: SHA-256 over the bytes of RFC 8785.';

-- +goose Down
DROP FUNCTION outbox.digest, outbox.fill, outbox.filled, outbox.admit, outbox.json_is_valid,
    outbox.canonical, outbox.canonical_fault, outbox.pointer_step, outbox.canonical_text_fault,
    outbox.canonical_value, outbox.canonical_number, outbox.decimal_text, outbox.decimal_nearest,
    outbox.decimal_is_exact, outbox.decimal, outbox.canonical_order;
