package canonical_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/outbox/canonical"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// onPostgres runs f on every version of Postgres at hand.
func onPostgres(t *testing.T, f func(*testing.T, *pgxpool.Pool)) {
	t.Helper()
	pgtest.EachVersion(t, func(t *testing.T, pool func(testing.TB) *pgxpool.Pool) { f(t, pool(t)) })
}

// answer is what outbox.admit returns; nil is NULL.
type answer struct{ Canonical, Code, Path *string }

func sqlAdmit(t *testing.T, pool *pgxpool.Pool, doc *string, maxBytes *int) answer {
	t.Helper()
	rows, err := pool.Query(t.Context(), "SELECT canonical, code, path FROM outbox.admit($1, $2)", doc, maxBytes)
	if err != nil {
		t.Fatal(err)
	}
	a, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[answer])
	if err != nil {
		t.Fatalf("admit raised: %v", err)
	}
	return a
}

func (a answer) check(t *testing.T, src string, code canonical.Code, path string) {
	t.Helper()
	if a.Canonical != nil || a.Code == nil || *a.Code != string(code) || a.Path == nil || *a.Path != path {
		t.Errorf("admit(%.200s) = %v, %v, %v; want %s at %q", src, str(a.Canonical), str(a.Code), str(a.Path), code, path)
	}
}

func str(s *string) string {
	if s == nil {
		return "NULL"
	}
	return *s
}

func queryText(t *testing.T, pool *pgxpool.Pool, query string, args ...any) (text string, err error) {
	t.Helper()
	err = pool.QueryRow(t.Context(), query, args...).Scan(&text)
	return text, err
}

func TestSQLCanonical(t *testing.T) {
	onPostgres(t, func(t *testing.T, pool *pgxpool.Pool) {
		check := func(src, want string) {
			t.Helper()
			got, err := queryText(t, pool, "SELECT outbox.canonical($1)", src)
			if got != want || err != nil {
				t.Errorf("canonical(%s) = %s, %v; want %s", src, got, err, want)
			}
		}
		for _, name := range vectors {
			input, want := vector(t, name)
			check(string(input), string(want))
		}
		for _, tt := range appendixB {
			check(literal(tt.bits), tt.want)
		}
		for _, tt := range transforms {
			check(tt.src, tt.want)
		}
		for _, tt := range untransformables {
			if got, err := queryText(t, pool, "SELECT outbox.canonical($1)", tt.src); err == nil {
				t.Errorf("canonical(%s) = %s; want it to raise", tt.src, got)
			}
		}
	})
}

func TestSQLCanonicalOfPublishedNumbers(t *testing.T) {
	onPostgres(t, func(t *testing.T, pool *pgxpool.Pool) {
		var literals []string
		for bits := range es6Numbers {
			literals = append(literals, literal(bits))
		}
		rows, err := pool.Query(t.Context(),
			"SELECT outbox.canonical(u.doc) FROM unnest($1::text[]) WITH ORDINALITY u(doc, n) ORDER BY u.n", literals)
		if err != nil {
			t.Fatal(err)
		}
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		h, i := sha256.New(), 0
		for bits := range es6Numbers {
			writeES6Line(h, bits, got[i])
			i++
		}
		if got := hex.EncodeToString(h.Sum(nil)); got != es6Hash {
			t.Errorf("hash of %d numbers = %s; want %s", es6Lines, got, es6Hash)
		}
	})
}

func TestSQLAdmit(t *testing.T) {
	onPostgres(t, func(t *testing.T, pool *pgxpool.Pool) {
		for _, tt := range admissions {
			a := sqlAdmit(t, pool, &tt.src, nil)
			if str(a.Canonical) != tt.want || a.Code != nil || a.Path != nil {
				t.Errorf("admit(%s) = %s, %s, %s; want %s", tt.src, str(a.Canonical), str(a.Code), str(a.Path), tt.want)
			}
		}
		for _, tt := range refusals {
			sqlAdmit(t, pool, &tt.src, nil).check(t, tt.src, tt.code, tt.path)
		}
		for _, tt := range sizes {
			a := sqlAdmit(t, pool, &tt.src, &tt.maxBytes)
			if tt.code != "" {
				a.check(t, tt.claim, tt.code, "")
			} else if a.Code != nil {
				t.Errorf("%s: %s", tt.claim, *a.Code)
			}
		}
	})
}

