// Package migrations carries the SQL of the schema outbox, and applies it together
// with River's own migrations.
//
// The files under sql/ are the schema; River's tables go into the same schema, so that
// one DROP SCHEMA removes everything. Up may be started by any number of processes at
// once: they take turns under one advisory lock, and all but the first find nothing to
// do. The lock belongs to a session, so migrate over a direct connection, not through a
// pooler in transaction mode. A crash in the middle leaves whole migrations applied and
// the rest pending; run Up again. This package imports nothing of ours.
package migrations

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

//go:embed sql/*.sql
var files embed.FS

// Schema is where everything lives.
const Schema = "outbox"

const (
	versionTable = Schema + ".schema_version"

	// lockKey is the advisory lock under which the migrators take turns: the first
	// bytes of the ASCII word "outbox".
	lockKey = 0x6f7574626f78
)

// Step is one migration and whether it has been applied.
type Step struct {
	Name      string    `json:"name"`
	Applied   bool      `json:"applied"`
	AppliedAt time.Time `json:"applied_at,omitzero"`
}

// Up brings the database to the newest version. It needs the right to create the
// schema and, the first time in a cluster, the roles outbox_app, outbox_worker,
// outbox_operator and outbox_retention. It waits for another Up on the same database
// as long as ctx allows.
func Up(ctx context.Context, pool *pgxpool.Pool) error {
	return locked(ctx, pool, func(m *migrator) error {
		if _, err := m.db.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+Schema); err != nil {
			return fmt.Errorf("create schema %s: %w", Schema, err)
		}
		if _, err := m.river.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return fmt.Errorf("apply River's migrations: %w", err)
		}
		if _, err := m.goose.Up(ctx); err != nil {
			return fmt.Errorf("apply migrations: %w", err)
		}
		return nil
	})
}

// Down removes the schema with everything in it: every intent, outcome and history
// entry. The roles stay, because another database of the cluster may use them.
func Down(ctx context.Context, pool *pgxpool.Pool) error {
	return locked(ctx, pool, func(m *migrator) error {
		if _, err := m.goose.DownTo(ctx, 0); err != nil {
			return fmt.Errorf("undo migrations: %w", err)
		}
		if _, err := m.river.Migrate(ctx, rivermigrate.DirectionDown, &rivermigrate.MigrateOpts{TargetVersion: -1}); err != nil {
			return fmt.Errorf("undo River's migrations: %w", err)
		}
		if _, err := m.db.ExecContext(ctx, "DROP SCHEMA "+Schema+" CASCADE"); err != nil {
			return fmt.Errorf("drop schema %s: %w", Schema, err)
		}
		return nil
	})
}

// Status lists every migration, River's first, and whether it has been applied. It
// changes nothing, and works on a database that has never been migrated.
func Status(ctx context.Context, pool *pgxpool.Pool) ([]Step, error) {
	m, err := open(pool)
	if err != nil {
		return nil, err
	}
	defer m.close()
	var exists bool
	if err := pool.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", versionTable).Scan(&exists); err != nil {
		return nil, fmt.Errorf("look for %s: %w", versionTable, err)
	}
	applied := map[int]bool{}
	if exists {
		done, err := m.river.ExistingVersions(ctx)
		if err != nil {
			return nil, fmt.Errorf("read River's migrations: %w", err)
		}
		for _, v := range done {
			applied[v.Version] = true
		}
	}
	var steps []Step
	for _, v := range m.river.AllVersions() {
		steps = append(steps, Step{Name: fmt.Sprintf("river %03d %s", v.Version, v.Name), Applied: applied[v.Version]})
	}
	if !exists {
		for _, s := range m.goose.ListSources() {
			steps = append(steps, Step{Name: baseName(s.Path)})
		}
		return steps, nil
	}
	states, err := m.goose.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	for _, s := range states {
		steps = append(steps, Step{Name: baseName(s.Source.Path), Applied: s.State == goose.StateApplied, AppliedAt: s.AppliedAt})
	}
	return steps, nil
}

// Print writes the whole schema as SQL, River's tables included, for teams that apply
// it with a tool of their own. Each block between two "-- migration:" lines is a
// transaction of its own: River adds enum values that a later block uses.
func Print(w io.Writer) error {
	river, err := rivermigrate.New(riverpgxv5.New(nil), &rivermigrate.Config{Schema: Schema})
	if err != nil {
		return fmt.Errorf("read River's migrations: %w", err)
	}
	if _, err := fmt.Fprintf(w, "-- migration: schema\nCREATE SCHEMA IF NOT EXISTS %s;\n", Schema); err != nil {
		return err
	}
	for _, v := range river.AllVersions() {
		// River's text names the schema by a placeholder that its driver fills in.
		up := strings.ReplaceAll(v.SQLUp, "/* TEMPLATE: schema */", Schema+".")
		if _, err := fmt.Fprintf(w, "\n-- migration: river %03d %s\n%s\n", v.Version, v.Name, strings.TrimSpace(up)); err != nil {
			return err
		}
	}
	names, err := fs.Glob(files, "sql/*.sql")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		up = gooseLine.ReplaceAllString(up, "")
		if _, err := fmt.Fprintf(w, "\n-- migration: %s\n%s\n", baseName(name), strings.TrimSpace(up)); err != nil {
			return err
		}
	}
	return nil
}

var gooseLine = regexp.MustCompile(`(?m)^-- \+goose .*\n`)

// Checksum identifies the schema that Up leaves behind: a hash over our files and the
// number of River's migrations.
func Checksum() string {
	h := sha256.New()
	if err := Print(h); err != nil {
		panic(err) // embedded files cannot fail to be read
	}
	return hex.EncodeToString(h.Sum(nil))
}

func baseName(path string) string {
	return strings.TrimSuffix(path[strings.LastIndexByte(path, '/')+1:], ".sql")
}

type migrator struct {
	db    *sql.DB
	goose *goose.Provider
	river *rivermigrate.Migrator[pgx.Tx]
}

func open(pool *pgxpool.Pool) (*migrator, error) {
	db := stdlib.OpenDBFromPool(pool)
	sub, err := fs.Sub(files, "sql")
	if err != nil {
		return nil, err
	}
	g, err := goose.NewProvider(goose.DialectPostgres, db, sub, goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read migrations: %w", err), db.Close())
	}
	r, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: Schema})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read River's migrations: %w", err), db.Close())
	}
	return &migrator{db: db, goose: g, river: r}, nil
}

func (m *migrator) close() { _ = m.db.Close() } // the pool stays open; nothing is lost

func locked(ctx context.Context, pool *pgxpool.Pool, do func(*migrator) error) (err error) {
	m, err := open(pool)
	if err != nil {
		return err
	}
	defer m.close()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", lockKey); err != nil {
		return fmt.Errorf("wait for another migration of this database: %w", err)
	}
	defer func() {
		_, unlockErr := conn.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", lockKey)
		err = errors.Join(err, unlockErr)
	}()
	return do(m)
}
