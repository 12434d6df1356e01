package main

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/internal/pgtest"
)

// says is what one check of the doctor finds.
func says(t *testing.T, pool *pgxpool.Pool, check func(*doctor, context.Context) (bool, error)) string {
	t.Helper()
	d := &doctor{pool: pool}
	if _, err := check(d, t.Context()); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range d.Findings {
		text := f.Status + ": " + f.Detail
		if f.Hint != "" {
			text += " → " + f.Hint
		}
		all = append(all, text)
	}
	return strings.Join(all, "\n")
}

func run(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func finds(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("found %s\nwant  %s", got, want)
	}
}

func TestTheDoctorKnowsTheMigrationsSettings(t *testing.T) {
	t.Parallel()
	has, err := (&doctor{pool: pgtest.DB(t)}).reloptions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for table, options := range has {
		if !reflect.DeepEqual(append([]string{}, tableSettings[table]...), options) {
			t.Errorf("outbox.%s has %v after the migrations, and %v in tableSettings", table, options, tableSettings[table])
		}
	}
	for table := range tableSettings {
		if has[table] == nil {
			t.Errorf("tableSettings has outbox.%s, and the schema has not", table)
		}
	}
}

func TestTheDoctorFindsSettingsThatWereLost(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	const fine = "ok: tables are stored and vacuumed as the migrations say"
	finds(t, says(t, pool, (*doctor).settings), fine)
	run(t, pool, "ALTER TABLE outbox.outbox RESET (autovacuum_vacuum_scale_factor)")
	finds(t, says(t, pool, (*doctor).settings), "warning: outbox.outbox has not the settings that it was made with: autovacuum_vacuum_scale_factor=0.02 → ALTER TABLE outbox.outbox SET (autovacuum_vacuum_scale_factor=0.02)")
	run(t, pool, "ALTER TABLE outbox.outbox SET (autovacuum_vacuum_scale_factor=0.02)") // as the hint says
	run(t, pool, "ALTER TABLE outbox.river_job SET (autovacuum_enabled = off)")
	finds(t, says(t, pool, (*doctor).settings), "warning: autovacuum is off for outbox.river_job → ALTER TABLE outbox.river_job RESET (autovacuum_enabled)")
	run(t, pool, "ALTER TABLE outbox.river_job RESET (autovacuum_enabled)")
	finds(t, says(t, pool, (*doctor).settings), fine)
}

// A backlog that came and went leaves dead rows, and when those are gone, empty pages.
func TestTheDoctorFindsBloat(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	const fine = "ok: no table is much larger than its rows"
	finds(t, says(t, pool, (*doctor).bloat), fine)
	run(t, pool, "ALTER TABLE outbox.river_job SET (autovacuum_enabled = off)")
	run(t, pool, `INSERT INTO outbox.river_job (kind, args, max_attempts, state)
		SELECT 'x', jsonb_build_object('text', repeat('x', 600)), 1, 'available' FROM generate_series(1, 120000)`)
	run(t, pool, "DELETE FROM outbox.river_job")
	counted(t, pool)
	got := says(t, pool, (*doctor).bloat)
	for _, want := range []string{
		"warning: outbox.river_job has 120000 dead rows beside 0, and was last vacuumed never → ",
		"MB for 0 rows; a backlog or a long snapshot has left it so → when it is vacuumed: REINDEX TABLE CONCURRENTLY outbox.river_job",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("found %s\nwant  %s", got, want)
		}
	}
	run(t, pool, "VACUUM outbox.river_job")
	run(t, pool, "VACUUM FULL outbox.river_job")
	counted(t, pool)
	finds(t, says(t, pool, (*doctor).bloat), fine)
}

// counted waits for the statistics of what went before, on every connection of the pool.
func counted(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for _, c := range pool.AcquireAllIdle(t.Context()) {
		if _, err := c.Exec(t.Context(), "SELECT pg_stat_force_next_flush()"); err != nil {
			t.Fatal(err)
		}
		c.Release()
	}
}

func TestTheDoctorCountsConnections(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	with := func(conns int32) string {
		config, err := pgxpool.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		config.MaxConns = conns
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		run(t, pool, "INSERT INTO outbox.lanes (name, provider) VALUES ('a', 'a'), ('b', 'b') ON CONFLICT DO NOTHING")
		return says(t, pool, (*doctor).connections)
	}
	finds(t, with(3), "error: a pool of 3 connections is too small for a worker, which refuses to start with less than 4 → set database.max_conns to 11")
	finds(t, with(10), "warning: a pool of 10 connections is small for 2 lanes: statements wait for each other → set database.max_conns to 11")
	if got := with(11); !strings.HasPrefix(got, "ok: a worker may open 13; the server has ") {
		t.Errorf("found %s", got)
	}
	if got := with(5000); !strings.HasPrefix(got, "warning: one worker may open 5002, and the server takes ") {
		t.Errorf("found %s", got)
	}
}

// What keeps vacuum from its work: a session that forgot its transaction, and a slot that
// nobody reads.
func TestTheDoctorFindsLongSnapshots(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SET LOCAL application_name = 'forgotten'; SELECT FROM outbox.ledger"); err != nil {
		t.Fatal(err)
	}
	at := func(limit float64) string {
		return says(t, pool, func(d *doctor, ctx context.Context) (bool, error) { return d.snapshotsOver(ctx, limit) })
	}
	finds(t, at(3600), "ok: no transaction is older than 1h0m")
	if got := at(0); !strings.Contains(got, "(forgotten, idle in transaction) holds a snapshot open for ") {
		t.Errorf("found %s", got)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := at(0); strings.Contains(got, "forgotten") {
		t.Errorf("found %s", got)
	}
}
