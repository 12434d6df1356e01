package migrations_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/migrations"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func exec1(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%v: %s", err, sql)
	}
}

func lines(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) []string {
	t.Helper()
	rows, err := pool.Query(context.WithoutCancel(t.Context()), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%v: %s", err, sql)
	}
	return all
}

// objects describes everything in the schema, as the database sees it: definitions,
// comments, rights, and which migrations it believes it has.
func objects(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	return strings.Join(lines(t, pool, `
		WITH s AS (SELECT oid FROM pg_namespace WHERE nspname = 'outbox'),
		acls AS (
			SELECT 'pg_class'::regclass AS class, oid, relacl AS acl FROM pg_class UNION ALL
			SELECT 'pg_proc'::regclass, oid, proacl FROM pg_proc UNION ALL
			SELECT 'pg_namespace'::regclass, oid, nspacl FROM pg_namespace UNION ALL
			SELECT 'pg_type'::regclass, oid, typacl FROM pg_type
		), objects AS (
			SELECT 'pg_namespace'::regclass AS class, oid, 'schema' AS text FROM s
			UNION ALL SELECT 'pg_class'::regclass, oid, concat_ws(' ', 'relation', relname, relkind, relpersistence, reloptions)
				FROM pg_class WHERE relnamespace IN (SELECT oid FROM s)
			UNION ALL SELECT 'pg_class'::regclass, c.oid, concat_ws(' ', 'column', c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod),
					a.attnotnull, a.attidentity, a.attgenerated, a.attcollation::regcollation, pg_get_expr(d.adbin, d.adrelid))
				FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
				LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
				WHERE c.relnamespace IN (SELECT oid FROM s) AND c.relkind <> 'i'
			UNION ALL SELECT 'pg_class'::regclass, conrelid, concat_ws(' ', 'constraint', conrelid::regclass, conname, pg_get_constraintdef(oid))
				FROM pg_constraint WHERE connamespace IN (SELECT oid FROM s)
			UNION ALL SELECT 'pg_class'::regclass, indexrelid, concat_ws(' ', 'index', pg_get_indexdef(indexrelid), indisvalid)
				FROM pg_index WHERE indrelid IN (SELECT oid FROM pg_class WHERE relnamespace IN (SELECT oid FROM s))
			UNION ALL SELECT 'pg_trigger'::regclass, oid, concat_ws(' ', 'trigger', pg_get_triggerdef(oid), tgenabled)
				FROM pg_trigger WHERE NOT tgisinternal AND tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace IN (SELECT oid FROM s))
			UNION ALL SELECT 'pg_class'::regclass, oid, concat_ws(' ', 'view', relname, pg_get_viewdef(oid))
				FROM pg_class WHERE relkind = 'v' AND relnamespace IN (SELECT oid FROM s)
			UNION ALL SELECT 'pg_proc'::regclass, oid, 'function ' || pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace IN (SELECT oid FROM s)
			UNION ALL SELECT 'pg_type'::regclass, t.oid, concat_ws(' ', 'type', typname, typtype,
					(SELECT string_agg(enumlabel, ',' ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = t.oid))
				FROM pg_type t WHERE typnamespace IN (SELECT oid FROM s)
		)
		SELECT text FROM (SELECT concat_ws(' | ', o.text, obj_description(o.oid, o.class::text), (SELECT string_agg(a::text, ',' ORDER BY a::text) FROM acls, unnest(acl) a WHERE acls.class = o.class AND acls.oid = o.oid))
		FROM objects o) t(text) ORDER BY text COLLATE "C"`), "\n") + "\n" +
		strings.Join(lines(t, pool, "SELECT 'river ' || line || ' ' || version FROM outbox.river_migration ORDER BY version"), "\n") + "\n" +
		strings.Join(lines(t, pool, "SELECT concat_ws(' ', 'outbox', version_id, is_applied) FROM outbox.schema_version ORDER BY version_id"), "\n")
}

// diff says where two descriptions part.
func diff(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	var out []string
	for _, line := range g {
		if !slices.Contains(w, line) {
			out = append(out, "+ "+line)
		}
	}
	for _, line := range w {
		if !slices.Contains(g, line) {
			out = append(out, "- "+line)
		}
	}
	return strings.Join(out[:min(len(out), 20)], "\n")
}

