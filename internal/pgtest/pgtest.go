// Package pgtest gives each test a database of its own.
//
// The server is the one that OUTBOX_TEST_DATABASE_URL or else DATABASE_URL names (a
// superuser's URL; databases and roles are made there), or a private one that the
// first call starts and Main stops. A migrated database is a copy of a template, so it
// costs tens of milliseconds however many migrations there are; the template is keyed
// by their checksum and shared by all processes that use the server.
//
// A database is dropped when its test ends. If the test failed it stays for a look,
// for as long as its server runs.
package pgtest

import (
	"context"
	"database/sql"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgtestdb uses
	"github.com/peterldowns/pgtestdb"
)

// maxConns keeps many parallel tests below the server's max_connections.
const maxConns = 8

// closeTimeout bounds the wait for connections that a test has not given back.
const closeTimeout = 10 * time.Second

// Main runs the tests of a package and stops the servers they started. Call it from
// TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
func Main(m *testing.M) int {
	defer stopServers()
	return m.Run()
}

// DB returns a pool on a fresh database with all migrations applied, dropped when t
// ends.
func DB(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return open(t, URL(t))
}

// Empty is DB without migrations.
func Empty(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return open(t, EmptyURL(t))
}

// URL is DB for a process that connects by itself. What is still connected when t ends
// is cut off.
func URL(t testing.TB) string {
	t.Helper()
	return create(t, serverOf(0), migrator{})
}

// EmptyURL is URL without migrations.
func EmptyURL(t testing.TB) string {
	t.Helper()
	return create(t, serverOf(0), pgtestdb.NoopMigrator{})
}

// EachVersion runs f as a subtest per Postgres version that the project promises to
// work with and this machine has: the oldest and the newest. pool is DB on that
// version.
func EachVersion(t *testing.T, f func(t *testing.T, pool func(testing.TB) *pgxpool.Pool)) {
	t.Helper()
	eachVersion(t, func(t *testing.T, s *server) {
		f(t, func(t testing.TB) *pgxpool.Pool {
			t.Helper()
			return open(t, create(t, s, migrator{}))
		})
	})
}

// create returns the URL of a fresh database.
func create(t testing.TB, s *server, m pgtestdb.Migrator) string {
	t.Helper()
	conf, err := s.config()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return pgtestdb.Custom(quiet{t}, conf, perServer{m, conf}).URL()
}

// perServer keys templates by server, too: pgtestdb remembers for the whole process
// which ones it has made, but not where.
type perServer struct {
	pgtestdb.Migrator
	conf pgtestdb.Config
}

func (p perServer) Hash() (string, error) {
	hash, err := p.Migrator.Hash()
	return hash + "@" + net.JoinHostPort(p.conf.Host, p.conf.Port), err
}

// quiet keeps the URL of every database out of the output of tests that pass.
type quiet struct{ testing.TB }

func (q quiet) Logf(format string, args ...any) {
	q.Cleanup(func() {
		if q.Failed() {
			q.TB.Logf(format, args...)
		}
	})
}

func open(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	cfg.MaxConns = maxConns
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			pool.Close()
			close(closed)
		}()
		select {
		case <-closed:
		case <-time.After(closeTimeout):
			t.Errorf("pgtest: the test did not give back %d connections", pool.Stat().AcquiredConns())
		}
	})
	return pool
}

// migrator applies the project's migrations to the template.
type migrator struct{}

func (migrator) Hash() (string, error) { return migrationsChecksum(), nil }

func (migrator) Migrate(ctx context.Context, _ *sql.DB, c pgtestdb.Config) error {
	pool, err := pgxpool.New(ctx, c.URL())
	if err != nil {
		return err
	}
	defer pool.Close()
	return migrationsUp(ctx, pool)
}
