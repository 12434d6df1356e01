package dispatch

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/providers"
)

// probes claims what may be asked about now.
func (b *stepBundle) probes() []*probe {
	b.t.Helper()
	got, err := b.w.claimProbes(b.ctx, b.l, 10)
	b.must(err)
	return got
}

// probe claims the one outcome that may be asked about, as ask has it.
func (b *stepBundle) probe() *probe {
	b.t.Helper()
	got := b.probes()
	if len(got) != 1 {
		b.t.Fatalf("%d probes, want 1", len(got))
	}
	p := got[0]
	s := b.served("pay")
	p.revision, p.provider = s.revision, s.provider
	p.intent.Operation, p.intent.Version = "pay", 1
	p.facts.caps, p.facts.call, p.facts.window = b.says.caps, time.Second, time.Hour
	var err error
	p.request, err = b.says.Prepare(p.intent)
	b.must(err)
	return p
}

func TestWhatIsAskedAbout(t *testing.T) {
	t.Parallel()
	b := steps(t)
	for _, test := range []struct {
		claim     string
		operation string
		set       string
		paused    string
		want      int
	}{
		{"an outcome that is unknown", "pay", `next_at = next_at`, "NULL", 1},
		{"of an intent that came into doubt and was never sent", "pay", `sends = 0, account = NULL, preset = NULL, request_hash = NULL, first_sent_at = NULL`, "NULL", 1},
		{"not before its time", "pay", `next_at = clock_timestamp() + interval '1 minute'`, "NULL", 0},
		{"not while somebody asks", "pay", `phase = 'probing'`, "NULL", 0},
		{"not what nobody here serves", "foreign", `next_at = next_at`, "NULL", 0},
		{"not while the lane is paused", "pay", `next_at = next_at`, `clock_timestamp() + interval '1 minute'`, 0},
		{"but when its pause is over", "pay", `next_at = next_at`, `clock_timestamp() - interval '1 minute'`, 1},
	} {
		b.do(`UPDATE outbox.lanes SET paused_until = ` + test.paused)
		id := b.put(test.operation, isAsking, test.set)
		before := b.open(id)
		got := b.probes()
		if len(got) != test.want {
			t.Errorf("%s: %d probes, want %d", test.claim, len(got), test.want)
		}
		if again := b.probes(); len(again) != 0 {
			t.Errorf("%s: asked by two at once", test.claim)
		}
		if test.want == 0 {
			b.is(test.claim, b.open(id), before)
		} else {
			b.is(test.claim, b.open(id), "outcome_unknown probing 2 of 1")
		}
		b.do(`DELETE FROM outbox.outbox`)
	}
}

func TestAProbeKnowsWhetherTheSenderHasReported(t *testing.T) {
	t.Parallel()
	b := steps(t)
	silent := b.put("pay", isAsking)
	heard := b.put("pay", isAsking, `holder = NULL, deadline = clock_timestamp() - interval '1 minute'`)
	for _, p := range b.probes() {
		if p.facts.reported != (p.ID == heard) || p.facts.expired != (p.ID == heard) || p.Attempt != 2 || p.probes != 1 || p.sends != 1 {
			t.Errorf("%d (silent is %d): %+v", p.ID, silent, p.facts)
		}
	}
}

func TestAProbeWhoseLeaseRanOutIsAskedAgain(t *testing.T) {
	t.Parallel()
	b := steps(t)
	over, running := b.put("pay", isProbing, `next_at = clock_timestamp() - interval '1 millisecond'`), b.put("pay", isProbing)
	b.w.sweepOnce(b.ctx)
	b.is("over", b.open(over), "outcome_unknown asking 2 of 1")
	b.is("running", b.open(running), "outcome_unknown probing 2 of 1")
	if p := b.probe(); p.ID != over || p.Attempt != 3 {
		t.Errorf("asked %+v", p.ticket)
	}
}

// A resend is a sending: committed first, and by one.
func TestAResendIsClaimedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	b := steps(t)
	for _, test := range []struct{ claim, lost string }{
		{"another attempt", `attempt = attempt + 1`},
		{"in review meanwhile", `state = 'needs_review', phase = 'parked', next_at = NULL`},
		{"its probe lease ran out", `phase = 'asking'`},
	} {
		id := b.put("pay", isAsking)
		p := b.probe()
		b.do(`UPDATE outbox.outbox SET `+test.lost+` WHERE intent_id = $1`, id)
		before := b.open(id)
		if f := b.w.resend(b.ctx, p); f.verdict.event != "" || b.says.sent.Load() != 0 {
			t.Errorf("%s: %+v, %d sent", test.claim, f, b.says.sent.Load())
		}
		b.is(test.claim, b.open(id), before)
		b.is(test.claim, b.events(id), "")
		b.do(`DELETE FROM outbox.outbox`)
	}
}

