package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/providers"
)

// claimProbesSQL takes unknown outcomes whose time to ask has come. A probe is an
// attempt: numbered, leased and fenced, so that two replicas never ask at once.
const claimProbesSQL = `-- name: claim_probes
WITH held AS (
	SELECT o.intent_id FROM outbox.outbox o JOIN outbox.lanes l ON l.id = o.lane
	WHERE o.lane = $1 AND (o.phase = 'due') IS FALSE AND o.phase = 'asking' AND o.next_at <= (SELECT clock_timestamp()) AND o.catalog_id = ANY ($2::int[])
		AND (l.paused_until IS NULL OR l.paused_until <= clock_timestamp())
	ORDER BY o.next_at LIMIT $3 FOR UPDATE OF o SKIP LOCKED
), claimed AS (
	UPDATE outbox.outbox o
	SET phase = 'probing', attempt = o.attempt + 1, probes = o.probes + 1, next_at = clock_timestamp() + make_interval(secs => $4)
	FROM held h WHERE o.intent_id = h.intent_id
	RETURNING o.*
)
SELECT c.intent_id, c.attempt, c.sends, c.probes, c.catalog_id, c.account, c.preset, c.request_hash,
	extract(epoch FROM clock_timestamp() - coalesce(c.first_sent_at, i.created_at))::float8,
	extract(epoch FROM clock_timestamp() - c.unknown_since)::float8,
	extract(epoch FROM clock_timestamp() - c.resent_at)::float8,
	extract(epoch FROM c.deadline - clock_timestamp())::float8, c.holder IS NULL,
	i.reference, coalesce(p.reference, ''), i.tenant, coalesce(i.subject, ''), coalesce(i.trace, ''), i.payload::text
FROM claimed c
JOIN outbox.intents i ON i.id = c.intent_id
LEFT JOIN outbox.intents p ON p.id = i.parent_id`

// probe is an unknown outcome that this worker asks about, under a lease.
type probe struct {
	candidate
	probes int
	facts  unknownFacts
	asked  time.Time // before the lease began, on this process's clock
}

// probeLease bounds a probe. It covers a lookup or a resend and the settlement.
func probeLease(served []service) time.Duration {
	lease := time.Duration(0)
	for _, s := range served {
		lease = max(lease, s.revision.Spec.Timeouts.Lease.Duration)
	}
	return lease
}

// reconcile runs until ctx ends: it asks what became of the lane's unknown outcomes. It
// has slots of its own, beside those for sending, so that a backlog of either kind
// cannot hold up the other.
func (w *Worker) reconcile(ctx context.Context, l *lane) {
	for ctx.Err() == nil {
		n := l.probes.take(ctx, maxJob)
		probes, err := w.claimProbes(ctx, l, n)
		l.probes.give(n - len(probes))
		for _, p := range probes {
			w.probing.Go(func() {
				defer l.probes.give(1)
				w.ask(context.WithoutCancel(ctx), l, p)
			})
		}
		switch {
		case err != nil && ctx.Err() == nil:
			w.log.ErrorContext(ctx, "could not look for unknown outcomes", "lane", l.name, "error", err)
			l.sleep(ctx, errorPause, nil)
		case len(probes) == 0:
			l.sleep(ctx, w.cfg.IdlePoll, l.unknown)
		}
	}
}

func (w *Worker) claimProbes(ctx context.Context, l *lane, limit int) ([]*probe, error) {
	served := w.servedOf(l.id)
	if limit == 0 || len(served) == 0 {
		return nil, nil
	}
	ids := make([]int32, len(served))
	for i, s := range served {
		ids[i] = s.revision.ID
	}
	asked := time.Now()
	got, err := collect(ctx, w.cfg.Pool, claimProbesSQL, func(row pgx.CollectableRow) (*probe, error) {
		return scanProbe(row, asked)
	}, l.id, ids, limit, probeLease(served).Seconds())
	if err != nil {
		return nil, fmt.Errorf("claim probes: %w", err)
	}
	return got, nil
}

func scanProbe(row pgx.CollectableRow, asked time.Time) (*probe, error) {
	p := probe{asked: asked}
	var sinceFirst, sinceUnknown float64
	var sinceResent, left *float64
	var payload string
	err := row.Scan(&p.ID, &p.Attempt, &p.sends, &p.probes, &p.catalogID, &p.pins.account, &p.pins.preset, &p.pins.hash,
		&sinceFirst, &sinceUnknown, &sinceResent, &left, &p.facts.reported,
		&p.intent.Reference, &p.intent.Parent, &p.intent.Tenant, &p.intent.Subject, &p.trace, &payload)
	p.state, p.intent.Payload = outbox.OutcomeUnknown, json.RawMessage(payload)
	p.facts.sinceFirst, p.facts.sinceUnknown = seconds(sinceFirst), seconds(sinceUnknown)
	if sinceResent != nil {
		p.facts.resent, p.facts.sinceResent = true, seconds(*sinceResent)
	}
	if left != nil {
		p.expires, p.facts.expired = asked.Add(seconds(*left)), *left <= 0
	}
	return &p, err
}

