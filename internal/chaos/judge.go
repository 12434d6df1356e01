package chaos

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// Report is the verdict. Effects are counted by the providers, states are the ledger's.
type Report struct {
	// Intents that were committed, follow-ons included.
	Intents int `json:"intents"`
	// Faults that struck processes, network and database.
	Faults map[Kind]int `json:"faults"`
	// ProviderFaults are those of the providers.
	ProviderFaults map[simulator.Kind]int `json:"provider_faults"`

	// Duplicates are effects beyond the first of a reference, or of an order.
	Duplicates int `json:"duplicates"`
	// Residual are duplicates at the provider without keys and lookup of intents that lost
	// a lease: a worker that sleeps between its last check and its write cannot be kept
	// from writing later. They are no failure, and should not happen either: what such a
	// provider is sent once is not sent again.
	Residual int `json:"residual"`
	// Lost are committed intents that are not there, or ended in no way that is one.
	Lost int `json:"lost"`
	// WrongAnswers are what the ledger or an enqueue said and the providers' count denies.
	WrongAnswers int `json:"wrong_answers"`
	// Stuck are intents that still moved when everything should have been still, jobs that
	// River gave up, and workers that ended by themselves.
	Stuck int `json:"stuck"`

	Effects     int `json:"effects"`
	Succeeded   int `json:"succeeded"`
	Refused     int `json:"refused"`
	Exhausted   int `json:"exhausted"`
	Review      int `json:"review"`
	Repeats     int `json:"repeats"`      // of what was committed before
	LostCommits int `json:"lost_commits"` // whose answer never came, and that were asked for again

	Seconds float64 `json:"seconds"`
	Seed    uint64  `json:"seed"`            // the first of a series
	Seeds   int     `json:"seeds,omitempty"` // of a series

	operations []operationReport
	problems   []string
	timeline   func(string) []string
	told       int // timelines that are among the problems
}

// OK reports whether every promise was kept.
func (r Report) OK() bool {
	return r.Duplicates == 0 && r.Lost == 0 && r.WrongAnswers == 0 && r.Stuck == 0
}

// Problems tells what is wrong, with the timelines of the first intents.
func (r Report) Problems() []string { return r.problems }

type operationReport struct {
	name                                                                         string
	intents, effects, succeeded, refused, exhausted, unknown, inReview, happened int
}

// maxTimelines bounds what is printed when everything is wrong.
const maxTimelines = 10

// wrong counts one problem. With a reference it tells its timeline.
func (r *Report) wrong(count *int, reference, format string, args ...any) {
	*count++
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
	if reference == "" || r.timeline == nil || r.told == maxTimelines {
		return
	}
	r.told++
	for _, line := range r.timeline(reference) {
		r.problems = append(r.problems, "    "+line)
	}
}

// judge compares all ledgers.
func judge(e evidence) Report {
	r := Report{ProviderFaults: e.fired, LostCommits: e.lostCommit, Effects: len(e.effects), timeline: e.timeline}
	effects := map[string][]simulator.Effect{}
	for _, f := range e.effects {
		effects[f.Reference] = append(effects[f.Reference], f)
	}
	byReference, byOrder := map[string]standing{}, map[string]standing{}
	for _, s := range e.intents {
		byReference[s.reference] = s
		if s.order != "" {
			if other, twice := byOrder[s.order]; twice {
				r.wrong(&r.Duplicates, s.reference, "order %s has two intents, %s and %s", s.order, other.reference, s.reference)
			}
			byOrder[s.order] = s
		}
		r.standing(s, effects[s.reference])
	}
	for reference, n := range effects {
		if _, ok := byReference[reference]; !ok {
			r.wrong(&r.Lost, "", "%d effects under %s, which no intent has", len(n), reference)
		}
	}
	r.answers(e.told, byOrder)
	r.commits(e, byOrder)
	if n := e.jobs["discarded"]; n > 0 {
		r.wrong(&r.Stuck, "", "River gave up %d jobs; a job of ours never fails", n)
	}
	for _, c := range e.crashes {
		r.wrong(&r.Stuck, "", "%s", c)
	}
	return r
}

