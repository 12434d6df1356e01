package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/migrations"
)

// The versions of Postgres that the project promises to work with.
const (
	oldestPostgres = 15
	newestPostgres = 18
)

func (d *doctor) server(ctx context.Context) (bool, error) {
	var version, encoding, isolation string
	var number int
	var standby bool
	err := d.pool.QueryRow(ctx, `-- name: doctor_server
SELECT current_setting('server_version'), current_setting('server_version_num')::int, current_setting('server_encoding'),
	current_setting('default_transaction_isolation'), pg_is_in_recovery()`).Scan(&version, &number, &encoding, &isolation, &standby)
	if err != nil {
		return false, err
	}
	d.ok("connection", "%s", d.where())
	switch major := number / 10000; {
	case major < oldestPostgres:
		d.fail("server", "use Postgres 15 to 18", "Postgres %s is too old", version)
	case major > newestPostgres:
		d.warn("server", "this program has been tested with Postgres 15 to 18", "Postgres %s is newer than this program", version)
	default:
		d.ok("server", "Postgres %s", version)
	}
	if encoding != "UTF8" {
		d.fail("encoding", "create the database with ENCODING 'UTF8'", "the database stores %s; payloads are UTF-8", encoding)
	}
	if standby {
		d.fail("server", "connect to the primary: add target_session_attrs=read-write to database.url", "this is a standby and cannot be written to")
	}
	if isolation != "read committed" {
		d.warn("isolation", "ALTER ROLE … SET default_transaction_isolation = 'read committed', or begin transactions that enqueue so",
			"transactions are %s by default; at that level a repeat may be a serialization failure instead of an answer", isolation)
	}
	return true, nil
}

func (d *doctor) where() string {
	cc := d.pool.Config().ConnConfig
	via := ""
	if d.cfg.Database.PgBouncer {
		via = ", through a pooler"
	}
	return cc.Host + "/" + cc.Database + " as " + cc.User + via
}

func (d *doctor) durability(ctx context.Context) (bool, error) {
	off := map[string]string{
		"fsync":              "a crash of the machine can lose or corrupt the ledger",
		"full_page_writes":   "a crash of the machine can corrupt the ledger",
		"synchronous_commit": "a crash can lose what applications were told is committed; workers commit their claims durably all the same",
	}
	rows, err := d.pool.Query(ctx, `-- name: doctor_durability
SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off' ORDER BY name`)
	if err != nil {
		return false, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range found {
		d.warn("durability", "set "+name+" = on, unless this is a test", "%s is off: %s", name, off[name])
	}
	if err == nil && len(found) == 0 {
		d.ok("durability", "commits survive a crash")
	}
	return true, err
}

// skewLimit is how wrong a clock may be before people misread logs, and looks how often
// it is read: the answer that came fastest tells best.
const (
	skewLimit = 2 * time.Second
	looks     = 5
)

// clock compares the two clocks. An answer was given at some time between question and
// answer, so half of the trip is how far off the comparison itself may be.
func (d *doctor) clock(ctx context.Context) (bool, error) {
	var skew, unsure time.Duration
	for n := range looks {
		var there time.Time
		before := time.Now()
		if err := d.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&there); err != nil {
			return false, err
		}
		if half := time.Since(before) / 2; n == 0 || half < unsure {
			skew, unsure = there.Sub(before.Add(half)), half
		}
	}
	d.judgeClock(skew, unsure)
	return true, nil
}

func (d *doctor) judgeClock(skew, unsure time.Duration) {
	direction := "ahead of"
	if skew < 0 {
		direction = "behind"
	}
	switch {
	case skew.Abs() > skewLimit+unsure:
		d.warn("clock", "run NTP on both; the ledger goes by the database's clock alone, but its times will not match this machine's logs, and River clears its jobs away by the worker's clock",
			"the database's clock is %s %s this machine's", skew.Abs().Round(time.Millisecond), direction)
	case unsure > skewLimit:
		d.warn("clock", "run doctor nearer to the database", "an answer takes %s, so the clocks cannot be compared", (2 * unsure).Round(time.Millisecond))
	default:
		d.ok("clock", "this machine and the database agree")
	}
}

func (d *doctor) schema(ctx context.Context) (there bool, err error) {
	err = d.pool.QueryRow(ctx, `-- name: doctor_schema
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'outbox' AND c.relname = 'schema_version')`).Scan(&there)
	if err == nil && !there {
		d.fail("schema", "run outbox-worker migrate", "there is no schema outbox in this database")
	}
	return there, err
}

func (d *doctor) migrations(ctx context.Context) (bool, error) {
	steps, err := migrations.Status(ctx, d.pool)
	if err != nil {
		return false, err
	}
	if pending := pendingOf(steps); len(pending) > 0 {
		d.fail("schema", "run outbox-worker migrate", "%s pending: %s", count(len(pending), "migration"), strings.Join(pending, ", "))
		return false, nil
	}
	if d.newer, err = d.newerSchema(ctx, steps); err != nil {
		return false, err
	}
	if d.newer > 0 {
		d.warn("schema", "finish the roll-out of the newer version", "the database is ahead of this program by %s", count(d.newer, "migration"))
	} else {
		d.ok("schema", "up to date: %s", steps[len(steps)-1].Name)
	}
	return true, nil
}

