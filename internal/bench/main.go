package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/outbox-worker/outbox-worker/internal/figures"
	"github.com/outbox-worker/outbox-worker/internal/pgtemp"
)

// options are the flags.
type options struct {
	JSON      bool
	Version   int
	Rounds    int
	Intents   int
	Live      time.Duration
	Ledger    int
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
	flags.IntVar(&o.Rounds, "rounds", 5, "shapes: rounds; in each every shape is measured once")
	flags.IntVar(&o.Intents, "n", 5000, "shapes: intents of each step")
	flags.DurationVar(&o.Live, "live", 3*time.Second, "shapes: length of the live step")
	flags.IntVar(&o.Ledger, "ledger", 1_000_000, "shapes: settled intents in the second half of the comparison; 0: leave it out")
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
	command := "figures"
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		command, args = args[0], args[1:]
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch command {
	case "figures":
		o.Figures.Rounds = o.Rounds
		return measure(ctx, o)
	case "shapes":
		return compare(ctx, o)
	case "plans":
		return plans(ctx, o)
	case "worker": // what the figures start
		return figures.Child(ctx, o.URL, *concurrency, *delay)
	default:
		return fmt.Errorf("no command %q: give figures, shapes or plans", command)
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

// sizes are what a shape left behind.
type sizes struct {
	FactBytes     float64 `json:"fact_bytes_per_settled_intent"` // tables and indexes that stay, after vacuum
	OpenBytes     float64 `json:"open_bytes_left"`               // tables and indexes of open work, now empty, before vacuum
	HOT           float64 `json:"hot_share_of_updates"`
	DeadPerIntent float64 `json:"dead_versions_per_intent"` // of rows, in all tables
}

type result struct {
	Shape  string     `json:"shape"`
	Ledger int        `json:"ledger"`
	Rounds []measured `json:"rounds"`
	Sizes  sizes      `json:"sizes"`
}

func compare(ctx context.Context, o options) (err error) {
	server, err := start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	all, err := shapes()
	if err != nil {
		return err
	}
	ledgers := []int{0}
	if o.Ledger > 0 {
		ledgers = append(ledgers, o.Ledger)
	}
	var results []result
	for _, ledger := range ledgers {
		got, err := compareAt(ctx, server, all, ledger, o)
		if err != nil {
			return err
		}
		results = append(results, got...)
	}
	if o.JSON {
		return json.NewEncoder(os.Stdout).Encode(map[string]any{"postgres": server.Version(), "options": o, "results": results})
	}
	return table(server.Version(), results)
}

// compareAt lets the shapes take turns, the first one going last in the next round.
func compareAt(ctx context.Context, server *pgtemp.Server, all []shape, ledger int, o options) ([]result, error) {
	var subjects []*subject
	results := make([]result, len(all))
	before := make([]float64, len(all))
	for i, s := range all {
		b, err := newSubject(ctx, server, s, fmt.Sprintf("shape_%d_%d", i, ledger), ledger)
		if err != nil {
			return nil, err
		}
		defer b.pool.Close()
		if before[i], err = b.bytes(ctx, b.facts); err != nil {
			return nil, err
		}
		subjects = append(subjects, b)
		results[i] = result{Shape: s.name, Ledger: ledger}
	}
	for round := range o.Rounds {
		for k := range subjects {
			i := (k + round) % len(subjects)
			m, err := subjects[i].round(ctx, o.Intents, o.Live)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", subjects[i].name, err)
			}
			results[i].Rounds = append(results[i].Rounds, m)
			fmt.Fprintf(os.Stderr, "ledger %d, round %d, %s: %.0f enqueued/s, %.0f drained/s\n", ledger, round+1, subjects[i].name, m.EnqueueAlone, m.Drain)
		}
	}
	for i, b := range subjects {
		var err error
		if results[i].Sizes, err = b.left(ctx, before[i]); err != nil {
			return nil, err
		}
	}
	return results, nil
}

func (b *subject) bytes(ctx context.Context, tables []string) (n float64, err error) {
	err = b.pool.QueryRow(ctx, "SELECT sum(pg_total_relation_size(t::regclass))::float8 FROM unnest($1::text[]) t", tables).Scan(&n)
	return n, err
}

func (b *subject) left(ctx context.Context, before float64) (s sizes, err error) {
	if s.OpenBytes, err = b.bytes(ctx, b.open); err != nil {
		return s, err
	}
	time.Sleep(time.Second) // statistics are sent at the end of a transaction, once a second
	err = b.pool.QueryRow(ctx, `SELECT coalesce(sum(n_tup_hot_upd) / nullif(sum(n_tup_upd), 0), 0)::float8,
		sum(n_tup_upd + n_tup_del) / $2::float8
		FROM pg_stat_user_tables WHERE relid = ANY ($1::text[]::regclass[])`, slices.Concat(b.facts, b.open), b.begun).Scan(&s.HOT, &s.DeadPerIntent)
	if err != nil {
		return s, err
	}
	if _, err := b.pool.Exec(ctx, "VACUUM"); err != nil {
		return s, err
	}
	after, err := b.bytes(ctx, b.facts)
	s.FactBytes = (after - before) / float64(b.begun)
	return s, err
}

// table prints medians and spreads, and the ratio of each shape to the first, round by
// round.
func table(version string, results []result) error {
	fmt.Println("Postgres", version)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ledger\tmeasure\tshape\tmedian\tmin\tmax\tto the first shape")
	rates := []struct {
		name string
		of   func(measured) float64
	}{
		{"enqueue alone, commits/s", func(m measured) float64 { return m.EnqueueAlone }},
		{"drain alone, intents/s", func(m measured) float64 { return m.Drain }},
		{"live: enqueue, commits/s", func(m measured) float64 { return m.LiveEnqueue }},
		{"live: drain, intents/s", func(m measured) float64 { return m.LiveDrain }},
		{"drain under an old snapshot, intents/s", func(m measured) float64 { return m.SnapshotDrain }},
		{"WAL per enqueue, bytes", func(m measured) float64 { return m.WALEnqueue }},
		{"WAL per drained intent, bytes", func(m measured) float64 { return m.WALDrain }},
		{"server CPU per enqueue, us", func(m measured) float64 { return m.CPUEnqueue }},
		{"server CPU per drained intent, us", func(m measured) float64 { return m.CPUDrain }},
	}
	left := []struct {
		name string
		of   func(sizes) float64
	}{
		{"facts after vacuum, bytes/intent", func(s sizes) float64 { return s.FactBytes }},
		{"open work left, kB, before vacuum", func(s sizes) float64 { return s.OpenBytes / 1024 }},
		{"updates that are HOT, %", func(s sizes) float64 { return s.HOT * 100 }},
		{"dead row versions per intent", func(s sizes) float64 { return s.DeadPerIntent }},
	}
	for _, ledger := range slices.Compact(slices.Sorted(func(yield func(int) bool) {
		for _, r := range results {
			if !yield(r.Ledger) {
				return
			}
		}
	})) {
		here := slices.DeleteFunc(slices.Clone(results), func(r result) bool { return r.Ledger != ledger })
		for _, rate := range rates {
			for _, r := range here {
				values, ratios := make([]float64, len(r.Rounds)), make([]float64, len(r.Rounds))
				for i, m := range r.Rounds {
					values[i] = rate.of(m)
					ratios[i] = values[i] / rate.of(here[0].Rounds[i])
				}
				fmt.Fprintf(w, "%d\t%s\t%s\t%.0f\t%.0f\t%.0f\t%.2f (%.2f – %.2f)\n", ledger, rate.name, r.Shape,
					median(values), slices.Min(values), slices.Max(values), median(ratios), slices.Min(ratios), slices.Max(ratios))
			}
		}
		for _, size := range left {
			for _, r := range here {
				fmt.Fprintf(w, "%d\t%s\t%s\t%.4g\t\t\t%.2f\n", ledger, size.name, r.Shape, size.of(r.Sizes), size.of(r.Sizes)/size.of(here[0].Sizes))
			}
		}
	}
	return w.Flush()
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return math.NaN()
	}
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