// standing judges one intent, given its effects.
func (r *Report) standing(s standing, effects []simulator.Effect) {
	r.Intents++
	o := r.operation(s.operation)
	o.intents++
	o.effects += len(effects)
	name := s.operation + " " + s.reference
	if extra := len(effects) - 1; extra > 0 {
		count := &r.Duplicates
		if s.operation == "write" && s.expired {
			count = &r.Residual
		}
		r.wrong(count, s.reference, "%s had %d effects", name, len(effects))
		*count += extra - 1
	}
	switch s.state {
	case outbox.Succeeded:
		r.Succeeded++
		o.succeeded++
		if !slices.ContainsFunc(effects, func(e simulator.Effect) bool {
			return s.providerID == "" || s.operation == "write" || e.ProviderID == s.providerID
		}) {
			r.wrong(&r.WrongAnswers, s.reference, "%s is succeeded as %q, and the provider has no such effect", name, s.providerID)
		}
	case outbox.FailedFinal, outbox.Cancelled:
		r.Refused++
		o.refused++
		r.notHappened(s, effects)
	case outbox.Exhausted:
		r.Exhausted++
		o.exhausted++
		r.notHappened(s, effects)
	case outbox.NeedsReview:
		r.Review++
		o.inReview++
		o.happened += min(len(effects), 1)
		if s.reason == "" {
			r.wrong(&r.Lost, s.reference, "%s is in review without a reason", name)
		}
	case outbox.OutcomeUnknown:
		o.unknown++
	}
	switch moving := s.phase != "" && s.phase != "parked"; {
	case s.overdue:
		r.wrong(&r.Stuck, s.reference, "%s executes beyond its lease", name)
	case moving:
		r.wrong(&r.Stuck, s.reference, "%s is still %s (%s)", name, s.state, s.phase)
	case s.phase == "parked" && s.state != outbox.NeedsReview && s.state != outbox.Exhausted && s.reason == "":
		r.wrong(&r.Lost, s.reference, "%s is parked as %s without a reason", name, s.state)
	case s.phase == "" && s.children != s.owed:
		r.wrong(&r.Lost, s.reference, "%s has %d follow-ons, not %d", name, s.children, s.owed)
	}
}

func (r *Report) notHappened(s standing, effects []simulator.Effect) {
	if len(effects) > 0 {
		r.wrong(&r.WrongAnswers, s.reference, "%s %s is %s, and the provider has an effect", s.operation, s.reference, s.state)
	}
}

// answers judges what the enqueuers were told.
func (r *Report) answers(all []told, byOrder map[string]standing) {
	accepted := map[string]int{}
	for _, t := range all {
		a := t.answer
		s, there := byOrder[t.order]
		if !t.first {
			r.Repeats++
		}
		said := fmt.Sprintf("order %s was answered %s %s as %s", t.order, a.Kind, a.State, a.Reference)
		switch {
		case !there:
			r.wrong(&r.Lost, "", "%s, and there is no intent", said)
		case a.Reference != s.reference:
			r.wrong(&r.WrongAnswers, s.reference, "%s, and is %s", said, s.reference)
		case t.changed != (a.Kind == outbox.AnswerConflict):
			r.wrong(&r.WrongAnswers, s.reference, "%s; the payload was changed: %t", said, t.changed)
		case a.Kind == outbox.AnswerAccepted:
			if accepted[t.order]++; accepted[t.order] > 1 || !t.first {
				r.wrong(&r.WrongAnswers, s.reference, "%s although it had been committed before", said)
			}
		case !t.changed && a.Kind != outbox.AnswerInFlight && a.Kind != outbox.AnswerSettled:
			r.wrong(&r.WrongAnswers, s.reference, "%s", said)
		case a.State.Terminal() && a.State != s.state:
			r.wrong(&r.WrongAnswers, s.reference, "%s, and is %s in the end", said, s.state)
		case a.ProviderID != "" && a.ProviderID != s.providerID:
			r.wrong(&r.WrongAnswers, s.reference, "%s with the provider's id %s, and has %s in the end", said, a.ProviderID, s.providerID)
		}
	}
}

// commits judges that an intent is there if and only if its transaction committed.
func (r *Report) commits(e evidence, byOrder map[string]standing) {
	for _, name := range e.orders {
		if _, there := byOrder[name]; !there {
			r.wrong(&r.Lost, "", "order %s is committed without its intent", name)
		}
	}
	if n := len(byOrder); n > len(e.orders) {
		r.wrong(&r.WrongAnswers, "", "%d intents, and the application committed %d orders", n, len(e.orders))
	}
	for _, name := range e.rolledBack {
		if s, there := byOrder[name]; there {
			r.wrong(&r.WrongAnswers, s.reference, "order %s was rolled back and has an intent", name)
		}
	}
}

func (r *Report) operation(name string) *operationReport {
	for i := range r.operations {
		if r.operations[i].name == name {
			return &r.operations[i]
		}
	}
	r.operations = append(r.operations, operationReport{name: name})
	return &r.operations[len(r.operations)-1]
}

// Tables are the report for people: what became of the intents, and what was done to them.
func (r Report) Tables() (outcome, faults [][]string) {
	outcome = [][]string{{"OPERATION", "INTENTS", "EFFECTS", "SUCCEEDED", "REFUSED", "EXHAUSTED", "UNKNOWN", "REVIEW", "HAPPENED"}}
	for _, o := range r.operations {
		cells := []string{o.name}
		for _, n := range []int{o.intents, o.effects, o.succeeded, o.refused, o.exhausted, o.unknown, o.inReview, o.happened} {
			cells = append(cells, strconv.Itoa(n))
		}
		outcome = append(outcome, cells)
	}
	faults = [][]string{{"FAULT", "TIMES"}}
	for _, k := range slices.Compact(slices.Clone(kinds)) {
		faults = append(faults, []string{string(k), strconv.Itoa(r.Faults[k])})
	}
	own := 0
	for _, n := range r.ProviderFaults {
		own += n
	}
	return outcome, append(faults, []string{"of the providers", strconv.Itoa(own)}, []string{"commits without an answer", strconv.Itoa(r.LostCommits)})
}
