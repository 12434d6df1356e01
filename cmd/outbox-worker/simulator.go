package main

import (
	"github.com/spf13/cobra"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
)

func newSimulator(app *cli.App) *cobra.Command {
	var o simulator.Options
	cmd := &cobra.Command{
		Use:     "simulator",
		GroupID: groupRun,
		Short:   "Play the providers, and count what they did",
		Long: `Runs a server that plays payment, shipping, booking and mail providers and counts every
effect, until it is interrupted. Its first line on standard output is an object with the
addresses, {"http":"http://…","smtp":"host:port"}. Faults are scripted over HTTP at
/sim/faults. It charges nobody.` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage),
		Example: `  outbox-worker simulator --http 127.0.0.1:4010
  outbox-worker simulator --journal effects.ndjson   # remembers over a crash`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := app.Config(cmd)
			if err != nil {
				return err
			}
			o.Logger = app.Logger(cfg)
			return simulator.Run(cmd.Context(), o, app.Env.Stdout)
		},
	}
	cmd.Flags().StringVar(&o.HTTPAddr, "http", "127.0.0.1:0", "where the HTTP providers listen; port 0 takes a free one")
	cmd.Flags().StringVar(&o.SMTPAddr, "smtp", "127.0.0.1:0", "where the mail provider listens")
	cmd.Flags().StringVar(&o.Journal, "journal", "", "file in which effects are kept and from which they are read at the start")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 0, "of faults that strike by chance")
	return cmd
}
