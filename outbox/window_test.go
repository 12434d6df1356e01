package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outbox-worker/outbox-worker/outbox"
)

// age lets d pass for every window, by moving its beginning back: the clock is the
// database's, and nobody else's counts.
func (b *testBundle) age(d time.Duration) {
	b.t.Helper()
	b.exec("UPDATE outbox.heads SET started_at = started_at - $1::interval", d)
}

// searchRef is the reference of a generation of the only search.
func (b *testBundle) searchRef(generation int) string {
	b.t.Helper()
	return query[string](b, `SELECT outbox.reference(outbox.scope_of(c.ledger_part, i.tenant, c.name_part, i.key), $1)
		FROM outbox.intents i JOIN outbox.catalog c ON c.id = i.catalog_id WHERE c.operation = 'search.v1' LIMIT 1`, generation)
}

// The window slides from the first intent: from then on it has no edge until it ends,
// and after that no edge either, for whatever multiple of its length.
func TestAWindowHasNoEdge(t *testing.T) {
	t.Parallel()
	const instant = 30 * time.Second // more than the machine sleeps between two statements
	in := search("rain")
	for _, x := range []struct {
		claim string
		age   time.Duration // when the repeat comes
		again bool          // whether it is a new intent
	}{
		{"at once", 0, false},
		{"after half of it", window / 2, false},
		{"an instant before its end", window - instant, false},
		{"at its end", window, true},
		{"an instant after its end", window + instant, true},
		{"an instant before twice its length", 2*window - instant, true},
		{"at twice its length", 2 * window, true},
		{"an instant after twice its length", 2*window + instant, true},
		{"at a hundred times its length", 100 * window, true},
		{"after a year", 365 * 24 * time.Hour, true},
	} {
		t.Run(x.claim, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			first := b.accept(in)
			b.age(x.age)
			// Never while it is open, however old it is.
			if a := b.enqueue(in); a.Kind != outbox.AnswerInFlight || a.Reference != first {
				t.Errorf("open: %+v", a)
			}
			b.settle(first, outbox.Succeeded)
			a := b.enqueue(in)
			if !x.again {
				if a.Kind != outbox.AnswerSettled || a.Reference != first {
					t.Errorf("settled: %+v", a)
				}
				b.wantRows(rows{intents: 1, outcomes: 1, repeats: 2, heads: 1})
				return
			}
			if a.Kind != outbox.AnswerAccepted || a.Reference != b.searchRef(2) || a.Reference == first {
				t.Errorf("settled: %+v", a)
			}
			// The next window begins with the next first intent.
			b.settle(a.Reference, outbox.Succeeded)
			b.age(window - instant)
			if again := b.enqueue(in); again.Kind != outbox.AnswerSettled || again.Reference != a.Reference {
				t.Errorf("within the second window: %+v", again)
			}
			b.age(instant)
			if again := b.enqueue(in); again.Kind != outbox.AnswerAccepted || again.Reference != b.searchRef(3) {
				t.Errorf("after the second window: %+v", again)
			}
			b.wantRows(rows{intents: 3, open: 1, outcomes: 2, repeats: 2, heads: 1})
		})
	}
}

// However old: what is not settled, or settled and yet in review, is not asked for anew.
func TestAnOldWindowStaysShutUntilItIsSettled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := search("rain")
	ref := b.accept(in)
	b.age(1000 * window)
	for _, state := range []outbox.State{
		outbox.Accepted, outbox.Executing, outbox.FailedRetryable, outbox.OutcomeUnknown, outbox.NeedsReview, outbox.Exhausted,
	} {
		b.hold(ref, state)
		for by, a := range map[string]outbox.Answer{"Go": b.enqueue(in), "SQL": b.sqlEnqueue(in)} {
			if a.Kind != outbox.AnswerInFlight || a.State != state || a.Reference != ref {
				t.Errorf("%s: %+v, want in_flight %s", by, a, state)
			}
		}
	}
	b.settle(ref, outbox.FailedFinal)
	// A late success beside the failure: the outcome stands, and a review is open.
	b.exec(`INSERT INTO outbox.outbox (intent_id, lane, catalog_id, attempt, state, phase, tenant, review_since, review_reason)
		SELECT i.id, c.lane, c.id, 1, 'failed_final', 'parked', i.tenant, clock_timestamp(), 'the provider reported a success later'
		FROM outbox.intents i JOIN outbox.catalog c ON c.id = i.catalog_id`)
	if a := b.enqueue(in); a.Kind != outbox.AnswerSettled || a.Reference != ref {
		t.Errorf("settled, in review: %+v", a)
	}
	b.exec("DELETE FROM outbox.outbox")
	if a := b.enqueue(in); a.Kind != outbox.AnswerAccepted || a.Reference == ref {
		t.Errorf("settled, review closed: %+v", a)
	}
}

