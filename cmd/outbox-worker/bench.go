package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/internal/figures"
)

// benchGroups are the figures that need one small database, and no process but this.
var benchGroups = []string{figures.Enqueue, figures.Drain, figures.Live, figures.Latency, figures.Repeats}

func newBench(app *cli.App) *cobra.Command {
	o := figures.Options{}
	var in string
	cmd := &cobra.Command{
		Use:     "bench",
		GroupID: groupSetUp,
		Short:   "Measure what the guarantee costs on your database server",
		Long: `Measures on the server that is configured how fast intents are enqueued and settled and how
soon a call begins after its commit, each beside a baseline in the same run: a bare insert,
River alone, the least that such a system could do. Trust the ratios. Nothing is sent: the
provider is a function of this process. docs/performance.md tells what each figure is.

It LOADS THE SERVER with all it has for about a minute, over up to 24 connections, and writes
about 1 GB, WAL included. Do not run it beside a ledger in production.

No ledger is touched. It creates a database outbox_bench_… of its own, which takes a user
with CREATEDB, and drops it at the end, also after an error or Ctrl-C; what it creates it
says first on standard error. With --in it creates nothing but the schemas outbox and
outbox_bench in the database named, drops both at the end, and refuses a database that has
either. Roles of the schema that the cluster did not have are dropped as well. Killed at
once (kill -9), it leaves what it said.

With --output json the last line of standard output is one object: server, and figures with
their median, low and high over the rounds.` +
			cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.Refused, cli.Interrupted),
		Example: `  outbox-worker bench
  outbox-worker bench --only enqueue,latency
  outbox-worker bench --in bench --output json | tail -1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range o.Only {
				if !slices.Contains(benchGroups, name) {
					return cli.Fail(cli.Usage, "give some of "+strings.Join(benchGroups, ","), "--only %q", name)
				}
			}
			if o.Rounds < 1 || o.Intents < 1 || o.Span <= 0 {
				return cli.Fail(cli.Usage, "give positive numbers", "--rounds %d --intents %d --span %s", o.Rounds, o.Intents, o.Span)
			}
			return bench(cmd, app, o, in)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Only, "only", benchGroups, "which figures to measure")
	f.StringVar(&in, "in", "", "the `DATABASE` to measure in, instead of one that is created")
	f.IntVar(&o.Rounds, "rounds", 3, "how often each is measured; latency is measured once")
	f.IntVar(&o.Intents, "intents", 10_000, "how many a round drains; for latency a hundredth of them is committed, one by one")
	f.DurationVar(&o.Span, "span", time.Second, "how long producers run in a round, and single calls at most")
	return cmd
}

func bench(cmd *cobra.Command, app *cli.App, o figures.Options, in string) error {
	cfg, err := app.Config(cmd)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	o.Wakes = max(1, o.Intents/100)
	o.Progress = app.Env.Stderr
	guest, err := figures.Visit(ctx, cfg.Database, app.Root.Name()+" "+cmd.Name(), in, app.Env.Stderr)
	if err != nil {
		return err
	}
	server, got, err := measure(ctx, guest, o)
	if err = errors.Join(err, guest.Leave(ctx)); err != nil {
		return benchError(ctx, err)
	}
	out := app.Output()
	if out.JSON {
		return out.Encode(map[string]any{"server": server, "figures": got})
	}
	return errors.Join(out.Printf("%s", server), out.Printf(""), figures.Print(app.Env.Stdout, got))
}

// measure leaves out the project's goals, which are set for a machine of its own.
func measure(ctx context.Context, guest *figures.Guest, o figures.Options) (figures.Server, []figures.Figure, error) {
	server, err := guest.Server(ctx)
	if err != nil {
		return server, nil, fmt.Errorf("ask the server: %w", err)
	}
	got, err := figures.Run(ctx, o, guest.Open)
	for i := range got {
		got[i].Goal, got[i].Missed = "", false
	}
	return server, got, err
}

// benchError keeps what is said of errors in a ledger off those in a database that is gone
// by now.
func benchError(ctx context.Context, err error) error {
	var known *cli.Error
	if ctx.Err() != nil || errors.As(err, &known) {
		return err
	}
	return cli.Fail(cli.Failure, "", "%w", err)
}
