package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/outbox-worker/outbox-worker/internal/figures"
	"github.com/outbox-worker/outbox-worker/internal/pgtemp"
)

// options are the flags.
type options struct {
	JSON      bool
	Version   int
	Open      int
	Statement string
	Settings  map[string]string
	Figures   figures.Options
	URL       string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o := options{Settings: map[string]string{}}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.BoolVar(&o.JSON, "json", false, "print one JSON object instead of a table")
	flags.IntVar(&o.Version, "pg", 0, "major version of Postgres; 0: the newest found")
	flags.IntVar(&o.Open, "open", 100_000, "plans: open rows at most")
	flags.StringVar(&o.Statement, "explain", "", "plans: also print every plan of this statement")
	flags.Func("set", "a server setting, as in jit=off; may be given several times", func(text string) error {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("give name=value")
		}
		o.Settings[name] = value
		return nil
	})
	flags.Func("only", "figures: ids or groups, as in 1,latency,6a-floor", func(text string) error {
		o.Figures.Only = strings.Split(text, ",")
		return nil
	})
	flags.DurationVar(&o.Figures.Span, "span", 0, "figures: how long producers run in a round (2s)")
	flags.StringVar(&o.URL, "url", "", "figures: measure on this server, in databases that are made and dropped")
	flags.IntVar(&o.Figures.Intents, "drain", 0, "figures: intents that a round drains (20000)")
	flags.StringVar(&o.Figures.Program, "program", "bin/outbox-worker", "figures: the program whose memory is measured")
	flags.IntVar(&o.Figures.Ledger, "settled", 0, "figures: settled intents of figure 9 (5 million)")
	flags.IntVar(&o.Figures.Scheduled, "scheduled", 0, "figures: scheduled intents of figure 11 (1 million)")
	flags.StringVar(&o.Figures.Alter, "alter", "", "figures: SQL whose effect -only alter measures, as in ALTER TABLE outbox.outbox RESET (fillfactor)")
	concurrency := flags.Int("concurrency", 100, "worker: calls in flight")
	delay := flags.Duration("delay", 0, "worker: length of a call")
	flags.IntVar(&o.Figures.Rounds, "rounds", 5, "figures: rounds; in each a figure and its baseline take turns")
	command := "figures"
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		command, args = args[0], args[1:]
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch command {
	case "figures":
		return measure(ctx, o)
	case "plans":
		return plans(ctx, o)
	case "worker": // what the figures start
		return figures.Child(ctx, o.URL, *concurrency, *delay)
	default:
		return fmt.Errorf("no command %q: give figures or plans", command)
	}
}

// start starts a server as a production one is set, but for the memory. No checkpoint
// falls into a run, so that WAL is what the shape writes and not when a page was first
// touched after one.
func start(ctx context.Context, o options) (*pgtemp.Server, error) {
	all := map[string]string{"shared_buffers": "512MB", "max_wal_size": "16GB", "checkpoint_timeout": "1h", "jit": "off", "autovacuum_naptime": "10s"}
	maps.Copy(all, o.Settings)
	return pgtemp.Start(ctx, pgtemp.Options{Version: o.Version, Settings: all})
}
