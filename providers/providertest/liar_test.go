package providertest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/providertest"
)

// lie is an adapter that does one thing wrong, around one that does not.
type lie struct {
	providers.Provider
	prepare func(p providers.Provider, in providers.Intent) (providers.Request, error)
	send    func(ctx context.Context, p providers.Provider, r providers.Request, permit providers.Permit) providers.Answer
	lookup  func(ctx context.Context, p providers.Provider, r providers.Request) providers.Finding
	serves  func(c providers.Capabilities) providers.Capabilities
	account func() string
}

func (l lie) Account() string {
	if l.account != nil {
		return l.account()
	}
	return l.Provider.Account()
}

func (l lie) Prepare(in providers.Intent) (providers.Request, error) {
	if l.prepare != nil {
		return l.prepare(l.Provider, in)
	}
	return l.Provider.Prepare(in)
}

func (l lie) Send(ctx context.Context, r providers.Request, permit providers.Permit) providers.Answer {
	if l.send != nil {
		return l.send(ctx, l.Provider, r, permit)
	}
	return l.Provider.Send(ctx, r, permit)
}

func (l lie) Lookup(ctx context.Context, r providers.Request) providers.Finding {
	if l.lookup != nil {
		return l.lookup(ctx, l.Provider, r)
	}
	return l.Provider.(providers.Looker).Lookup(ctx, r)
}

func (l lie) Serves(operation string, version int) (providers.Capabilities, bool) {
	c, ok := l.Provider.Serves(operation, version)
	if ok && l.serves != nil {
		c = l.serves(c)
	}
	return c, ok
}

// says changes what an honest adapter answers.
func says(change func(a *providers.Answer)) lie {
	return lie{send: func(ctx context.Context, p providers.Provider, r providers.Request, permit providers.Permit) providers.Answer {
		a := p.Send(ctx, r, permit)
		change(&a)
		return a
	}}
}

// finds changes what an honest adapter finds.
func finds(change func(f *providers.Finding)) lie {
	return lie{lookup: func(ctx context.Context, p providers.Provider, r providers.Request) providers.Finding {
		f := p.(providers.Looker).Lookup(ctx, r)
		change(&f)
		return f
	}}
}

func yes(context.Context) error { return nil }

