package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/dispatch"
)

// tableSettings are the storage settings of the migrations, which say what each is worth; a
// test compares the two.
var tableSettings = map[string][]string{
	"outbox": {"autovacuum_vacuum_scale_factor=0.02"},
}

// settings checks that vacuum may do its work and that nobody has changed the tables'
// settings, or restored them without.
func (d *doctor) settings(ctx context.Context) (bool, error) {
	var autovacuum bool
	if err := d.pool.QueryRow(ctx, "-- name: doctor_autovacuum\nSELECT current_setting('autovacuum')::bool AND current_setting('track_counts')::bool").Scan(&autovacuum); err != nil {
		return true, err
	}
	found := false
	if !autovacuum {
		found = true
		d.warn("settings", "set autovacuum = on and track_counts = on", "autovacuum is off for the whole server: the outbox grows with every intent that passes through it")
	}
	has, err := d.reloptions(ctx)
	if err != nil {
		return true, err
	}
	for _, table := range slices.Sorted(maps.Keys(has)) {
		var wanting []string
		for _, want := range tableSettings[table] {
			if !slices.Contains(has[table], want) {
				wanting = append(wanting, want)
			}
		}
		if len(wanting) > 0 {
			found = true
			d.warn("settings", fmt.Sprintf("ALTER TABLE outbox.%s SET (%s)", table, strings.Join(wanting, ", ")),
				"outbox.%s has not the settings that it was made with: %s", table, strings.Join(wanting, ", "))
		}
		for _, off := range has[table] {
			name, value, _ := strings.Cut(off, "=")
			if name == "autovacuum_enabled" && !slices.Contains([]string{"true", "on", "yes", "1"}, strings.ToLower(value)) {
				found = true
				d.warn("settings", fmt.Sprintf("ALTER TABLE outbox.%s RESET (autovacuum_enabled)", table), "autovacuum is off for outbox.%s", table)
			}
		}
	}
	if !found {
		d.ok("settings", "tables are stored and vacuumed as the migrations say")
	}
	return true, nil
}

// reloptions are the settings of each table of the schema.
func (d *doctor) reloptions(ctx context.Context) (map[string][]string, error) {
	rows, err := d.pool.Query(ctx, `-- name: doctor_reloptions
SELECT c.relname, coalesce(c.reloptions, '{}') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'outbox' AND c.relkind = 'r'`)
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	var table string
	var options []string
	_, err = pgx.ForEachRow(rows, []any{&table, &options}, func() error {
		all[table] = slices.Clone(options)
		return nil
	})
	return all, err
}

// From here on dead rows and empty pages are worth a word. A table that every intent passes
// through has as many dead rows between two vacuums as it had intents; only one that vacuum
// has not seen for a while is in trouble. What it may take is ten times what its rows do.
const (
	deadRows     = 100_000
	unvacuumed   = old
	bloatFrom    = 64 << 20
	bloatFactor  = 10
	bytesPerOpen = 500 // of a row and its index entries
)

const bloatSQL = `-- name: doctor_bloat
SELECT c.relname, greatest(s.n_live_tup, 0), greatest(s.n_dead_tup, 0), pg_total_relation_size(c.oid), pg_size_pretty(pg_total_relation_size(c.oid)),
	extract(epoch FROM clock_timestamp() - greatest(s.last_vacuum, s.last_autovacuum))::float8,
	c.relname IN ('outbox', 'lanes', 'river_job')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_stat_all_tables s ON s.relid = c.oid
WHERE n.nspname = 'outbox' AND c.relkind = 'r' ORDER BY 1`

// bloat finds tables that vacuum does not keep up with, and tables of open work that once
// were large and are not any more.
func (d *doctor) bloat(ctx context.Context) (bool, error) {
	rows, err := d.pool.Query(ctx, bloatSQL)
	if err != nil {
		return true, err
	}
	var table, size string
	var live, dead, bytes int64
	var vacuumed *float64
	var open bool
	found := false
	_, err = pgx.ForEachRow(rows, []any{&table, &live, &dead, &bytes, &size, &vacuumed, &open}, func() error {
		if dead > max(deadRows, live/4) && (vacuumed == nil || *vacuumed > unvacuumed.Seconds()) {
			found = true
			when := "never"
			if vacuumed != nil {
				when = since(*vacuumed) + " ago"
			}
			d.warn("bloat", "see snapshots and settings below and above for what holds vacuum up; then VACUUM outbox."+table,
				"outbox.%s has %d dead rows beside %d, and was last vacuumed %s", table, dead, live, when)
		}
		if open && bytes > max(bloatFrom, bloatFactor*bytesPerOpen*live) {
			found = true
			d.warn("bloat", fmt.Sprintf("when it is vacuumed: REINDEX TABLE CONCURRENTLY outbox.%[1]s; at a quiet time, for it stops all work meanwhile: VACUUM FULL outbox.%[1]s", table),
				"outbox.%s takes %s for %d rows; a backlog or a long snapshot has left it so", table, size, live)
		}
		return nil
	})
	if err == nil && !found {
		d.ok("bloat", "no table is much larger than its rows")
	}
	return true, err
}

// connections checks that the worker's pool is large enough for its lanes, and the server
// for its workers.
func (d *doctor) connections(ctx context.Context) (bool, error) {
	var lanes, used, most int
	err := d.pool.QueryRow(ctx, `-- name: doctor_connections
SELECT (SELECT count(*) FROM outbox.lanes), (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
	current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int`).Scan(&lanes, &used, &most)
	if err != nil {
		return true, err
	}
	have := int(d.pool.Config().MaxConns)
	least, enough := dispatch.Connections(lanes)
	all := have + dispatch.ListenConnections
	found := false
	report := func(say func(check, hint, format string, args ...any), hint, format string, args ...any) {
		found = true
		say("connections", hint, format, args...)
	}
	switch {
	case have < least:
		report(d.fail, fmt.Sprintf("set database.max_conns to %d", enough), "a pool of %s is too small for a worker, which refuses to start with less than %d", count(have, "connection"), least)
	case have < enough:
		report(d.warn, fmt.Sprintf("set database.max_conns to %d", enough), "a pool of %s is small for %s: statements wait for each other", count(have, "connection"), count(lanes, "lane"))
	}
	switch {
	case d.cfg.Database.PgBouncer: // the pooler's own business
	case all > most:
		report(d.warn, "raise max_connections, or lower database.max_conns", "one worker may open %d, and the server takes %d in all", all, most)
	case used*10 > most*9:
		report(d.warn, "raise max_connections, lower database.max_conns, or put a pooler in between", "%d of the server's %s are in use", used, count(most, "connection"))
	}
	if !found {
		d.ok("connections", "a worker may open %d; the server has %d of %d in use", all, used, most)
	}
	return true, nil
}