func TestSQLAdmitTakesNullForNoJSON(t *testing.T) {
	pool := pgtest.DB(t)
	sqlAdmit(t, pool, nil, nil).check(t, "NULL", canonical.InvalidJSON, "")
}

// A function that raises ends the transaction it is called in.
func TestSQLAdmitLeavesTheTransactionUsable(t *testing.T) {
	pool := pgtest.DB(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	for _, tt := range refusals {
		if _, err := tx.Exec(t.Context(), "SELECT * FROM outbox.admit($1)", tt.src); err != nil {
			t.Fatalf("%s: %v", tt.claim, err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}

// A payload that this session cannot read must not look like one without a fault.
func TestSQLAdmitRefusesWhatTheStackCannotHold(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "SET max_stack_depth = '100kB'"); err != nil {
		t.Fatal(err)
	}
	var code string
	err = conn.QueryRow(t.Context(), "SELECT code FROM outbox.admit($1)", nested(canonical.MaxDepth)).Scan(&code)
	if code != "too_deep" || err != nil {
		t.Errorf("code = %q, %v; want too_deep", code, err)
	}
}

func TestSQLDoesNotDependOnTheSession(t *testing.T) {
	for _, setting := range []string{
		"SET extra_float_digits = -15",
		"SET standard_conforming_strings = off",
		"SET backslash_quote = off",
		"SET bytea_output = escape",
		"SET default_transaction_read_only = on",
		`CREATE SCHEMA evil;
		 CREATE FUNCTION evil.length(text) RETURNS int LANGUAGE sql AS 'SELECT 0';
		 CREATE FUNCTION evil.json_each(json, OUT key text, OUT value json) RETURNS SETOF record LANGUAGE sql AS 'SELECT NULL::text, NULL::json WHERE false';
		 SET search_path = evil, pg_catalog`,
	} {
		t.Run(setting[:min(len(setting), 40)], func(t *testing.T) {
			t.Parallel()
			conn, err := pgx.Connect(t.Context(), pgtest.URL(t))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			if _, err := conn.Exec(t.Context(), setting); err != nil {
				t.Skip(err) // Postgres 19 has no standard_conforming_strings = off
			}
			var admitted, transformed, filled, code string
			err = conn.QueryRow(t.Context(), `SELECT a.canonical, outbox.canonical($2), outbox.fill(a.canonical, $3), b.code
				FROM outbox.admit($1) a, outbox.admit($4) b`,
				`{"é\\":"\ud83d\ude02\"\n","a":1.50e-9}`, `[333333333.33333329]`, `{"b":1}`, `{"a":"\\\ud800"}`,
			).Scan(&admitted, &transformed, &filled, &code)
			if err != nil {
				t.Fatal(err)
			}
			if want := `{"a":1.5e-9,"é\\":"😂\"\n"}`; admitted != want {
				t.Errorf("admit = %s; want %s", admitted, want)
			}
			if want := `[333333333.3333333]`; transformed != want {
				t.Errorf("canonical = %s; want %s", transformed, want)
			}
			if want := `{"a":1.5e-9,"b":1,"é\\":"😂\"\n"}`; filled != want {
				t.Errorf("fill = %s; want %s", filled, want)
			}
			if code != "lone_surrogate" {
				t.Errorf("code = %s", code)
			}
		})
	}
}

func TestSQLFill(t *testing.T) {
	onPostgres(t, func(t *testing.T, pool *pgxpool.Pool) {
		for _, tt := range fills {
			got, err := queryText(t, pool, "SELECT outbox.fill($1, $2)", tt.doc, tt.defaults)
			if got != tt.want || err != nil {
				t.Errorf("%s: fill(%s, %s) = %s, %v; want %s", tt.claim, tt.doc, tt.defaults, got, err, tt.want)
			}
		}
	})
}

func TestSQLDigest(t *testing.T) {
	pool := pgtest.DB(t)
	for _, tt := range digests {
		got, err := queryText(t, pool, "SELECT encode(outbox.digest($1), 'hex')", tt.canonical)
		if got != tt.want || err != nil {
			t.Errorf("digest(%s) = %s, %v; want %s", tt.canonical, got, err, tt.want)
		}
	}
}