// ask asks once, by lookup or by a resend, and records what was learnt.
func (w *Worker) ask(ctx context.Context, l *lane, p *probe) {
	defer func() {
		if v := recover(); v != nil {
			// The lease ends, and it is asked again.
			w.log.ErrorContext(ctx, "could not ask: panic", "reference", p.intent.Reference, "panic", v)
		}
	}()
	served, ok := w.served(ctx, p.catalogID)
	if !ok {
		return // the lease ends, and a worker that serves it asks
	}
	p.revision, p.provider = served.revision, served.provider
	spec := p.revision.Spec
	p.intent.Operation, p.intent.Version = spec.Name, spec.Version
	f := &p.facts
	f.caps, f.choice, f.call, f.window = served.capabilities, spec.Unknown, spec.Timeouts.Call.Duration, spec.Timeouts.Reconcile.Duration
	f.attemptsLeft = p.sends < spec.Retry.MaxAttempts

	found := w.question(ctx, p, f.ask())
	if found.verdict.event == outbox.Probed && f.over() {
		found = finding{verdict: verdict{event: outbox.NotProven}, reason: f.why() + "; last: " + found.reason}
	}
	w.learn(ctx, l, p, found)
}

// finding is what a probe learnt.
type finding struct {
	verdict verdict
	answer  providers.Answer
	reason  string
}

func probed(reason string) finding {
	return finding{verdict: verdict{event: outbox.Probed}, reason: reason}
}

func (w *Worker) question(ctx context.Context, p *probe, q question) finding {
	if q == askNobody {
		return finding{verdict: verdict{event: outbox.NotProven}, reason: p.facts.why()}
	}
	if p.pins.account != nil && *p.pins.account != p.provider.Account() {
		return finding{
			verdict: verdict{event: outbox.NotProven},
			reason:  fmt.Sprintf("it was sent from account %q, and %q cannot tell", *p.pins.account, p.provider.Account()),
		}
	}
	var err error
	if p.request, err = p.provider.Prepare(p.intent); err != nil {
		return probed("the request cannot be rendered now: " + err.Error())
	}
	switch q {
	case askLookup:
		return w.lookUp(ctx, p)
	case askResend:
		return w.resend(ctx, p)
	default:
		return probed("no such question: " + string(q))
	}
}

// lookUp asks the provider by reference.
func (w *Worker) lookUp(ctx context.Context, p *probe) finding {
	looker, ok := p.provider.(providers.Looker)
	if !ok {
		return finding{verdict: verdict{event: outbox.NotProven}, reason: "the provider declares a lookup and has none"}
	}
	f := w.callLooker(looker, p)
	reason := joined("lookup: "+string(f.Kind), f.Code, f.Reason)
	switch {
	case f.Kind == providers.Found && f.Answer.Kind == providers.KindAccepted:
		return finding{verdict: verdict{event: outbox.LookupFound}, answer: f.Answer, reason: reason}
	case f.Kind == providers.Found && f.Answer.Kind == providers.KindRefused:
		return finding{verdict: verdict{event: outbox.LookupFoundRefused}, answer: f.Answer, reason: reason}
	case f.Kind == providers.Differs:
		return finding{verdict: verdict{event: outbox.Contradicted}, answer: providers.Answer{Alert: true}, reason: reason}
	case f.Kind == providers.Absent && p.facts.provesAbsence():
		return p.absent(reason)
	case f.Kind == providers.Absent && p.facts.remembered() && p.facts.sinceUnknown >= p.facts.caps.LookupLag:
		// The provider knows the key if it knows the request: its answer tells.
		return w.resend(ctx, p)
	default:
		return probed(reason)
	}
}

// absent is a proof that the unknown attempt was not executed.
func (p *probe) absent(reason string) finding {
	retry := p.revision.Spec.Retry
	return finding{
		verdict: verdict{event: outbox.ProvenAbsent, exhausted: p.sends >= retry.MaxAttempts, retryIn: retryDelay(max(p.sends, 1), retry)},
		reason:  reason,
	}
}

func (w *Worker) callLooker(looker providers.Looker, p *probe) (f providers.Finding) {
	defer func() {
		if v := recover(); v != nil {
			f = providers.Finding{Kind: providers.NotLooked, Code: "provider_panic", Reason: fmt.Sprint(v)}
		}
	}()
	ctx, cancel := context.WithTimeout(w.calls, p.facts.call)
	defer cancel()
	return looker.Lookup(ctx, p.request)
}

