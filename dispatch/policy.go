package dispatch

import (
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/outbox-worker/outbox-worker/outbox/catalog"
	"github.com/outbox-worker/outbox-worker/providers"
)

// question is what may be done to learn what became of an attempt.
type question string

const (
	askLookup question = "look_up" // ask the provider by reference: no effect
	askResend question = "resend"  // the same request under the same key: its saved answer tells
	askNobody question = "review"  // nothing is left to ask: a person decides
)

// unknownFacts are what the policy decides by. Durations are by the database's clock.
type unknownFacts struct {
	caps         providers.Capabilities
	choice       catalog.OnUnknown
	call         time.Duration // the operation's call timeout
	window       time.Duration // in which an outcome may stay unknown
	sinceFirst   time.Duration // since the first attempt was claimed
	sinceUnknown time.Duration
	resent       bool          // it was sent again to learn the outcome …
	sinceResent  time.Duration // … so long ago
	expired      bool          // the intent's deadline has passed: nothing may be sent
	reported     bool          // every worker that sent has reported: no straggler is left here
	attemptsLeft bool
}

// policy is what to ask, by what the provider promises. The first row that fits counts.
//
//	lookup by reference                          look up
//	key remembered, safe-replay deadline ahead   resend
//	neither, and at_least_once declared          resend, while attempts are left
//	neither                                      review
var policy = []struct {
	fits func(unknownFacts) bool
	ask  question
}{
	{func(f unknownFacts) bool { return f.caps.Lookup }, askLookup},
	{unknownFacts.remembered, askResend},
	{unknownFacts.mayRepeat, askResend},
	{func(unknownFacts) bool { return true }, askNobody},
}

// ask says what to do about an unknown outcome, and why.
func (f unknownFacts) ask() question {
	for _, row := range policy {
		if row.fits(f) {
			return row.ask
		}
	}
	return askNobody
}

// safeReplay is how long after the first attempt the same request may be sent again: for
// as long as the provider remembers its key, less a margin in which our request could
// still be on its way.
func safeReplay(caps providers.Capabilities, call time.Duration) time.Duration {
	return caps.KeyMemory - max(caps.KeyMemory/10, call+LeaseMargin)
}

// remembered reports whether the provider still knows the key, so that neither a resend
// nor a straggler can be a second effect.
func (f unknownFacts) remembered() bool {
	return !f.expired && f.caps.KeyMemory > 0 && f.sinceFirst < safeReplay(f.caps, f.call)
}

// mayRepeat reports whether the catalog prefers twice to never. Only where the provider
// offers nothing better; elsewhere the choice means nothing.
func (f unknownFacts) mayRepeat() bool {
	return !f.expired && f.caps.KeyMemory == 0 && !f.caps.Lookup && f.choice == catalog.AtLeastOnce && f.attemptsLeft
}

// provesAbsence reports whether "not found" proves that nothing happened and nothing
// will: after the provider's lag, where it says so, and only if the attempt's worker has
// reported. A worker that has not may still be about to write.
//
// A key that the provider remembers makes a straggler harmless, but no proof: an intent
// that is then given up (cancelled, exhausted) would be said not to have happened, and
// the straggler would make that a lie. So as long as the key is remembered, the provider
// is sent the request again, and its own answer decides.
func (f unknownFacts) provesAbsence() bool {
	return f.caps.AbsenceIsProof && f.settledDown() && !f.remembered()
}

// settledDown reports whether the attempt is over, for all that can be known: whoever
// sent has reported, and the provider has had the time that it may take, also for what
// was sent again.
func (f unknownFacts) settledDown() bool {
	return f.reported && f.sinceUnknown >= f.caps.LookupLag && (!f.resent || f.sinceResent >= f.call+f.caps.LookupLag)
}

// refusalDecides reports whether a final refusal of a resend is the outcome: where the
// provider saves refusals under the key, or where no straggler can succeed after it.
func (f unknownFacts) refusalDecides() bool {
	switch f.caps.Replay {
	case providers.ReplayAllAfterStart, providers.ReplayKeyWins:
		return true
	case "":
		return false // it has no memory: a refusal is about this request alone
	default:
		return f.settledDown() && f.sinceUnknown >= f.call
	}
}

// over reports whether the time in which an outcome may stay unknown has passed.
func (f unknownFacts) over() bool { return f.sinceUnknown >= f.window }

// why tells a reviewer what could not be done.
func (f unknownFacts) why() string {
	switch {
	case f.over() && f.caps.Lookup:
		return fmt.Sprintf("looked up for %s and neither found nor proven absent", f.window)
	case f.over():
		return fmt.Sprintf("asked for %s without an answer that decides", f.window)
	case f.caps.KeyMemory > 0 && f.expired:
		return "the intent's deadline has passed, so its request may not be sent again, and the provider cannot be asked"
	case f.caps.KeyMemory > 0:
		return fmt.Sprintf("the provider remembers keys for %s, which is over, and cannot be asked", f.caps.KeyMemory)
	default:
		return "the provider neither remembers keys nor can be asked"
	}
}

// Pauses between questions about one outcome.
const (
	firstAsk = 100 * time.Millisecond
	maxAsk   = 5 * time.Minute
)

// askAgain is the pause after the probes-th question: exponential with jitter, but never
// past the provider's lag or the end of the window, when the answer may be another.
func (f unknownFacts) askAgain(probes int) time.Duration {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstAsk), backoff.WithMaxInterval(maxAsk), backoff.WithMultiplier(2),
		backoff.WithRandomizationFactor(0.3), backoff.WithMaxElapsedTime(0),
	)
	pause := b.NextBackOff()
	for range min(probes, 30) {
		pause = b.NextBackOff()
	}
	for _, edge := range []time.Duration{f.caps.LookupLag, f.window} {
		if left := edge - f.sinceUnknown; left > 0 {
			pause = min(pause, left+time.Millisecond)
		}
	}
	return pause
}
