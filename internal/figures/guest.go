package figures

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/migrations"
)

// guestPrefix begins the names of a Guest's databases.
const guestPrefix = "outbox_bench_"

// A Guest measures on a server that is somebody's, and leaves it as it was. The schema's
// name is fixed, so it measures in databases of its own, or in one that is as good as
// empty; it changes nothing that it has not made. What it makes it names beforehand, so
// that whoever kills it knows what stays. Its methods are not for several goroutines.
type Guest struct {
	database cli.Database
	program  string
	in       string
	tell     io.Writer

	admin     *pgxpool.Pool
	suffix    string
	roles     []string // those that are made with the first schema, because there are none
	databases []string // made, or begun to be
	schemas   bool     // made in the database in
}

// Visit connects to the database that is configured, as program, and finds out what may be
// done on its server. in is a database that is used instead of making any; "" for none.
// tell gets a line about everything before it is made. It fails with a *cli.Error on a
// standby, behind a pooler, and without the rights it takes. Call Leave when done.
func Visit(ctx context.Context, database cli.Database, program, in string, tell io.Writer) (*Guest, error) {
	if database.PgBouncer {
		return nil, cli.Fail(cli.Refused, "give a URL that leads to the server itself, and leave database.pgbouncer out",
			"databases cannot be made and measured through a pooler")
	}
	g := &Guest{database: database, program: program, in: in, tell: tell, suffix: strconv.FormatUint(rand.Uint64(), 36)}
	var err error
	if g.admin, err = g.connect(ctx, "", 2); err != nil {
		return nil, err
	}
	if err := g.allowed(ctx); err != nil {
		g.admin.Close()
		return nil, err
	}
	return g, nil
}

func (g *Guest) connect(ctx context.Context, name string, conns int) (*pgxpool.Pool, error) {
	database := g.database
	database.Name, database.MaxConns = name, conns
	return cli.Connect(ctx, database, g.program)
}

// allowed notes which roles are missing, and refuses what would fail later.
func (g *Guest) allowed(ctx context.Context) error {
	var standby, databases, roles bool
	err := g.admin.QueryRow(ctx, `-- name: bench_allowed
SELECT pg_is_in_recovery(), r.rolsuper OR r.rolcreatedb, r.rolsuper OR r.rolcreaterole,
	array(SELECT m FROM unnest($1::text[]) WITH ORDINALITY u(m, n) WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = m) ORDER BY n)
FROM pg_roles r WHERE r.rolname = current_user`, migrations.Roles).Scan(&standby, &databases, &roles, &g.roles)
	user := g.admin.Config().ConnConfig.User
	switch {
	case err != nil:
		return fmt.Errorf("find out what may be done on the server: %w", err)
	case standby:
		return cli.Fail(cli.Refused, "connect to the primary: add target_session_attrs=read-write to database.url",
			"this is a standby, and measuring writes")
	case g.in == "" && !databases:
		return cli.Fail(cli.Failure, "create an empty database and give it with --in DBNAME, or ALTER ROLE "+pgx.Identifier{user}.Sanitize()+" CREATEDB",
			"%s may not create databases", user)
	case len(g.roles) > 0 && !roles:
		return cli.Fail(cli.Failure, "connect as a user with CREATEROLE, or have somebody CREATE ROLE "+strings.Join(g.roles, " NOLOGIN; CREATE ROLE ")+" NOLOGIN",
			"%s may not create the roles that the schema %s grants rights to: %s", user, migrations.Schema, strings.Join(g.roles, ", "))
	}
	return nil
}

// Server is what the figures were measured on.
type Server struct {
	Postgres          string  `json:"postgres"`
	Fsync             string  `json:"fsync"`
	FullPageWrites    string  `json:"full_page_writes"`
	SynchronousCommit string  `json:"synchronous_commit"`
	RoundTrip         float64 `json:"round_trip_ms"` // median of the least that a statement takes
}

func (s Server) String() string {
	return fmt.Sprintf("Postgres %s, fsync %s, full_page_writes %s, synchronous_commit %s, round trip %.3g ms",
		s.Postgres, s.Fsync, s.FullPageWrites, s.SynchronousCommit, s.RoundTrip)
}

// Server asks the server.
func (g *Guest) Server(ctx context.Context) (s Server, err error) {
	err = g.admin.QueryRow(ctx, `-- name: bench_server
SELECT current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit')`).
		Scan(&s.Postgres, &s.Fsync, &s.FullPageWrites, &s.SynchronousCommit)
	if err != nil {
		return s, err
	}
	var trips []float64
	for range 50 {
		trip, err := took(func() error { _, err := g.admin.Exec(ctx, "SELECT"); return err })
		if err != nil {
			return s, err
		}
		trips = append(trips, trip.Seconds()*1e3)
	}
	s.RoundTrip = median(trips)
	return s, nil
}

// making bounds the making of one thing. It is not given up when ctx ends: who does not know
// whether something was made cannot remove it.
const making = time.Minute

// Open is an Opener.
func (g *Guest) Open(ctx context.Context, name string) (*pgxpool.Pool, error) {
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), making)
	defer cancel()
	if g.in == "" {
		database := guestPrefix + name + "_" + g.suffix
		if err := g.create(ending, database); err != nil {
			return nil, fmt.Errorf("create the database %s: %w", database, err)
		}
		return g.connect(ctx, database, Connections)
	}
	if g.schemas {
		return nil, cli.Fail(cli.Usage, "leave --in out", "figures that are asked for need more than one database")
	}
	pool, err := g.connect(ctx, g.in, Connections)
	if err != nil {
		return nil, err
	}
	if err := g.claim(ending, pool); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// announce says what is about to be made in the database.
