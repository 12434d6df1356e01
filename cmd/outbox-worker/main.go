// Command outbox-worker causes the effects that applications have recorded, and is what
// operators look at them with.
//
// main builds the tree of commands anew for each run; there is one file per command. A
// command reads its configuration and opens the database itself, through cli.App.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/outbox-worker/outbox-worker/internal/cli"
)

func main() {
	ctx, env := cli.Process()
	os.Exit(int(Main(ctx, env)))
}

// Main runs the program until it is done or ctx ends.
func Main(ctx context.Context, env cli.Env) cli.ExitCode {
	return newApp(env).Run(ctx)
}

// The groups under which help lists the commands.
const (
	groupRun     = "run"
	groupOperate = "operate"
	groupSetUp   = "set-up"
)

func newApp(env cli.Env) *cli.App {
	root := &cobra.Command{
		Use:   "outbox-worker",
		Short: "Causes each recorded effect once, and says so when nobody can know",
		Long: `outbox-worker takes the intents that applications have committed, causes each effect
at its provider once, and finds out what became of those whose answer was lost. It is
also how an operator sets up, watches and repairs the ledger.

The database comes from DATABASE_URL, --database-url, or the file outbox-worker.yaml.
Exit codes and --output json are described in docs/cli.md.`,
		Example: `  outbox-worker migrate
  outbox-worker catalog apply catalog.yaml
  outbox-worker doctor
  outbox-worker list --state outcome_unknown,needs_review`,
	}
	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Run:"},
		&cobra.Group{ID: groupOperate, Title: "Look and act:"},
		&cobra.Group{ID: groupSetUp, Title: "Set up:"},
	)
	app := cli.New(env, root, "database.url", "log.level", "log.format")
	root.SetHelpCommandGroupID(groupSetUp)
	root.SetCompletionCommandGroupID(groupSetUp)
	root.AddCommand(
		newBench(app),
		newCancel(app),
		newCatalog(app),
		newChaos(app),
		newDemo(app),
		newDev(app),
		newDoctor(app),
		newLane(app),
		newLedger(app),
		newList(app),
		newMigrate(app),
		newReconcile(app),
		newReplay(app),
		newRetention(app),
		newResolve(app),
		newReview(app),
		newRun(app),
		newShow(app),
		newSimulator(app),
		newVersion(app),
		newWatch(app),
	)
	cli.Group(root)
	return app
}
