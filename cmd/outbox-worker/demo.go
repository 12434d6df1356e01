package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/internal/demo"
)

func newDemo(app *cli.App) *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:     "demo",
		GroupID: groupRun,
		Short:   "See the main job done, faults included, with numbers",
		Long: `Starts a private Postgres (or uses DATABASE_URL, if there is no ledger in it), three workers
and the providers as processes, and a shop that takes some three hundred orders. The
providers misbehave in every way they know, the mail server goes away for a while, and a
worker is killed in the middle. Then the ledger is compared with what the providers
counted: how many effects, how many duplicates, how many lost.

It ends within a minute and cleans up, unless --keep is given. With --output json the
last line of standard output is the verdict; progress goes to standard error. The exit
code is 1 if anything was duplicated or lost.` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.Refused),
		Example: `  outbox-worker demo
  outbox-worker demo --output json | tail -1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := app.Config(cmd)
			if err != nil {
				return err
			}
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			if cfg.Database.URL != "" { // a bad one is said as every command says it
				pool, err := app.Connect(cmd)
				if err != nil {
					return err
				}
				pool.Close()
			}
			out, progress := app.Output(), app.Env.Stdout
			if out.JSON {
				progress = app.Env.Stderr
			}
			report, err := demo.Run(cmd.Context(), demo.Options{Program: program, DatabaseURL: cfg.Database.URL, Keep: keep, Progress: progress})
			if errors.Is(err, demo.ErrInUse) {
				return cli.Fail(cli.Refused, "unset DATABASE_URL for a private one, or name an empty database", "%w", err)
			}
			if err != nil {
				return err
			}
			if err := showDemo(out, report); err != nil {
				return err
			}
			if !report.OK() {
				return cli.Fail(cli.Failure, "run it again with --keep and look at the logs", "%d duplicates, %d lost", report.Duplicates, report.Lost)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "leave logs and database behind, and say where")
	return cmd
}

func showDemo(out cli.Output, r demo.Report) error {
	if out.JSON {
		return out.Encode(r)
	}
	outcome, open, problems := r.Tables()
	if err := out.Printf(""); err != nil {
		return err
	}
	for _, table := range [][][]string{outcome, open} {
		if len(table) == 1 {
			continue
		}
		if err := out.Table(table); err != nil {
			return err
		}
		if err := out.Printf(""); err != nil {
			return err
		}
	}
	for _, p := range problems {
		if err := out.Printf("PROBLEM: %s", p); err != nil {
			return err
		}
	}
	fired := 0
	for _, n := range r.Faults {
		fired += n
	}
	return out.Printf("%d orders, %d intents, %d faults of %d kinds, %d worker killed: %d effects, %d duplicates, %d lost, in %.1f s.",
		r.Orders, r.Intents, fired, len(r.Faults), r.Killed, r.Effects, r.Duplicates, r.Lost, r.Seconds)
}
