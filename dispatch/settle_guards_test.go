package dispatch

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
	"github.com/outbox-worker/outbox-worker/providers"
)

var (
	threeTimes = catalog.Retry{MaxAttempts: 3, Multiplier: 2}
	accepts    = providers.Accepted("ch_1", nil)
	refuses    = providers.Refused("declined", "", true)
	notSent    = providers.NotSent("dial", "", 0)
	silent     = providers.Unknown("timeout", "")
)

// reports is what the worker of an attempt brings.
func reports(id int64, attempt int, a providers.Answer) settlement {
	return settlement{ticket: ticket{id, attempt}, verdict: decide(a, 1, threeTimes), answer: a}
}

// learns is what a probe brings.
func learns(id int64, attempt int, e outbox.Event, reported bool) settlement {
	v := verdict{event: e, state: outbox.OutcomeUnknown}
	if e != outbox.Probed {
		v.state, _ = outbox.OutcomeUnknown.Next(e)
	}
	s := settlement{ticket: ticket{id, attempt}, verdict: v, probe: true, reported: reported}
	if v.state == outbox.Succeeded {
		s.answer.ProviderID = "ch_1"
	}
	return s
}

// The fence, state by state: who lost the lease overwrites nothing, and the attempt
// whose outcome is unknown may still say what it knows of itself.
func TestASettlementIsFenced(t *testing.T) {
	t.Parallel()
	b := steps(t)
	for _, test := range []struct {
		claim   string
		sets    []string
		s       func(id int64) settlement
		want    bool
		open    string
		outcome string
	}{
		{"the attempt that is executed", []string{isLeased}, at(1, accepts), true, "", "succeeded 1 ch_1"},
		{"one before it", []string{isLeased, `attempt = 2`}, at(1, accepts), false, "executing leased 2", ""},
		{"one that never was", []string{isLeased}, at(2, accepts), false, "executing leased 1", ""},
		{"a probe of that number", []string{isLeased}, probe1(1, outbox.LookupFound), false, "executing leased 1", ""},
		{"an attempt that was proven unsent", []string{isRetried}, at(1, accepts), false, "failed_retryable due 1", ""},
		{"a refusal of one", []string{isRetried}, at(1, refuses), false, "failed_retryable due 1", ""},
		{"an attempt that nobody claimed", []string{isReleased}, at(0, accepts), false, "accepted released 0", ""},
		{"one that is exhausted", []string{isRetried, `state = 'exhausted', phase = 'parked', next_at = NULL`}, at(1, accepts), false, "exhausted parked 1", ""},

		{"late success", []string{isAsking}, at(1, accepts), true, "", "succeeded 1 ch_1"},
		{"late refusal", []string{isAsking}, at(1, refuses), true, "", "failed_final 1"},
		{"late proof that it was not sent", []string{isAsking}, at(1, notSent), true, "failed_retryable due 1", ""},
		{"late: no idea", []string{isAsking}, at(1, silent), false, "outcome_unknown asking 1 of 1 heard", ""},
		{"late success while it is asked about", []string{isProbing}, at(1, accepts), true, "", "succeeded 1 ch_1"},
		{"late success of an attempt that is not the unknown one", []string{isAsking, `attempt = 2, unknown_attempt = 2`}, at(1, accepts), false, "outcome_unknown asking 2 of 2", ""},
		{"late: no idea, of an attempt that is not the unknown one", []string{isAsking, `attempt = 2, unknown_attempt = 2`}, at(1, silent), false, "outcome_unknown asking 2 of 2", ""},

		{"a probe", []string{isProbing}, probe1(2, outbox.LookupFound), true, "", "succeeded 2 ch_1"},
		{"a probe of before", []string{isProbing, `attempt = 3, probes = 2`}, probe1(2, outbox.ProvenAbsent), false, "outcome_unknown probing 3 of 1", ""},
		{"a probe whose lease ran out", []string{isProbing, `phase = 'asking'`}, probe1(2, outbox.ProvenAbsent), false, "outcome_unknown asking 2 of 1", ""},
		{"no lookup, but a lost resend that has its success", []string{isProbing, `phase = 'asking', unknown_attempt = 2`}, probe1(2, outbox.ProviderAccepted), true, "", "succeeded 2 ch_1"},
		{"and one that has not", []string{isProbing, `phase = 'asking', unknown_attempt = 2`}, probe1(2, outbox.ProviderRefused), false, "outcome_unknown asking 2 of 2", ""},
		{"the attempt before a resend", []string{isProbing, `unknown_attempt = 2`}, at(1, refuses), false, "outcome_unknown probing 2 of 2", ""},

		{"success of what is in review", []string{isReviewed}, at(1, accepts), true, "", "succeeded 1 ch_1"},
		{"refusal of what is in review", []string{isReviewed}, at(1, refuses), false, "needs_review parked 2 of 1", ""},
		{"success of another attempt than that in review", []string{isReviewed}, at(2, accepts), false, "needs_review parked 2 of 1", ""},
	} {
		id := b.put("pay", test.sets...)
		s := test.s(id)
		got, err := b.w.settle(b.ctx, b.pool, []settlement{s})
		b.must(err)
		if got[0] != test.want {
			t.Errorf("%s: is the outcome: %v", test.claim, got[0])
		}
		b.is(test.claim, b.open(id), test.open)
		b.is(test.claim, b.outcome(id), test.outcome)
		event := "late_answer"
		if test.want {
			event = string(s.verdict.event)
		}
		b.is(test.claim, b.events(id), fmt.Sprint(s.Attempt, " ", event))
		if !test.want {
			b.is(test.claim, b.ask(`SELECT evidence->>'event' FROM outbox.history WHERE intent_id = $1`, id), string(s.verdict.event))
		}
	}
}

