package pgtest_test

import (
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

const countSchemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'outbox'"

func scan[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	v, err := pgx.CollectExactlyOneRow(must(pool.Query(t.Context(), sql, args...)), pgx.RowTo[T])
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func must(rows pgx.Rows, _ error) pgx.Rows { return rows } // Collect reports the error

func TestDatabasesAreMigratedAndApart(t *testing.T) {
	t.Parallel()
	for range 4 {
		t.Run("parallel", func(t *testing.T) {
			t.Parallel()
			pool := pgtest.DB(t)
			if n := scan[int](t, pool, countSchemas); n != 1 {
				t.Errorf("%d schemas", n)
			}
			if _, err := pool.Exec(t.Context(), "CREATE TABLE mine ()"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEmptyIsNotMigrated(t *testing.T) {
	t.Parallel()
	if n := scan[int](t, pgtest.Empty(t), countSchemas); n != 0 {
		t.Errorf("%d schemas", n)
	}
}

func TestDatabaseIsDroppedWithItsTest(t *testing.T) {
	t.Parallel()
	var name string
	t.Run("uses one", func(t *testing.T) {
		raw := pgtest.URL(t)
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		name = strings.TrimPrefix(u.Path, "/")
		conn, err := pgx.Connect(t.Context(), raw) // and leaves it open
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), "SELECT FROM outbox.schema_version"); err != nil {
			t.Error(err)
		}
	})
	if n := scan[int](t, pgtest.Empty(t), "SELECT count(*) FROM pg_database WHERE datname = $1", name); n != 0 {
		t.Errorf("database %s is still there", name)
	}
}

func TestEachVersion(t *testing.T) {
	t.Parallel()
	ran := map[string]bool{}
	pgtest.EachVersion(t, func(t *testing.T, pool func(testing.TB) *pgxpool.Pool) {
		for range 2 {
			db := pool(t)
			ran[scan[string](t, db, "SELECT split_part(current_setting('server_version'), '.', 1)")] = true
			if n := scan[int](t, db, countSchemas); n != 1 {
				t.Errorf("%d schemas", n)
			}
		}
		if _, version, ok := strings.Cut(t.Name(), "/postgres"); ok && !ran[version] {
			t.Errorf("%s ran on %v", t.Name(), ran)
		}
	})
	if len(ran) == 0 {
		t.Error("it ran on no version")
	}
}

func BenchmarkDB(b *testing.B) {
	pgtest.EmptyURL(b) // start the server
	pgtest.URL(b)      // and make the template
	for b.Loop() {
		pgtest.URL(b)
	}
}
