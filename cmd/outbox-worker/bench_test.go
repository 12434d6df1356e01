package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/internal/pgtemp"
	"github.com/outbox-worker/outbox-worker/migrations"
)

// benchBundle is a server of its own, because roles and databases are looked at.
type benchBundle struct {
	t      *testing.T
	ctx    context.Context
	server *pgtemp.Server
	admin  *pgx.Conn
}

func benchSetup(t *testing.T) *benchBundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	b := &benchBundle{t: t, ctx: ctx}
	var err error
	b.server, err = pgtemp.Start(ctx, pgtemp.Options{Fast: true})
	b.must(err)
	t.Cleanup(func() { b.must(b.server.Stop()) })
	b.admin, err = pgx.Connect(ctx, b.server.URL())
	b.must(err)
	t.Cleanup(func() { b.must(b.admin.Close(context.WithoutCancel(ctx))) })
	return b
}

func (b *benchBundle) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *benchBundle) exec(statements ...string) {
	b.t.Helper()
	for _, sql := range statements {
		if _, err := b.admin.Exec(b.ctx, sql); err != nil {
			b.t.Fatalf("%v: %s", err, sql)
		}
	}
}

// url names another user or database; "" for those of the server.
func (b *benchBundle) url(user, database string) string {
	b.t.Helper()
	u, err := url.Parse(b.server.URL())
	b.must(err)
	if user != "" {
		u.User = url.User(user)
	}
	if database != "" {
		u.Path = "/" + database
	}
	return u.String()
}

// cluster is what a run may not change: databases, roles, members, and the schemas of
// every database.
func (b *benchBundle) cluster() string {
	b.t.Helper()
	all := b.lines("", `SELECT 'database ' || datname FROM pg_database UNION ALL SELECT 'role ' || rolname FROM pg_roles
		UNION ALL SELECT format('member %s %s', roleid::regrole, member::regrole) FROM pg_auth_members ORDER BY 1`)
	for _, line := range all {
		if name, ok := strings.CutPrefix(line, "database "); ok && name != "template0" {
			all = append(all, b.lines(name, `SELECT format('schema %s %s', current_database(), nspname) FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp' ORDER BY 1`)...)
		}
	}
	return strings.Join(all, "\n")
}

func (b *benchBundle) lines(database, sql string) []string {
	b.t.Helper()
	conn, err := pgx.Connect(b.ctx, b.url("", database))
	b.must(err)
	defer func() { b.must(conn.Close(b.ctx)) }()
	rows, err := conn.Query(b.ctx, sql)
	b.must(err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	b.must(err)
	return all
}

type benchRun struct {
	code           cli.ExitCode
	stdout, stderr string
}

// tiny makes a run as short as it can be.
var tiny = []string{"--rounds", "1", "--span", "50ms", "--intents", "200"}

// run runs bench at the URL; told, if there is one, hears each line of standard error.
func (b *benchBundle) run(ctx context.Context, at string, told func(line string), args ...string) benchRun {
	b.t.Helper()
	var stdout bytes.Buffer
	stderr := &listener{told: told}
	code := Main(ctx, cli.Env{Args: slices.Concat([]string{"bench"}, tiny, args), Environ: []string{"DATABASE_URL=" + at}, Stdout: &stdout, Stderr: stderr})
	return benchRun{code, stdout.String(), stderr.text.String()}
}

func (b *benchBundle) want(got benchRun, code cli.ExitCode, stderr string) {
	b.t.Helper()
	if got.code != code || !strings.Contains(got.stderr, stderr) {
		b.t.Fatalf("exit code %d, not %d with %q on standard error:\n%s", got.code, code, stderr, got.stderr)
	}
}

func (b *benchBundle) unchanged(before string) {
	b.t.Helper()
	if after := b.cluster(); after != before {
		b.t.Fatalf("left behind:\n%s\n\nbefore:\n%s", after, before)
	}
}

// listener is a writer whose lines are heard before the next one is written.
type listener struct {
	told func(line string)
	text bytes.Buffer
}

func (l *listener) Write(p []byte) (int, error) {
	l.text.Write(p)
	if l.told != nil {
		l.told(string(p))
	}
	return len(p), nil
}

func TestBenchMeasuresAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	b := benchSetup(t)
	b.exec("CREATE ROLE measurer LOGIN CREATEDB CREATEROLE")
	before := b.cluster()
	var first string
	got := b.run(b.ctx, b.url("measurer", ""), func(line string) {
		if first == "" {
			first = line
			b.unchanged(before) // it is said before it is done
		}
	}, "-o", "json")
	b.want(got, cli.OK, "dropped what was made")
	b.unchanged(before)
	if !strings.HasPrefix(first, "making the database "+b.server.Address()+"/outbox_bench_main_") ||
		!strings.Contains(first, "with the roles outbox_app, outbox_worker, outbox_operator, outbox_retention") {
		t.Errorf("it begins with %q", first)
	}
	var answer struct {
		Server struct {
			Postgres  string
			Fsync     string
			RoundTrip float64 `json:"round_trip_ms"`
		}
		Figures []map[string]any
	}
	b.must(json.Unmarshal([]byte(got.stdout), &answer))
	if answer.Server.Postgres == "" || answer.Server.Fsync != "off" || answer.Server.RoundTrip <= 0 {
		t.Errorf("server: %+v", answer.Server)
	}
	var ids []string
	for _, f := range answer.Figures {
		ids = append(ids, fmt.Sprint(f["id"]))
		names := []string{"value", "low", "high"}
		if f["group"] != "latency" {
			names = append(names, "baseline", "ratio", "ratio_low", "ratio_high")
		}
		for _, name := range names {
			// In so short a time nothing may be settled live.
			if x, _ := f[name].(float64); x <= 0 && f["group"] != "live" {
				t.Errorf("figure %v has %s %v", f["id"], name, f[name])
			}
		}
		if f["goal"] != nil || f["missed"] != nil {
			t.Errorf("figure %v has a goal, and this machine is not ours", f["id"])
		}
	}
	if want := "1 2 3 4 5 6 6a-river 6a-floor 7-p50 7-p99 15-conflict 15-in-flight 15-settled"; strings.Join(ids, " ") != want {
		t.Errorf("figures %v, not %s", ids, want)
	}
}

func TestBenchCutOffLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	b := benchSetup(t)
	before := b.cluster()
	// While the database is made, and as soon as each kind of figure has begun.
	for _, at := range []string{"making", "enqueue, one producer", "EnqueueMany", "end to end, no-op", "live"} {
		ctx, cancel := context.WithCancel(b.ctx)
		got := b.run(ctx, b.server.URL(), func(line string) {
			if strings.HasPrefix(line, at) {
				cancel()
			}
		})
		cancel()
		b.want(got, cli.Interrupted, "interrupted")
		if got.stdout != "" {
			t.Errorf("cut off at %q it printed %q", at, got.stdout)
		}
		b.unchanged(before)
	}
	// Somebody else cuts the connections off: an error on the way.
	got := b.run(b.ctx, b.server.URL(), func(line string) {
		if strings.HasPrefix(line, "enqueue, 8 producers") {
			b.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'outbox_bench_%'")
		}
	})
	b.want(got, cli.Failure, "dropped what was made")
	b.unchanged(before)
}

func TestBenchDropsADatabaseThatSomebodyLooksAt(t *testing.T) {
	t.Parallel()
	b := benchSetup(t)
	before := b.cluster()
	var visitor *pgx.Conn
	got := b.run(b.ctx, b.server.URL(), func(line string) {
		if visitor == nil && strings.HasPrefix(line, "enqueue") {
			var err error
			visitor, err = pgx.Connect(b.ctx, b.url("", b.lines("", "SELECT datname FROM pg_database WHERE datname LIKE 'outbox_bench_%'")[0]))
			b.must(err)
		}
	}, "--only", "enqueue")
	b.want(got, cli.OK, "dropped what was made")
	if visitor == nil || visitor.Ping(b.ctx) == nil {
		t.Error("nobody looked, or is still looking")
	}
	b.unchanged(before)
}

func TestBenchSaysWhichRightIsMissing(t *testing.T) {
	t.Parallel()
	b := benchSetup(t)
	b.exec("CREATE ROLE nobody_much LOGIN", "CREATE ROLE measurer LOGIN CREATEDB", "CREATE DATABASE scratch", "CREATE DATABASE own OWNER measurer")
	before := b.cluster()
	b.want(b.run(b.ctx, b.url("nobody_much", ""), nil), cli.Failure, "nobody_much may not create databases (create an empty database and give it with --in DBNAME")
	b.want(b.run(b.ctx, b.url("measurer", ""), nil), cli.Failure, "may not create the roles")
	b.unchanged(before)

	// With the roles there, CREATEDB is enough, and they stay.
	for _, role := range migrations.Roles {
		b.exec("CREATE ROLE " + role)
	}
	before = b.cluster()
	b.want(b.run(b.ctx, b.url("measurer", ""), nil, "--only", "enqueue"), cli.OK, "")
	b.want(b.run(b.ctx, b.url("nobody_much", ""), nil, "--in", "scratch"), cli.Failure, "nobody_much may not create schemas in scratch (GRANT CREATE")
	b.exec("ALTER ROLE measurer NOCREATEDB")
	got := b.run(b.ctx, b.url("measurer", ""), nil, "--in", "own", "--only", "enqueue,drain")
	b.want(got, cli.OK, "making the schemas outbox and outbox_bench in "+b.server.Address()+"/own;")
	b.want(b.run(b.ctx, b.url("measurer", ""), nil, "--in", "nowhere"), cli.Failure, `database "nowhere" does not exist`)
	b.unchanged(before)
}