// everything names all objects of the database that are not the system's.
func everything(t testing.TB, pool *pgxpool.Pool) []string {
	t.Helper()
	return lines(t, pool, `
		SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
		UNION ALL SELECT 'relation ' || oid::regclass FROM pg_class WHERE oid >= 16384
		UNION ALL SELECT 'function ' || oid::regprocedure FROM pg_proc WHERE oid >= 16384
		UNION ALL SELECT 'type ' || oid::regtype FROM pg_type WHERE oid >= 16384
		UNION ALL SELECT 'extension ' || extname FROM pg_extension
		UNION ALL SELECT 'event trigger ' || evtname FROM pg_event_trigger
		UNION ALL SELECT 'default rights ' || oid FROM pg_default_acl
		UNION ALL SELECT 'large object ' || oid FROM pg_largeobject_metadata
		UNION ALL SELECT 'depends on role ' || refobjid::regrole || ' ' || objid FROM pg_shdepend
			WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND refobjid::regrole::text LIKE 'outbox%'
		UNION ALL SELECT 'setting ' || setrole FROM pg_db_role_setting WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
		ORDER BY 1`)
}

func applied(t testing.TB, pool *pgxpool.Pool) (yes, no []string) {
	t.Helper()
	steps, err := migrations.Status(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if s.Applied {
			yes = append(yes, s.Name)
		} else {
			no = append(no, s.Name)
		}
	}
	return yes, no
}

// populate puts a row into what Down has to remove.
func populate(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	exec1(t, pool, `SELECT outbox.apply_lane('main', 'main', 1, NULL, 1);
		SELECT outbox.apply_operation('charge', 1, 'main', 'business', '{"{order}"}', false, false, NULL, 65536, NULL, false, false, '\x00', '{}', 'ada')`)
	if got := lines(t, pool, `SELECT answer FROM outbox.enqueue('acme', 'charge.v1', '{"order": "1"}')`); !slices.Equal(got, []string{"accepted"}) {
		t.Fatal(got)
	}
}

func TestUpAndDownAndUpAgain(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, db func(testing.TB) *pgxpool.Pool) {
		t.Parallel()
		pool := db(t)
		first := objects(t, pool)
		if n := strings.Count(first, "\n"); n < 200 {
			t.Fatalf("only %d objects are compared", n)
		}
		up := func() {
			t.Helper()
			if err := migrations.Up(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			if got := objects(t, pool); got != first {
				t.Errorf("another schema:\n%s", diff(got, first))
			}
			if yes, no := applied(t, pool); len(no) != 0 || len(yes) < 12 {
				t.Errorf("applied %v, not %v", yes, no)
			}
		}
		populate(t, pool)
		up()
		if got := lines(t, pool, "SELECT count(*)::text FROM outbox.intents"); got[0] != "1" {
			t.Errorf("%s intents are left by a second Up", got[0])
		}
		if err := migrations.Down(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		if got := everything(t, pool); !slices.Equal(got, empty) {
			t.Errorf("Down leaves %q", got)
		}
		if yes, _ := applied(t, pool); len(yes) != 0 {
			t.Errorf("applied after Down: %v", yes)
		}
		up()
		populate(t, pool)
	})
}

// empty is what a database has that nobody used.
var empty = []string{"extension plpgsql", "schema public"}

func TestDropSchemaRemovesUs(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, db func(testing.TB) *pgxpool.Pool) {
		t.Parallel()
		pool := db(t)
		populate(t, pool)
		exec1(t, pool, "DROP SCHEMA outbox CASCADE")
		if got := everything(t, pool); !slices.Equal(got, empty) {
			t.Errorf("it leaves %q", got)
		}
		if err := migrations.Up(t.Context(), pool); err != nil { // and we can come back
			t.Fatal(err)
		}
		populate(t, pool)
	})
}

