package dispatch

import (
	"testing"

	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/providers"
)

// The unknown attempt's own late answer and a probe's about the same intent can come into
// one batch, and both fit the row as it was. They are taken one after the other: there is
// one outcome at most, and nothing is due that has one.
func TestALateAnswerAndAProbesAreTakenOneAfterTheOther(t *testing.T) {
	t.Parallel()
	b := steps(t)
	const (
		succeeded = " | succeeded 1 ch_1"
		refused   = " | failed_final 1"
		found     = " | succeeded 2 ch_1"
		due       = "failed_retryable due 2 | "
		review    = "needs_review parked 2 of 1 | "
		both      = "both"
	)
	first := map[providers.Kind]string{providers.KindAccepted: succeeded, providers.KindRefused: refused, providers.KindNotSent: due}
	for _, test := range []struct {
		learnt outbox.Event
		late   providers.Answer
		want   string // when the probe's comes first
		taken  string // both, or the first alone
	}{
		{outbox.ProvenAbsent, accepts, due, ""},
		{outbox.ProvenAbsent, refuses, due, ""},
		{outbox.ProvenAbsent, notSent, due, ""},
		{outbox.Probed, accepts, succeeded, both},
		{outbox.Probed, refuses, refused, both},
		{outbox.Probed, notSent, due, both},
		{outbox.LookupFound, accepts, found, ""},
		{outbox.LookupFound, refuses, found, ""},
		{outbox.LookupFound, notSent, found, ""},
		{outbox.NotProven, accepts, succeeded, both},
		{outbox.NotProven, refuses, review, ""},
		{outbox.NotProven, notSent, review, ""},
	} {
		for _, lateFirst := range []bool{false, true} {
			what := string(test.learnt) + " and a late " + string(test.late.Kind)
			id, other := b.put("pay", isProbing), b.put("pay", isLeased)
			all := []settlement{learns(id, 2, test.learnt, false), reports(other, 1, accepts), reports(id, 1, test.late)}
			want, taken := test.want, test.taken
			if lateFirst {
				what += ", which comes first"
				all[0], all[2] = all[2], all[0]
				want, taken = first[test.late.Kind], ""
			}
			got, err := b.w.settleBatch(b.ctx, all)
			b.must(err)
			for i, g := range got {
				if g.err != nil || g.current != (i < 2 || taken == both) {
					t.Errorf("%s: answer %d: %+v", what, i, g)
				}
			}
			b.is(what, b.open(id)+" | "+b.outcome(id), want)
			b.is("beside it", b.outcome(other), "succeeded 1 ch_1")
		}
	}
	b.is("due with an outcome", b.ask(`SELECT count(*) FROM outbox.outbox JOIN outbox.outcomes USING (intent_id)`), "0")
}
