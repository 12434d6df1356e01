package main

import (
	"context"

	"github.com/outbox-worker/outbox-worker/dispatch"
)

// nearlyAll is the share of the server's connections that everybody together may want
// before somebody is going to be refused.
const nearlyAll = 0.9

// connections checks that a worker with this configuration has enough of them, and the
// server enough for all of its replicas.
func (d *doctor) connections(ctx context.Context) (bool, error) {
	size := int(d.pool.Config().MaxConns)
	var lanes int
	err := d.pool.QueryRow(ctx, `-- name: doctor_pool
SELECT count(*) FROM outbox.lanes WHERE cardinality(coalesce($1::text[], '{}')) = 0 OR provider = ANY ($1::text[])`, d.cfg.ProviderNames()).Scan(&lanes)
	if err != nil {
		return true, err
	}
	switch busy := dispatch.BusyConns(lanes); {
	case size < dispatch.MinConns:
		d.fail("pool", "raise database.max_conns, "+count(busy, "connection")+" would be well", "a worker with database.max_conns %d refuses to start: it takes %d at least", size, dispatch.MinConns)
	case size < busy:
		d.warn("pool", "raise database.max_conns", "database.max_conns is %d, and a worker of %s uses %d under load: its statements will wait for each other", size, count(lanes, "lane"), busy)
	default:
		d.ok("pool", "%s for %s", count(size, "connection"), count(lanes, "lane"))
	}
	switch {
	case d.cfg.Database.PgBouncer:
		d.ok("pool", "the pooler decides how many connections the server sees")
		return true, nil
	case !d.sees:
		return true, nil // an error already
	}
	return true, d.room(ctx, size+dispatch.ListenConns)
}

// roomSQL counts workers by their listening sessions, and who else is connected: sessions
// of this database with a worker's name are taken for a worker's.
const roomSQL = `-- name: doctor_room
WITH s AS (
	SELECT datname, application_name, query = $1 AND datname = current_database() AS listens
	FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
)
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
		- coalesce(current_setting('reserved_connections', true)::int, 0),
	count(*) FILTER (WHERE listens),
	count(*) FILTER (WHERE NOT EXISTS (SELECT FROM s w WHERE w.listens AND w.datname = s.datname AND w.application_name = s.application_name))
FROM s`

// room checks that the server has room for the workers that run, one if none does, with
// so many connections each.
func (d *doctor) room(ctx context.Context, each int) error {
	var room, seen, others int
	if err := d.pool.QueryRow(ctx, roomSQL, dispatch.ListenSQL).Scan(&room, &seen, &others); err != nil {
		return err
	}
	if all := max(seen, 1)*each + others; float64(all) > nearlyAll*float64(room) {
		d.warn("pool", "lower database.max_conns, raise max_connections, or put a pooler before the server",
			"%s may open %s, others have %d, and the server has %d for all", count(max(seen, 1), "worker"), count(max(seen, 1)*each, "connection"), others, room)
	} else {
		d.ok("pool", "the server has room: %d of %d connections at most", all, room)
	}
	return nil
}
