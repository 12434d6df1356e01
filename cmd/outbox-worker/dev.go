package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/outbox-worker/outbox-worker/examples/shop"
	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/internal/demo"
	"github.com/outbox-worker/outbox-worker/internal/pgtemp"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/migrations"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

func newDev(app *cli.App) *cobra.Command {
	var d devOptions
	cmd := &cobra.Command{
		Use:     "dev",
		GroupID: groupRun,
		Short:   "Everything for trying it out, in one process",
		Long: `Starts a private Postgres that keeps its data between runs (or uses DATABASE_URL), the
provider simulator and a worker, applies the schema and the shop's catalog (or --catalog),
prints how to enqueue, and runs until it is interrupted. With a configuration that has
providers, those are used instead of the simulator's. It charges nobody otherwise.` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.Refused, cli.NotFound),
		Example: `  outbox-worker dev
  outbox-worker dev --catalog catalog.yaml --config outbox-worker.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd, app) },
	}
	cmd.Flags().StringVar(&d.catalog, "catalog", "", "catalog file to apply; the example shop's if empty")
	cmd.Flags().StringVar(&d.dir, "data-dir", "", "where the private Postgres and the simulator keep their data; a directory of the user's cache (for root, of /var/lib) if empty")
	cli.AddFlags(cmd.Flags(), "worker.name", "worker.concurrency", "worker.stop_timeout")
	return cmd
}

type devOptions struct{ catalog, dir string }

func (d devOptions) run(cmd *cobra.Command, app *cli.App) (err error) {
	ctx := cmd.Context()
	cfg, err := app.Config(cmd)
	if err != nil {
		return err
	}
	dir, err := d.dataDir()
	if err != nil {
		return err
	}
	if cfg.Database.URL == "" {
		server, err := pgtemp.Start(ctx, pgtemp.Options{Dir: filepath.Join(dir, "postgres"), Logger: app.Logger(cfg)})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		cfg.Database.URL = server.URL()
	}
	pool, err := cli.Connect(ctx, cfg.Database, "outbox-worker dev")
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := ownLedger(ctx, pool); err != nil {
		return err
	}
	operations, err := d.prepare(ctx, pool)
	if err != nil {
		return err
	}
	if len(cfg.Providers) == 0 {
		sim, err := simulator.Start(ctx, simulator.Options{Journal: filepath.Join(dir, "effects.ndjson"), Logger: app.Logger(cfg)})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, sim.Close()) }()
		config := demo.WorkerConfig(demo.Addresses{HTTP: sim.HTTPURL(), SMTP: sim.SMTPAddr()})
		var simulated struct{ Providers map[string]any }
		if err := yaml.Unmarshal([]byte(config), &simulated); err != nil {
			return fmt.Errorf("configure the simulator's providers: %w", err)
		}
		cfg.Providers = simulated.Providers
		if err := app.Output().Printf("simulator:  %s/sim/summary counts what happened; mail at %s", sim.HTTPURL(), sim.SMTPAddr()); err != nil {
			return err
		}
	}
	if cfg.File != "" {
		if err := app.Output().Printf("settings:   %s", cfg.File); err != nil {
			return err
		}
	}
	if err := d.introduce(app.Output(), cfg.Database.URL, operations); err != nil {
		return err
	}
	return work(ctx, cfg, pool, app.Logger(cfg))
}

func (d devOptions) dataDir() (string, error) {
	dir := d.dir
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", cli.Fail(cli.Usage, "give --data-dir", "no directory for data: %w", err)
		}
		if os.Geteuid() == 0 {
			cache = "/var/lib" // Postgres does not run as root, and cannot look into root's home
		}
		dir = filepath.Join(cache, "outbox-worker-dev")
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// devActor is who dev applies its catalog as, and how it knows its own ledgers.
const devActor = "dev"

// ownLedger refuses a ledger that somebody else set up: its intents are meant for real
// providers, and dev would have the simulator say that they happened.
func ownLedger(ctx context.Context, pool *pgxpool.Pool) error {
	var exists, foreign bool
	if err := pool.QueryRow(ctx, `SELECT to_regclass('outbox.catalog') IS NOT NULL`).Scan(&exists); err != nil || !exists {
		return err
	}
	if err := pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM outbox.catalog WHERE applied_by NOT IN ($1, 'demo'))`, devActor).Scan(&foreign); err != nil {
		return err
	}
	if foreign {
		return cli.Fail(cli.Refused, "unset DATABASE_URL for a private one, or use outbox-worker run",
			"this database has a ledger with a catalog that dev did not apply, and dev would pretend its effects")
	}
	return nil
}

// prepare brings schema and catalog up to date.
func (d devOptions) prepare(ctx context.Context, pool *pgxpool.Pool) (operations []string, _ error) {
	if err := migrations.Up(ctx, pool); err != nil {
		return nil, err
	}
	name, text := "examples/shop/catalog.yaml", shop.Catalog
	if d.catalog != "" {
		var err error
		name = d.catalog
		if text, err = os.ReadFile(name); err != nil {
			return nil, cli.Fail(cli.NotFound, "give the path of a catalog file", "%w", err)
		}
	}
	c, err := catalog.Parse(name, text)
	if err != nil {
		return nil, cli.Fail(cli.Refused, "see docs/catalog.md", "%w", err)
	}
	if _, err := catalog.Apply(ctx, pool, c, devActor); err != nil {
		return nil, err
	}
	for _, o := range c.Operations {
		operations = append(operations, o.ID())
	}
	return operations, nil
}

func (d devOptions) introduce(out cli.Output, url string, operations []string) error {
	for _, line := range []string{
		"database:   " + url,
		fmt.Sprintf("operations: %v", operations),
		"",
		"In another terminal:",
		fmt.Sprintf("  export DATABASE_URL='%s'", url),
		"  enqueue --tenant meridian --operation create_shipment.v1 --wait --payload \\",
		`    '{"storefront":"meridian","order_id":"1","name":"Ada","address":{"lines":["1 Main St"],"city":"London","country":"GB"},"items":[{"sku":"A1","title":"Ink","quantity":1}]}'`,
		"  outbox-worker list",
		"",
	} {
		if err := out.Printf("%s", line); err != nil {
			return err
		}
	}
	return nil
}
