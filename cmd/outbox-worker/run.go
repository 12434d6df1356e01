package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/outbox-worker/outbox-worker/dispatch"
	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/providers"
)

func newRun(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "run",
		GroupID: groupRun,
		Short:   "Work: cause the effects that intents ask for",
		Long: `Releases due intents, calls their providers and records what they said, until SIGTERM
or SIGINT. Then it claims nothing more, lets calls in flight finish within
worker.stop_timeout and records what they brought; what has no answer by then is recorded
as unknown. A second signal ends it at once; the leases then tell what was in flight.

Any number of replicas may run on one database. A replica takes only operations whose
lane names a provider of its configuration, so versions can run side by side. It refuses
to start when a lease does not cover its call.

It serves several databases if --database-url is given several times: each has its own
ledger and connections, and the providers and worker.concurrency are shared. One that
cannot be reached is tried again until it can, and holds up no other.` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage),
		Example: `  outbox-worker run --config outbox-worker.yaml
  outbox-worker run --worker-concurrency 50 --log-format json
  outbox-worker run --database-url "$SHOP_EU" --database-url "$SHOP_US"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := app.Config(cmd)
			if err != nil {
				return err
			}
			if many := cfg.Database.Each(); len(many) > 1 {
				return workMany(cmd.Context(), cfg, many, app.Logger(cfg))
			}
			pool, err := app.Connect(cmd)
			if err != nil {
				return err
			}
			defer pool.Close()
			return work(cmd.Context(), cfg, pool, app.Logger(cfg))
		},
	}
	cli.AddFlags(cmd.Flags(), "worker.name", "worker.concurrency", "worker.stop_timeout")
	return cmd
}

// work runs a worker as configured until ctx ends.
func work(ctx context.Context, cfg cli.Config, pool *pgxpool.Pool, log *slog.Logger) error {
	return workHooked(ctx, cfg, pool, log, dispatch.Hooks{})
}

// workHooked is work with something happening at named points.
func workHooked(ctx context.Context, cfg cli.Config, pool *pgxpool.Pool, log *slog.Logger, hooks dispatch.Hooks) error {
	providers, err := openProviders(cfg)
	if err != nil {
		return err
	}
	settings := workerSettings(cfg, pool, providers, log)
	settings.Concurrency, settings.Hooks = cfg.Worker.Concurrency, hooks
	return runWorker(ctx, settings)
}

// workerSettings is dispatch's Config, but for what bounds its calls.
func workerSettings(cfg cli.Config, pool *pgxpool.Pool, providers map[string]providers.Provider, log *slog.Logger) dispatch.Config {
	return dispatch.Config{
		Pool: pool, Providers: providers, Logger: log, Name: cfg.Worker.Name,
		ReleaseLease: cfg.Worker.ReleaseLease, IdlePoll: cfg.Worker.IdlePoll, SweepEvery: cfg.Worker.SweepEvery,
		TrimEvery: cfg.Worker.TrimEvery, KeepAll: cfg.Worker.KeepAll, StopTimeout: cfg.Worker.StopTimeout, PollOnly: cfg.Database.PgBouncer,
	}
}

func runWorker(ctx context.Context, settings dispatch.Config) error {
	if n := settings.Pool.Config().MaxConns; n < dispatch.MinConns {
		return cli.Fail(cli.Usage, fmt.Sprintf("raise database.max_conns to %d at least; outbox-worker doctor advises how many", dispatch.MinConns), "a worker cannot work with %s", count(int(n), "connection"))
	}
	w, err := dispatch.New(settings)
	if err != nil {
		return err
	}
	err = w.Run(ctx)
	var setup *dispatch.SetupError
	if errors.As(err, &setup) {
		return cli.Fail(cli.Usage, "see outbox-worker doctor", "%w", err)
	}
	return err
}
