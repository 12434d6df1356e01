package dispatch

import (
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
	"github.com/outbox-worker/outbox-worker/providers"
)

// verdict is what an attempt's answer means for the ledger.
type verdict struct {
	event     outbox.Event
	state     outbox.State
	exhausted bool          // of FailedRetryable: no attempt is left, so Exhausted follows
	retryIn   time.Duration // of FailedRetryable: when to send again; of OutcomeUnknown: when to ask
}

// decide turns the provider's answer to the sends-th sending of an intent into a
// verdict. It asks the machine where the event leads, and nothing else decides.
func decide(a providers.Answer, sends int, retry catalog.Retry) verdict {
	var v verdict
	switch {
	case a.Kind == providers.KindAccepted:
		v.event = outbox.ProviderAccepted
	case a.Kind == providers.KindRefused && a.Final:
		v.event = outbox.ProviderRefused
	case a.Kind == providers.KindRefused, a.Kind == providers.KindNotSent:
		v.event = outbox.NotSent
		v.retryIn = max(a.RetryAfter, retryDelay(sends, retry))
		v.exhausted = sends >= retry.MaxAttempts
	default:
		v.event = outbox.NoAnswer
		v.retryIn = max(a.RetryAfter, firstAsk)
	}
	v.state, _ = outbox.Executing.Next(v.event)
	if v.exhausted {
		v.state, _ = v.state.Next(outbox.AttemptsUsed)
	}
	return v
}

// retryDelay is the pause after the sends-th sending: exponential, with jitter, so that
// many replicas and many intents do not come back at once.
func retryDelay(sends int, retry catalog.Retry) time.Duration {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(retry.Initial.Duration),
		backoff.WithMaxInterval(retry.Max.Duration),
		backoff.WithMultiplier(retry.Multiplier),
		backoff.WithRandomizationFactor(retry.Jitter),
		backoff.WithMaxElapsedTime(0),
	)
	delay := b.NextBackOff()
	for range sends - 1 {
		delay = b.NextBackOff()
	}
	return delay
}
