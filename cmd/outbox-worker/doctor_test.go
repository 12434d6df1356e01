package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/dispatch"
	"github.com/outbox-worker/outbox-worker/internal/pgtemp"
	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/migrations"
	"github.com/outbox-worker/outbox-worker/providers"
)

// When this fails, a migration has changed a storage parameter: paste what it prints.
func TestTableSettingsAreThoseOfTheMigrations(t *testing.T) {
	t.Parallel()
	have, err := readSettings(t.Context(), pgtest.DB(t))
	if err != nil {
		t.Fatal(err)
	}
	got := "\n"
	for _, name := range slices.Sorted(maps.Keys(have)) {
		for _, key := range slices.Sorted(maps.Keys(have[name].options)) {
			got += fmt.Sprintf("%s %s=%s\n", name, key, have[name].options[key])
		}
	}
	if got != tableSettings {
		t.Errorf("doctor_settings.go has to have\n\nconst tableSettings = `%s`", got)
	}
}

func TestSameSetting(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"70", "70", true},
		{"0.02", "0.020", true},
		{"0.02", "0.2", false},
		{"on", "true", true},
		{"ON", "yes", true},
		{"on", "off", false},
		{"false", "no", true},
		{"70", "on", false},
		{"on", "70", false},
	} {
		if sameSetting(c.a, c.b) != c.same {
			t.Errorf("%s and %s: not %v", c.a, c.b, c.same)
		}
	}
}

func TestClocksAreComparedAsFarAsTheAnswersAllow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		skew, unsure time.Duration
		want         string
	}{
		{0, time.Millisecond, "ok: this machine and the database agree"},
		{skewLimit + time.Millisecond, time.Millisecond, "ok: this machine and the database agree"},
		{skewLimit + 2*time.Millisecond, time.Millisecond, "warning: the database's clock is 2.002s ahead of this machine's"},
		{-time.Minute, time.Millisecond, "warning: the database's clock is 1m0s behind this machine's"},
		{time.Second, 3 * time.Second, "warning: an answer takes 6s, so the clocks cannot be compared"},
	} {
		d := &doctor{}
		d.judgeClock(c.skew, c.unsure)
		if got := d.Findings[0].Status + ": " + d.Findings[0].Detail; got != c.want || len(d.Findings) != 1 {
			t.Errorf("%s±%s: %s, not %s", c.skew, c.unsure, got, c.want)
		}
	}
}

// doctorBundle is a server whose settings a test may change, because nobody else uses it.
type doctorBundle struct {
	t      *testing.T
	ctx    context.Context
	url    string
	pool   *pgxpool.Pool
	writer *pgx.Conn
	limits limits
}

