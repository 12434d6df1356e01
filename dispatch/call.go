package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/providers"
)

// Why a permit is refused.
var (
	errLeaseOver    = errors.New("the lease has run out")
	errDeadlineOver = errors.New("the intent's deadline has passed")
	errReplayOver   = errors.New("the provider may have forgotten the key")
)

// permit says whether an attempt may still write. It compares this process's clocks
// with a moment before the lease began, so that a pause of the process in between can
// only make it refuse. Wall clock and monotonic clock are both asked: one of them stands
// still while a machine sleeps, the other can be set.
func permit(c *candidate, claimAsked time.Time) providers.Permit {
	lease := c.revision.Spec.Timeouts.Lease.Duration
	return func(context.Context) error {
		now := time.Now()
		passed := max(now.Sub(claimAsked), now.Round(0).Sub(claimAsked.Round(0)))
		switch {
		case passed >= lease:
			return errLeaseOver
		case !c.expires.IsZero() && (!now.Before(c.expires) || !now.Round(0).Before(c.expires.Round(0))):
			return errDeadlineOver
		}
		return nil
	}
}

// attempt calls the provider for a claimed intent and records the answer. No
// transaction is open meanwhile.
func (w *Worker) attempt(ctx context.Context, l *lane, c *candidate, claimAsked time.Time) {
	reference := c.intent.Reference
	w.cfg.Hooks.call(w.cfg.Hooks.AfterClaim, reference)
	may := permit(c, claimAsked)
	began := time.Now()
	answer := w.send(c, func(ctx context.Context) error {
		w.cfg.Hooks.call(w.cfg.Hooks.BeforeWrite, reference)
		return may(ctx)
	})
	took := time.Since(began)
	w.freeSlots(l, 1) // a call in flight it is no more; the lane counts it until it is settled
	w.cfg.Hooks.call(w.cfg.Hooks.AfterCall, reference)

	s := settlement{
		ticket:  ticket{ID: c.ID, Attempt: c.Attempt + 1},
		verdict: decide(answer, c.sends+1, c.revision.Spec.Retry),
		answer:  answer,
		follow:  len(c.revision.Spec.FollowOns) > 0,
	}
	w.cfg.Hooks.call(w.cfg.Hooks.BeforeSettle, reference)
	current, err := w.record(context.WithoutCancel(ctx), s)
	l.kick()
	w.cfg.Hooks.call(w.cfg.Hooks.AfterSettle, reference)
	w.afterSettlement(ctx, l, s, current || err != nil)
	w.logAttempt(ctx, l, c, s, took, current, err)
}

// afterSettlement tells the loops that go on from here, and follows up what came late.
func (w *Worker) afterSettlement(ctx context.Context, l *lane, s settlement, current bool) {
	switch {
	case !current:
		w.contradict(context.WithoutCancel(ctx), s)
	case s.follow && s.verdict.state == outbox.Succeeded:
		signal(w.succeeded)
	case s.verdict.state == outbox.OutcomeUnknown:
		signal(l.unknown)
	case s.verdict.state == outbox.FailedRetryable:
		time.AfterFunc(s.verdict.retryIn, l.wake) // on time, though the lane be idle by then
	}
	if s.answer.Throttled {
		w.pauseLane(context.WithoutCancel(ctx), l, s.answer)
	}
}

// send performs the call under its deadline. A provider that panics may have sent.
func (w *Worker) send(c *candidate, may providers.Permit) (answer providers.Answer) {
	defer func() {
		if p := recover(); p != nil {
			answer = providers.Unknown("provider_panic", fmt.Sprint(p))
		}
	}()
	ctx, cancel := context.WithTimeout(w.calls, c.revision.Spec.Timeouts.Call.Duration)
	defer cancel()
	return c.provider.Send(ctx, c.request, may)
}

// logAttempt writes the one line of an attempt; never the payload, never the result.
func (w *Worker) logAttempt(ctx context.Context, l *lane, c *candidate, s settlement, took time.Duration, current bool, err error) {
	level, message := slog.LevelInfo, "attempt"
	if s.probe {
		message = "probe"
	}
	switch {
	case err != nil:
		level, message = slog.LevelError, message+" whose outcome could not be recorded; its lease decides"
	case !current:
		level, message = slog.LevelWarn, message+" that came too late; kept as evidence"
	case s.answer.Alert:
		level = slog.LevelError
	case s.verdict.state == outbox.NeedsReview:
		level = slog.LevelError
	case s.verdict.state != outbox.Succeeded:
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{
		slog.String("reference", c.intent.Reference), slog.String("operation", c.revision.Operation), slog.String("lane", l.name),
		slog.String("tenant", c.intent.Tenant), slog.Int("attempt", s.Attempt), slog.String("state", string(s.verdict.state)),
		slog.Duration("took", took),
	}
	for _, a := range []slog.Attr{
		slog.String("provider_id", s.answer.ProviderID), slog.String("code", s.answer.Code), slog.String("reason", s.answer.Reason),
		slog.String("trace", c.trace),
	} {
		if a.Value.String() != "" {
			attrs = append(attrs, a)
		}
	}
	if s.verdict.retryIn > 0 && !s.verdict.exhausted {
		attrs = append(attrs, slog.Duration("again_in", s.verdict.retryIn))
	}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	w.log.LogAttrs(ctx, level, message, attrs...)
}

// defaultPause is for a provider that asks to slow down and does not say for how long.
const defaultPause = 5 * time.Second

// pauseLaneSQL pauses the lane for everybody, once: the longest wish counts.
const pauseLaneSQL = `-- name: pause_lane
WITH paused AS (
	UPDATE outbox.lanes
	SET paused_until = clock_timestamp() + make_interval(secs => $2), pause_reason = $3, paused_by = $4
	WHERE id = $1 AND (paused_until IS NULL OR paused_until < clock_timestamp() + make_interval(secs => $2))
	RETURNING 1
)
SELECT count(*) FROM paused`

func (w *Worker) pauseLane(ctx context.Context, l *lane, a providers.Answer) {
	wait := a.RetryAfter
	if wait <= 0 {
		wait = defaultPause
	}
	n, err := count(ctx, w.cfg.Pool, pauseLaneSQL, l.id, wait.Seconds(), "the provider asked to slow down: "+a.Code, w.cfg.Name)
	switch {
	case err != nil:
		w.log.WarnContext(ctx, "could not pause the lane", "lane", l.name, "error", err)
	case n > 0:
		w.log.WarnContext(ctx, "lane paused", "lane", l.name, "for", wait, "code", a.Code)
	}
}

func (h Hooks) call(hook func(string), reference string) {
	if hook != nil {
		hook(reference)
	}
}

func (h Hooks) beforeClaim(candidates []*candidate) {
	if h.BeforeClaim == nil {
		return
	}
	references := make([]string, len(candidates))
	for i, c := range candidates {
		references[i] = c.intent.Reference
	}
	h.BeforeClaim(references)
}