// Each lie is one that real adapters told. caught names claims that have to fail.
var lies = map[string]struct {
	lie
	caught []string
}{
	"calls a lost answer not sent": {
		says(func(a *providers.Answer) {
			if a.Kind == providers.KindUnknown {
				*a = providers.NotSent("connection_lost", "surely it was not sent", 0)
			}
		}),
		[]string{"a connection lost after the effect is unknown", "a Send whose context is cancelled returns, and the outcome is unknown"},
	},
	"calls a lost answer refused": {
		says(func(a *providers.Answer) {
			if a.Kind == providers.KindUnknown {
				*a = providers.Refused("http_500", "surely it failed", true)
			}
		}),
		[]string{"an internal error after the effect is unknown", "an effect that happens after we hung up was not denied"},
	},
	"calls a lost request not sent": {
		says(func(a *providers.Answer) {
			if a.Code == "connection_lost" {
				a.Kind = providers.KindNotSent
			}
		}),
		[]string{"a connection lost before the effect is unknown"},
	},
	"calls everything accepted": {
		says(func(a *providers.Answer) { *a = providers.Accepted("ch_1", nil) }),
		[]string{"a refusal for good is final, has the provider's code, and nothing happened", "when nobody listens, nothing was sent"},
	},
	"calls nothing certain": {
		says(func(a *providers.Answer) { *a = providers.Unknown("unknown", "who knows") }),
		[]string{"success is accepted, with the provider's id, and happens once", "when nobody listens, nothing was sent"},
	},
	"sends twice under one key": {
		lie{send: func(ctx context.Context, p providers.Provider, r providers.Request, permit providers.Permit) providers.Answer {
			_ = p.Send(ctx, r, permit)
			return p.Send(ctx, r, yes)
		}},
		[]string{"success is accepted, with the provider's id, and happens once", "a connection lost before the effect is unknown"},
	},
	"sends again under a new key when the answer is lost": {
		lie{send: func(ctx context.Context, p providers.Provider, r providers.Request, permit providers.Permit) providers.Answer {
			a := p.Send(ctx, r, permit)
			if a.Kind == providers.KindUnknown {
				in := r.Intent
				in.Reference = providers.StepKey(in.Reference, "again")
				if again, err := p.Prepare(in); err == nil {
					return p.Send(ctx, again, yes)
				}
			}
			return a
		}},
		[]string{"a connection lost before the effect is unknown"},
	},
	"ignores the permit": {
		lie{send: func(ctx context.Context, p providers.Provider, r providers.Request, _ providers.Permit) providers.Answer {
			return p.Send(ctx, r, yes)
		}},
		[]string{"without a permit nothing is sent", "the permit is asked for once, before anything has arrived"},
	},
	"asks for the permit afterwards": {
		lie{send: func(ctx context.Context, p providers.Provider, r providers.Request, permit providers.Permit) providers.Answer {
			a := p.Send(ctx, r, yes)
			if err := permit(ctx); err != nil {
				return providers.NotSent("not_permitted", err.Error(), 0)
			}
			return a
		}},
		[]string{"without a permit nothing is sent", "the permit is asked for once, before anything has arrived"},
	},
	"honours the permit on new connections only": {
		remembers(nil, func(sends int, permit providers.Permit) providers.Permit {
			if sends > 0 {
				return yes
			}
			return permit
		}),
		[]string{"without a permit nothing is sent on a connection that is open already"},
	},
	"hides why the permit was denied": {
		says(func(a *providers.Answer) {
			if a.Code == "not_permitted" {
				a.Reason = "no"
			}
		}),
		[]string{"without a permit nothing is sent"},
	},
	"ignores its context": {
		lie{send: func(ctx context.Context, p providers.Provider, r providers.Request, permit providers.Permit) providers.Answer {
			own, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
			defer cancel()
			return p.Send(own, r, permit)
		}},
		[]string{"a Send whose context is cancelled returns, and the outcome is unknown", "a Send returns when its deadline passes", "a context that is over sends nothing"},
	},
	"renders another request each time": {
		lie{prepare: func(p providers.Provider, in providers.Intent) (providers.Request, error) {
			r, err := p.Prepare(in)
			_, _ = rand.Read(r.Hash[:])
			return r, err
		}},
		[]string{"Prepare is deterministic and does no I/O"},
	},
	"leaves the payload out of the hash": {
		lie{prepare: func(p providers.Provider, in providers.Intent) (providers.Request, error) {
			r, err := p.Prepare(in)
			r.Hash = [32]byte{1}
			return r, err
		}},
		[]string{"different requests have different hashes"},
	},
	"sends while preparing": {
		lie{prepare: func(p providers.Provider, in providers.Intent) (providers.Request, error) {
			r, err := p.Prepare(in)
			if err == nil {
				_ = p.Send(context.Background(), r, yes)
			}
			return r, err
		}},
		[]string{"Prepare is deterministic and does no I/O"},
	},
	"prepares anything": {
		lie{prepare: func(p providers.Provider, in providers.Intent) (providers.Request, error) {
			r, err := p.Prepare(in)
			if err != nil {
				return providers.Request{Intent: in}, nil
			}
			return r, nil
		}},
		[]string{"a payload that cannot be rendered is an InvalidError"},
	},
	"makes ids up": {
		says(func(a *providers.Answer) {
			if a.Kind == providers.KindAccepted {
				a.ProviderID = rand.Text()
			}
		}),
		[]string{"success is accepted, with the provider's id, and happens once", "a repeat under the same key happens once and has the same id"},
	},
	"loses ids": {
		says(func(a *providers.Answer) { a.ProviderID = "" }),
		[]string{"success is accepted, with the provider's id, and happens once"},
	},
	"repeats the payload to the logs": {
		says(func(a *providers.Answer) { a.Reason += " for Anna Kowalska" }),
		[]string{"a refusal for good is final, has the provider's code, and nothing happened"},
	},
	"forgets how long to wait": {
		says(func(a *providers.Answer) { a.RetryAfter = 0 }),
		[]string{"throttled is not sent, and says for how long the lane should pause"},
	},
	"tells nobody": {
		says(func(a *providers.Answer) { a.Alert = false }),
		[]string{"refused credentials are no fault of the intent, and somebody is told", "the same key with another body is unknown, with an alert, and never a new effect"},
	},
	"never gives up": {
		says(func(a *providers.Answer) { a.Final = false }),
		[]string{"a refusal for good is final, has the provider's code, and nothing happened"},
	},
	"takes a conflict of keys for a refusal": {
		says(func(a *providers.Answer) {
			if a.Alert && a.Kind == providers.KindUnknown {
				*a = providers.Refused(a.Code, a.Reason, true)
			}
		}),
		[]string{"the same key with another body is unknown, with an alert, and never a new effect"},
	},
	"takes silence for absence": {
		finds(func(f *providers.Finding) {
			if f.Kind == providers.NotLooked {
				*f = providers.Finding{Kind: providers.Absent}
			}
		}),
		[]string{"a provider that cannot be reached is no proof of absence", "a lookup that fails is no proof of absence", "a lookup returns when its deadline passes"},
	},
	"finds whatever it is asked for": {
		finds(func(f *providers.Finding) {
			*f = providers.Finding{Kind: providers.Found, Answer: providers.Accepted("ch_1", nil)}
		}),
		[]string{"a lookup says absent of what was not sent, and sends nothing", "an effect that is not what we asked for differs"},
	},
	"finds nothing": {
		finds(func(f *providers.Finding) { *f = providers.Finding{Kind: providers.Absent} }),
		[]string{"a lookup finds what was sent, with its id", "a lookup finds what happened when the answer was lost"},
	},
	"looks up by sending": {
		lie{lookup: func(ctx context.Context, p providers.Provider, r providers.Request) providers.Finding {
			f := p.(providers.Looker).Lookup(ctx, r)
			_ = p.Send(ctx, r, yes)
			return f
		}},
		[]string{"a lookup says absent of what was not sent, and sends nothing"},
	},
	"promises more than it can say": {
		lie{serves: func(c providers.Capabilities) providers.Capabilities { c.Replay = ""; return c }},
		[]string{"the capabilities are coherent"},
	},
	"has no preset": {
		lie{serves: func(c providers.Capabilities) providers.Capabilities { c.Preset = ""; return c }},
		[]string{"the capabilities are coherent"},
	},
	"is nobody": {
		lie{account: func() string { return "" }},
		[]string{"the account has a name that does not change"},
	},
	"is somebody else each time": {
		lie{account: rand.Text},
		[]string{"the account has a name that does not change"},
	},
	"takes a redirect's target for an answer": {
		says(func(a *providers.Answer) {
			if a.Code == "moved" {
				*a = providers.Accepted("decoy", nil)
			}
		}),
		[]string{"a redirect is not followed and not taken for an answer"},
	},
	"takes an unreadable success for a failure": {
		says(func(a *providers.Answer) {
			if a.Code == "id_missing" {
				*a = providers.Refused(a.Code, a.Reason, false)
			}
		}),
		[]string{"a success that cannot be read is not denied"},
	},
	"cries wolf": {
		says(func(a *providers.Answer) { a.Alert = true }),
		[]string{"a key that is in progress is unknown, without an alert"},
	},
	"cannot say no twice": {
		remembers(func(sends int, a providers.Answer) providers.Answer {
			if sends > 0 {
				a = providers.Unknown("unknown", "who knows")
			}
			return a
		}, nil),
		[]string{"a refusal is the same when it is asked for again"},
	},
	"resends on a connection that it has used before": {
		resends(),
		[]string{
			"a reused connection that dies is one request, lost before the effect",
			"a reused connection that dies is one request, lost after the effect",
		},
	},
	"shares state between sends": {
		crosstalk(),
		[]string{"concurrent sends of different intents do not disturb each other"},
	},
}

