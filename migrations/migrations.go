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

// Roles are those that Up creates where they do not exist. They belong to the whole
// cluster.
var Roles = []string{"outbox_app", "outbox_worker", "outbox_operator", "outbox_retention"}

const (
	versionTable = Schema + ".schema_version"
	riverTable   = Schema + ".river_migration"

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
	var exists, riverExists bool // a crash may have left the one without the other
	if err := pool.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL, to_regclass($2) IS NOT NULL", versionTable, riverTable).
		Scan(&exists, &riverExists); err != nil {
		return nil, fmt.Errorf("look for %s: %w", versionTable, err)
	}
	applied := map[int]bool{}
	if riverExists {
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
// transaction of its own: River adds enum values that a later block uses. Each also
// records that it was applied, so that Status tells the truth and Up may go on later.
func Print(w io.Writer) error {
	river, err := rivermigrate.New(riverpgxv5.New(nil), &rivermigrate.Config{Schema: Schema})
	if err != nil {
		return fmt.Errorf("read River's migrations: %w", err)
	}
	if _, err := fmt.Fprintf(w, "-- migration: schema\nCREATE SCHEMA IF NOT EXISTS %s;\n%s\n", Schema, createVersionTable); err != nil {
		return err
	}
	for _, v := range river.AllVersions() {
		// River's text names the schema by a placeholder that its driver fills in.
		up := strings.ReplaceAll(v.SQLUp, "/* TEMPLATE: schema */", Schema+".")
		// The column line came with version 5.
		record := fmt.Sprintf("INSERT INTO %s (version) VALUES (%d);", riverTable, v.Version)
		if v.Version >= 5 {
			record = fmt.Sprintf("INSERT INTO %s (line, version) VALUES ('main', %d);", riverTable, v.Version)
		}
		if _, err := fmt.Fprintf(w, "\n-- migration: river %03d %s\n%s\n%s\n", v.Version, v.Name, strings.TrimSpace(up), record); err != nil {
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
		version, err := goose.NumericComponent(name)
		if err != nil {
			return err
		}
		record := fmt.Sprintf("INSERT INTO %s (version_id, is_applied) VALUES (%d, true);", versionTable, version)
		if _, err := fmt.Fprintf(w, "\n-- migration: %s\n%s\n%s\n", baseName(name), strings.TrimSpace(up), record); err != nil {
			return err
		}
	}
	return nil
}

// createVersionTable is what goose does first; a test compares the two.
const createVersionTable = `CREATE TABLE ` + versionTable + ` (
    id         integer   PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY,
    version_id bigint    NOT NULL,
    is_applied boolean   NOT NULL,
    tstamp     timestamp NOT NULL DEFAULT now()
);
INSERT INTO ` + versionTable + ` (version_id, is_applied) VALUES (0, true);`

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

// locked runs do under the lock, which a connection beside the pool holds: a pool of one
// connection would wait for itself.
func locked(ctx context.Context, pool *pgxpool.Pool, do func(*migrator) error) (err error) {
	m, err := open(pool)
	if err != nil {
		return err
	}
	defer m.close()
	config := pool.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return fmt.Errorf("connect: %w", err)
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // frees the lock in any case
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", lockKey); err != nil {
		return fmt.Errorf("wait for another migration of this database: %w", err)
	}
	return do(m)
}
