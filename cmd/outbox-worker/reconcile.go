package main

import (
	"github.com/spf13/cobra"

	"github.com/outbox-worker/outbox-worker/internal/cli"
)

func newReconcile(app *cli.App) *cobra.Command {
	var who by
	cmd := &cobra.Command{
		Use:     "reconcile REF",
		GroupID: groupOperate,
		Short:   "Ask about an unknown outcome now",
		Long: `Has a worker find out what became of an unknown outcome now, instead of when its turn
comes. How it is found out is decided by what the provider promises, as always; it is not
sent again blindly. What is in review already has been asked about in vain: look at the
provider yourself, and resolve it.` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.Refused, cli.NotFound),
		Example: `  outbox-worker reconcile 7k2f9c --reason 'the provider says that its search works again'`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return act(cmd, app, &who, args[0], "-- name: reconcile\nSELECT "+operatedColumns+" FROM outbox.reconcile($1, $2, $3) a")
		},
	}
	who.flags(cmd)
	return cmd
}
