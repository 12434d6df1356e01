package dispatch

import (
	"testing"

	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/providers"
)

// A success that came too late to be the outcome, beside what the ledger says.
func TestALateSuccessThatContradictsTheLedgerOpensAReview(t *testing.T) {
	t.Parallel()
	b := steps(t)
	one, none := "ch_1", (*string)(nil)
	open := func(sets ...string) func() int64 { return func() int64 { return b.put("pay", sets...) } }
	ended := func(state string, provider *string) func() int64 {
		return func() int64 { return b.ended("pay", state, provider) }
	}
	another := providers.Accepted("ch_2", nil)
	for _, test := range []struct {
		claim  string
		row    func() int64
		answer providers.Answer
		open   string // "": as it was
		event  string
	}{
		{"about to be sent again", open(isRetried, `attempt = 2`), another, "needs_review parked 2 of 1 heard", "1 contradicted"},
		{"released to be sent again", open(isRetried, isReleased), another, "needs_review parked 1 of 1 heard", "1 contradicted"},
		{"given up", open(isRetried, `state = 'exhausted', phase = 'parked', next_at = NULL`), another, "needs_review parked 1 of 1 heard", "1 contradicted"},
		{"failed", ended("failed_final", none), another, "failed_final parked 1", "1 review_opened"},
		{"cancelled", ended("cancelled", none), another, "cancelled parked 1", "1 review_opened"},
		{"given up and superseded", ended("exhausted", none), another, "exhausted parked 1", "1 review_opened"},
		{"succeeded with another effect", ended("succeeded", &one), another, "succeeded parked 1", "1 review_opened"},

		{"succeeded with the same", ended("succeeded", &one), accepts, "", ""},
		{"succeeded without a name", ended("succeeded", none), another, "", ""},
		{"another without a name", ended("succeeded", &one), providers.Accepted("", nil), "", ""},
		{"executing again", open(isLeased), another, "", ""},
		{"unknown", open(isAsking), another, "", ""},
		{"in review", open(isReviewed), another, "", ""},
		{"a refusal", open(isRetried), refuses, "", ""},
		{"no answer", ended("failed_final", none), silent, "", ""},
	} {
		id := test.row()
		before := b.open(id) + b.outcome(id)
		b.w.contradict(b.ctx, reports(id, 1, test.answer))
		want := test.open + b.outcome(id)
		if test.open == "" {
			want = before
		}
		b.is(test.claim, b.open(id)+b.outcome(id), want)
		b.is(test.claim, b.events(id), test.event)
		if test.event != "" {
			b.is(test.claim, b.ask(`SELECT concat_ws(' ', next_at IS NULL, review_since IS NOT NULL, review_reason) FROM outbox.outbox WHERE intent_id = $1`, id),
				"t t a late success contradicts the ledger: the provider names it ch_2")
		}
	}
}

// What a lookup found counts like an answer.
func TestAnEffectFoundTooLateOpensAReviewToo(t *testing.T) {
	t.Parallel()
	b := steps(t)
	id := b.put("pay", isRetried, `attempt = 2`)
	b.w.afterSettlement(b.ctx, b.l, learns(id, 2, outbox.LookupFound, false), false)
	b.is("row", b.open(id), "needs_review parked 2 of 2 heard")
	b.w.contradict(b.ctx, learns(id, 2, outbox.LookupFound, false))
	b.is("and one only", b.events(id), "2 contradicted")
	failed := b.ended("pay", "failed_final", nil)
	b.w.contradict(b.ctx, reports(failed, 1, accepts))
	b.w.contradict(b.ctx, reports(failed, 1, accepts))
	b.is("and one only", b.events(failed), "1 review_opened")
	current := b.put("pay", isRetried)
	b.w.afterSettlement(b.ctx, b.l, reports(current, 1, accepts), true)
	b.is("what is the outcome contradicts nothing", b.open(current), "failed_retryable due 1")
}

// A success that has its follow-ons still to come has an outbox row already. The review
// waits for them, and is not lost.
func TestAContradictionWaitsForTheFollowOnsOfWhatSucceeded(t *testing.T) {
	t.Parallel()
	b := steps(t)
	whole, rejected, same := b.succeeded(), b.succeeded(), b.succeeded()
	for id, answer := range map[int64]providers.Answer{
		whole: providers.Accepted("ch_2", nil), rejected: providers.Accepted("ch_2", nil), same: accepts,
	} {
		b.w.contradict(b.ctx, reports(id, 1, answer))
		b.is("still to follow", b.open(id), "succeeded following 1")
		b.is("in review", b.ask(`SELECT review_since FROM outbox.outbox WHERE intent_id = $1`, id), "")
	}
	batch := b.batch()
	for i := range batch {
		if batch[i].ID == rejected {
			batch[i].followOns, batch[i].why = nil, "no address"
		}
	}
	b.must(b.create(batch))
	const review = `SELECT review_reason FROM outbox.outbox WHERE intent_id = $1 AND phase = 'parked' AND review_since IS NOT NULL AND next_at IS NULL`
	const why = "a late success contradicts the ledger: the provider names it ch_2"
	b.is("whole", b.ask(review, whole), why)
	b.is("whole", b.receipts(whole), "accepted due 0")
	b.is("whole", b.events(whole), "1 review_opened, 1 follow_ons_created")
	b.is("rejected", b.ask(review, rejected), why+"; no address")
	b.is("rejected", b.events(rejected), "1 review_opened, 1 follow_on_rejected")
	b.is("the same effect", b.open(same)+b.receipts(same), "accepted due 0")
}