// remembers counts sends by account, and changes answers or permits by the count.
func remembers(answer func(sends int, a providers.Answer) providers.Answer, choose func(sends int, permit providers.Permit) providers.Permit) lie {
	var mu sync.Mutex
	sends := map[string]int{}
	return lie{send: func(ctx context.Context, p providers.Provider, r providers.Request, permit providers.Permit) providers.Answer {
		mu.Lock()
		n := sends[p.Account()]
		sends[p.Account()]++
		mu.Unlock()
		if choose != nil {
			permit = choose(n, permit)
		}
		a := p.Send(ctx, r, permit)
		if answer != nil {
			a = answer(n, a)
		}
		return a
	}}
}

// resends does what net/http does with a keyed request whose connection was used before.
func resends() lie {
	var mu sync.Mutex
	used := map[string]bool{}
	return lie{send: func(ctx context.Context, p providers.Provider, r providers.Request, permit providers.Permit) providers.Answer {
		mu.Lock()
		before := used[p.Account()]
		used[p.Account()] = true
		mu.Unlock()
		a := p.Send(ctx, r, permit)
		if before && a.Code == "connection_lost" {
			a = p.Send(ctx, r, yes)
		}
		return a
	}}
}

// crosstalk answers one Send with another's answer when two run at once.
func crosstalk() lie {
	var mu sync.Mutex
	last := map[string]providers.Answer{}
	return lie{send: func(ctx context.Context, p providers.Provider, r providers.Request, permit providers.Permit) providers.Answer {
		a := p.Send(ctx, r, permit)
		mu.Lock()
		defer mu.Unlock()
		previous, was := last[p.Account()]
		last[p.Account()] = a
		if was && a.Kind == providers.KindAccepted {
			return previous
		}
		return a
	}}
}

