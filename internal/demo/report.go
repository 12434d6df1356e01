package demo

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/examples/shop"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// Report is the verdict. Effects, mails, charges and shipments are counted by the
// providers; states are the ledger's.
type Report struct {
	Orders    int `json:"orders"`
	Repeats   int `json:"repeats"`   // orders posted twice: no second intent
	Conflicts int `json:"conflicts"` // orders changed under the same number: no effect

	Intents   int `json:"intents"`
	Effects   int `json:"effects"`
	Charges   int `json:"charges"`
	Shipments int `json:"shipments"`
	Mails     int `json:"mails"`

	// Duplicates are effects beyond the first of a reference, or of an order.
	Duplicates int `json:"duplicates"`
	// Lost are commitments that were not kept and not said: neither settled rightly (as
	// the provider's count has it) nor listed as unresolved with a reason.
	Lost int `json:"lost"`

	Succeeded int `json:"succeeded"`
	Refused   int `json:"refused"`   // by the provider, for good: no effect
	Exhausted int `json:"exhausted"` // proven not executed, attempts used up
	Unknown   int `json:"unknown"`   // may have happened, and says so
	Review    int `json:"review"`

	Faults  map[simulator.Kind]int `json:"faults"`
	Killed  int                    `json:"killed"` // workers
	Seconds float64                `json:"seconds"`

	operations []operationReport
	unresolved []unresolved
	problems   []string
}

// OK reports whether every promise was kept.
func (r Report) OK() bool { return r.Duplicates == 0 && r.Lost == 0 }

type operationReport struct {
	name                                                               string
	intents, effects, succeeded, refused, exhausted, unknown, inReview int
}

type unresolved struct {
	operation, state, reason string
	intents, happened        int
}

// standing is one intent at the end, as the ledger has it.
type standing struct {
	reference, operation, state, phase, reason string
	tenant, order                              string
	missing                                    int // follow-ons that should exist and do not
}

// standingsSQL: follow-ons that a success owes are computed from the order itself.
const standingsSQL = `
SELECT i.reference, c.operation, coalesce(e.state, o.state)::text, coalesce(o.phase::text, ''), coalesce(o.review_reason, h.reason, ''),
	i.tenant, coalesce(i.payload ->> 'order_id', ''),
	CASE WHEN c.name = 'charge_card' AND e.state = 'succeeded' THEN
		(SELECT count(*)::int FROM (VALUES ('send_receipt', true), ('create_shipment', EXISTS (
			SELECT FROM json_array_elements(i.payload -> 'lines') l WHERE l ->> 'digital' IS DISTINCT FROM 'true'))) owed(name, wanted)
		 WHERE wanted AND NOT EXISTS (SELECT FROM outbox.intents f JOIN outbox.catalog fc ON fc.id = f.catalog_id
			WHERE f.parent_id = i.id AND fc.name = owed.name))
	ELSE 0 END
FROM outbox.intents i
JOIN outbox.catalog c ON c.id = i.catalog_id
LEFT JOIN outbox.outcomes e ON e.intent_id = i.id
LEFT JOIN outbox.outbox o ON o.intent_id = i.id
LEFT JOIN LATERAL (SELECT reason FROM outbox.history WHERE intent_id = i.id AND reason IS NOT NULL ORDER BY at DESC LIMIT 1) h ON true
ORDER BY i.id`

// judge compares the ledger with what the providers counted.
func (d *demo) judge(ctx context.Context, fed shop.Summary) (Report, error) {
	r := Report{Orders: fed.Posted, Repeats: fed.Repeated, Conflicts: fed.Conflict, Killed: 1}
	effects, err := d.sim.Effects(ctx, "", "")
	if err != nil {
		return r, fmt.Errorf("ask the providers what they did: %w", err)
	}
	summary, err := d.sim.Summary(ctx)
	if err != nil {
		return r, fmt.Errorf("ask the providers what they did: %w", err)
	}
	rows, err := d.pool.Query(ctx, standingsSQL)
	if err != nil {
		return r, fmt.Errorf("read the ledger: %w", err)
	}
	standings, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (standing, error) {
		var s standing
		err := row.Scan(&s.reference, &s.operation, &s.state, &s.phase, &s.reason, &s.tenant, &s.order, &s.missing)
		return s, err
	})
	if err != nil {
		return r, fmt.Errorf("read the ledger: %w", err)
	}
	r.Faults = summary.FaultsFired
	r.judge(standings, effects)
	// From the file of orders, without the shop's or the worker's help.
	if want := shop.Expected(); len(standings) == 0 || r.operations[0].intents != want.Charges || r.Conflicts != want.Conflicts {
		r.lose("the orders make %d charges and %d conflicts", want.Charges, want.Conflicts)
	}
	for _, f := range faults() {
		if r.Faults[f.Kind] == 0 {
			r.problems = append(r.problems, fmt.Sprintf("the fault %s of %s never struck", f.Kind, f.Service))
		}
	}
	r.Seconds = math.Round(time.Since(d.began).Seconds()*10) / 10
	return r, nil
}

