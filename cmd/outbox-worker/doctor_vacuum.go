package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// autovacuum finds out whether anybody removes dead rows.
func (d *doctor) autovacuum(ctx context.Context) (bool, error) {
	rows, err := d.pool.Query(ctx, `-- name: doctor_autovacuum
SELECT name || ' is off', 'ALTER SYSTEM SET ' || name || ' = on; SELECT pg_reload_conf();'
FROM pg_settings WHERE name IN ('autovacuum', 'track_counts') AND setting = 'off'
UNION ALL
SELECT format('%sautovacuum_enabled of outbox.%s is off', o.prefix, c.relname),
	format('ALTER TABLE outbox.%I RESET (%sautovacuum_enabled);', c.relname, o.prefix)
FROM pg_class c CROSS JOIN LATERAL (
	SELECT '' AS prefix, unnest(c.reloptions) AS option
	UNION ALL SELECT 'toast.', unnest(t.reloptions) FROM pg_class t WHERE t.oid = c.reltoastrelid
) o
WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r'
	AND o.option LIKE 'autovacuum\_enabled=%' AND NOT split_part(o.option, '=', 2)::boolean
ORDER BY 1`)
	if err != nil {
		return true, err
	}
	var what, remedy string
	found := false
	_, err = pgx.ForEachRow(rows, []any{&what, &remedy}, func() error {
		found = true
		d.warn("autovacuum", remedy, "%s, so dead rows stay and the outbox gets slow", what)
		return nil
	})
	if err == nil && !found {
		d.ok("autovacuum", "on, for every table")
	}
	return true, err
}

// snapshotsSQL finds what keeps vacuum from removing rows that are dead by now: sessions
// of this database and what is prepared in it, and slots and standbys of the whole
// server. A vacuum keeps no other back. A session that has written or looked holds
// something; one that is idle in a transaction has its locks in any case.
const snapshotsSQL = `-- name: doctor_snapshots
WITH session AS (
	SELECT a.pid, a.state, a.xact_start, a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL AS holds,
		coalesce(a.state LIKE 'idle in transaction%', false) AND a.state_change < clock_timestamp() - make_interval(secs => $2::float8) AS idle,
		a.xact_start < clock_timestamp() - make_interval(secs => $1::float8) AS old,
		coalesce(nullif(a.application_name, ''), a.usename, a.backend_type) AS name
	FROM pg_stat_activity a
	WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL
		AND NOT EXISTS (SELECT FROM pg_stat_progress_vacuum v WHERE v.pid = a.pid)
)
SELECT CASE WHEN idle THEN 'idle' ELSE 'session' END AS kind, format('session %s (%s, %s)', pid, name, state) AS who,
	extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds, NULL::bigint AS xids, old AND holds AS holds,
	format('SELECT pg_terminate_backend(%s);', pid) AS remedy
FROM session WHERE idle OR (old AND holds)
UNION ALL
SELECT 'prepared', format('prepared transaction %L', gid), extract(epoch FROM clock_timestamp() - prepared)::float8, NULL, true,
	format('COMMIT PREPARED %L; or ROLLBACK PREPARED %1$L;', gid)
FROM pg_prepared_xacts WHERE database = current_database() AND prepared < clock_timestamp() - make_interval(secs => $1::float8)
UNION ALL
SELECT CASE WHEN active THEN 'standby' ELSE 'slot' END, format('replication slot %s, %s', slot_name, CASE WHEN active THEN 'in use' ELSE 'not in use' END),
	extract(epoch FROM clock_timestamp() - since)::float8, age(xmin)::bigint, true, format('SELECT pg_drop_replication_slot(%L);', slot_name)
FROM (SELECT *, (to_jsonb(s) ->> 'inactive_since')::timestamptz AS since FROM pg_replication_slots s) s -- it is there from Postgres 17 on
WHERE xmin IS NOT NULL AND (age(xmin) > $3
	OR (NOT active AND coalesce(since, '-infinity') < clock_timestamp() - make_interval(secs => $1::float8)))
UNION ALL
SELECT 'standby', format('standby %s, by its hot_standby_feedback,', coalesce(nullif(application_name, ''), pid::text)), NULL, age(backend_xmin)::bigint, true, ''
FROM pg_stat_replication WHERE age(backend_xmin) > $3
ORDER BY holds DESC, seconds DESC NULLS LAST, xids DESC NULLS LAST, who LIMIT 5`

