package main

import (
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
	cmd := &cobra.Command{
		Use:     "chaos",
		GroupID: groupRun,
		Short:   "Break everything on purpose, and count what was promised",
		Long: `Starts a private Postgres, three workers and the providers as processes, and puts a proxy
between them. While intents are enqueued one by one it kills, pauses and stops workers, at
named points of an attempt and at any moment, crashes the database, and cuts, delays and
loses what is sent to database and providers; the providers misbehave as well. Then it
compares what enqueuers were told, the ledger, and what the providers counted.

What is drawn is drawn from --seed: the same seed gives the same schedule. The defaults
take about two minutes; raise --intents, --faults and --duration together for a long run.
It refuses DATABASE_URL, because it crashes its database. With --output json the last
line of standard output is the verdict; progress goes to standard error. The exit code is
1 if anything was duplicated, lost, answered wrongly or stuck; logs are then kept.` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.Refused),
		Example: `  outbox-worker chaos
  outbox-worker chaos --seed 7 --intents 20000 --faults 200 --duration 10m --output json | tail -1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return breakAll(cmd, app, o) },
	}
	f := cmd.Flags()
	f.Uint64Var(&o.Seed, "seed", 0, "of everything that is drawn; 0 draws one and prints it")
	f.IntVar(&o.Intents, "intents", 2500, "how many intents are enqueued, follow-ons not counted")
	f.IntVar(&o.Faults, "faults", 30, "how many faults strike, the providers' own not counted")
	f.DurationVar(&o.Duration, "duration", time.Minute, "the time over which intents and faults are spread")
	f.BoolVar(&o.Keep, "keep", false, "leave logs and database behind, and say where")
	cmd.AddCommand(newChaosWorker(app))
	return cmd
}

func breakAll(cmd *cobra.Command, app *cli.App, o chaos.Options) error {
	cfg, err := app.Config(cmd)
	if err != nil {
		return err
	}
	if cfg.Database.URL != "" {
		return cli.Fail(cli.Refused, "unset DATABASE_URL; a private one is started", "the database is crashed on purpose, so it cannot be yours")
	}
	if o.Intents < 1 || o.Faults < 0 || o.Duration <= 0 {
		return cli.Fail(cli.Usage, "give positive numbers", "--intents %d --faults %d --duration %s", o.Intents, o.Faults, o.Duration)
	}
	if o.Program, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	out := app.Output()
	o.Progress = app.Env.Stdout
	if out.JSON {
		o.Progress = app.Env.Stderr
	}
	report, err := chaos.Run(cmd.Context(), o)
	if err != nil {
		return err
	}
	if err := showChaos(app, report); err != nil {
		return err
	}
	if !report.OK() {
		return cli.Fail(cli.Failure, fmt.Sprintf("run it again with --seed %d --keep", report.Seed), "%d duplicates, %d lost, %d wrong answers, %d stuck",
			report.Duplicates, report.Lost, report.WrongAnswers, report.Stuck)
	}
	return nil
}

// showChaos prints the tables before the verdict, whatever its form.
func showChaos(app *cli.App, r chaos.Report) error {
	out := app.Output()
	outcome, faults := r.Tables()
	var errs []error
	for _, table := range [][][]string{outcome, faults} {
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
