package chaos

import (
	"reflect"
	"strings"
	"testing"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// kept is a run in which every promise was kept, by a charge, its receipt, a booking in
// review and a mail that was refused.
func kept() evidence {
	answered := func(order string, kind outbox.AnswerKind, state outbox.State, first, changed bool) told {
		return told{order: order, first: first, changed: changed, answer: outbox.Answer{Kind: kind, State: state, Reference: "r-" + order}}
	}
	return evidence{
		orders: []string{"o1", "o2", "o3"}, rolledBack: []string{"o4"},
		told: []told{
			answered("o1", outbox.AnswerAccepted, outbox.Accepted, true, false),
			answered("o1", outbox.AnswerSettled, outbox.Succeeded, false, false),
			answered("o1", outbox.AnswerConflict, outbox.Succeeded, false, true),
			answered("o2", outbox.AnswerInFlight, outbox.Executing, true, false), // its first commit had no answer
			answered("o3", outbox.AnswerAccepted, outbox.Accepted, true, false),
		},
		intents: []standing{
			{reference: "r-o1", operation: "charge", order: "o1", state: outbox.Succeeded, providerID: "ch_1", owed: 1, children: 1},
			{reference: "r-f1", operation: "write", state: outbox.Succeeded},
			{reference: "r-o2", operation: "book", order: "o2", state: outbox.NeedsReview, phase: "parked", reason: "looked up", expired: true},
			{reference: "r-o3", operation: "write", order: "o3", state: outbox.FailedFinal, expired: true},
		},
		effects: []simulator.Effect{
			{Service: simulator.Charges, Reference: "r-o1", ProviderID: "ch_1"},
			{Service: simulator.Mail, Reference: "r-f1", ProviderID: "ma_1"},
			{Service: simulator.Bookings, Reference: "r-o2", ProviderID: "bk_1"},
		},
		jobs: map[string]int{"completed": 4, "running": 1},
	}
}

// verdict is what makes a run fail or not.
type verdict struct{ duplicates, residual, lost, wrong, stuck int }

func verdictOf(e evidence) verdict {
	r := judge(e)
	return verdict{r.Duplicates, r.Residual, r.Lost, r.WrongAnswers, r.Stuck}
}

func TestTheJudgeFindsNothingWhereEverythingWasKept(t *testing.T) {
	t.Parallel()
	if r := judge(kept()); !r.OK() || len(r.Problems()) > 0 || r.Intents != 4 || r.Repeats != 2 || r.Review != 1 {
		t.Errorf("%+v", r)
	}
}

func TestTheJudgeFindsWhatWasPlanted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		claim string
		plant func(*evidence)
		want  verdict
	}{
		{"two more effects under one key", func(e *evidence) { e.effects = append(e.effects, e.effects[0], e.effects[0]) }, verdict{duplicates: 2}},
		{"a second effect of what is in review", func(e *evidence) { e.effects = append(e.effects, e.effects[2]) }, verdict{duplicates: 1}},
		{"a second mail, and no lease was lost", func(e *evidence) { e.effects = append(e.effects, e.effects[1]) }, verdict{duplicates: 1}},
		{"a second mail of a worker that slept", func(e *evidence) {
			e.effects, e.intents[1].expired = append(e.effects, e.effects[1]), true
		}, verdict{residual: 1}},
		{"two intents of one order", func(e *evidence) {
			e.intents = append(e.intents, standing{reference: "r-x", operation: "charge", order: "o3", state: outbox.FailedFinal})
			e.told = e.told[:4]
		}, verdict{duplicates: 1}},
		{"an acknowledged intent is not there", func(e *evidence) { e.intents = e.intents[:3] }, verdict{lost: 2}}, // told, and beside an order
		{"an effect that no intent has", func(e *evidence) {
			e.effects = append(e.effects, simulator.Effect{Reference: "r-y"})
		}, verdict{lost: 1}},
		{"a follow-on is missing", func(e *evidence) { e.intents[0].children = 0 }, verdict{lost: 1}},
		{"in review without a reason", func(e *evidence) { e.intents[2].reason = "" }, verdict{lost: 1}},
		{"succeeded without an effect", func(e *evidence) { e.effects = e.effects[1:] }, verdict{wrong: 1}},
		{"succeeded under an id that the provider does not have", func(e *evidence) { e.intents[0].providerID = "ch_2" }, verdict{wrong: 1}},
		{"refused with an effect", func(e *evidence) {
			e.intents[3].operation, e.effects[1].Reference = "book", "r-o3"
			e.intents[1].state = outbox.FailedFinal
		}, verdict{wrong: 1}},
		{"exhausted with an effect", func(e *evidence) { e.intents[2].state = outbox.Exhausted }, verdict{wrong: 1}},
		{"rolled back, and there", func(e *evidence) {
			e.intents = append(e.intents, standing{reference: "r-o4", operation: "book", order: "o4", state: outbox.FailedFinal})
		}, verdict{wrong: 2}}, // and more intents than orders
		{"answered with another reference", func(e *evidence) { e.told[1].answer.Reference = "r-z" }, verdict{wrong: 1}},
		{"accepted twice", func(e *evidence) { e.told[1].answer.Kind = outbox.AnswerAccepted }, verdict{wrong: 1}},
		{"a changed payload is no conflict", func(e *evidence) { e.told[2].answer.Kind = outbox.AnswerSettled }, verdict{wrong: 1}},
		{"told that it failed, and it succeeded", func(e *evidence) { e.told[1].answer.State = outbox.FailedFinal }, verdict{wrong: 1}},
		{"refused input that was none", func(e *evidence) { e.told[4].answer.Kind = outbox.AnswerRefused }, verdict{wrong: 1}},
		{"still being asked about", func(e *evidence) { e.intents[2].state, e.intents[2].phase = outbox.OutcomeUnknown, "asking" }, verdict{stuck: 1}},
		{"executing beyond its lease", func(e *evidence) {
			e.intents[2].state, e.intents[2].phase, e.intents[2].overdue = outbox.Executing, "leased", true
		}, verdict{stuck: 1}},
		{"a job that River gave up", func(e *evidence) { e.jobs["discarded"] = 1 }, verdict{stuck: 1}},
		{"a worker that ended by itself", func(e *evidence) { e.crashes = []string{"worker-1-1 ended"} }, verdict{stuck: 1}},
	} {
		t.Run(c.claim, func(t *testing.T) {
			t.Parallel()
			e := kept()
			c.plant(&e)
			if got := verdictOf(e); got != c.want {
				t.Errorf("%+v, want %+v\n%s", got, c.want, strings.Join(judge(e).Problems(), "\n"))
			}
		})
	}
}

func TestASeedRepeatsItsSchedule(t *testing.T) {
	t.Parallel()
	a, b, c := schedule(7, 40, 1000), schedule(7, 40, 1000), schedule(8, 40, 1000)
	if !reflect.DeepEqual(a, b) || reflect.DeepEqual(a, c) {
		t.Error("the schedules of one seed differ, or those of two are the same")
	}
	drawn := map[Kind]bool{}
	for _, e := range a {
		drawn[e.kind] = true
		if (e.kind == Pause || e.kind == PauseAt) && e.span <= lease {
			t.Errorf("a pause of %s is within the lease", e.span)
		}
	}
	for _, k := range kinds {
		if !drawn[k] {
			t.Errorf("%s is not among 40 faults", k)
		}
	}
	if !reflect.DeepEqual(draw(7, 3), draw(7, 3)) {
		t.Error("one order is drawn in two ways")
	}
}