// Whatever happens in whatever order, a new generation begins if and only if the window
// has passed and the last one is settled.
func TestAWindowIsItsModel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cases := 0
	rapid.Check(t, func(rt *rapid.T) {
		cases++
		in := search(fmt.Sprint("case ", cases))
		b.exec("DELETE FROM outbox.heads")
		var (
			generation int
			ref        string
			age        time.Duration
			settled    outbox.State
		)
		rt.Repeat(map[string]func(*rapid.T){
			"enqueue": func(rt *rapid.T) {
				enqueue := b.enqueue
				if rapid.Bool().Draw(rt, "by SQL") {
					enqueue = b.sqlEnqueue
				}
				a := enqueue(in)
				switch {
				case generation == 0, settled != "" && age >= window:
					if a.Kind != outbox.AnswerAccepted || a.Reference == ref {
						rt.Fatalf("generation %d, age %s, %s: %+v", generation, age, settled, a)
					}
					generation, ref, age, settled = generation+1, a.Reference, 0, ""
				case settled != "":
					if a.Kind != outbox.AnswerSettled || a.Reference != ref || a.State != settled {
						rt.Fatalf("generation %d, age %s, %s: %+v", generation, age, settled, a)
					}
				default:
					if a.Kind != outbox.AnswerInFlight || a.Reference != ref {
						rt.Fatalf("generation %d, age %s, open: %+v", generation, age, a)
					}
				}
			},
			"wait": func(rt *rapid.T) {
				d := time.Duration(rapid.SampledFrom([]int{1, 7, 14, 15, 16, 30, 1000}).Draw(rt, "minutes")) * time.Minute
				b.age(d)
				age += d
			},
			"proceed": func(rt *rapid.T) {
				if generation == 0 || settled != "" {
					rt.Skip("nothing is open")
				}
				b.hold(ref, rapid.SampledFrom([]outbox.State{outbox.Executing, outbox.OutcomeUnknown, outbox.NeedsReview, outbox.Exhausted}).Draw(rt, "state"))
			},
			"settle": func(rt *rapid.T) {
				if generation == 0 || settled != "" {
					rt.Skip("nothing is open")
				}
				settled = rapid.SampledFrom([]outbox.State{outbox.Succeeded, outbox.FailedFinal, outbox.Cancelled}).Draw(rt, "state")
				b.settle(ref, settled)
			},
		})
	})
}

// Two that ask at the moment the window ends get one new intent.
func TestTheEndOfAWindowOpensOneGeneration(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := search("rain")
	ref := b.accept(in)
	const rounds, callers = 30, 4
	for range rounds {
		b.settle(ref, outbox.Succeeded)
		b.age(window)
		answers := make([]outbox.Answer, callers)
		var all sync.WaitGroup
		start := make(chan struct{})
		for i := range answers {
			all.Go(func() {
				<-start
				a, err := outbox.Enqueue(b.ctx, b.app, in)
				if err != nil {
					t.Error(err)
				}
				answers[i] = a
			})
		}
		close(start)
		all.Wait()
		var kinds []string
		for _, a := range answers {
			kinds = append(kinds, string(a.Kind))
			if a.Reference == ref || a.Reference != answers[0].Reference {
				t.Fatalf("%+v, the last was %s", answers, ref)
			}
		}
		slices.Sort(kinds)
		if got := fmt.Sprint(kinds); got != "[accepted in_flight in_flight in_flight]" {
			t.Fatal(got)
		}
		ref = answers[0].Reference
	}
	b.wantRows(rows{intents: 1 + rounds, open: 1, outcomes: rounds, repeats: rounds * (callers - 1), heads: 1})
}

// The second waits until it is known whether the first's new generation counts.
func TestARolledBackGenerationLeavesTheOldOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := search("rain")
	old := b.accept(in)
	b.settle(old, outbox.Succeeded)
	b.age(window)

	enqueueBehind := func(end func(context.Context) error) outbox.Answer {
		b.t.Helper()
		second := make(chan outbox.Answer)
		go func() {
			a, err := outbox.Enqueue(b.ctx, b.app, in)
			if err != nil {
				t.Error(err)
			}
			second <- a
		}()
		b.awaitBlocked(1)
		b.must(end(b.ctx))
		return <-second
	}

	tx := b.begin()
	if a := b.enqueueIn(tx, in); a.Kind != outbox.AnswerAccepted || a.Reference != b.searchRef(2) {
		t.Fatalf("first: %+v", a)
	}
	b.must(tx.Rollback(b.ctx))
	b.wantRows(rows{intents: 1, outcomes: 1, heads: 1})
	if g := query[int](b, "SELECT generation FROM outbox.heads"); g != 1 {
		t.Errorf("generation %d", g)
	}
	if a := b.get("acme", old); a.Kind != outbox.AnswerSettled {
		t.Errorf("the old one: %+v", a)
	}

	tx = b.begin()
	b.enqueueIn(tx, in)
	if a := enqueueBehind(tx.Rollback); a.Kind != outbox.AnswerAccepted || a.Reference != b.searchRef(2) {
		t.Errorf("behind a rollback: %+v", a)
	}
	b.settle(b.searchRef(2), outbox.Succeeded)
	b.age(window)
	tx = b.begin()
	b.enqueueIn(tx, in)
	if a := enqueueBehind(tx.Commit); a.Kind != outbox.AnswerInFlight || a.Reference != b.searchRef(3) {
		t.Errorf("behind a commit: %+v", a)
	}
	b.wantRows(rows{intents: 3, open: 1, outcomes: 2, repeats: 1, heads: 1})
}

// The window is the operation's, and its end is the same for all who ask.
func TestAWindowIsAsLongAsTheCatalogSays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := search("rain")
	in.Operation, in.Subject = "ask.v1", "ada" // an hour
	ref := b.accept(in)
	b.settle(ref, outbox.Cancelled)
	b.age(time.Hour - time.Minute)
	if a := b.enqueue(in); a.Kind != outbox.AnswerSettled || a.Reference != ref {
		t.Errorf("before an hour: %+v", a)
	}
	b.age(time.Minute)
	if a := b.enqueue(in); a.Kind != outbox.AnswerAccepted || a.Reference == ref {
		t.Errorf("after an hour: %+v", a)
	}
}
