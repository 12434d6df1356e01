package main

import (
	"github.com/spf13/cobra"

	"github.com/outbox-worker/outbox-worker/internal/cli"
)

func newCancel(app *cli.App) *cobra.Command {
	var who by
	cmd := &cobra.Command{
		Use:     "cancel REF",
		GroupID: groupOperate,
		Short:   "End an intent that is proven not to have happened",
		Long: `Ends an intent that has not been sent, or that is proven not to have been executed: it is
cancelled for good, and whoever enqueues it again is told so. An intent that waits for
approval is rejected by that. What a worker has been handed but has not claimed can still
be cancelled; what it has claimed cannot. What may have happened is refused: see reconcile
and resolve.` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.Refused, cli.NotFound),
		Example: `  outbox-worker cancel 7k2f9c --reason 'the customer withdrew the order'`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return act(cmd, app, &who, args[0], "-- name: cancel\nSELECT "+operatedColumns+" FROM outbox.cancel($1, $2, $3) a")
		},
	}
	who.flags(cmd)
	return cmd
}