// claimResendSQL makes a probe a sending, committed before any byte leaves: from now on
// it is this attempt whose outcome is unknown.
const claimResendSQL = `-- name: claim_resend
WITH claimed AS (
	UPDATE outbox.outbox o
	SET sends = sends + 1, unknown_attempt = attempt, holder = $3, next_at = clock_timestamp() + make_interval(secs => $4),
		first_sent_at = coalesce(first_sent_at, clock_timestamp()), resent_at = clock_timestamp(),
		account = coalesce(account, $6), preset = coalesce(preset, $7), request_hash = coalesce(request_hash, $8)
	WHERE intent_id = $1 AND attempt = $2 AND state = 'outcome_unknown' AND phase = 'probing'
	RETURNING intent_id, attempt
), noted AS (
	INSERT INTO outbox.history (intent_id, attempt, from_state, to_state, event, actor)
	SELECT intent_id, attempt, 'outcome_unknown', 'outcome_unknown', 'resent', $5 FROM claimed
)
SELECT count(*) FROM claimed`

// resend sends the same request under the same key: the provider's saved answer tells
// what became of it. What does not come from the provider's memory of the key (a refused
// dial, a 401, a 429) says nothing about the attempt in question, and changes nothing.
func (w *Worker) resend(ctx context.Context, p *probe) finding {
	if why, ok := p.pins.allow(p.provider.Account(), p.facts.caps.Preset, p.request.Hash[:]); !ok {
		// Perhaps an older version of the worker still can; the key's memory bounds the wait.
		return probed("not resent under other pins: " + why)
	}
	w.cfg.Hooks.call(w.cfg.Hooks.BeforeResend, p.intent.Reference)
	asked := time.Now()
	lease := p.revision.Spec.Timeouts.Lease.Duration
	n, err := count(ctx, w.cfg.Pool, claimResendSQL, p.ID, p.Attempt, w.cfg.holder, lease.Seconds(), w.cfg.Name,
		p.provider.Account(), p.facts.caps.Preset, p.request.Hash[:])
	if err != nil || n == 0 {
		// Nothing is sent. If the claim committed all the same, the lease runs out.
		w.log.WarnContext(ctx, "could not claim a resend", "reference", p.intent.Reference, "error", err)
		return finding{}
	}
	may := permit(&p.candidate, asked)
	safe := p.asked.Add(safeReplay(p.facts.caps, p.facts.call) - p.facts.sinceFirst)
	a := w.send(&p.candidate, func(ctx context.Context) error {
		if p.facts.caps.KeyMemory > 0 && !time.Now().Before(safe) {
			return errReplayOver
		}
		return may(ctx)
	})
	// What is known of the attempts in question stays as it was: that this one reports says
	// nothing about a worker that never did.
	decides := p.facts.refusalDecides()
	reason := joined("resend: "+string(a.Kind), a.Code, a.Reason)
	switch {
	case a.Kind == providers.KindAccepted:
		return finding{verdict: verdict{event: outbox.ProviderAccepted}, answer: a, reason: reason}
	case a.Kind == providers.KindRefused && a.Final && decides:
		return finding{verdict: verdict{event: outbox.ProviderRefused}, answer: a, reason: reason}
	default:
		found := probed(reason)
		found.answer = providers.Answer{Alert: a.Alert, Throttled: a.Throttled, RetryAfter: a.RetryAfter, Code: a.Code}
		return found
	}
}

// learn records what a probe brought.
func (w *Worker) learn(ctx context.Context, l *lane, p *probe, f finding) {
	if f.verdict.event == "" {
		return
	}
	v := f.verdict
	v.state, _ = outbox.OutcomeUnknown.Next(v.event)
	switch {
	case v.event == outbox.Probed:
		v.state, v.retryIn = outbox.OutcomeUnknown, max(p.facts.askAgain(p.probes), f.answer.RetryAfter)
	case v.exhausted:
		v.state, _ = v.state.Next(outbox.AttemptsUsed)
	}
	f.answer.Reason = f.reason
	s := settlement{
		ticket: p.ticket, verdict: v, answer: f.answer, probe: true, reported: p.facts.reported,
		follow: len(p.revision.Spec.FollowOns) > 0,
	}
	current, err := w.record(ctx, s)
	w.afterSettlement(ctx, l, s, current || err != nil)
	w.logAttempt(ctx, l, &p.candidate, s, time.Since(p.asked), current, err)
}

// joined puts a reason together from its parts.
func joined(parts ...string) (text string) {
	for _, p := range parts {
		if p == "" {
			continue
		}
		if text != "" {
			text += ": "
		}
		text += p
	}
	return text
}