// snapshotHints are by kind; the remedy that the database worded stands before them.
var snapshotHints = map[string]string{
	"idle":     " Its client does nothing: set idle_in_transaction_session_timeout",
	"session":  " Set statement_timeout or transaction_timeout for what runs so long, or have it read from a standby without hot_standby_feedback",
	"prepared": " Ask its transaction manager which: nobody else ends it",
	"slot":     " But only if its standby or subscriber is gone for good; otherwise bring that back",
	"standby":  "end the long transaction on the standby, or set hot_standby_feedback = off there",
}

// snapshots finds what keeps vacuum from cleaning the outbox, which every intent passes
// through: it then gets slow for everybody.
func (d *doctor) snapshots(ctx context.Context) (bool, error) {
	rows, err := d.pool.Query(ctx, snapshotsSQL, d.limits.snapshot.Seconds(), d.limits.idle.Seconds(), d.limits.xids)
	if err != nil {
		return true, err
	}
	var kind, who, remedy string
	var seconds *float64
	var xids *int64
	var holds bool
	found := false
	_, err = pgx.ForEachRow(rows, []any{&kind, &who, &seconds, &xids, &holds, &remedy}, func() error {
		found = true
		d.held = d.held || holds
		hint := snapshotHints[kind]
		if kind != "standby" {
			hint = remedy + hint
		}
		if !holds {
			d.warn("snapshots", hint, "%s has not ended its transaction for %s, and keeps its locks", who, since(*seconds))
			return nil
		}
		age := ""
		if xids != nil {
			age = fmt.Sprintf(" since %d transactions", *xids)
		}
		if seconds != nil {
			age += " for " + since(*seconds)
		}
		d.warn("snapshots", hint, "%s holds a snapshot open%s; vacuum cannot clean the outbox", who, age)
		return nil
	})
	if err == nil && !found && d.sees {
		d.ok("snapshots", "none is older than %s", since(d.limits.snapshot.Seconds()))
	}
	return true, err
}

// hot are the tables whose rows come and go all day; all others only grow, but for
// retention. floor is the share of limits.size below which a table is not judged: lanes
// has some rows, and every release reads it.
var hot = []struct {
	name  string
	floor int64
}{{"lanes", 8}, {"outbox", 1}, {"river_job", 1}}

// bloatFactor is how many times what it needs a table may take.
const bloatFactor = 4

// bloatSQL reads how large a table is and what its rows need: those that live, those that
// are dead, and those that die from one vacuum to the next, whose space is used again.
// Counters are lost by a crash, so that reltuples counts as well. A width that is not
// known is taken to be 256 bytes; 28 are the row's header and its pointer.
const bloatSQL = `-- name: doctor_bloat
SELECT pg_relation_size(c.oid), s.n_live_tup, s.n_dead_tup, greatest(s.n_live_tup, c.reltuples::bigint, 0) + s.n_dead_tup +
	(s.n_tup_upd - s.n_tup_hot_upd + s.n_tup_del) / greatest(1, s.vacuum_count + s.autovacuum_count),
	extract(epoch FROM clock_timestamp() - greatest(s.last_vacuum, s.last_autovacuum))::float8,
	28 + coalesce((SELECT sum(avg_width * (1 - null_frac)) FROM pg_stats WHERE schemaname = 'outbox' AND tablename = c.relname), 256)::float8,
	coalesce((SELECT option_value::int FROM pg_options_to_table(c.reloptions) WHERE option_name = 'fillfactor'), 100),
	current_setting('block_size')::int
FROM pg_class c JOIN pg_stat_user_tables s ON s.relid = c.oid
WHERE c.relnamespace = 'outbox'::regnamespace AND c.relname = $1`

// indexSQL lists B-trees. No entry of one is wider than its row, and pages are half full
// at the least when they split; what a GIN index needs cannot be told.
const indexSQL = `-- name: doctor_bloat_index
SELECT i.relname, pg_relation_size(i.oid) FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid
JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_am a ON a.oid = i.relam
WHERE c.relnamespace = 'outbox'::regnamespace AND c.relname = $1 AND a.amname = 'btree' ORDER BY i.relname`

