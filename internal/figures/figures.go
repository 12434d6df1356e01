package figures

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/outbox"
)

// Options say what to measure and how long.
type Options struct {
	// Only measures the figures with these ids; all when empty.
	Only []string
	// Rounds of each figure; value and baseline take turns in every one. Defaults to 5.
	Rounds int
	// Latencies is how many single calls a round has. Defaults to 500.
	Latencies int
	// Intents is how many a round drains. Defaults to 20,000.
	Intents int
	// Span is how long producers run in a round. Defaults to 2 s.
	Span time.Duration
	// Wakes is how often an idle worker is woken; Idle how long it is then left alone.
	// Default to 100 and 10 s.
	Wakes int
	Idle  time.Duration
	// Ledger is how many settled intents figure 9 has in the ledger, Scheduled how many
	// figure 11 has waiting. Default to 5 million and a million.
	Ledger    int
	Scheduled int
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
	Goal     string  `json:"goal"`
	Missed   bool    `json:"missed,omitempty"`
}

// figure is how one is measured.
type figure struct {
	id, what, unit, against string
	goal                    Goal
	round                   func(context.Context, *place) (pair, error)
}

type run struct {
	o    Options
	open func(context.Context, string) (*pgxpool.Pool, error) // an empty database of that name
}

// list is every figure, in the order of docs/performance.md.
func (r *run) list() []figure {
	drained := func(ctx context.Context, p *place) (float64, error) { return p.drained(ctx, r.o.Intents, 0, 2000) }
	return []figure{
		{"1", "enqueue, one producer", "ms", "bare insert", Goal{Most: 1.4}, r.enqueueAlone},
		{"2", "enqueue, 8 producers", "commits/s", "bare insert", Goal{Least: 0.75}, r.enqueueTogether},
		{"3", "transaction of 3 statements and enqueue", "ms", "without enqueue", Goal{Most: 1.25}, r.enqueueAmong},
		{"4", "EnqueueMany of 1,000", "intents/s", "COPY of bare rows", Goal{}, r.enqueueBulk},
		{"5", "end to end, no-op provider", "intents/s", "bare River", Goal{Least: 1}, func(ctx context.Context, p *place) (got pair, err error) {
			return both(func() (float64, error) { return drained(ctx, p) }, func() (float64, error) { return p.riverDrained(ctx, r.o.Intents, 0, 2000) })
		}},
		{"6", "end to end, 20 ms a call, 500 in flight", "intents/s", "bare River", Goal{Least: 1}, func(ctx context.Context, p *place) (got pair, err error) {
			return both(func() (float64, error) { return p.drained(ctx, r.o.Intents, 20*time.Millisecond, 500) },
				func() (float64, error) { return p.riverDrained(ctx, r.o.Intents, 20*time.Millisecond, 500) })
		}},
		{"6a-river", "live, 8 producers", "settled/s", "River live", Goal{Least: 2.5}, func(ctx context.Context, p *place) (got pair, err error) {
			return both(func() (float64, error) { return r.live(ctx, p) }, func() (float64, error) { return r.riverLive(ctx, p) })
		}},
		{"6a-floor", "live, 8 producers", "settled/s", "the floor", Goal{Least: 0.75}, func(ctx context.Context, p *place) (got pair, err error) {
			return both(func() (float64, error) { return r.live(ctx, p) }, func() (float64, error) { return r.floorLive(ctx, p) })
		}},
		{"10", "end to end under an old snapshot", "intents/s", "without", Goal{Least: 0.8}, r.withSnapshot},
		{"15-conflict", "answer: conflict", "ms", "fresh enqueue", Goal{Most: 1}, func(ctx context.Context, p *place) (pair, error) { return r.repeated(ctx, p, outbox.AnswerConflict) }},
		{"15-in-flight", "answer: in flight", "ms", "fresh enqueue", Goal{Most: 1}, func(ctx context.Context, p *place) (pair, error) { return r.repeated(ctx, p, outbox.AnswerInFlight) }},
		{"15-settled", "answer: settled", "ms", "fresh enqueue", Goal{Most: 1}, func(ctx context.Context, p *place) (pair, error) { return r.repeated(ctx, p, outbox.AnswerSettled) }},
	}
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
func Run(ctx context.Context, o Options, open func(ctx context.Context, name string) (*pgxpool.Pool, error)) ([]Figure, error) {
	r := &run{o: o.withDefaults(), open: open}
	pool, err := open(ctx, "main")
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	p, err := newPlace(ctx, pool)
	if err != nil {
		return nil, err
	}
	var all []Figure
	for _, f := range r.list() {
		if len(o.Only) > 0 && !slices.Contains(o.Only, f.id) {
			continue
		}
		var pairs []pair
		for i := range r.o.Rounds {
			err := within(ctx, figureTime, fmt.Sprintf("figure %s", f.id), func(ctx context.Context) error {
				got, err := f.round(ctx, p)
				pairs = append(pairs, got)
				return err
			})
			if err != nil {
				return all, err
			}
			last := pairs[len(pairs)-1]
			fmt.Fprintf(r.o.Progress, "%s, round %d: %.4g against %.4g %s\n", f.id, i+1, last.Value, last.Baseline, f.unit)
		}
		all = append(all, f.summary(pairs))
	}
	return all, nil
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
		ID: f.id, What: f.what, Unit: f.unit, Against: f.against, Goal: f.goal.String(),
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