func doctorSetup(t *testing.T, settings map[string]string) *doctorBundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	server, err := pgtemp.Start(ctx, pgtemp.Options{Fast: true, Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	b := &doctorBundle{t: t, ctx: ctx, url: server.URL(), limits: usual}
	b.pool = b.open("test", 1)
	b.must(migrations.Up(ctx, b.pool))
	b.writer = b.session("test")
	return b
}

func (b *doctorBundle) open(name string, conns int32) *pgxpool.Pool {
	b.t.Helper()
	config, err := pgxpool.ParseConfig(b.url)
	b.must(err)
	config.MaxConns = conns
	config.ConnConfig.RuntimeParams["application_name"] = name
	pool, err := pgxpool.NewWithConfig(b.ctx, config)
	b.must(err)
	b.t.Cleanup(pool.Close)
	return pool
}

func (b *doctorBundle) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// exec runs statements on one connection, and has their counters counted at once.
func (b *doctorBundle) exec(statements ...string) {
	b.t.Helper()
	for _, sql := range statements {
		b.in(b.writer, sql)
		b.in(b.writer, `SELECT pg_stat_force_next_flush()`)
	}
}

// session is a connection of its own, closed with the test.
func (b *doctorBundle) session(name string) *pgx.Conn {
	b.t.Helper()
	config, err := pgx.ParseConfig(b.url)
	b.must(err)
	config.RuntimeParams["application_name"] = name
	conn, err := pgx.ConnectConfig(b.ctx, config)
	b.must(err)
	b.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (b *doctorBundle) in(conn *pgx.Conn, sql string) {
	b.t.Helper()
	if _, err := conn.Exec(b.ctx, sql); err != nil {
		b.t.Fatalf("%v: %s", err, sql)
	}
}

// finds runs checks and returns their findings.
func (b *doctorBundle) finds(checks ...func(*doctor, context.Context) (bool, error)) []finding {
	b.t.Helper()
	d := &doctor{pool: b.pool, limits: b.limits, sees: true}
	for _, check := range checks {
		if _, err := check(d, b.ctx); err != nil {
			b.t.Fatal(err)
		}
	}
	return d.Findings
}

// expects wants the only finding to be a status with texts in its detail and hint.
func (b *doctorBundle) expects(found []finding, status, detail, hint string) {
	b.t.Helper()
	if len(found) != 1 || found[0].Status != status || !strings.Contains(found[0].Detail, detail) || !strings.Contains(found[0].Hint, hint) {
		b.t.Errorf("found %+v, and wanted %s: %s → %s", found, status, detail, hint)
	}
}

const wellSnapshots = "none is older than"

func TestWhatKeepsVacuumBackIsFoundUntilItEnds(t *testing.T) {
	t.Parallel()
	b := doctorSetup(t, map[string]string{"max_prepared_transactions": "2", "autovacuum": "off"})
	well := func() {
		t.Helper()
		b.expects(b.finds((*doctor).snapshots), statusOK, wellSnapshots, "")
	}
	well()

	// A session that looks at the data as it was.
	reader := b.session("report")
	b.in(reader, `BEGIN ISOLATION LEVEL REPEATABLE READ`)
	b.in(reader, `SELECT FROM outbox.lanes`)
	well() // it is young
	pid := reader.PgConn().PID()
	b.limits.snapshot = 0
	b.expects(b.finds((*doctor).snapshots), statusWarning, fmt.Sprintf("session %d (report, idle in transaction) holds a snapshot open for ", pid), fmt.Sprintf("SELECT pg_terminate_backend(%d); Set statement_timeout", pid))
	b.limits.snapshot, b.limits.idle = usual.snapshot, 0
	b.expects(b.finds((*doctor).snapshots), statusWarning, fmt.Sprintf("session %d (report, idle in transaction) has not ended its transaction for ", pid), "idle_in_transaction_session_timeout")
	b.in(reader, `COMMIT`)
	well()

	// One that holds nothing but its transaction is no snapshot.
	b.in(reader, `BEGIN`)
	b.in(reader, `SELECT FROM outbox.lanes`)
	b.limits.snapshot, b.limits.idle = 0, usual.idle
	well()
	b.in(reader, `INSERT INTO outbox.lanes (name, provider) VALUES ('a', 'a')`)
	b.expects(b.finds((*doctor).snapshots), statusWarning, "holds a snapshot open", "pg_terminate_backend")
	b.in(reader, `ROLLBACK`)
	well()

	// Nor is a vacuum, however long it takes.
	b.exec(`CREATE TABLE large AS SELECT n FROM generate_series(1, 20000) n`)
	cleaner := b.session("cleaner")
	b.in(cleaner, `SET vacuum_cost_delay = 100`)
	b.in(cleaner, `SET vacuum_cost_limit = 1`)
	cleaned := make(chan error, 1)
	go func() {
		_, err := cleaner.Exec(b.ctx, `VACUUM large`)
		cleaned <- err
	}()
	b.await(`SELECT EXISTS (SELECT FROM pg_stat_progress_vacuum)`)
	well()
	b.exec(fmt.Sprintf(`SELECT pg_cancel_backend(%d)`, cleaner.PgConn().PID()))
	if code := sqlstate(<-cleaned); code != "57014" { // query_canceled
		t.Fatalf("the vacuum ended before it was looked for: %s", code)
	}

	// What is prepared belongs to no session.
	b.in(reader, `BEGIN`)
	b.in(reader, `PREPARE TRANSACTION 'it''s'`)
	b.expects(b.finds((*doctor).snapshots), statusWarning, "prepared transaction 'it''s' holds a snapshot open for ", "COMMIT PREPARED 'it''s'; or ROLLBACK PREPARED 'it''s';")
	b.limits = usual
	well()
	b.in(reader, `ROLLBACK PREPARED 'it''s'`)
	b.limits.snapshot = 0
	well()

	// A standby, by its feedback, with and without a slot; then its slot alone.
	b.limits = usual
	s := b.standby("")
	s.wants(b.xmin())
	b.await(`SELECT EXISTS (SELECT FROM pg_stat_replication WHERE backend_xmin IS NOT NULL)`)
	well()
	b.limits.xids = 3
	b.exec(`SELECT pg_current_xact_id()`, `SELECT pg_current_xact_id()`, `SELECT pg_current_xact_id()`, `SELECT pg_current_xact_id()`)
	b.expects(b.finds((*doctor).snapshots), statusWarning, "standby copy, by its hot_standby_feedback, holds a snapshot open since 4 transactions", "end the long transaction on the standby")
	s.close()
	b.await(`SELECT NOT EXISTS (SELECT FROM pg_stat_replication)`)
	well()

	s = b.standby("kept")
	s.wants(b.xmin())
	b.await(`SELECT EXISTS (SELECT FROM pg_replication_slots WHERE xmin IS NOT NULL)`)
	well()
	b.exec(`SELECT pg_current_xact_id()`, `SELECT pg_current_xact_id()`, `SELECT pg_current_xact_id()`, `SELECT pg_current_xact_id()`)
	b.expects(b.finds((*doctor).snapshots), statusWarning, "replication slot kept, in use holds a snapshot open since 4 transactions", "hot_standby_feedback = off")
	s.close()
	b.await(`SELECT NOT active FROM pg_replication_slots`)
	b.expects(b.finds((*doctor).snapshots), statusWarning, "replication slot kept, not in use holds a snapshot open since 4 transactions", "SELECT pg_drop_replication_slot('kept');")
	b.exec(`SELECT pg_drop_replication_slot('kept')`)
	well()
}

func (b *doctorBundle) await(query string) {
	b.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var done bool
		b.must(b.pool.QueryRow(b.ctx, query).Scan(&done))
		if done {
			return
		}
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			b.t.Fatalf("never: %s", query)
		}
	}
}

