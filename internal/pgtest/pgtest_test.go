package pgtest_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestEmpty(t *testing.T) {
	t.Parallel()
	for range 4 {
		t.Run("parallel", func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Empty(t)
			if _, err := pool.Exec(t.Context(), "CREATE TABLE mine ()"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestEachVersion(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, pool func(testing.TB) *pgxpool.Pool) {
		var v string
		if err := pool(t).QueryRow(context.Background(), "SHOW server_version").Scan(&v); err != nil {
			t.Fatal(err)
		}
		t.Log(v)
	})
}