// newerSchema counts applied migrations that this program does not know.
func (d *doctor) newerSchema(ctx context.Context, steps []migrations.Step) (newer int, err error) {
	known := 0
	for _, s := range steps {
		if !strings.HasPrefix(s.Name, "river ") {
			known++
		}
	}
	err = d.pool.QueryRow(ctx, `-- name: doctor_newer
SELECT greatest(count(*) FILTER (WHERE version_id > 0) - $1, 0) FROM outbox.schema_version WHERE is_applied`, known).Scan(&newer)
	return newer, err
}

// rolesSQL goes by object ids: a name cannot be looked up in a schema that one may not
// use.
const rolesSQL = `-- name: doctor_roles
WITH t AS (
	SELECT relname, c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'outbox'
), f AS (
	SELECT proname, bool_and(has_function_privilege(p.oid, 'EXECUTE') AND has_schema_privilege(n.oid, 'USAGE')) AS may
	FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'outbox' GROUP BY proname
)
SELECT array(SELECT r FROM unnest(ARRAY['outbox_app', 'outbox_worker', 'outbox_operator', 'outbox_retention']) r
             WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = r)),
	current_user, (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
	coalesce((SELECT may FROM f WHERE proname = 'enqueue'), false),
	coalesce((SELECT bool_and(has_table_privilege(oid, CASE relname WHEN 'outbox' THEN 'UPDATE' ELSE 'INSERT' END))
	          FROM t WHERE relname IN ('outbox', 'outcomes', 'history')), false),
	coalesce((SELECT may FROM f WHERE proname = 'apply_operation'), false),
	array(SELECT 'outbox.' || relname FROM t WHERE NOT has_table_privilege(oid, 'SELECT') AND relname IN ('catalog', 'intents', 'lanes',
		'ledger', 'outbox', 'outcomes', 'river_job', 'river_leader', 'river_migration', 'schema_version') ORDER BY 1),
	pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'), quote_ident(current_user)`

func (d *doctor) roles(ctx context.Context) (bool, error) {
	var missing, unread []string
	var user, quoted string
	var super, enqueue, work, operate bool
	err := d.pool.QueryRow(ctx, rolesSQL).Scan(&missing, &user, &super, &enqueue, &work, &operate, &unread, &d.sees, &quoted)
	if err != nil {
		return false, err
	}
	if len(missing) > 0 {
		d.fail("roles", "create them (CREATE ROLE … NOLOGIN), and run outbox-worker migrate --print for what each may do", "missing: %s", strings.Join(missing, ", "))
	}
	var may []string
	for _, right := range []struct {
		has  bool
		word string
	}{{enqueue, "enqueue"}, {work, "work"}, {operate, "operate"}} {
		if right.has {
			may = append(may, right.word)
		}
	}
	switch {
	case super:
		d.warn("roles", "give the worker a user of its own: CREATE ROLE … LOGIN IN ROLE outbox_worker", "%s is a superuser and may do everything", user)
	case len(may) == 0:
		d.fail("roles", "GRANT outbox_app, outbox_worker or outbox_operator TO this user, by what it is for", "%s may neither enqueue, work nor operate", user)
		return false, nil
	default:
		d.ok("roles", "%s may %s", user, strings.Join(may, " and "))
	}
	if len(unread) > 0 {
		d.fail("roles", "run doctor as a member of outbox_operator or outbox_worker, too", "%s may not read the ledger (%s), so the rest cannot be checked", user, strings.Join(unread, ", "))
	}
	if !d.sees {
		d.fail("roles", "GRANT pg_read_all_stats TO "+quoted, "%s may not see what other sessions do, so long transactions and running workers stay hidden", user)
	}
	return len(unread) == 0, nil
}

// ledger recognises a clone: a copy of the database on another server has the same
// ledger, and both would send.
func (d *doctor) ledger(ctx context.Context) (bool, error) {
	var id string
	var there, here *int64
	err := d.pool.QueryRow(ctx, `-- name: doctor_ledger
SELECT id::text, system_identifier, (SELECT system_identifier FROM pg_control_system()) FROM outbox.ledger`).Scan(&id, &there, &here)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		d.fail("ledger", "restore it from a backup: without its id, references change", "the ledger has no id")
	case err != nil:
		return true, err
	case there != nil && here != nil && *there != *here:
		d.fail("ledger", "a clone must not send; if this is the original on a new server, tell the worker so",
			"ledger %s was last used on another server (%d, this is %d)", id, *there, *here)
	default:
		d.ok("ledger", "%s", id)
	}
	return true, nil
}

// since words an age.
func since(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < time.Minute {
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}
