package dispatch

import (
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/outbox/catalog"
	"github.com/outbox-worker/outbox-worker/providers"
)

// The policy, row by row: what is asked, by what the provider promises and when.
func TestPolicy(t *testing.T) {
	day := providers.Capabilities{KeyMemory: 24 * time.Hour, Replay: providers.ReplayAllAfterStart}
	brief := providers.Capabilities{KeyMemory: 2 * time.Second, Replay: providers.ReplayAllAfterStart}
	lookup := providers.Capabilities{Lookup: true}
	both := providers.Capabilities{KeyMemory: 24 * time.Hour, Replay: providers.ReplayAllAfterStart, Lookup: true}
	for _, test := range []struct {
		claim string
		facts unknownFacts
		want  question
	}{
		{"who can be asked is asked", unknownFacts{caps: lookup}, askLookup},
		{"rather than sent to again", unknownFacts{caps: both}, askLookup},
		{"also after its memory of keys is over", unknownFacts{caps: both, sinceFirst: 30 * time.Hour}, askLookup},
		{"also after the deadline of the intent", unknownFacts{caps: lookup, expired: true}, askLookup},
		{"a remembered key is sent again", unknownFacts{caps: day, sinceFirst: time.Hour}, askResend},
		{"until a margin before it is forgotten", unknownFacts{caps: day, sinceFirst: 21*time.Hour + 36*time.Minute - time.Second}, askResend},
		{"and not after", unknownFacts{caps: day, sinceFirst: 21*time.Hour + 36*time.Minute}, askNobody},
		{"nor after the deadline of the intent", unknownFacts{caps: day, expired: true}, askNobody},
		{"a memory shorter than a call and its margin is none", unknownFacts{caps: brief}, askNobody},
		{"neither", unknownFacts{attemptsLeft: true}, askNobody},
		{"neither, and rather never than twice", unknownFacts{choice: catalog.AtMostOnce, attemptsLeft: true}, askNobody},
		{"neither, and rather twice than never", unknownFacts{choice: catalog.AtLeastOnce, attemptsLeft: true}, askResend},
		{"but not for ever", unknownFacts{choice: catalog.AtLeastOnce}, askNobody},
		{"nor after the deadline", unknownFacts{choice: catalog.AtLeastOnce, attemptsLeft: true, expired: true}, askNobody},
		{"the choice means nothing where the provider promises more", unknownFacts{caps: day, sinceFirst: 30 * time.Hour, choice: catalog.AtLeastOnce, attemptsLeft: true}, askNobody},
	} {
		test.facts.call = 10 * time.Second
		if got := test.facts.ask(); got != test.want {
			t.Errorf("%s: %s, want %s", test.claim, got, test.want)
		}
	}
}

// Absence is a proof after the lag, where the provider says so, once the sender has
// reported; and while the key is remembered there is something better to ask.
func TestWhenAbsenceIsProof(t *testing.T) {
	base := unknownFacts{
		caps:         providers.Capabilities{Lookup: true, LookupLag: time.Minute, AbsenceIsProof: true},
		sinceUnknown: time.Minute, call: time.Second, reported: true,
	}
	for _, test := range []struct {
		claim  string
		change func(*unknownFacts)
		want   bool
	}{
		{"after the lag, when the sender has reported", func(*unknownFacts) {}, true},
		{"not before the lag", func(f *unknownFacts) { f.sinceUnknown-- }, false},
		{"not where the provider does not say so", func(f *unknownFacts) { f.caps.AbsenceIsProof = false }, false},
		{"not while a resend may not be visible yet", func(f *unknownFacts) { f.resent, f.sinceResent = true, time.Minute }, false},
		{"but once it must be", func(f *unknownFacts) { f.resent, f.sinceResent = true, time.Minute+time.Second }, true},
		{"not while the sender may still be about to write", func(f *unknownFacts) { f.reported = false }, false},
		{"not while the key is remembered", func(f *unknownFacts) { f.caps.KeyMemory = time.Hour }, false},
		{"but once it is forgotten", func(f *unknownFacts) { f.caps.KeyMemory, f.sinceFirst = time.Hour, time.Hour }, true},
	} {
		f := base
		test.change(&f)
		if got := f.provesAbsence(); got != test.want {
			t.Errorf("%s: %v", test.claim, got)
		}
	}
}

// A refusal of a resend is the outcome only if no straggler can succeed after it.
func TestWhenARefusalOfAResendDecides(t *testing.T) {
	settled := unknownFacts{caps: providers.Capabilities{KeyMemory: time.Hour}, sinceUnknown: time.Minute, call: time.Minute, reported: true}
	fresh, silent := settled, settled
	fresh.sinceUnknown, silent.reported = 0, false
	for _, test := range []struct {
		replay                  providers.Replay
		settled, fresh, unheard bool
	}{
		{providers.ReplayAllAfterStart, true, true, true},
		{providers.ReplayKeyWins, true, true, true},
		{providers.ReplaySuccessOnly, true, false, false},
		{providers.ReplayReexecuteFailed, true, false, false},
		{providers.ReplayCurrentState, true, false, false},
		{"", false, false, false},
	} {
		for facts, want := range map[*unknownFacts]bool{&settled: test.settled, &fresh: test.fresh, &silent: test.unheard} {
			facts.caps.Replay = test.replay
			if got := facts.refusalDecides(); got != want {
				t.Errorf("%q, %s after, reported %v: %v", test.replay, facts.sinceUnknown, facts.reported, got)
			}
		}
	}
}

func TestQuestionsComeAtTheEdgesAndCalmDown(t *testing.T) {
	f := unknownFacts{caps: providers.Capabilities{Lookup: true, LookupLag: 10 * time.Second}, window: time.Hour, sinceUnknown: 9 * time.Second}
	if got := f.askAgain(20); got > time.Second+time.Millisecond {
		t.Errorf("%s: sleeps past the provider's lag", got)
	}
	f.sinceUnknown = time.Hour - time.Second
	if got := f.askAgain(20); got > time.Second+time.Millisecond {
		t.Errorf("%s: sleeps past the window", got)
	}
	f.sinceUnknown = 20 * time.Second
	if got := f.askAgain(30); got < 3*time.Minute || got > 7*time.Minute {
		t.Errorf("%s after many questions, want about %s", got, maxAsk)
	}
	if got := f.askAgain(0); got > time.Second {
		t.Errorf("%s before the second question", got)
	}
}
