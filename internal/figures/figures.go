package figures

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/outbox"
)

// Options say what to measure and how long.
type Options struct {
	// Only measures the figures with these ids or of these groups; all when empty. Run
	// refuses a name that it does not know.
	Only []string
	// Rounds of each figure; value and baseline take turns in every one. Defaults to 5.
	Rounds int
	// Latencies is how many single calls a round has at most. Defaults to 500.
	Latencies int
	// Intents is how many a round drains. Defaults to 20,000.
	Intents int
	// Span is how long producers run in a round, and single calls at most. Defaults to 2 s.
	Span time.Duration
	// Wakes is how often an idle worker is woken; Idle how long it is then left alone.
	// Default to 100 and 10 s.
	Wakes int
	Idle  time.Duration
	// Ledger is how many settled intents figure 9 has in the ledger, Scheduled how many
	// figure 11 has waiting. Default to 5 million and a million.
	Ledger    int
	Scheduled int
	// Checkpoint writes back what earlier steps dirtied before each drain, so that none pays
	// for another's. It needs a superuser or pg_checkpoint, and everybody on the server feels
	// it.
	Checkpoint bool
	// Alter is SQL that is run in a place of its own, to measure what a setting of a table
	// is worth: the figures of the group alter compare it with a place as it is.
	Alter string
	// Program is the path of outbox-worker, for the figure about its memory.
	Program string
	// Progress gets a line for each round.
	Progress io.Writer
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		value *int
		def   int
	}{{&o.Rounds, 5}, {&o.Latencies, 500}, {&o.Intents, 20_000}, {&o.Wakes, 100}, {&o.Ledger, 5_000_000}, {&o.Scheduled, 1_000_000}} {
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if o.Span == 0 {
		o.Span = 2 * time.Second
	}
	if o.Idle == 0 {
		o.Idle = 10 * time.Second
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	return o
}

// pair is a value and its baseline from one round.
type pair struct{ Value, Baseline float64 }

// Goal is what a figure should reach: a bound on its ratio, or on its value.
type Goal struct {
	Most, Least float64 // 0: none
	Absolute    bool    // bounds the value, not the ratio
}

func (g Goal) met(f Figure) bool {
	x := f.Ratio
	if g.Absolute {
		x = f.Value
	}
	return !(g.Most > 0 && x > g.Most) && !(g.Least > 0 && x < g.Least)
}

func (g Goal) String() string {
	sign, x := "≤", g.Most
	if g.Least > 0 {
		sign, x = "≥", g.Least
	}
	switch {
	case x == 0:
		return "report"
	case g.Absolute:
		return fmt.Sprintf("%s %g", sign, x)
	default:
		return fmt.Sprintf("%s %g ×", sign, x)
	}
}

// Figure is what was measured: medians over the rounds, and the smallest and largest.
type Figure struct {
	ID       string  `json:"id"`
	Group    string  `json:"group"`
	What     string  `json:"what"`
	Unit     string  `json:"unit"`
	Value    float64 `json:"value"`
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
	Against  string  `json:"against,omitempty"`
	Baseline float64 `json:"baseline,omitempty"`
	Ratio    float64 `json:"ratio,omitempty"` // median of the rounds' ratios
	RatioLow float64 `json:"ratio_low,omitempty"`
	RatioHi  float64 `json:"ratio_high,omitempty"`
	Goal     string  `json:"goal,omitempty"`
	Missed   bool    `json:"missed,omitempty"`
}

// figure is how one is measured.
type figure struct {
	id, group, what, unit, against string
	goal                           Goal
	round                          func(context.Context, *place) (pair, error)
	once                           bool // one round is enough
}

// Connections is how many a pool has to have: a step's producers, the worker beside them,
// and some to spare.
const Connections = 24

// Opener opens an empty database, named by name or after it, with as many as Connections.
// The figures close the pool.
type Opener func(ctx context.Context, name string) (*pgxpool.Pool, error)

type run struct {
	o      Options
	open   Opener
	places map[string]*place
	idle   *idle
}

// place opens a place by its name, the first time after filling it.
func (r *run) place(ctx context.Context, name string, fill func(context.Context, *place) error) (*place, error) {
	if p := r.places[name]; p != nil {
		return p, nil
	}
	pool, err := r.open(ctx, name)
	if err != nil {
		return nil, err
	}
	p, err := newPlace(ctx, pool, r.o.Checkpoint)
	if err == nil && fill != nil {
		err = fill(ctx, p)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	r.places[name] = p
	return p, nil
}

func (r *run) close() {
	for _, p := range r.places {
		p.pool.Close()
	}
}

// beside drains in a place that has been filled, and in one that has not.
func (r *run) beside(ctx context.Context, name string, fill func(context.Context, *place) error) (pair, error) {
	filled, err := r.place(ctx, name, fill)
	if err != nil {
		return pair{}, err
	}
	empty, err := r.place(ctx, "empty", nil)
	if err != nil {
		return pair{}, err
	}
	return both(func() (float64, error) { return filled.drained(ctx, r.o.Intents, 0, noLimit) },
		func() (float64, error) { return empty.drained(ctx, r.o.Intents, 0, noLimit) })
}

// noLimit is a process's limit that is never met.
const noLimit = 2000

// The groups of figures.
const (
	Enqueue   = "enqueue"
	Drain     = "drain"
	Live      = "live"
	Latency   = "latency"
	Idle      = "idle"
	Repeats   = "repeats"
	Ledger    = "ledger"
	Processes = "processes"
	Alter     = "alter"
)

// list is every figure, in the order of docs/performance.md.
func (r *run) list() []figure {
	again := func(want outbox.AnswerKind) func(context.Context, *place) (pair, error) {
		return func(ctx context.Context, p *place) (pair, error) { return r.repeated(ctx, p, want) }
	}
	against := func(value, baseline func(context.Context, *place) (float64, error)) func(context.Context, *place) (pair, error) {
		return func(ctx context.Context, p *place) (pair, error) {
			return both(func() (float64, error) { return value(ctx, p) }, func() (float64, error) { return baseline(ctx, p) })
		}
	}
	ours := func(delay time.Duration, concurrency int) func(context.Context, *place) (float64, error) {
		return func(ctx context.Context, p *place) (float64, error) {
			return p.drained(ctx, r.o.Intents, delay, concurrency)
		}
	}
	rivers := func(delay time.Duration, concurrency int) func(context.Context, *place) (float64, error) {
		return func(ctx context.Context, p *place) (float64, error) {
			return p.riverDrained(ctx, r.o.Intents, delay, concurrency)
		}
	}
	all := []figure{
		{id: "1", group: Enqueue, what: "enqueue, one producer", unit: "ms", against: "bare insert", goal: Goal{Most: 1.4}, round: r.enqueueAlone},
		{id: "2", group: Enqueue, what: "enqueue, 8 producers", unit: "commits/s", against: "bare insert", goal: Goal{Least: 0.75}, round: r.enqueueTogether},
		{id: "3", group: Enqueue, what: "transaction of 3 statements and enqueue", unit: "ms", against: "without enqueue", goal: Goal{Most: 1.25}, round: r.enqueueAmong},
		{id: "4", group: Enqueue, what: "EnqueueMany of 1,000", unit: "intents/s", against: "COPY of bare rows", round: r.enqueueBulk},
		{id: "5", group: Drain, what: "end to end, no-op provider", unit: "intents/s", against: "bare River", goal: Goal{Least: 1}, round: against(ours(0, noLimit), rivers(0, noLimit))},
		{id: "6", group: Drain, what: "end to end, 20 ms a call, 500 in flight", unit: "intents/s", against: "bare River", goal: Goal{Least: 1}, round: against(ours(20*time.Millisecond, 500), rivers(20*time.Millisecond, 500))},
		{id: "6a-river", group: Live, what: "live, 8 producers", unit: "settled/s", against: "River live", goal: Goal{Least: 2.5}, round: against(r.live, r.riverLive)},
		{id: "6a-floor", group: Live, what: "live, 8 producers", unit: "settled/s", against: "the floor", goal: Goal{Least: 0.75}, round: against(r.live, r.floorLive)},
		{id: "7-p50", group: Latency, what: "idle: from commit to call, median", unit: "ms", goal: Goal{Most: 10, Absolute: true}, round: r.idled(func(i idle) float64 { return i.p50 }), once: true},
		{id: "7-p99", group: Latency, what: "idle: from commit to call, p99", unit: "ms", goal: Goal{Most: 50, Absolute: true}, round: r.idled(func(i idle) float64 { return i.p99 }), once: true},
		{id: "7-cpu", group: Idle, what: "idle: processor time of the worker", unit: "% of a core", goal: Goal{Most: 1, Absolute: true}, round: r.idled(func(i idle) float64 { return i.cpu }), once: true},
		{id: "8", group: Ledger, what: "size of a settled intent", unit: "bytes", against: "one row in one table", goal: Goal{Most: 700, Absolute: true}, round: r.size, once: true},
		{id: "9", group: Ledger, what: fmt.Sprintf("end to end, %d settled intents in the ledger", r.o.Ledger), unit: "intents/s", against: "none", goal: Goal{Least: 0.95}, round: func(ctx context.Context, _ *place) (pair, error) {
			return r.beside(ctx, "ledger", func(ctx context.Context, p *place) error { return p.fill(ctx, r.o.Ledger, time.Hour) })
		}},
		{id: "10", group: Ledger, what: "end to end under an old snapshot", unit: "intents/s", against: "without", goal: Goal{Least: 0.8}, round: r.withSnapshot},
		{id: "11", group: Ledger, what: fmt.Sprintf("end to end, %d scheduled for next week", r.o.Scheduled), unit: "intents/s", against: "none", goal: Goal{Least: 0.95}, round: func(ctx context.Context, _ *place) (pair, error) {
			return r.beside(ctx, "scheduled", func(ctx context.Context, p *place) error { return p.schedule(ctx, r.o.Scheduled) })
		}},
		{id: "12", group: Ledger, what: "end to end, details forgotten meanwhile", unit: "intents/s", against: "nothing to forget", goal: Goal{Least: 0.9}, round: r.whileTrimmed},
		{id: "12-trim", group: Ledger, what: "forgotten while all is busy", unit: "intents/s", against: "settled", goal: Goal{Least: 1}, round: r.trimRate},
		{id: "13", group: Processes, what: "worker's memory, 1,000 calls in flight", unit: "MiB", goal: Goal{Most: 64, Absolute: true}, round: r.memory, once: true},
		{id: "14", group: Processes, what: "three workers, 100 calls of 20 ms each", unit: "intents/s", against: "one worker", round: r.scale},
		{id: "15-conflict", group: Repeats, what: "answer: conflict", unit: "ms", against: "fresh enqueue", goal: Goal{Most: 1}, round: again(outbox.AnswerConflict)},
		{id: "15-in-flight", group: Repeats, what: "answer: in flight", unit: "ms", against: "fresh enqueue", goal: Goal{Most: 1}, round: again(outbox.AnswerInFlight)},
		{id: "15-settled", group: Repeats, what: "answer: settled", unit: "ms", against: "fresh enqueue", goal: Goal{Most: 1}, round: again(outbox.AnswerSettled)},
	}
	if r.o.Alter != "" {
		altered := func(measure func(context.Context, *place) (float64, error)) func(context.Context, *place) (pair, error) {
			return func(ctx context.Context, p *place) (pair, error) {
				other, err := r.place(ctx, "altered", func(ctx context.Context, p *place) error {
					_, err := p.pool.Exec(ctx, r.o.Alter)
					return err
				})
				if err != nil {
					return pair{}, err
				}
				return both(func() (float64, error) { return measure(ctx, other) }, func() (float64, error) { return measure(ctx, p) })
			}
		}
		all = append(all,
			figure{id: "alter-drain", group: Alter, what: "end to end, altered", unit: "intents/s", against: "as it is", round: altered(ours(0, noLimit))},
			figure{id: "alter-live", group: Alter, what: "live, altered", unit: "settled/s", against: "as it is", round: altered(r.live)},
			figure{id: "alter-size", group: Alter, what: "open work left, altered", unit: "kB", against: "as it is", round: altered(openSize), once: true},
		)
	}
	return all
}

// openSize is what the tables of open work take, empty, before anybody vacuums them by hand.
func openSize(ctx context.Context, p *place) (kB float64, err error) {
	err = p.pool.QueryRow(ctx, "SELECT sum(pg_total_relation_size(t::regclass)) / 1024.0 FROM unnest(ARRAY['outbox.outbox', 'outbox.lanes', 'outbox.river_job']) t").Scan(&kB)
	return kB, err
}

// both takes the baseline's turn, then the value's.
func both(value, baseline func() (float64, error)) (got pair, err error) {
	if got.Baseline, err = baseline(); err == nil {
		got.Value, err = value()
	}
	return got, err
}

// figureTime bounds one round, so that what hangs is named.
const figureTime = 10 * time.Minute

// Run measures on databases that open gives, each empty.
func Run(ctx context.Context, o Options, open Opener) ([]Figure, error) {
	r := &run{o: o.withDefaults(), open: open, places: map[string]*place{}}
	if err := r.known(); err != nil {
		return nil, err
	}
	defer r.close()
	p, err := r.place(ctx, "main", nil)
	if err != nil {
		return nil, err
	}
	var all []Figure
	for _, f := range r.list() {
		if !r.wants(f.id, f.group) {
			continue
		}
		var pairs []pair
		rounds := r.o.Rounds
		if f.once {
			rounds = 1
		}
		for i := range rounds {
			err := within(ctx, figureTime, fmt.Sprintf("figure %s", f.id), func(ctx context.Context) error {
				// What enqueuing left open would be settled on the next figure's clock.
				if f.group != Enqueue {
					if err := p.drain(ctx, 0); err != nil {
						return err
					}
				}
				got, err := f.round(ctx, p)
				pairs = append(pairs, got)
				return err
			})
			if err != nil {
				return all, err
			}
			last := pairs[len(pairs)-1]
			against := ""
			if f.against != "" {
				against = fmt.Sprintf(", %s: %s", f.against, number(last.Baseline))
			}
			fmt.Fprintf(r.o.Progress, "%s, round %d of %d: %s %s%s\n", f.what, i+1, rounds, number(last.Value), f.unit, against)
		}
		all = append(all, f.summary(pairs))
	}
	return all, nil
}

func (r *run) wants(id, group string) bool {
	return len(r.o.Only) == 0 || slices.Contains(r.o.Only, id) || slices.Contains(r.o.Only, group)
}

// known refuses what Only has and no figure is called.
func (r *run) known() error {
	var names []string
	for _, f := range r.list() {
		names = append(names, f.id, f.group)
	}
	for _, name := range r.o.Only {
		if !slices.Contains(names, name) {
			slices.Sort(names)
			return fmt.Errorf("no figure and no group is called %q: there are %s", name, strings.Join(slices.Compact(names), ", "))
		}
	}
	return nil
}

func (f figure) summary(pairs []pair) Figure {
	var values, baselines, ratios []float64
	for _, p := range pairs {
		values, baselines = append(values, p.Value), append(baselines, p.Baseline)
		if p.Baseline > 0 {
			ratios = append(ratios, p.Value/p.Baseline)
		}
	}
	got := Figure{
		ID: f.id, Group: f.group, What: f.what, Unit: f.unit, Against: f.against, Goal: f.goal.String(),
		Value: median(values), Low: slices.Min(values), High: slices.Max(values), Baseline: median(baselines),
	}
	if len(ratios) > 0 {
		got.Ratio, got.RatioLow, got.RatioHi = median(ratios), slices.Min(ratios), slices.Max(ratios)
	}
	got.Missed = !f.goal.met(got)
	return got
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return math.NaN()
	}
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
