package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Connect opens a pool and makes sure that the database answers, within the configured
// time. program is the application_name, unless the URL gives one.
func Connect(ctx context.Context, cfg Database, program string) (*pgxpool.Pool, error) {
	pc, err := cfg.PoolConfig(program)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, Fail(Failure, "", "open the connection pool: %w", err)
	}
	// Within ctx, so that an interrupt ends the wait as well.
	pingCtx, cancel := context.WithTimeout(ctx, cfg.ConnectTimeout)
	defer cancel()
	if err := pool.Ping(pingCtx); err != nil {
		pool.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, cannotConnect(err, pc.ConnConfig, cfg)
	}
	return pool, nil
}

// Each is the databases that are named, one by one.
func (cfg Database) Each() (all []Database) {
	for line := range strings.Lines(cfg.URL) {
		if line = strings.TrimSpace(line); line != "" {
			one := cfg
			one.URL = line
			all = append(all, one)
		}
	}
	return all
}

// Where is the address of the database, without user and password; "" for none that could
// be connected to.
func (cfg Database) Where() string {
	pc, err := cfg.PoolConfig("")
	if err != nil {
		return ""
	}
	return Address(pc.ConnConfig)
}

// PoolConfig is cfg as pgx wants it. It must name one database.
func (cfg Database) PoolConfig(program string) (*pgxpool.Config, error) {
	switch n := len(cfg.Each()); {
	case n == 0:
		return nil, Fail(Usage, "set DATABASE_URL, --database-url, or database.url in "+defaultFile, "no database named")
	case n > 1:
		return nil, Fail(Usage, "give the one to act on with --database-url", "%d databases named", n)
	}
	pc, err := pgxpool.ParseConfig(strings.TrimSpace(cfg.URL))
	if err != nil {
		// pgx takes the password out of what it quotes.
		return nil, Fail(Usage, "write postgres://user:password@host:5432/database", "database.url: %w", err)
	}
	pc.MaxConns = int32(min(max(cfg.MaxConns, 1), 10_000))
	pc.ConnConfig.ConnectTimeout = cfg.ConnectTimeout
	pc.ConnConfig.Database = cmp.Or(cfg.Name, pc.ConnConfig.Database)
	if pc.ConnConfig.RuntimeParams["application_name"] == "" {
		pc.ConnConfig.RuntimeParams["application_name"] = program
	}
	if cfg.PgBouncer {
		// Transaction mode gives every transaction another server connection: nothing
		// may be prepared on one and used on the next.
		pc.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		pc.ConnConfig.StatementCacheCapacity = 0
		pc.ConnConfig.DescriptionCacheCapacity = 0
	}
	return pc, nil
}

func cannotConnect(err error, cc *pgx.ConnConfig, cfg Database) error {
	where := fmt.Sprintf("%s as %s", Address(cc), cc.User)
	cause, hint := connectCause(err, cfg)
	return Fail(Failure, hint, "cannot connect to %s: %s", where, cause)
}

// Address is where a connection goes, as people write it: host, port and database.
func Address(cc *pgx.ConnConfig) string {
	if strings.HasPrefix(cc.Host, "/") {
		return fmt.Sprintf("%s/.s.PGSQL.%d/%s", cc.Host, cc.Port, cc.Database)
	}
	return fmt.Sprintf("%s/%s", net.JoinHostPort(cc.Host, fmt.Sprint(cc.Port)), cc.Database)
}

// connectCause says in a few words why, and what to look at.
func connectCause(err error, cfg Database) (cause, hint string) {
	var pg *pgconn.PgError
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &pg):
		return pg.Message, serverHint(pg.Code)
	case errors.As(err, &dns):
		return "no such host " + dns.Name, "check the host in database.url"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), isTimeout(err):
		return "no answer in " + shortDuration(cfg.ConnectTimeout), "check host, port and firewall in the way; database.connect_timeout is how long to try"
	case errors.As(err, &op):
		return op.Err.Error(), "check that the server runs, and host and port in database.url"
	case strings.Contains(err.Error(), "tls"), strings.Contains(err.Error(), "TLS"):
		return deepest(err).Error(), "check sslmode in database.url"
	default:
		return deepest(err).Error(), "check database.url"
	}
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

func deepest(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

func serverHint(code string) string {
	switch code {
	case "28P01", "28000": // invalid_password, invalid_authorization_specification
		return "check user and password in database.url, and pg_hba.conf"
	case "3D000": // invalid_catalog_name
		return "create the database, or correct its name in database.url"
	case "42501": // insufficient_privilege
		return "GRANT CONNECT ON DATABASE to this user"
	case "53300": // too_many_connections
		return "lower database.max_conns, or raise the server's max_connections"
	case "57P03": // cannot_connect_now
		return "the server is starting or stopping: try again"
	default:
		return "SQLSTATE " + code
	}
}

// Explain adds what to do to an error of the database that comes from the set-up.
func Explain(err error) error {
	var known *Error
	var pg *pgconn.PgError
	if errors.As(err, &known) || !errors.As(err, &pg) {
		return err
	}
	switch pg.Code {
	case "3F000", "42P01", "42883", "42703", "42704": // schema, table, function, column, type
		return Fail(Failure, "run outbox-worker migrate", "the schema outbox is missing or older than this program: %s", pg.Message)
	case "42501": // insufficient_privilege
		return Fail(Failure, "GRANT outbox_app, outbox_worker or outbox_operator TO this user, by what it is for; outbox-worker doctor tells what it may do", "%s", pg.Message)
	case "25006": // read_only_sql_transaction
		return Fail(Failure, "connect to the primary: add target_session_attrs=read-write", "%s", pg.Message)
	case "08P01", "26000", "42P05": // prepared statements through a pooler
		return Fail(Failure, "behind a pooler in transaction mode set database.pgbouncer", "%s", pg.Message)
	}
	return err
}