func TestBenchTouchesNoLedger(t *testing.T) {
	t.Parallel()
	b := benchSetup(t)
	b.exec("CREATE DATABASE shop", "CREATE DATABASE leftover")
	if code := Main(b.ctx, cli.Env{Args: []string{"migrate"}, Environ: []string{"DATABASE_URL=" + b.url("", "shop")}, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}}); code != cli.OK {
		t.Fatalf("migrate: %d", code)
	}
	b.lines("leftover", "CREATE SCHEMA outbox_bench")
	// Every object with the transaction that wrote it, and every row of the ledger's own.
	objects := `SELECT format('%s %s %s', c.oid::regclass, c.relfilenode, c.xmin) FROM pg_class c ORDER BY 1`
	ledger := `SELECT ledger::text || xmin FROM outbox.ledger`
	before := []any{b.cluster(), b.lines("shop", objects), b.lines("leftover", objects), b.lines("shop", ledger)}
	for _, in := range []string{"shop", "leftover"} {
		b.want(b.run(b.ctx, b.url("", "shop"), nil, "--in", in), cli.Refused, "outbox-worker: the database "+in+" has a schema outbox or outbox_bench, which is not touched (give an empty database)")
	}
	// Beside a ledger on the same server it measures in a database of its own.
	b.want(b.run(b.ctx, b.url("", "shop"), nil, "--only", "enqueue,drain"), cli.OK, "making the database ")
	after := []any{b.cluster(), b.lines("shop", objects), b.lines("leftover", objects), b.lines("shop", ledger)}
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("before:\n%v\nafter:\n%v", before, after)
	}
}

func TestBenchKeepsRolesThatOthersHaveBegunToUse(t *testing.T) {
	t.Parallel()
	b := benchSetup(t)
	b.exec("CREATE ROLE shop LOGIN", "CREATE TABLE orders ()")
	got := b.run(b.ctx, b.server.URL(), func(line string) {
		if strings.HasPrefix(line, "enqueue, one producer") {
			b.exec("GRANT outbox_app TO shop", "GRANT SELECT ON orders TO outbox_worker")
		}
	}, "--only", "enqueue")
	b.want(got, cli.OK, "the role outbox_app stays: somebody else has begun to use it\nthe role outbox_worker stays")
	roles := strings.Join(b.lines("", "SELECT rolname FROM pg_roles WHERE rolname LIKE 'outbox%' ORDER BY 1"), " ")
	members := b.lines("", "SELECT format('%s %s', roleid::regrole, member::regrole) FROM pg_auth_members WHERE roleid::regrole::text LIKE 'outbox%'")
	if roles != "outbox_app outbox_worker" || fmt.Sprint(members) != "[outbox_app shop]" {
		t.Errorf("roles %s, members %v", roles, members)
	}
}

func TestBenchSaysWhatItCouldNotDrop(t *testing.T) {
	t.Parallel()
	b := benchSetup(t)
	var owned string
	got := b.run(b.ctx, b.server.URL(), func(line string) {
		if strings.HasPrefix(line, "enqueue, one producer") {
			owned = b.lines("", "SELECT datname FROM pg_database WHERE datname LIKE 'outbox_bench_%'")[0]
			b.exec("ALTER DATABASE " + owned + " IS_TEMPLATE true")
		}
	}, "--only", "enqueue")
	b.want(got, cli.Failure, "the database "+owned)
	b.want(got, cli.Failure, `DROP DATABASE IF EXISTS "`+owned+`"`)
}

func TestBenchRefusesAStandby(t *testing.T) {
	t.Parallel()
	b := benchSetup(t)
	standby, err := b.server.Standby(b.ctx, "")
	b.must(err)
	t.Cleanup(func() { b.must(standby.Stop()) })
	b.want(b.run(b.ctx, standby.URL(), nil), cli.Refused, "this is a standby, and measuring writes (connect to the primary")
}
