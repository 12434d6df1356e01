package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-worker/outbox-worker/internal/chaos"
	"github.com/outbox-worker/outbox-worker/internal/cli"
)

func newChaos(app *cli.App) *cobra.Command {
	var o chaos.Options
	var series series
	cmd := &cobra.Command{
		Use:     "chaos",
		GroupID: groupRun,
		Short:   "Break everything on purpose, and count what was promised",
		Long: `Starts a private Postgres, three workers and the providers as processes, and puts a proxy
between them. While intents are enqueued one by one it kills, pauses and stops workers, at
named points of an attempt and at any moment, crashes the database, promotes a synchronous
standby, and cuts, delays and loses what is sent to database and providers; the providers
misbehave as well. Then it compares what enqueuers were told, the ledger, and what the
providers counted.

What is drawn is drawn from --seed: the same seed gives the same schedule. The defaults
take about two minutes; for a long run take several --seeds, which count up from --seed.
It refuses DATABASE_URL, because it crashes its database. With --output json the last
line of standard output is the verdict; progress goes to standard error. The exit code is
1 if anything was duplicated, lost, answered wrongly or stuck; logs are then kept.` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.Refused),
		Example: `  outbox-worker chaos
  outbox-worker chaos --seed 1 --seeds 20 --at-once 2 --output json | tail -1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return breakAll(cmd, app, o, series) },
	}
	f := cmd.Flags()
	f.Uint64Var(&o.Seed, "seed", 0, "of everything that is drawn; 0 draws one and prints it")
	f.IntVar(&o.Intents, "intents", 2500, "how many intents are enqueued, follow-ons not counted")
	f.IntVar(&o.Faults, "faults", 30, "how many faults strike, the providers' own not counted")
	f.DurationVar(&o.Duration, "duration", time.Minute, "the time over which intents and faults are spread")
	f.IntVar(&series.seeds, "seeds", 1, "how many runs, each with a seed of its own")
	f.IntVar(&series.atOnce, "at-once", 1, "how many of them at once")
	f.BoolVar(&o.Keep, "keep", false, "leave logs and database behind, and say where")
	cmd.AddCommand(newChaosWorker(app))
	return cmd
}

// series is how many runs, and how many at once.
type series struct{ seeds, atOnce int }

func breakAll(cmd *cobra.Command, app *cli.App, o chaos.Options, runs series) error {
	cfg, err := app.Config(cmd)
	if err != nil {
		return err
	}
	if cfg.Database.URL != "" {
		return cli.Fail(cli.Refused, "unset DATABASE_URL; a private one is started", "the database is crashed on purpose, so it cannot be yours")
	}
	if o.Intents < 1 || o.Faults < 0 || o.Duration <= 0 || runs.seeds < 1 || runs.atOnce < 1 {
		return cli.Fail(cli.Usage, "give positive numbers", "--intents %d --faults %d --duration %s --seeds %d --at-once %d",
			o.Intents, o.Faults, o.Duration, runs.seeds, runs.atOnce)
	}
	if o.Program, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	out := app.Output()
	o.Progress = app.Env.Stdout
	if out.JSON {
		o.Progress = app.Env.Stderr
	}
	report, err := runChaos(cmd.Context(), app, o, runs)
	if err != nil {
		return err
	}
	if !report.OK() {
		return cli.Fail(cli.Failure, "run that seed again with --keep", "%d duplicates, %d lost, %d wrong answers, %d stuck",
			report.Duplicates, report.Lost, report.WrongAnswers, report.Stuck)
	}
	return nil
}

func runChaos(ctx context.Context, app *cli.App, o chaos.Options, runs series) (chaos.Report, error) {
	if runs.seeds == 1 {
		report, err := chaos.Run(ctx, o)
		if err != nil {
			return report, err
		}
		outcome, faults := report.Tables()
		return report, showChaos(app, report, outcome, faults)
	}
	// One that could not be brought to its end does not take the others' verdicts with it.
	all, err := chaos.RunSeeds(ctx, o, runs.seeds, runs.atOnce)
	_, faults := all.Total.Tables()
	return all.Total, errors.Join(err, showChaos(app, all.Total, faults, all.Table()))
}

// showChaos prints the tables before the verdict, whatever its form.
func showChaos(app *cli.App, r chaos.Report, tables ...[][]string) error {
	out := app.Output()
	var errs []error
	for _, table := range tables {
		errs = append(errs, out.Printf(""), out.Table(table))
	}
	errs = append(errs, out.Printf(""))
	for _, p := range r.Problems() {
		errs = append(errs, out.Printf("%s", p))
	}
	if out.JSON {
		return errors.Join(append(errs, out.Encode(r))...)
	}
	return errors.Join(append(errs, out.Printf("seed %d: %d intents, %d effects: %d duplicates (and %d that no check could prevent), %d lost, %d wrong answers, %d stuck, in %.0f s.",
		r.Seed, r.Intents, r.Effects, r.Duplicates, r.Residual, r.Lost, r.WrongAnswers, r.Stuck, r.Seconds))...)
}

// newChaosWorker is "run", but for the orders to kill or pause itself that it reads from
// standard input.
func newChaosWorker(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:    "worker",
		Hidden: true,
		Short:  "Work as run does, and kill or pause yourself when told to",
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := app.Config(cmd)
			if err != nil {
				return err
			}
			pool, err := app.Connect(cmd)
			if err != nil {
				return err
			}
			defer pool.Close()
			return workHooked(cmd.Context(), cfg, pool, app.Logger(cfg), chaos.Hooks(app.Env.Stdin, app.Env.Stdout))
		},
	}
	cli.AddFlags(cmd.Flags(), "worker.name", "worker.concurrency", "worker.stop_timeout")
	return cmd
}