func TestTenAtOnceMigrateOnce(t *testing.T) {
	t.Parallel()
	want := objects(t, pgtest.DB(t))
	url := pgtest.EmptyURL(t)
	pools := make([]*pgxpool.Pool, 10)
	for i := range pools {
		pools[i] = open(t, url, 3)
	}
	var all sync.WaitGroup
	start := make(chan struct{})
	for _, pool := range pools {
		all.Go(func() {
			<-start
			if err := migrations.Up(t.Context(), pool); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	all.Wait()
	if got := objects(t, pools[0]); got != want {
		t.Errorf("another schema:\n%s", diff(got, want))
	}
}

func open(t testing.TB, url string, conns int32) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// The lock must not wait for a connection that it holds itself.
func TestAPoolOfOneConnectionIsEnough(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	pool := open(t, pgtest.EmptyURL(t), 1)
	if err := migrations.Up(ctx, pool); err != nil {
		t.Fatalf("Up: %v", err)
	}
	if _, err := migrations.Status(ctx, pool); err != nil {
		t.Errorf("Status: %v", err)
	}
	if err := migrations.Down(ctx, pool); err != nil {
		t.Errorf("Down: %v", err)
	}
}

// One who waits for another's migration gives up when its context ends, and leaves no
// lock behind.
func TestWaitingForAnotherMigrationEndsWithTheContext(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyURL(t)
	pool, holder := open(t, url, 3), open(t, url, 1)
	conn, err := holder.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock(x'6f7574626f78'::bigint)"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- migrations.Up(ctx, pool) }()
	for len(lines(t, pool, "SELECT 'waits' FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")) == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "another migration") {
		t.Errorf("err: %v", err)
	}
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_unlock(x'6f7574626f78'::bigint)"); err != nil {
		t.Fatal(err)
	}
	conn.Release()
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// printed are the blocks of Print, each a transaction of its own.
func printed(t testing.TB) (names, texts []string) {
	t.Helper()
	var b bytes.Buffer
	if err := migrations.Print(&b); err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(b.String(), "-- migration: ")[1:] {
		name, text, _ := strings.Cut(block, "\n")
		names, texts = append(names, name), append(texts, text)
	}
	return names, texts
}

// Teams that apply the printed text with a tool of their own get what Up makes, and may
// go on with Up later: each block says for itself that it was applied.
func TestThePrintedTextLeavesWhatUpLeaves(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, db func(testing.TB) *pgxpool.Pool) {
		t.Parallel()
		pool := db(t)
		want := objects(t, pool)
		dump := dumpSchema(t, pool)
		if err := migrations.Down(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		names, texts := printed(t)
		for i, text := range texts {
			exec1(t, pool, text) // without arguments: one transaction
			if yes, _ := applied(t, pool); !slices.Equal(yes, names[1:i+1]) {
				t.Errorf("after %s: applied %v", names[i], yes)
			}
		}
		if got := objects(t, pool); got != want {
			t.Errorf("another schema:\n%s", diff(got, want))
		}
		if got := dumpSchema(t, pool); got != dump {
			t.Errorf("pg_dump sees another schema:\n%s", diff(got, dump))
		}
		if err := migrations.Up(t.Context(), pool); err != nil {
			t.Errorf("Up afterwards: %v", err)
		}
		if got := objects(t, pool); got != want {
			t.Errorf("Up afterwards leaves another schema:\n%s", diff(got, want))
		}
		populate(t, pool)
	})
}

// restrictLine is a random word that pg_dump guards its output with.
var restrictLine = regexp.MustCompile(`(?m)^\\(un)?restrict .*\n`)

// dumpSchema is what pg_dump says; nothing where it is missing or older than the server.
func dumpSchema(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "pg_dump", "--schema-only", "--schema=outbox", pool.Config().ConnString()).Output()
	if err != nil {
		return ""
	}
	return restrictLine.ReplaceAllString(string(out), "")
}

// A dump of a database can be restored, though rules about a row need the row's type.
func TestADumpCanBeRestored(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, db func(testing.TB) *pgxpool.Pool) {
		t.Parallel()
		pool := db(t)
		populate(t, pool)
		dump, err := exec.CommandContext(t.Context(), "pg_dump", "--no-owner", pool.Config().ConnString()).Output()
		if err != nil {
			t.Skipf("no pg_dump for this server: %v", err)
		}
		want := objects(t, pool)
		if err := migrations.Down(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "psql", "-qX", "-v", "ON_ERROR_STOP=1", pool.Config().ConnString())
		cmd.Stdin = bytes.NewReader(dump)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got := objects(t, pool); got != want {
			t.Errorf("another schema:\n%s", diff(got, want))
		}
		if got := lines(t, pool, `SELECT answer FROM outbox.enqueue('acme', 'charge.v1', '{"order": "1"}')`); !slices.Equal(got, []string{"in_flight"}) {
			t.Errorf("after the restore: %v", got)
		}
	})
}

