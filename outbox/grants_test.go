package outbox_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-worker/outbox-worker/outbox"
)

const denied = "42501" // insufficient_privilege

// errUndo ends a transaction that was only a try.
var errUndo = errors.New("undo")

// notForViews are what Postgres says to a change of a view before it looks at rights:
// object_not_in_prerequisite_state, wrong_object_type.
var notForViews = []string{"55000", "42809"}

func codeOf(err error) string {
	if err == nil {
		return ""
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return err.Error()
}

// try runs sql under a role, in a transaction that is rolled back, and returns the
// error's code.
func (b *testBundle) try(role, sql string) (code string) {
	b.t.Helper()
	err := pgx.BeginFunc(b.ctx, b.owner, func(tx pgx.Tx) error {
		if role != "" {
			if _, err := tx.Exec(b.ctx, "SET LOCAL ROLE "+role); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(b.ctx, sql); err != nil {
			return err
		}
		return errUndo
	})
	if errors.Is(err, errUndo) {
		return ""
	}
	return codeOf(err)
}

func list[T any](b *testBundle, sql string, args ...any) []T {
	b.t.Helper()
	rows, err := b.owner.Query(b.ctx, sql, args...)
	b.must(err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[T])
	b.must(err)
	return all
}

func TestAnApplicationMayEnqueueAndAskAndNothingElse(t *testing.T) {
	t.Parallel()
	b := setup(t)

	var may []string
	type function struct{ Name, Call string }
	// The arguments come from a subquery, because a strict function of a constant null is
	// folded away before anybody asks whether it may be called.
	rows, err := b.owner.Query(b.ctx, `
		SELECT p.proname, format('SELECT outbox.%I(%s) FROM (SELECT %s OFFSET 0) v', p.proname, string_agg('v.c' || a.n, ', ' ORDER BY a.n),
			string_agg(format('NULL::%s AS c%s', format_type(a.type, NULL), a.n), ', ' ORDER BY a.n) FILTER (WHERE a.n > 0))
		FROM pg_proc p LEFT JOIN LATERAL unnest(p.proargtypes) WITH ORDINALITY a(type, n) ON true
		WHERE p.pronamespace = 'outbox'::regnamespace GROUP BY p.oid ORDER BY 1`)
	b.must(err)
	functions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[function])
	b.must(err)
	for _, f := range functions {
		switch code := b.try("outbox_app", f.Call); code {
		case denied:
		case "":
			may = append(may, f.Name)
		default:
			t.Errorf("%s: %s", f.Call, code)
		}
	}
	if want := []string{"enqueue", "enqueue_many", "status"}; !slices.Equal(may, want) {
		t.Errorf("outbox_app may call %v, want %v", may, want)
	}
	if len(functions) < 39 {
		t.Errorf("only %d functions were tried", len(functions))
	}

	tables := list[string](b, "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'v', 'm', 'p', 'f')")
	for _, table := range tables {
		column := query[string](b, "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = $1::regclass AND attnum = 1", table)
		for _, sql := range []string{
			"SELECT FROM " + table, "SELECT " + column + " FROM " + table, "INSERT INTO " + table + " DEFAULT VALUES", "DELETE FROM " + table,
			fmt.Sprintf("UPDATE %s SET %s = DEFAULT", table, column), "TRUNCATE " + table, "LOCK " + table,
		} {
			if code := b.try("outbox_app", sql); code != denied && !slices.Contains(notForViews, code) {
				t.Errorf("%s: %q", sql, code)
			}
		}
	}
	if len(tables) < 15 {
		t.Errorf("only %d tables were tried", len(tables))
	}
	for _, sequence := range list[string](b, "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'S'") {
		if code := b.try("outbox_app", fmt.Sprintf("SELECT nextval('%s')", sequence)); code != denied {
			t.Errorf("nextval of %s: %q", sequence, code)
		}
	}
	if code := b.try("outbox_app", "CREATE TABLE outbox.mine ()"); code != denied {
		t.Errorf("create a table: %q", code)
	}
}

func TestNothingIsGrantedToEverybody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	open := list[string](b, `
		SELECT 'function ' || p.oid::regprocedure FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
		WHERE p.pronamespace = 'outbox'::regnamespace AND a.grantee = 0
		UNION ALL
		SELECT 'relation ' || c.oid::regclass FROM pg_class c, aclexplode(c.relacl) a WHERE c.relnamespace = 'outbox'::regnamespace AND a.grantee = 0
		UNION ALL
		SELECT 'schema' FROM pg_namespace n, aclexplode(n.nspacl) a WHERE n.nspname = 'outbox' AND a.grantee = 0`)
	if len(open) > 0 {
		t.Errorf("granted to PUBLIC: %v", open)
	}
}

