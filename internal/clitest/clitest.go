// Package clitest runs the scripts that test the commands: real processes against
// databases of their own, with what differs between two runs masked.
package clitest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

// Main is a package's TestMain: program is what scripts and tests may run as a process.
func Main(m *testing.M, name string, program func(context.Context, cli.Env) cli.ExitCode) {
	testscript.Main(suite{m}, map[string]func(){name: func() {
		ctx, env := cli.Process()
		os.Exit(int(program(ctx, env)))
	}})
}

type suite struct{ *testing.M }

func (s suite) Run() int { return pgtest.Main(s.M) }

// Run runs the scripts in testdata. Beside testscript's own, they have these commands:
//
//	ledger                 DATABASE_URL is a fresh database with all migrations
//	shop                   ledger with the operations of catalog.yaml, a file every script has
//	emptydb                DATABASE_URL is a fresh database without any; DATABASE is its name
//	sql TEXT|FILE          run statements there as its owner
//	count N QUERY          the query returns that many rows there
//	as ROLE...             DATABASE_URL connects as a fresh user with those roles
//	code N COMMAND...      the command ends with that exit code
//	ref NAME FILE          the variable is the first reference in the file
//	prefix NAME TEXT N     the variable is the first N characters of the text
//	mask stdout|stderr     the last output becomes stdout, with times, references and addresses masked
func Run(t *testing.T) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Setup: func(e *testscript.Env) error {
			e.Values[tbKey{}] = e.T() // testscript's T is a *testing.T
			e.Setenv("USER", "tester")
			return os.WriteFile(filepath.Join(e.WorkDir, "catalog.yaml"), catalogYAML, 0o666)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"ledger":  func(ts *testscript.TestScript, _ bool, _ []string) { use(ts, pgtest.URL(tb(ts))) },
			"shop":    func(ts *testscript.TestScript, _ bool, _ []string) { use(ts, Shop(tb(ts))) },
			"emptydb": func(ts *testscript.TestScript, _ bool, _ []string) { use(ts, pgtest.EmptyURL(tb(ts))) },
			"sql":     sql,
			"as":      as,
			"code":    code,
			"count":   count,
			"mask":    mask,
			"ref":     ref,
			"prefix":  prefix,
		},
	})
}

//go:embed catalog.yaml
var catalogYAML []byte

// Shop is the URL of a fresh database with the operations charge_card.v1 and
// send_mail.v1.
func Shop(t testing.TB) string {
	t.Helper()
	url := pgtest.URL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	c, err := catalog.Parse("catalog.yaml", catalogYAML)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := catalog.Apply(t.Context(), pool, c, "tester"); err != nil {
		t.Fatal(err)
	}
	return url
}

// tb is the test that a script runs as.
func tb(ts *testscript.TestScript) testing.TB { return ts.Value(tbKey{}).(testing.TB) }

type tbKey struct{}

const (
	ownerEnv = "OWNER_URL"
	usersEnv = "USERS" // a character for each that the script has made
)

func use(ts *testscript.TestScript, url string) {
	ts.Setenv("DATABASE_URL", url)
	ts.Setenv(ownerEnv, url)
	conf, err := pgx.ParseConfig(url)
	ts.Check(err)
	ts.Setenv("DATABASE", conf.Database)
}

func sql(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 || neg {
		ts.Fatalf("usage: sql TEXT|FILE")
	}
	text := args[0]
	if strings.HasSuffix(text, ".sql") {
		text = ts.ReadFile(text)
	}
	ts.Check(execute(ts.Getenv(ownerEnv), text))
}

// execute runs statements one after the other, in one implicit transaction.
func execute(url, text string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.PgConn().Exec(ctx, text).ReadAll()
	return err
}

func count(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 || neg {
		ts.Fatalf("usage: count N QUERY")
	}
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, ts.Getenv(ownerEnv))
	ts.Check(err)
	defer func() { _ = conn.Close(ctx) }()
	var got string
	ts.Check(conn.QueryRow(ctx, "SELECT count(*)::text FROM ("+args[1]+") q").Scan(&got))
	if got != args[0] {
		ts.Fatalf("%s rows, not %s: %s", got, args[0], args[1])
	}
}

// as makes a user that is a member of the roles and of nothing else. Users belong to the
// cluster, so that its name has the database's, and a number.
func as(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: as ROLE...")
	}
	owner, err := pgx.ParseConfig(ts.Getenv(ownerEnv))
	ts.Check(err)
	ts.Setenv(usersEnv, ts.Getenv(usersEnv)+"1")
	user := owner.Database + "_" + strconv.Itoa(len(ts.Getenv(usersEnv))) // a name has 63 bytes at most
	name := pgx.Identifier{user}.Sanitize()
	ts.Check(execute(ts.Getenv(ownerEnv), "CREATE ROLE "+name+" LOGIN; GRANT "+strings.Join(args, ", ")+" TO "+name))
	ts.Defer(func() { _ = execute(ts.Getenv(ownerEnv), "DROP ROLE "+name) }) // the database itself is dropped
	url := ts.Getenv(ownerEnv)
	ts.Setenv("DATABASE_URL", strings.Replace(url, "//"+owner.User, "//"+user, 1))
}

func code(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 || neg {
		ts.Fatalf("usage: code N COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		ended, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Check(err)
		}
		got = ended.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s ended with exit code %d, not %d", args[1], got, want)
	}
}

func ref(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: ref NAME FILE")
	}
	found := references.FindString(ts.ReadFile(args[1]))
	if found == "" {
		ts.Fatalf("no reference in %s", args[1])
	}
	ts.Setenv(args[0], found)
}

func prefix(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: prefix NAME TEXT N")
	}
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	ts.Setenv(args[0], args[1][:n])
}

func mask(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: mask stdout|stderr")
	}
	_, err := io.WriteString(ts.Stdout(), Mask(ts.ReadFile(args[0])))
	ts.Check(err)
}

var (
	times      = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	references = regexp.MustCompile(`\b[0-9a-v]{32}\b`)
	uuids      = regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`)
	places     = regexp.MustCompile(`[^\s"]+[:/]\S*testdb_\S+ as \S+`)
)

// Mask replaces what differs between two runs, by texts of the same width where the
// commands write tables: times, references (numbered as they come), the ledger's id and
// the database's address.
func Mask(text string) string {
	text = times.ReplaceAllString(text, "2026-01-31T09:00:00.000Z")
	text = uuids.ReplaceAllString(text, "00000000-0000-0000-0000-000000000000")
	text = places.ReplaceAllString(text, "host/database as user")
	seen := map[string]string{}
	return references.ReplaceAllStringFunc(text, func(ref string) string {
		if seen[ref] == "" {
			seen[ref] = fmt.Sprintf("reference-%d%s", len(seen)+1, strings.Repeat("-", 32))[:32]
		}
		return seen[ref]
	})
}

// Root is the top of the repository, for tests in cmd/NAME.
func Root() string { return filepath.Join("..", "..") }