// bloat finds hot tables that have more dead rows than others, or take much more room
// than they need: every statement on them then reads what nobody wants.
func (d *doctor) bloat(ctx context.Context) (bool, error) {
	found := false
	for _, h := range hot {
		least := d.limits.size / h.floor
		var size, live, dead, rows int64
		var vacuumed *float64
		var width float64
		var fill, block int
		err := d.pool.QueryRow(ctx, bloatSQL, h.name).Scan(&size, &live, &dead, &rows, &vacuumed, &width, &fill, &block)
		if err != nil {
			return true, fmt.Errorf("outbox.%s: %w", h.name, err)
		}
		unattended := vacuumed == nil || *vacuumed > d.limits.snapshot.Seconds()
		if size >= least && dead > live && (d.held || unattended) {
			found = true
			d.warn("bloat", d.deadHint(h.name), "outbox.%s has %d dead rows beside %d, in %s; %s", h.name, dead, live, sizeOf(size), lastVacuum(vacuumed))
		}
		if need := int64(float64(rows) * width * 100 / float64(fill)); size >= least && size > bloatFactor*(need+int64(block)) {
			found = true
			d.warn("bloat", d.sizeHint(h.name), "outbox.%s takes %s, and its rows need %s", h.name, sizeOf(size), sizeOf(need))
		}
		more, err := d.indexBloat(ctx, h.name, least, int64(float64(rows)*width*2)+int64(block))
		if err != nil {
			return true, fmt.Errorf("indexes of outbox.%s: %w", h.name, err)
		}
		found = found || more
	}
	if !found {
		d.ok("bloat", "no table takes much more than its rows need")
	}
	return true, nil
}

func (d *doctor) indexBloat(ctx context.Context, table string, least, need int64) (found bool, err error) {
	rows, err := d.pool.Query(ctx, indexSQL, table)
	if err != nil {
		return false, err
	}
	var name string
	var size int64
	_, err = pgx.ForEachRow(rows, []any{&name, &size}, func() error {
		if size >= least && size > bloatFactor*need {
			found = true
			d.warn("bloat", d.afterSnapshots("REINDEX INDEX CONCURRENTLY outbox."+name+";"), "outbox.%s takes %s, and needs %s", name, sizeOf(size), sizeOf(need))
		}
		return nil
	})
	return found, err
}

// deadHint is what removes dead rows.
func (d *doctor) deadHint(table string) string {
	if d.held {
		return "end what keeps vacuum back (snapshots, above); it cleans by itself then"
	}
	return fmt.Sprintf("VACUUM outbox.%s; and see why autovacuum does not (autovacuum, above; its workers may be busy: pg_stat_progress_vacuum)", table)
}

// sizeHint is what gives room back. A plain VACUUM passes over the indexes when few rows
// are dead, and leaves their places, one of which at the table's end keeps all of it. Only
// for lanes a lock of the whole table is harmless: rewriting some rows takes a moment.
func (d *doctor) sizeHint(table string) string {
	if table == "lanes" {
		return d.afterSnapshots("VACUUM FULL outbox.lanes; it has few rows, so its lock lasts a moment")
	}
	return d.afterSnapshots(fmt.Sprintf("VACUUM (INDEX_CLEANUP ON) outbox.%s; gives back what is free at its end, and the rest is used again. VACUUM FULL would lock everybody out", table))
}

// afterSnapshots words a remedy that has no effect while something keeps vacuum back.
func (d *doctor) afterSnapshots(remedy string) string {
	if d.held {
		return "end what keeps vacuum back (snapshots, above), then " + remedy
	}
	return remedy
}

func lastVacuum(seconds *float64) string {
	if seconds == nil {
		return "it has not been vacuumed since the server counts"
	}
	return "it was vacuumed " + since(*seconds) + " ago"
}

// sizeOf words a size.
func sizeOf(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MB", n>>20)
	default:
		return fmt.Sprintf("%d kB", n>>10)
	}
}
