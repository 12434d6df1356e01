package main

import (
	"github.com/spf13/cobra"

	"github.com/outbox-worker/outbox-worker/internal/cli"
)

func newVersion(app *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		GroupID: groupSetUp,
		Short:   "Say which program this is",
		Long:    "Prints the version and revision that the Go tool stamped into this program." + cli.ExitHelp(cli.OK),
		Example: "  outbox-worker version --output json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			build, out := cli.ReadBuild(), app.Output()
			if out.JSON {
				return out.Encode(build)
			}
			return out.Printf("outbox-worker %s", build)
		},
	}
}