// xmin is the oldest transaction that is still of interest.
func (b *doctorBundle) xmin() (xmin uint32) {
	b.t.Helper()
	b.must(b.pool.QueryRow(b.ctx, `SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint`).Scan(&xmin))
	return xmin
}

// standbySession speaks as a standby does.
type standbySession struct {
	b    *doctorBundle
	conn *pgconn.PgConn
}

// standby begins to follow, with a slot that it makes if it has a name.
func (b *doctorBundle) standby(slot string) *standbySession {
	b.t.Helper()
	conn, err := pgconn.Connect(b.ctx, b.url+"&replication=true&application_name=copy")
	b.must(err)
	s := &standbySession{b, conn}
	b.t.Cleanup(s.close)
	using := ""
	if slot != "" {
		_, err = conn.Exec(b.ctx, "CREATE_REPLICATION_SLOT "+slot+" PHYSICAL").ReadAll()
		b.must(err)
		using = "SLOT " + slot + " "
	}
	system, err := conn.Exec(b.ctx, "IDENTIFY_SYSTEM").ReadAll()
	b.must(err)
	conn.Frontend().Send(&pgproto3.Query{String: "START_REPLICATION " + using + "PHYSICAL " + string(system[0].Rows[0][2])})
	b.must(conn.Frontend().Flush())
	for {
		message, err := conn.ReceiveMessage(b.ctx)
		b.must(err)
		if _, ok := message.(*pgproto3.CopyBothResponse); ok {
			return s
		}
	}
}