func at(attempt int, a providers.Answer) func(int64) settlement {
	return func(id int64) settlement { return reports(id, attempt, a) }
}

func probe1(attempt int, e outbox.Event) func(int64) settlement {
	return func(id int64) settlement { return learns(id, attempt, e, false) }
}

// Absence proves something only once the unknown attempt's worker has reported, so who
// has not must not be taken for one who has.
func TestWhoHasReportedIsKnown(t *testing.T) {
	t.Parallel()
	b := steps(t)
	for _, test := range []struct {
		claim string
		sets  []string
		s     func(id int64) settlement
		want  string
	}{
		{"it asks, and the sender is silent", []string{isProbing}, probe1(2, outbox.Probed), "outcome_unknown asking 2 of 1"},
		{
			"it asks, and the sender has reported",
			[]string{isProbing, `holder = NULL`},
			func(id int64) settlement { return learns(id, 2, outbox.Probed, true) }, "outcome_unknown asking 2 of 1 heard",
		},
		{
			"it has resent and reports",
			[]string{isProbing, `unknown_attempt = 2`},
			func(id int64) settlement { return learns(id, 2, outbox.Probed, true) }, "outcome_unknown asking 2 of 2 heard",
		},
		{"it gives up on a silent sender", []string{isProbing}, probe1(2, outbox.NotProven), "needs_review parked 2 of 1"},
		{"the sender itself says that it does not know", []string{isLeased}, at(1, silent), "outcome_unknown asking 1 of 1 heard"},
		{"it says so late", []string{isProbing}, at(1, silent), "outcome_unknown probing 2 of 1 heard"},
	} {
		id := b.put("pay", test.sets...)
		_, err := b.w.settle(b.ctx, b.pool, []settlement{test.s(id)})
		b.must(err)
		b.is(test.claim, b.open(id), test.want)
	}
}

// Fifty callers share a statement; each is told of its own.
func TestEachCallerIsToldOfItsOwnSettlement(t *testing.T) {
	t.Parallel()
	b := steps(t)
	kinds := []struct {
		set  string
		s    func(int64) settlement
		want bool
	}{
		{isLeased, at(1, accepts), true},
		{isLeased, at(2, accepts), false},
		{isLeased, at(1, silent), true},
		{isRetried, at(1, accepts), false},
		{isProbing, probe1(2, outbox.Probed), true},
		{isProbing, probe1(1, outbox.Probed), false},
		{isReviewed, at(1, notSent), false},
	}
	var all []settlement
	var want []bool
	for i := range 50 {
		k := kinds[i%len(kinds)]
		all, want = append(all, k.s(b.put("pay", k.set))), append(want, k.want)
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j], want[i], want[j] = all[j], all[i], want[j], want[i] })
	got, err := b.w.settleBatch(b.ctx, all)
	b.must(err)
	for i, g := range got {
		if g.current != want[i] || g.err != nil {
			t.Errorf("%d: %s at %d: %+v, want %v", i, all[i].verdict.event, all[i].Attempt, g, want[i])
		}
	}
}

// Answers share a statement and no fate: one that cannot be stored is recorded without
// its text, and one that cannot be recorded at all fails alone.
func TestAnAnswerThatTheDatabaseRefusesHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := steps(t)
	// A document that Go takes and this server does not.
	b.do(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET max_stack_depth = ''100kB''', current_database()); END $$`)
	b.pool.Reset()
	const deep, taken = 17, 33
	var all []settlement
	for i := range 50 {
		all = append(all, reports(b.put("pay", isLeased), 1, accepts))
		all[i].answer.Result = json.RawMessage(`{"n":1}`)
	}
	all[deep].answer.Result = json.RawMessage(strings.Repeat("[", 9000) + strings.Repeat("]", 9000))
	b.do(`INSERT INTO outbox.outcomes (intent_id, attempt, state) VALUES ($1, 1, 'cancelled')`, all[taken].ID)
	got, err := b.w.settleBatch(b.ctx, all)
	b.must(err)
	for i, g := range got {
		switch {
		case i == taken:
			if g.current || g.err == nil || !refusedData(g.err) {
				t.Errorf("the one with an outcome: %+v", g)
			}
			b.is("its row", b.open(all[i].ID), "executing leased 1")
			b.is("its outcome", b.outcome(all[i].ID), "cancelled 1")
		case !g.current || g.err != nil:
			t.Errorf("%d: %+v", i, g)
		default:
			b.is("an outcome", b.outcome(all[i].ID), "succeeded 1 ch_1")
		}
	}
	b.is("what is kept", b.ask(`SELECT count(*) || ' of ' || count(result) FROM outbox.outcomes WHERE state = 'succeeded'`), "49 of 48")
	b.is("of the deep one", b.ask(`SELECT reason FROM outbox.history WHERE intent_id = $1`, all[deep].ID), "the provider's answer could not be stored")
}