// judge joins the ledger with the effects.
func (r *Report) judge(standings []standing, effects []simulator.Effect) {
	counted := r.countEffects(effects)
	for _, s := range standings {
		r.add(s, counted[s.reference])
		delete(counted, s.reference)
	}
	for reference, n := range counted {
		r.lose("%d effects under %s, which no intent has", n, reference)
	}
}

// countEffects counts what the providers did, by reference.
func (r *Report) countEffects(effects []simulator.Effect) map[string]int {
	counted, ofOrder := map[string]int{}, map[string]int{}
	for _, e := range effects {
		r.Effects++
		counted[e.Reference]++
		switch e.Service {
		case simulator.Charges:
			r.Charges++
			order := fmt.Sprint(e.Field("storefront"), " ", e.Field("order_id"))
			if ofOrder[order]++; ofOrder[order] > 1 && counted[e.Reference] == 1 {
				r.Duplicates++
				r.problems = append(r.problems, "order "+order+" was charged under two references")
			}
		case simulator.Shipments:
			r.Shipments++
		case simulator.Mail:
			r.Mails++
		}
	}
	return counted
}

func (r *Report) lose(format string, args ...any) {
	r.Lost++
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// add judges one intent, given its number of effects.
func (r *Report) add(s standing, effects int) {
	r.Intents++
	if effects > 1 {
		r.Duplicates += effects - 1
		r.problems = append(r.problems, fmt.Sprintf("%s %s had %d effects", s.operation, s.reference, effects))
	}
	o := r.operation(s.operation)
	o.intents++
	o.effects += effects
	count := func(all, ofOperation *int) { *all++; *ofOperation++ }
	switch outbox.State(s.state) {
	case outbox.Succeeded:
		count(&r.Succeeded, &o.succeeded)
		if effects == 0 {
			r.lose("%s %s is succeeded and the provider has no effect", s.operation, s.reference)
		}
	case outbox.FailedFinal, outbox.Cancelled:
		count(&r.Refused, &o.refused)
		r.notHappened(s, effects)
	case outbox.Exhausted:
		count(&r.Exhausted, &o.exhausted)
		r.notHappened(s, effects)
		r.leaveOpen(s, effects)
	case outbox.OutcomeUnknown:
		count(&r.Unknown, &o.unknown)
		r.leaveOpen(s, effects)
	case outbox.NeedsReview:
		count(&r.Review, &o.inReview)
		r.leaveOpen(s, effects)
	default:
		r.lose("%s %s is still %s (%s)", s.operation, s.reference, s.state, s.phase)
	}
	if s.missing > 0 && (s.phase != "parked" || s.reason == "") {
		r.lose("%s %s succeeded and %d follow-ons are missing", s.operation, s.reference, s.missing)
	}
}

func (r *Report) notHappened(s standing, effects int) {
	if effects > 0 {
		r.lose("%s %s is %s and the provider has an effect", s.operation, s.reference, s.state)
	}
}

// leaveOpen lists what is unresolved; without a reason it would only be forgotten.
func (r *Report) leaveOpen(s standing, effects int) {
	if s.reason == "" {
		r.lose("%s %s is %s without a reason", s.operation, s.reference, s.state)
		return
	}
	happened := min(effects, 1)
	reason := withoutIDs(s.reason)
	for i, u := range r.unresolved {
		if u.operation == s.operation && u.state == s.state && u.reason == reason {
			r.unresolved[i].intents++
			r.unresolved[i].happened += happened
			return
		}
	}
	r.unresolved = append(r.unresolved, unresolved{s.operation, s.state, reason, 1, happened})
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

// Tables are the report for people: what became of the intents, and what is open.
func (r Report) Tables() (outcome, open [][]string, problems []string) {
	outcome = [][]string{{"OPERATION", "INTENTS", "EFFECTS", "SUCCEEDED", "REFUSED", "EXHAUSTED", "UNKNOWN", "REVIEW"}}
	row := func(o operationReport) []string {
		cells := []string{o.name}
		for _, n := range []int{o.intents, o.effects, o.succeeded, o.refused, o.exhausted, o.unknown, o.inReview} {
			cells = append(cells, strconv.Itoa(n))
		}
		return cells
	}
	for _, o := range r.operations {
		outcome = append(outcome, row(o))
	}
	outcome = append(outcome, row(operationReport{"all", r.Intents, r.Effects, r.Succeeded, r.Refused, r.Exhausted, r.Unknown, r.Review}))
	open = [][]string{{"UNRESOLVED", "STATE", "INTENTS", "HAPPENED", "REASON"}}
	for _, u := range r.unresolved {
		open = append(open, []string{u.operation, u.state, strconv.Itoa(u.intents), strconv.Itoa(u.happened), u.reason})
	}
	return outcome, open, r.problems
}

var workerID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|127\.0\.0\.1:[0-9]+`)

// withoutIDs makes reasons comparable.
func withoutIDs(reason string) string { return workerID.ReplaceAllString(reason, "…") }