// wants sends hot standby feedback: time, xmin and its epoch, catalog_xmin and its epoch.
func (s *standbySession) wants(xmin uint32) {
	s.b.t.Helper()
	feedback := binary.BigEndian.AppendUint64([]byte{'h'}, 0)
	feedback = binary.BigEndian.AppendUint32(feedback, xmin)
	s.conn.Frontend().Send(&pgproto3.CopyData{Data: append(feedback, make([]byte, 12)...)})
	s.b.must(s.conn.Frontend().Flush())
}

func (s *standbySession) close() { _ = s.conn.Conn().Close() }

func TestAutovacuumThatIsOffIsFound(t *testing.T) {
	t.Parallel()
	b := doctorSetup(t, nil)
	b.expects(b.finds((*doctor).autovacuum), statusOK, "on, for every table", "")
	for _, name := range []string{"autovacuum", "track_counts"} {
		b.exec(`ALTER SYSTEM SET `+name+` = off`, `SELECT pg_reload_conf()`)
		b.await(`SELECT setting = 'off' FROM pg_settings WHERE name = '` + name + `'`)
		b.expects(b.finds((*doctor).autovacuum), statusWarning, name+" is off, so dead rows stay", "ALTER SYSTEM SET "+name+" = on; SELECT pg_reload_conf();")
		b.exec(`ALTER SYSTEM RESET `+name, `SELECT pg_reload_conf()`)
		b.await(`SELECT setting = 'on' FROM pg_settings WHERE name = '` + name + `'`)
	}
	b.expects(b.finds((*doctor).autovacuum), statusOK, "on, for every table", "")
}

const wellBloat = "no table takes much more than its rows need"

// Autovacuum is off on this server, so that the numbers are what the test makes them.
func TestBloatIsFoundUntilItIsRemoved(t *testing.T) {
	t.Parallel()
	b := doctorSetup(t, map[string]string{"autovacuum": "off"})
	fill := func(n int) string {
		return fmt.Sprintf(`INSERT INTO outbox.outbox (intent_id, lane, catalog_id, state, phase, tenant, next_at)
			SELECT n, 1, 1, 'accepted', 'due', 'shop', now() FROM generate_series(1, %d) n`, n)
	}
	bloat := (*doctor).bloat
	well := func() {
		t.Helper()
		b.expects(b.finds(bloat), statusOK, wellBloat, "")
	}
	b.exec(fill(30_000), `ANALYZE outbox.outbox`)
	well()

	// Dead rows. Small tables are nobody's trouble.
	b.exec(`DELETE FROM outbox.outbox WHERE intent_id > 1000`)
	well()
	b.limits.size = 1 << 20
	b.expects(b.finds(bloat), statusWarning, "outbox.outbox has 29000 dead rows beside 1000, in ", "VACUUM outbox.outbox; and see why autovacuum does not")
	b.expects(b.finds(bloat), statusWarning, "; it has not been vacuumed since the server counts", "")
	b.exec(`VACUUM (TRUNCATE false) outbox.outbox`)
	well()

	// A vacuum that a snapshot keeps back removes nothing, and says where to look.
	reader := b.session("report")
	b.in(reader, `BEGIN ISOLATION LEVEL REPEATABLE READ`)
	b.in(reader, `SELECT FROM outbox.lanes`)
	b.exec(`DELETE FROM outbox.outbox WHERE intent_id > 400`, `VACUUM (TRUNCATE false, DISABLE_PAGE_SKIPPING) outbox.outbox`)
	well() // a vacuum was there just now, and nobody knows of the snapshot
	b.limits.snapshot = 0
	found := b.finds((*doctor).snapshots, func(d *doctor, ctx context.Context) (bool, error) {
		d.limits.snapshot = usual.snapshot // of the vacuum, which was there just now
		return d.bloat(ctx)
	})
	b.expects(found[:1], statusWarning, "(report, idle in transaction) holds a snapshot open", "")
	b.expects(found[1:], statusWarning, "outbox.outbox has 600 dead rows beside 400, in ", "end what keeps vacuum back (snapshots, above); it cleans by itself then")
	b.in(reader, `COMMIT`)
	b.limits.snapshot = usual.snapshot
	b.exec(`VACUUM (TRUNCATE false) outbox.outbox`)
	b.expects(b.finds((*doctor).snapshots, bloat)[1:], statusOK, wellBloat, "")

	// A table that is large and nearly empty, as after a long snapshot. What rows that
	// come and go between two vacuums need is no bloat.
	b.exec(`TRUNCATE outbox.outbox`, fill(50_000), `DELETE FROM outbox.outbox WHERE intent_id < 49990`, `VACUUM outbox.outbox`)
	well()
	for range 200 {
		b.in(b.writer, `VACUUM outbox.outbox`)
	}
	found = b.finds(bloat)
	if len(found) != 2 {
		t.Fatalf("%+v", found)
	}
	b.expects(found[:1], statusWarning, "outbox.outbox takes ", "VACUUM (INDEX_CLEANUP ON) outbox.outbox; gives back what is free at its end")
	b.expects(found[1:], statusWarning, "outbox.outbox_pkey takes ", "REINDEX INDEX CONCURRENTLY outbox.outbox_pkey;")
	b.exec(found[1].Hint)
	if left := b.finds(bloat); len(left) != 1 || left[0] != found[0] {
		t.Errorf("after the index: %+v", left)
	}
	remedy, _, _ := strings.Cut(found[0].Hint, ";")
	b.exec(`DELETE FROM outbox.outbox`, remedy)
	well()

	// Lanes are few, and read by every release.
	b.exec(`INSERT INTO outbox.lanes (name, provider) SELECT 'lane' || n, 'p' FROM generate_series(1, 5000) n`,
		`DELETE FROM outbox.lanes WHERE id < 4990`, `ANALYZE outbox.lanes`)
	for range 50 {
		b.in(b.writer, `VACUUM outbox.lanes`)
	}
	found = b.finds(bloat)
	b.expects(found[:1], statusWarning, "outbox.lanes takes ", "VACUUM FULL outbox.lanes;")
	b.exec(`VACUUM FULL outbox.lanes`)
	well()
}