// A crash in the middle leaves whole migrations applied, Status tells which, and Up does
// the rest.
func TestStatusTellsHowFarItGot(t *testing.T) {
	t.Parallel()
	pool := pgtest.Empty(t)
	names, texts := printed(t)
	if yes, no := applied(t, pool); len(yes) != 0 || !slices.Equal(no, names[1:]) {
		t.Errorf("before: applied %v, not %v", yes, no)
	}
	if got := everything(t, pool); !slices.Equal(got, empty) {
		t.Errorf("Status leaves %q", got)
	}
	for i, name := range names {
		if name == "00003_enqueue" {
			break
		}
		exec1(t, pool, texts[i])
	}
	yes, no := applied(t, pool)
	if want := slices.Index(names, "00003_enqueue"); !slices.Equal(yes, names[1:want]) || !slices.Equal(no, names[want:]) {
		t.Errorf("between: applied %v, not %v", yes, no)
	}
	before := time.Now().Add(-time.Hour)
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	steps, err := migrations.Status(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range steps {
		if s.Name != names[i+1] || !s.Applied || !strings.HasPrefix(s.Name, "river") && s.AppliedAt.Before(before) {
			t.Errorf("after: %+v", s)
		}
	}
}

// River first and ours not at all is a state that a crash can leave.
func TestStatusTellsOfRiverAlone(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	exec1(t, pool, "DROP TABLE outbox.schema_version")
	yes, no := applied(t, pool)
	if len(yes) != 8 || len(no) < 4 || !strings.HasPrefix(yes[7], "river") || strings.HasPrefix(no[0], "river") {
		t.Errorf("applied %v, not %v", yes, no)
	}
}

// Ours are told from River's by name.
const ours = "relnamespace = 'outbox'::regnamespace AND relname NOT LIKE 'river\\_%' AND relname <> 'schema_version'"

func TestEveryTableSaysWhatItIsFor(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	for _, name := range lines(t, pool, "SELECT relname FROM pg_class WHERE relkind IN ('r', 'v', 'm', 'p') AND "+ours+" AND coalesce(obj_description(oid, 'pg_class'), '') = ''") {
		t.Errorf("no comment on %s", name)
	}
	for _, name := range lines(t, pool, `SELECT proname FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace AND proname NOT LIKE 'river\_%' AND coalesce(obj_description(oid, 'pg_proc'), '') = ''
		AND EXISTS (SELECT FROM aclexplode(proacl) a WHERE a.grantee <> proowner)`) {
		t.Errorf("no comment on %s, which some role may call", name)
	}
	for _, name := range lines(t, pool, `SELECT typname FROM pg_type WHERE typnamespace = 'outbox'::regnamespace AND typname NOT LIKE 'river\_%' AND coalesce(obj_description(oid, 'pg_type'), '') = ''
		AND (typtype = 'e' OR typtype = 'c' AND (SELECT relkind FROM pg_class WHERE oid = typrelid) = 'c')`) {
		t.Errorf("no comment on type %s", name)
	}
}

// A violation is reported by the constraint's name, so it has to say something, and stay
// the same.
func TestEveryConstraintAndIndexHasAGivenName(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	constraints := lines(t, pool, "SELECT conrelid::regclass || ' ' || conname FROM pg_constraint JOIN pg_class c ON c.oid = conrelid WHERE contype <> 'n' AND "+ours)
	if len(constraints) < 30 {
		t.Errorf("only %d constraints", len(constraints))
	}
	for _, name := range constraints {
		if regexp.MustCompile(`_(check|not_null|excl)\d*$|\d$`).MatchString(name) {
			t.Errorf("%s was named by Postgres", name)
		}
	}
	for _, name := range lines(t, pool, "SELECT relname FROM pg_class WHERE relkind = 'i' AND "+ours) {
		if !regexp.MustCompile(`_(pkey|key|idx)$`).MatchString(name) {
			t.Errorf("index %s", name)
		}
	}
}

// Whoever may create a schema can migrate once the roles exist; no superuser is needed.
func TestAPlainRoleCanMigrate(t *testing.T) {
	t.Parallel()
	pgtest.DB(t) // the roles exist
	pool := pgtest.Empty(t)
	role := "plain_" + lines(t, pool, "SELECT current_database()")[0][len("testdb_tpl_"):]
	exec1(t, pool, fmt.Sprintf("CREATE ROLE %q LOGIN", role))
	t.Cleanup(func() {
		_, err := pool.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf("DROP OWNED BY %[1]q CASCADE; DROP ROLE %[1]q", role))
		if err != nil {
			t.Error(err)
		}
	})
	exec1(t, pool, fmt.Sprintf("DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %%I TO %q', current_database()); END $$", role))
	config := pool.Config().Copy()
	config.ConnConfig.User = role
	plain, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plain.Close)
	if err := migrations.Up(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	populate(t, plain)
	if err := migrations.Down(t.Context(), plain); err != nil {
		t.Error(err)
	}
}
