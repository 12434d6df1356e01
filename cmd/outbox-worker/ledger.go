package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/outbox-worker/outbox-worker/internal/cli"
)

func newLedger(app *cli.App) *cobra.Command {
	group := &cobra.Command{
		Use:     "ledger",
		GroupID: groupOperate,
		Short:   "Declare a copy of the ledger the original",
		Long: `The ledger remembers the server and the database it ran on. On a copy of it workers send
nothing, because the original may be sending the same; adopt is an operator's word that
this is the original now.`,
	}
	group.AddCommand(newLedgerAdopt(app))
	return cli.Group(group)
}

func newLedgerAdopt(app *cli.App) *cobra.Command {
	var actor, reason string
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Declare this ledger the original",
		Long: `Makes workers send from this database. Before you do, make sure that no worker sends from
the database it was copied from. What was due may have been sent there already, so its
outcome is unknown from now on, and is found out before anything is sent.` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage),
		Example: `  outbox-worker ledger adopt --reason "restored from backup, the old server is gone"`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if reason == "" {
				return cli.Fail(cli.Usage, "give --reason", "adopting a ledger needs a reason")
			}
			pool, err := app.Connect(cmd)
			if err != nil {
				return err
			}
			defer pool.Close()
			who, err := actorOf(cmd.Context(), app.Env, actor, pool)
			if err != nil {
				return err
			}
			var doubted int
			if err := pool.QueryRow(cmd.Context(), `SELECT outbox.adopt($1, $2)`, who, reason).Scan(&doubted); err != nil {
				return fmt.Errorf("adopt the ledger: %w", err)
			}
			out := app.Output()
			if out.JSON {
				return out.Encode(map[string]any{"adopted": true, "unknown": doubted})
			}
			return out.Printf("adopted; %d intents may have been sent and are unknown until found out", doubted)
		},
	}
	actorFlag(cmd.Flags(), &actor)
	cmd.Flags().StringVar(&reason, "reason", "", "why this is the original, for the record")
	return cmd
}
