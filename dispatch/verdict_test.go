package dispatch

import (
	"math"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
	"github.com/outbox-worker/outbox-worker/providers"
)

// steady has no jitter: 1 s, 2 s, 4 s, 5 s, 5 s …
var steady = catalog.Retry{
	MaxAttempts: 3, Multiplier: 2, Initial: catalog.Duration{Duration: time.Second}, Max: catalog.Duration{Duration: 5 * time.Second},
}

func TestWhatAnAnswerMeans(t *testing.T) {
	t.Parallel()
	const last = 3
	again := func(a providers.Answer, d time.Duration) providers.Answer { a.RetryAfter = d; return a }
	soft := providers.Refused("busy", "", false)
	for _, test := range []struct {
		claim  string
		answer providers.Answer
		sends  int
		event  outbox.Event
		state  outbox.State
		in     time.Duration
	}{
		{"accepted", accepts, 1, outbox.ProviderAccepted, outbox.Succeeded, 0},
		{"accepted at last", accepts, last, outbox.ProviderAccepted, outbox.Succeeded, 0},
		{"refused for good", refuses, 1, outbox.ProviderRefused, outbox.FailedFinal, 0},
		{"refused for good at last", refuses, last, outbox.ProviderRefused, outbox.FailedFinal, 0},
		{"refused for now", soft, 1, outbox.NotSent, outbox.FailedRetryable, time.Second},
		{"refused for now, a second time", soft, 2, outbox.NotSent, outbox.FailedRetryable, 2 * time.Second},
		{"refused for now, and no attempt is left", soft, last, outbox.NotSent, outbox.Exhausted, 4 * time.Second},
		{"refused for now, beyond the last attempt", soft, last + 4, outbox.NotSent, outbox.Exhausted, 5 * time.Second},
		{"not sent", notSent, 1, outbox.NotSent, outbox.FailedRetryable, time.Second},
		{"not sent at last", notSent, last, outbox.NotSent, outbox.Exhausted, 4 * time.Second},
		{"not sent, and asked to wait longer", again(notSent, time.Minute), 1, outbox.NotSent, outbox.FailedRetryable, time.Minute},
		{"not sent, and asked to wait less", again(notSent, time.Millisecond), 2, outbox.NotSent, outbox.FailedRetryable, 2 * time.Second},
		{"refused for now, and asked to wait longer", again(soft, time.Minute), 1, outbox.NotSent, outbox.FailedRetryable, time.Minute},
		{"no answer", silent, 1, outbox.NoAnswer, outbox.OutcomeUnknown, firstAsk},
		{"no answer at last", silent, last, outbox.NoAnswer, outbox.OutcomeUnknown, firstAsk},
		{"no answer, and asked to wait", again(silent, time.Minute), 1, outbox.NoAnswer, outbox.OutcomeUnknown, time.Minute},
		{"nothing at all", providers.Answer{}, 1, outbox.NoAnswer, outbox.OutcomeUnknown, firstAsk},
		{"a kind that nobody knows", providers.Answer{Kind: "perhaps", Final: true}, 1, outbox.NoAnswer, outbox.OutcomeUnknown, firstAsk},
	} {
		want := verdict{event: test.event, state: test.state, retryIn: test.in, exhausted: test.state == outbox.Exhausted}
		if got := decide(test.answer, test.sends, steady); got != want {
			t.Errorf("%s: %+v, want %+v", test.claim, got, want)
		}
	}
}

func TestRetriesComeLaterEachTimeAndNotAllAtOnce(t *testing.T) {
	t.Parallel()
	for sends, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 4: 5 * time.Second, 5: 5 * time.Second, 40: 5 * time.Second} {
		if got := retryDelay(sends, steady); got != want {
			t.Errorf("without jitter, after %d: %s, want %s", sends, got, want)
		}
		jittery := steady
		jittery.Jitter = 0.5
		least, most := time.Hour, time.Duration(0)
		for range 500 {
			got := retryDelay(sends, jittery)
			least, most = min(least, got), max(most, got)
		}
		// All within [half, one and a half], and they use the room they have.
		if least < want/2 || most > want*3/2+1 || least > want*7/10 || most < want*13/10 {
			t.Errorf("with jitter, after %d: %s to %s around %s", sends, least, most, want)
		}
	}
}

// What is further away than a duration can say is as good as never, not long ago.
func TestTimesOfTheDatabaseThatADurationCannotHold(t *testing.T) {
	t.Parallel()
	const never = 1e9 * time.Second
	for s, want := range map[float64]time.Duration{
		0: 0, 1.5: 1500 * time.Millisecond, -1.5: -1500 * time.Millisecond,
		1e9: never, 251e9: never, 1e300: never, math.Inf(1): never,
		-1e9: -never, -251e9: -never, -1e300: -never, math.Inf(-1): -never,
	} {
		if got := seconds(s); got != want {
			t.Errorf("%g s: %s, want %s", s, got, want)
		}
	}
}

func TestADeadlineAtTheEndOfTimeIsAhead(t *testing.T) {
	t.Parallel()
	b := steps(t)
	id := b.put("pay", isReleased, `deadline = '9999-12-31 23:59:59+00'`)
	b.w.dispatch(b.ctx, b.l, []ticket{{id, 0}})
	b.is("outcome", b.outcome(id), "succeeded 1 ch_1")
	b.put("pay", isAsking, `deadline = '9999-12-31 23:59:59+00'`)
	if p := b.probe(); p.facts.expired || permit(&p.candidate, time.Now())(b.ctx) != nil {
		t.Errorf("expires %s", p.expires)
	}
	for _, when := range []string{"infinity", "-infinity"} {
		got := b.ask(`SELECT concat_ws(' ', a.answer, a.code) FROM outbox.enqueue('shop', 'pay.v1', '{"n":1}', operation_id => '1', deadline => $1::timestamptz) a`, when)
		b.is(when, got, "refused time_not_finite")
	}
}