func TestAResendIsNowTheUnknownAttempt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		claim, set, first string
		reported          bool
	}{
		{"sent before by somebody who has not reported", `holder = gen_random_uuid()`, "1 hour", false},
		{"sent before by somebody who has", `holder = NULL`, "1 hour", true},
		{"doubted and never sent", `sends = 0, account = NULL, preset = NULL, request_hash = NULL, first_sent_at = NULL, holder = gen_random_uuid()`, "0 hours", false},
	} {
		b := steps(t)
		id := b.put("pay", isAsking, `first_sent_at = clock_timestamp() - interval '1 hour'`, test.set)
		sends := b.ask(`SELECT sends + 1 FROM outbox.outbox WHERE intent_id = $1`, id)
		p := b.probe()
		atProvider := ""
		b.says.send = func(context.Context, providers.Request, providers.Permit) providers.Answer {
			atProvider = b.ask(`SELECT concat_ws(' ', state, phase, attempt, unknown_attempt, sends, account, preset, request_hash = $2, holder = $3,
				next_at > clock_timestamp() + interval '25 seconds', resent_at > clock_timestamp() - interval '25 seconds', date_trunc('minute', clock_timestamp() - first_sent_at) = $4::interval)
				FROM outbox.outbox WHERE intent_id = $1`, id, requestHash[:], b.w.cfg.holder, test.first)
			return accepts
		}
		f := b.w.resend(b.ctx, p)
		if f.verdict.event != outbox.ProviderAccepted || f.answer.ProviderID != "ch_1" {
			t.Errorf("%s: %+v", test.claim, f)
		}
		if p.facts.reported != test.reported {
			t.Errorf("%s: its report was taken for that of whoever sent before", test.claim)
		}
		b.is(test.claim, atProvider, "outcome_unknown probing 2 2 "+sends+" acct_1 preset_1 t t t t t")
		b.is(test.claim, b.events(id), "2 resent")
	}
}

// The permit is asked immediately before the first byte, and refuses what has become
// unsafe since the resend was decided.
func TestAResendIsSafeWhenItIsWritten(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		claim  string
		change func(p *probe)
		want   error
	}{
		{"in time", func(*probe) {}, nil},
		{"the provider may have forgotten the key", func(p *probe) { p.facts.sinceFirst = safeReplay(p.facts.caps, p.facts.call) }, errReplayOver},
		{"it was claimed long ago", func(p *probe) { p.asked = p.asked.Add(-24 * time.Hour) }, errReplayOver},
		{"the intent's deadline has passed", func(p *probe) { p.expires = time.Now().Add(-time.Millisecond) }, errDeadlineOver},
	} {
		b := steps(t)
		b.put("pay", isAsking)
		p := b.probe()
		test.change(p)
		var got error
		b.says.send = func(ctx context.Context, _ providers.Request, permit providers.Permit) providers.Answer {
			got = permit(ctx)
			return notSent
		}
		b.w.resend(b.ctx, p)
		if !errors.Is(got, test.want) {
			t.Errorf("%s: %v, want %v", test.claim, got, test.want)
		}
	}
}

func TestWhatWouldBeAnotherRequestIsLookedUpAndNotResent(t *testing.T) {
	t.Parallel()
	b := steps(t)
	b.says.caps.Lookup = true
	for _, set := range []string{`preset = 'preset_0'`, `request_hash = sha256('another')`} {
		id := b.put("pay", isAsking, set)
		p := b.probe()
		before := b.open(id)
		looked := b.says.looked.Load()
		if f := b.w.question(b.ctx, p, p.facts.ask()); f.verdict.event != outbox.Probed || b.says.looked.Load() != looked+1 {
			t.Errorf("%s: %+v, looked up %d times", set, f, b.says.looked.Load()-looked)
		}
		b.is(set, b.open(id), before)
		b.is(set, b.events(id), "")
		b.do(`DELETE FROM outbox.outbox`)
	}
	// And another account cannot even tell.
	b.put("pay", isAsking, `account = 'acct_0'`)
	p := b.probe()
	if f := b.w.question(b.ctx, p, p.facts.ask()); f.verdict.event != outbox.NotProven || b.says.looked.Load() != 2 {
		t.Errorf("%+v, looked up %d times", f, b.says.looked.Load())
	}
	if n := b.says.sent.Load(); n != 0 {
		t.Errorf("%d sent", n)
	}
}

// A refusal of a resend, as of any other request, says what it says about the attempt in
// question by what the provider promises, and not by what it looks like.
func TestOnlyTheProvidersMemoryAnswersForAnEarlierAttempt(t *testing.T) {
	t.Parallel()
	for replay, want := range map[providers.Replay]outbox.Event{
		providers.ReplayAllAfterStart: outbox.ProviderRefused, providers.ReplaySuccessOnly: outbox.Probed,
	} {
		b := steps(t)
		b.says.caps.Replay = replay
		b.put("pay", isAsking)
		p := b.probe()
		b.says.send = func(context.Context, providers.Request, providers.Permit) providers.Answer { return refuses }
		if f := b.w.resend(b.ctx, p); f.verdict.event != want {
			t.Errorf("%s: %s, want %s", replay, f.verdict.event, want)
		}
	}
}

// The whole way, with a worker that lost its lease while it resent: its success counts.
func TestALostResendsSuccessIsTheOutcome(t *testing.T) {
	t.Parallel()
	b := steps(t)
	id := b.put("pay", isAsking)
	b.says.send = func(context.Context, providers.Request, providers.Permit) providers.Answer {
		b.do(`UPDATE outbox.outbox SET next_at = clock_timestamp() WHERE intent_id = $1 AND phase = 'probing'`, id)
		b.w.sweepOnce(b.ctx)
		b.is("meanwhile", b.open(id), "outcome_unknown asking 2 of 2")
		return accepts
	}
	b.w.ask(b.ctx, b.l, b.probe())
	b.is("row", b.open(id), "")
	b.is("outcome", b.outcome(id), "succeeded 2 ch_1")
	b.is("history", b.events(id), "2 resent, 2 provider_accepted")
}