// The functions that run with their owner's rights are reachable for everybody who may
// enqueue, so what they call must not depend on the caller's search path.
func TestFunctionsWithTheirOwnersRightsFixTheSearchPath(t *testing.T) {
	t.Parallel()
	b := setup(t)
	loose := list[string](b, `SELECT proname FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace AND prosecdef
		AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (proconfig), false)`)
	if len(loose) > 0 {
		t.Errorf("SECURITY DEFINER without a search path: %v", loose)
	}
}

var facts = []string{"catalog", "intents", "outcomes", "history", "repeats", "approvals"}

// withFacts has a row in each table of facts.
func withFacts(t *testing.T) *testBundle {
	t.Helper()
	b := setup(t)
	ref := b.accept(charge("1", 240))
	b.settle(ref, outbox.Succeeded)
	b.enqueue(charge("1", 240))
	b.exec(`INSERT INTO outbox.approvals (intent_id, approved, digest, actor, reason)
		SELECT id, true, digest, 'ada', 'looked at it' FROM outbox.intents`)
	return b
}

func (b *testBundle) fingerprint(table string) string {
	b.t.Helper()
	return query[string](b, fmt.Sprintf("SELECT count(*) || ' ' || coalesce(md5(string_agg(t::text, ',' ORDER BY t::text)), '') FROM outbox.%s t", table))
}

func TestFactsAreNotRewritten(t *testing.T) {
	t.Parallel()
	b := withFacts(t)
	for _, table := range facts {
		before := b.fingerprint(table)
		if before[0] == '0' {
			t.Errorf("%s is empty, so nothing is shown", table)
		}
		column := query[string](b, "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attidentity = '' LIMIT 1", "outbox."+table)
		for _, role := range []string{"", "outbox_app", "outbox_worker", "outbox_operator"} {
			for _, sql := range []string{
				fmt.Sprintf("UPDATE outbox.%[1]s SET %[2]s = %[2]s", table, column),
				fmt.Sprintf("DELETE FROM outbox.%s", table),
				fmt.Sprintf("TRUNCATE outbox.%s CASCADE", table),
				fmt.Sprintf("MERGE INTO outbox.%s USING (SELECT) s ON true WHEN MATCHED THEN DELETE", table),
			} {
				if code := b.try(role, sql); code != denied {
					t.Errorf("%q: %s: %q", role, sql, code)
				}
			}
		}
		if after := b.fingerprint(table); after != before {
			t.Errorf("%s changed", table)
		}
	}
}

// Retention takes the payload and the result of a settled intent, and later the rest;
// what happened it can forget, but not retell.
func TestRetentionTrimsAndMayDoNothingElse(t *testing.T) {
	t.Parallel()
	b := withFacts(t)
	for sql, want := range map[string]string{
		"UPDATE outbox.intents SET payload = NULL": "",
		"UPDATE outbox.outcomes SET result = NULL": "",
		"DELETE FROM outbox.history":               "",
		"DELETE FROM outbox.repeats":               "",
		"DELETE FROM outbox.approvals":             "",
		"DELETE FROM outbox.outcomes":              "",
		"DELETE FROM outbox.intents":               "",
		"DELETE FROM outbox.heads":                 "",

		"UPDATE outbox.history SET actor = 'somebody else'":                                  denied,
		"UPDATE outbox.repeats SET answer = 'conflict'":                                      denied,
		"UPDATE outbox.approvals SET approved = false":                                       denied,
		"UPDATE outbox.heads SET generation = 1":                                             denied,
		"UPDATE outbox.catalog SET retired = true":                                           denied,
		"DELETE FROM outbox.catalog":                                                         denied,
		"DELETE FROM outbox.outbox":                                                          denied,
		"TRUNCATE outbox.history":                                                            denied,
		"INSERT INTO outbox.history SELECT * FROM outbox.history":                            denied,
		"INSERT INTO outbox.outcomes (intent_id, attempt, state) VALUES (9, 1, 'succeeded')": denied,
	} {
		if code := b.try("outbox_retention", sql); code != want {
			t.Errorf("%s: %q, want %q", sql, code, want)
		}
	}
}

// The rights of the role have to suffice: a CHECK, for one, runs with them.
func TestAWorkersRoleCanRecordWhatHappened(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ref := b.accept(charge("1", 240))
	b.hold(ref, outbox.Executing)
	b.settle(ref, outbox.Succeeded)
	if got := query[string](b, "SELECT string_agg(event, ', ' ORDER BY at) FROM outbox.timeline"); got != "committed, claimed, provider_accepted" {
		t.Errorf("timeline: %s", got)
	}
	b.as("outbox_worker", func(tx pgx.Tx) error {
		_, err := tx.Exec(b.ctx, "SELECT outbox.enqueue_follow_on((SELECT id FROM outbox.intents), 'receipt', 'mail.v1', '{}', NULL)")
		return err
	})
	b.wantRows(rows{intents: 2, open: 1, outcomes: 1})
}
