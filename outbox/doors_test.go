package outbox_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outbox-worker/outbox-worker/outbox"
)

// door is one application's transaction, through one of the ways to enqueue.
type door interface {
	enqueue(in outbox.Intent) (outbox.Answer, error)
	note(text string) error // the application's own work
	commit() error
	rollback() error // never fails after the end
}

// way is how an application reaches the door.
type way struct {
	name string
	// begin begins a transaction; without transactions each call commits by itself.
	begin        func(b *testBundle) door
	transactions bool
	// plain means that the database canonicalises, and so finds what is wrong.
	plain bool
}

var ways = []way{
	{name: "pgx.Tx", begin: pgxDoor(pgx.QueryExecModeCacheStatement), transactions: true},
	{name: "pgx.Tx, simple protocol", begin: pgxDoor(pgx.QueryExecModeSimpleProtocol), transactions: true},
	{name: "pgxpool.Pool", begin: poolDoor},
	{name: "sql.Tx", begin: sqlDoor, transactions: true},
	{name: "SQL through pgx", begin: plainDoor(pgx.QueryExecModeCacheDescribe), transactions: true, plain: true},
	{name: "SQL through pgx, simple protocol", begin: plainDoor(pgx.QueryExecModeSimpleProtocol), transactions: true, plain: true},
	{name: "psql", begin: psqlDoor, transactions: true, plain: true},
}

// eachWay runs f once for every way, on a database each.
func eachWay(t *testing.T, f func(t *testing.T, b *testBundle, w way)) {
	t.Helper()
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			if w.name == "psql" {
				needPsql(t)
			}
			f(t, setup(t), w)
		})
	}
}

func needPsql(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("psql"); err != nil {
		t.Skipf("psql is not on PATH: %v", err)
	}
}

const insertNote = "INSERT INTO public.notes VALUES ($1)"

type pgxTx struct {
	ctx context.Context
	pgx.Tx
}

func pgxDoor(mode pgx.QueryExecMode) func(b *testBundle) door {
	return func(b *testBundle) door { return pgxTx{b.ctx, beginIn(b, mode)} }
}

// beginIn begins a transaction whose statements are sent in the given mode.
func beginIn(b *testBundle, mode pgx.QueryExecMode) pgx.Tx {
	b.t.Helper()
	pool := b.app
	if mode != pgx.QueryExecModeCacheStatement {
		pool = b.pool(func(c *pgxpool.Config) {
			asApp(c)
			c.ConnConfig.DefaultQueryExecMode = mode
		})
	}
	tx, err := pool.Begin(b.ctx)
	b.must(err)
	b.t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(b.ctx)) })
	return tx
}

func (d pgxTx) enqueue(in outbox.Intent) (outbox.Answer, error) {
	return outbox.Enqueue(d.ctx, d.Tx, in)
}
func (d pgxTx) note(text string) error { _, err := d.Exec(d.ctx, insertNote, text); return err }
func (d pgxTx) commit() error          { return d.Commit(d.ctx) }
func (d pgxTx) rollback() error        { return ended(d.Rollback(d.ctx), pgx.ErrTxClosed) }

// plainTx enqueues in the caller's own SQL.
type plainTx struct{ pgxTx }

func plainDoor(mode pgx.QueryExecMode) func(b *testBundle) door {
	return func(b *testBundle) door { return plainTx{pgxTx{b.ctx, beginIn(b, mode)}} }
}

func (d plainTx) enqueue(in outbox.Intent) (a outbox.Answer, _ error) {
	var text string
	if err := d.QueryRow(d.ctx, callOf(in)).Scan(&text); err != nil {
		return a, err
	}
	return decodeAnswer(text)
}

// pool commits each call by itself.
type pool struct{ b *testBundle }

func poolDoor(b *testBundle) door { return pool{b} }

func (d pool) enqueue(in outbox.Intent) (outbox.Answer, error) {
	return outbox.Enqueue(d.b.ctx, d.b.app, in)
}

func (d pool) note(text string) error { _, err := d.b.app.Exec(d.b.ctx, insertNote, text); return err }
func (d pool) commit() error          { return nil }
func (d pool) rollback() error        { return nil }

type sqlTx struct {
	ctx context.Context
	*sql.Tx
}

func sqlDoor(b *testBundle) door {
	db := stdlib.OpenDBFromPool(b.app)
	b.t.Cleanup(func() { b.must(db.Close()) })
	tx, err := db.BeginTx(b.ctx, nil)
	b.must(err)
	b.t.Cleanup(func() { _ = tx.Rollback() })
	return sqlTx{b.ctx, tx}
}

func (d sqlTx) enqueue(in outbox.Intent) (outbox.Answer, error) {
	return outbox.EnqueueSQL(d.ctx, d.Tx, in)
}

func (d sqlTx) note(text string) error { _, err := d.ExecContext(d.ctx, insertNote, text); return err }
func (d sqlTx) commit() error          { return d.Commit() }
func (d sqlTx) rollback() error        { return ended(d.Rollback(), sql.ErrTxDone) }

func ended(err, over error) error {
	if errors.Is(err, over) {
		return nil
	}
	return err
}

// psql is a psql process that reads statements one by one.
type psql struct {
	in   io.WriteCloser
	out  *bufio.Reader
	errs *bytes.Buffer
}

func startPsql(b *testBundle) *psql {
	b.t.Helper()
	return startPsqlWith(b, "-qAtX")
}

func startPsqlWith(b *testBundle, flags string) *psql {
	b.t.Helper()
	cmd := exec.CommandContext(b.ctx, "psql", flags, "-v", "ON_ERROR_STOP=1", b.url)
	cmd.Env = append(os.Environ(), "PGOPTIONS=-c role=outbox_app", "PGCLIENTENCODING=UTF8")
	p := &psql{errs: &bytes.Buffer{}}
	cmd.Stderr = p.errs
	in, err := cmd.StdinPipe()
	b.must(err)
	out, err := cmd.StdoutPipe()
	b.must(err)
	p.in, p.out = in, bufio.NewReader(out)
	b.must(cmd.Start())
	b.t.Cleanup(func() {
		_ = in.Close() // the end of its input ends psql
		_ = cmd.Wait()
	})
	return p
}

func psqlDoor(b *testBundle) door {
	p := startPsql(b)
	_, err := p.run("BEGIN")
	b.must(err)
	return p
}

const endOfAnswer = "-- that was it"

// run runs one statement and returns what psql printed.
func (p *psql) run(statement string) (string, error) {
	if _, err := fmt.Fprintf(p.in, "%s;\n\\echo '%s'\n", statement, endOfAnswer); err != nil {
		return "", err
	}
	var printed strings.Builder
	for {
		line, err := p.out.ReadString('\n')
		if err != nil {
			return "", fmt.Errorf("psql: %w: %s", err, p.errs)
		}
		if strings.TrimSpace(line) == endOfAnswer {
			return strings.TrimSuffix(printed.String(), "\n"), nil
		}
		printed.WriteString(line)
	}
}

func (p *psql) enqueue(in outbox.Intent) (a outbox.Answer, _ error) {
	text, err := p.run(callOf(in))
	if err != nil {
		return a, err
	}
	return decodeAnswer(text)
}

func (p *psql) note(text string) error {
	_, err := p.run("INSERT INTO public.notes VALUES (" + literal(text) + ")")
	return err
}
func (p *psql) commit() error   { _, err := p.run("COMMIT"); return err }
func (p *psql) rollback() error { _, err := p.run("ROLLBACK"); return err }