func TestEveryLieIsCaught(t *testing.T) {
	t.Parallel()
	for name, l := range lies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, claim := range l.caught {
				if err := prove(t, claim, l.lie); err == nil || errors.Is(err, providertest.ErrNotApplicable) {
					t.Errorf("%q was proven of it: %v", claim, err)
				} else {
					t.Logf("%q: %v", claim, err)
				}
			}
		})
	}
}

// Every claim that can be false of this adapter is refuted by some lie above: a claim that
// nothing refutes may prove nothing.
func TestEveryClaimCanFail(t *testing.T) {
	t.Parallel()
	refuted := map[string]bool{}
	for _, l := range lies {
		for _, claim := range l.caught {
			refuted[claim] = true
		}
	}
	exempt := []string{ // the simulator has no such faults over HTTP
		"a request that was cut short is never accepted or refused",
		"a refusal for now may be tried again, and nothing happened",
	}
	for _, c := range providertest.Checks() {
		if refuted[c.Claim] == slices.Contains(exempt, c.Claim) {
			t.Errorf("%q: refuted %t, exempt %t", c.Claim, refuted[c.Claim], !refuted[c.Claim])
		}
	}
}

func TestAnHonestAdapterPasses(t *testing.T) {
	t.Parallel()
	providertest.Run(t, harness)
}

// prove runs one check against a lying adapter.
func prove(t *testing.T, claim string, l lie) error {
	t.Helper()
	h := harness(t)
	lying := func(honest func() providers.Provider) func() providers.Provider {
		return func() providers.Provider {
			liar := l
			liar.Provider = honest()
			return liar
		}
	}
	h.New, h.Unreachable = lying(h.New), lying(h.Unreachable)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, c := range providertest.Checks() {
		if c.Claim == claim {
			return c.Prove(ctx, &h)
		}
	}
	t.Fatalf("no claim %q", claim)
	return nil
}