func (g *Guest) announce(what, database string) error {
	where := *g.admin.Config().ConnConfig
	where.Database = database
	roles := ""
	if len(g.roles) > 0 && len(g.databases) == 0 { // the first brings them
		roles = ", with the roles " + strings.Join(g.roles, ", ") + " in the cluster"
	}
	_, err := fmt.Fprintf(g.tell, "making %s %s%s; dropped at the end\n", what, cli.Address(&where), roles)
	return err
}

// create copies template0, because template1 can have anything in it.
func (g *Guest) create(ctx context.Context, database string) error {
	if err := g.announce("the database", database); err != nil {
		return err
	}
	g.databases = append(g.databases, database)
	name := pgx.Identifier{database}.Sanitize()
	if _, err := g.admin.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		return err
	}
	_, err := g.admin.Exec(ctx, "COMMENT ON DATABASE "+name+" IS 'Made by outbox-worker bench, which drops it; if it was killed, drop it yourself.'")
	return err
}

// claim makes both schemas or, if there is one of them, none: what was there before is not
// ours to use and drop.
func (g *Guest) claim(ctx context.Context, pool *pgxpool.Pool) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "CREATE SCHEMA "+migrations.Schema)
		if err == nil {
			_, err = tx.Exec(ctx, "CREATE SCHEMA "+benchSchema)
		}
		if err != nil {
			return err
		}
		return g.announce("the schemas "+migrations.Schema+" and "+benchSchema+" in", g.in)
	})
	switch sqlState(err) {
	case "":
		g.schemas = err == nil
		return err
	case "42P06": // duplicate_schema
		return cli.Fail(cli.Refused, "give an empty database", "the database %s has a schema %s or %s, which is not touched", g.in, migrations.Schema, benchSchema)
	case "42501": // insufficient_privilege
		return cli.Fail(cli.Failure, "GRANT CREATE ON DATABASE "+pgx.Identifier{g.in}.Sanitize()+" to this user",
			"%s may not create schemas in %s", pool.Config().ConnConfig.User, g.in)
	default:
		return fmt.Errorf("create the schemas in %s: %w", g.in, err)
	}
}

// leaving bounds Leave.
const leaving = time.Minute

// Leave drops what was made, also when ctx has ended, and disconnects. The figures' pools
// have to be closed. Its error is a *cli.Error that says what stays, and how to drop it.
func (g *Guest) Leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaving)
	defer cancel()
	defer g.admin.Close()
	var left, hints []string
	var errs []error
	stays := func(what, hint string, err error) {
		if err != nil {
			left, hints, errs = append(left, what), append(hints, hint), append(errs, err)
		}
	}
	for _, database := range g.databases {
		sql := "DROP DATABASE IF EXISTS " + pgx.Identifier{database}.Sanitize()
		stays("the database "+database, sql, g.drop(ctx, sql))
	}
	if g.schemas {
		sql := "DROP SCHEMA IF EXISTS " + migrations.Schema + ", " + benchSchema + " CASCADE"
		stays("the schemas in "+g.in, sql, g.dropSchemas(ctx, sql))
	}
	if g.schemas || len(g.databases) > 0 {
		for _, role := range g.roles {
			stays("the role "+role, "DROP ROLE "+role, g.dropRole(ctx, role))
		}
	}
	if len(left) == 0 {
		if g.schemas || len(g.databases) > 0 {
			fmt.Fprintln(g.tell, "dropped what was made")
		}
		return nil
	}
	return cli.Fail(cli.Failure, "as soon as you can: "+strings.Join(hints, "; "), "%s could not be dropped: %w", strings.Join(left, ", "), errors.Join(errs...))
}

// drop drops a database. Whoever was cut off a moment ago may still be there; the server
// waits for it, and ends autovacuum's workers, which FORCE may not do as any user. Who
// is there after that was not invited.
func (g *Guest) drop(ctx context.Context, sql string) error {
	_, err := g.admin.Exec(ctx, sql)
	if sqlState(err) == "55006" { // object_in_use
		_, err = g.admin.Exec(ctx, sql+" WITH (FORCE)")
	}
	return err
}

func (g *Guest) dropSchemas(ctx context.Context, sql string) error {
	pool, err := g.connect(ctx, g.in, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = pool.Exec(ctx, sql)
	return err
}

// dropRole drops a role that was not there before, unless somebody has begun to use it: a
// ledger in another database, or a user that was made a member, whom DROP ROLE would not
// ask. Whoever made a role may be its member by that alone.
func (g *Guest) dropRole(ctx context.Context, role string) error {
	var used bool
	err := g.admin.QueryRow(ctx, `-- name: bench_role_used
SELECT EXISTS (SELECT FROM pg_auth_members m JOIN pg_roles r ON r.oid IN (m.roleid, m.member)
	WHERE r.rolname = $1 AND m.member <> (SELECT oid FROM pg_roles WHERE rolname = current_user))`, role).Scan(&used)
	if err != nil {
		return err
	}
	if !used {
		_, err = g.admin.Exec(ctx, "DROP ROLE IF EXISTS "+pgx.Identifier{role}.Sanitize())
		used = sqlState(err) == "2BP01" // dependent_objects_still_exist
	}
	if used {
		fmt.Fprintf(g.tell, "the role %s stays: somebody else has begun to use it\n", role)
		return nil
	}
	return err
}

// sqlState is the code of a database's error, or "".
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}
