package e2e_test

import (
	"strings"
	"testing"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// A deployment is under way: the old worker serves the first version of a charge, the
// new one both. Each takes what it serves and leaves the rest as it is.
func TestVersionsOfAWorkerSideBySideTouchOnlyWhatTheyServe(t *testing.T) {
	t.Parallel()
	b := setup(t, withTimes(patientCall, patientLease))
	first, second, _ := strings.Cut(withTimes(patientCall, patientLease), "  - name: ship\n")
	charge := first[strings.Index(first, "  - name: charge_card"):]
	like := func(name, version string) string {
		return strings.NewReplacer("name: charge_card\n    version: 1", "name: "+name+"\n    version: "+version,
			"&timeouts", "", "&retry", "").Replace(charge)
	}
	b.apply(first + like("charge_card", "2") + like("void", "1") + "  - name: ship\n" + second)
	enqueue := func(operation, id string) string {
		in := plain(id).intent()
		in.Operation = operation
		a, err := outbox.Enqueue(b.ctx, b.pool, in)
		b.must(err)
		return a.Reference
	}
	untouched := func(reference string) {
		t.Helper()
		if steps := b.steps(reference); len(steps) != 1 {
			t.Errorf("touched: %v", steps)
		}
		if n := b.sim.Requests("", reference); n != 0 {
			t.Errorf("%d requests for what nobody serves", n)
		}
		if phase := value[string](b, `o.phase::text FROM outbox.outbox o JOIN outbox.intents i ON i.id = o.intent_id WHERE i.reference = $1`, reference); phase != "due" {
			t.Errorf("phase %s, want due", phase)
		}
	}
	nobodys := enqueue("void.v1", "0")
	news := []string{enqueue("charge_card.v2", "1")}
	b.configure(`{charge_card.v1: {path: /v1/charges}}`)
	b.ready(b.worker("old"))
	// What came later and is served has been dealt with: the others have been passed over.
	olds := []string{enqueue("charge_card.v1", "2"), enqueue("charge_card.v1", "3")}
	for _, reference := range olds {
		b.state(reference, outbox.Succeeded)
	}
	untouched(nobodys)
	untouched(news[0])

	b.configure(`{charge_card.v1: {path: /v1/charges}, charge_card.v2: {path: /v1/charges}}`)
	b.ready(b.worker("new"))
	news = append(news, enqueue("charge_card.v2", "4"))
	last := enqueue("charge_card.v1", "5")
	for _, reference := range append(news, last) {
		b.state(reference, outbox.Succeeded)
	}
	untouched(nobodys)
	// What follows a success needs no provider, so that anybody may create it.
	if by := value[[]string](b, `array_agg(DISTINCT h.actor) FROM outbox.history h JOIN outbox.intents i ON i.id = h.intent_id
		JOIN outbox.catalog c ON c.id = i.catalog_id WHERE c.operation = 'charge_card.v2' AND h.event <> 'follow_ons_created'`); len(by) != 1 || by[0] != "new" {
		t.Errorf("the second version was touched by %v, want new alone", by)
	}
	if n := b.sim.Requests(simulator.Charges, ""); n != 5 {
		t.Errorf("%d requests, want 5", n)
	}
	b.compare()
}
