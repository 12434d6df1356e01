package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/outbox-worker/outbox-worker/internal/cli"
)

func newDoctor(app *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "doctor",
		GroupID: groupOperate,
		Short:   "Check the set-up, and say for each finding what to do",
		Long: `Looks at the server and its clock, the schema, the roles, the catalog and the configured
providers, at the lanes, at connections, at work that nobody takes and at outcomes that
nobody knows, and at what makes the outbox slow: settings of its tables that are not those
of the migrations, autovacuum that is off, snapshots that are held for long, bloat. It says
for each finding what to do. It reads only. With --output json it prints one object with
findings, each with check, status (ok, warning or error), detail and hint. Given several
databases it looks at each, and a finding names its own.

Errors mean that something does not work or will not, or that this login may not see what
has to be checked; then the exit code is 1. Warnings want attention and leave it 0. Run it
with the worker's configuration, as a member of outbox_worker or outbox_operator that has
been granted pg_read_all_stats.` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage),
		Example: `  outbox-worker doctor
  outbox-worker doctor --output json | jq '.findings[] | select(.status != "ok")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := &doctor{Findings: []finding{}, limits: usual}
			if err := d.examine(cmd, app); err != nil {
				return err
			}
			return d.report(app.Output())
		},
	}
}

// Statuses of a finding.
const (
	statusOK      = "ok"
	statusWarning = "warning"
	statusError   = "error"
)

type finding struct {
	Database string `json:"database,omitempty"` // of several
	Check    string `json:"check"`
	Status   string `json:"status"`
	Detail   string `json:"detail"`
	Hint     string `json:"hint,omitempty"`
}

// doctor collects findings.
type doctor struct {
	Findings []finding `json:"findings"`
	Errors   int       `json:"errors"`
	Warnings int       `json:"warnings"`

	pool     *pgxpool.Pool
	cfg      cli.Config
	limits   limits
	sees     bool   // it may see other users' sessions
	newer    int    // migrations that are applied and not known
	held     bool   // something keeps vacuum from removing dead rows
	database string // that is looked at, of several
}

// limits are what is still well. Those of time are given to Postgres's clock.
type limits struct {
	snapshot time.Duration // of a transaction that keeps vacuum back, and of dead rows without a vacuum
	idle     time.Duration // of a transaction whose client does nothing
	xids     int64         // transactions since what a replication slot or a standby still wants to see
	size     int64         // bytes below which nothing is bloated
}

// usual are the limits unless a test sets others. Where Postgres knows no time, as for
// slots, the number of transactions says how much cannot be removed.
var usual = limits{snapshot: 10 * time.Minute, idle: time.Minute, xids: 500_000, size: 64 << 20}

func (d *doctor) ok(check, format string, args ...any) {
	d.Findings = append(d.Findings, finding{d.database, check, statusOK, fmt.Sprintf(format, args...), ""})
}

func (d *doctor) warn(check, hint, format string, args ...any) {
	d.Warnings++
	d.Findings = append(d.Findings, finding{d.database, check, statusWarning, fmt.Sprintf(format, args...), hint})
}

func (d *doctor) fail(check, hint, format string, args ...any) {
	d.Errors++
	d.Findings = append(d.Findings, finding{d.database, check, statusError, fmt.Sprintf(format, args...), hint})
}

// checkLimit bounds one check: a doctor must not add to the trouble.
const checkLimit = 15 * time.Second

// step is one check. It returns false when what follows cannot be checked any more, and
// an error when it could not be made.
type step struct {
	name string
	run  func(ctx context.Context) (goOn bool, err error)
}

func (d *doctor) examine(cmd *cobra.Command, app *cli.App) error {
	cfg, err := app.Config(cmd)
	if err != nil {
		return err
	}
	databases := cfg.Database.Each()
	if len(databases) < 2 {
		d.cfg = cfg
		return d.examineOne(cmd, app)
	}
	for _, one := range databases {
		d.cfg, d.database = cfg, one.Where()
		d.cfg.Database = one
		if err := d.examineOne(cmd, app); err != nil {
			return err
		}
	}
	return nil
}

func (d *doctor) examineOne(cmd *cobra.Command, app *cli.App) (err error) {
	d.sees, d.newer, d.held = false, 0, false
	d.pool, err = cli.Connect(cmd.Context(), d.cfg.Database, app.Root.Name()+" doctor")
	if err != nil {
		if known, ok := err.(*cli.Error); ok && known.Code == cli.Failure {
			d.fail("connection", known.Hint, "%v", known.Err)
			return nil
		}
		return err
	}
	defer d.pool.Close()
	for _, s := range []step{
		{"server", d.server},
		{"durability", d.durability},
		{"clock", d.clock},
		{"schema", d.schema},
		{"roles", d.roles},
		{"migrations", d.migrations},
		{"ledger", d.ledger},
		{"catalog", d.catalog},
		{"lanes", d.lanes},
		{"pool", d.connections},
		{"retention", d.retention},
		{"worker", d.worker},
		{"work", d.work},
		{"attention", d.attention},
		{"settings", d.settings},
		{"autovacuum", d.autovacuum},
		{"snapshots", d.snapshots},
		{"bloat", d.bloat},
	} {
		ctx, cancel := context.WithTimeout(cmd.Context(), checkLimit)
		goOn, err := s.run(ctx)
		cancel()
		if cmd.Context().Err() != nil {
			return cmd.Context().Err()
		}
		if err != nil {
			d.fail(s.name, "", "cannot be checked: %v", cli.Explain(err))
		}
		if err == nil && !goOn {
			break
		}
	}
	return nil
}

func (d *doctor) report(out cli.Output) error {
	var err error
	if out.JSON {
		err = out.Encode(d)
	} else {
		err = d.print(out)
	}
	if err == nil && d.Errors > 0 {
		err = cli.Fail(cli.Failure, "", "%s", count(d.Errors, "error"))
	}
	return err
}

func (d *doctor) print(out cli.Output) error {
	table := [][]string{}
	database := ""
	for _, f := range d.Findings {
		if f.Database != database {
			database = f.Database
			table = append(table, []string{"", "", database})
		}
		table = append(table, []string{f.Status, f.Check, f.Detail})
		if f.Hint != "" {
			table = append(table, []string{"", "", "→ " + f.Hint})
		}
	}
	if err := out.Table(table); err != nil {
		return err
	}
	return out.Printf("%s, %s, %s.", count(len(d.Findings), "finding"), count(d.Errors, "error"), count(d.Warnings, "warning"))
}
