package chaos

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
)

// Series is a run for each of several seeds.
type Series struct {
	Reports []Report // in the order of the seeds
	Total   Report   // their sums, under the first seed
}

// RunSeeds runs for the seeds from o.Seed on, so many at once. It goes on after a verdict
// that is not good, and ends with the first run that could not be brought to its end.
func RunSeeds(ctx context.Context, o Options, seeds, atOnce int) (Series, error) {
	o.Seed = seedOr(o.Seed)
	began := time.Now()
	s := Series{Reports: make([]Report, seeds)}
	together, ctx := errgroup.WithContext(ctx)
	together.SetLimit(atOnce)
	progress := &lines{to: o.Progress}
	for i := range seeds {
		together.Go(func() (err error) {
			one := o
			one.Seed += uint64(i)
			one.Progress = progress.of(fmt.Sprintf("seed %d ", one.Seed))
			if s.Reports[i], err = Run(ctx, one); err != nil {
				return fmt.Errorf("seed %d: %w", one.Seed, err)
			}
			return nil
		})
	}
	err := together.Wait()
	s.Total = Report{Faults: map[Kind]int{}, ProviderFaults: map[simulator.Kind]int{}, Seed: o.Seed, Seeds: seeds, Seconds: time.Since(began).Seconds()}
	for _, r := range s.Reports {
		s.Total.add(r)
	}
	return s, err
}

// add sums up what is counted.
func (r *Report) add(o Report) {
	for kind, n := range o.Faults {
		r.Faults[kind] += n
	}
	for kind, n := range o.ProviderFaults {
		r.ProviderFaults[kind] += n
	}
	for _, p := range o.problems {
		r.problems = append(r.problems, fmt.Sprintf("seed %d: %s", o.Seed, p))
	}
	for _, sum := range []struct {
		into *int
		n    int
	}{
		{&r.Intents, o.Intents},
		{&r.Duplicates, o.Duplicates},
		{&r.Residual, o.Residual},
		{&r.Lost, o.Lost},
		{&r.WrongAnswers, o.WrongAnswers},
		{&r.Stuck, o.Stuck},
		{&r.Effects, o.Effects},
		{&r.Succeeded, o.Succeeded},
		{&r.Refused, o.Refused},
		{&r.Exhausted, o.Exhausted},
		{&r.Review, o.Review},
		{&r.Repeats, o.Repeats},
		{&r.LostCommits, o.LostCommits},
	} {
		*sum.into += sum.n
	}
}

// Table has a row for each seed, and their sums.
func (s Series) Table() [][]string {
	table := [][]string{{"SEED", "INTENTS", "FAULTS", "EFFECTS", "REVIEW", "DUPLICATES", "LOST", "WRONG", "STUCK", "SECONDS"}}
	for i, r := range append(s.Reports[:len(s.Reports):len(s.Reports)], s.Total) {
		if r.Seed == 0 {
			continue // it could not be brought to its end
		}
		name := strconv.FormatUint(r.Seed, 10)
		if i == len(s.Reports) {
			name = "all"
		}
		faults := 0
		for _, n := range r.Faults {
			faults += n
		}
		cells := []string{name}
		for _, n := range []int{r.Intents, faults, r.Effects, r.Review, r.Duplicates, r.Lost, r.WrongAnswers, r.Stuck, int(r.Seconds)} {
			cells = append(cells, strconv.Itoa(n))
		}
		table = append(table, cells)
	}
	return table
}

// lines keeps the lines of several writers whole.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

type prefixed struct {
	l      *lines
	prefix string
}

func (l *lines) of(prefix string) io.Writer { return prefixed{l, prefix} }

// Write gets whole lines: Run says one at a time.
func (p prefixed) Write(b []byte) (int, error) {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	_, err := io.WriteString(p.l.to, p.prefix+string(b))
	return len(b), err
}