func TestConnectionsOfAllWorkersFitTheServer(t *testing.T) {
	t.Parallel()
	b := doctorSetup(t, map[string]string{"max_connections": "30", "superuser_reserved_connections": "3"})
	room := func(conns int32) []finding {
		t.Helper()
		pool := b.open("doctor", conns)
		defer pool.Close()
		d := &doctor{pool: pool, limits: usual, sees: true}
		if _, err := d.connections(b.ctx); err != nil {
			t.Fatal(err)
		}
		return d.Findings[1:] // the first is about the pool itself
	}
	b.expects(room(20), statusOK, "the server has room: 24 of 27 connections at most", "") // 20 and 2, and this test's 2
	b.expects(room(21), statusWarning, "1 worker may open 23 connections, others have 2, and the server has 27 for all", "lower database.max_conns")

	// Two that run, whose connections are not somebody else's.
	ctx, stop := context.WithCancel(b.ctx)
	ended := make(chan error, 2)
	for range 2 {
		pool := b.open("a worker", dispatch.MinConns)
		w, err := dispatch.New(dispatch.Config{
			Pool: pool, Providers: map[string]providers.Provider{"p": nil}, Logger: slog.New(slog.DiscardHandler),
		})
		b.must(err)
		go func() {
			err := w.Run(ctx)
			pool.Close()
			ended <- err
		}()
	}
	b.await(`SELECT count(*) = 2 FROM pg_stat_activity WHERE query = 'LISTEN outbox_due'`)
	b.expects(room(9), statusOK, "the server has room: 24 of 27 connections at most", "")
	b.expects(room(10), statusWarning, "2 workers may open 24 connections, others have 2, and the server has 27 for all", "put a pooler before the server")
	b.session("application")
	b.expects(room(9), statusWarning, "2 workers may open 22 connections, others have 3, and the server has 27 for all", "")
	stop()
	b.must(<-ended)
	b.must(<-ended)
	b.await(`SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'a worker'`)
	b.expects(room(9), statusOK, "the server has room: 14 of 27 connections at most", "")
}
