package providertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/outbox-worker/outbox-worker/providers"
)

var (
	accepted = []providers.Kind{providers.KindAccepted}
	refused  = []providers.Kind{providers.KindRefused}
	notSent  = []providers.Kind{providers.KindNotSent}
	unknown  = []providers.Kind{providers.KindUnknown}
)

var preparing = []Check{
	{"the account has a name that does not change", func(_ context.Context, h *Harness) error {
		if a, b := h.New().Account(), h.New().Account(); a == "" || a != b {
			return fmt.Errorf("accounts %q and %q", a, b)
		}
		return nil
	}},
	{"the capabilities are coherent", func(_ context.Context, h *Harness) error {
		p := h.New()
		c, err := h.capabilities(p)
		if err != nil {
			return err
		}
		if _, served := p.Serves("no_such_operation", 1); served {
			return errors.New("serves an operation that nobody has heard of")
		}
		return coherent(p, c)
	}},
	{"Prepare is deterministic and does no I/O", func(_ context.Context, h *Harness) error {
		in, first := h.Intent(1), h.New()
		a, err := first.Prepare(in)
		if err != nil {
			return err
		}
		for _, p := range []providers.Provider{first, h.New()} {
			b, err := p.Prepare(in)
			if err != nil {
				return err
			}
			if a.Hash != b.Hash {
				return errors.New("the same intent has two hashes")
			}
		}
		if _, err := h.Unreachable().Prepare(in); err != nil {
			return fmt.Errorf("depends on the server: %w", err)
		}
		if n := h.Requests(""); n != 0 {
			return fmt.Errorf("the server has seen %d requests", n)
		}
		return nil
	}},
	{"different requests have different hashes", func(_ context.Context, h *Harness) error {
		intents := []providers.Intent{h.Intent(1), h.Intent(2)}
		if h.Other != nil {
			intents = append(intents, h.Other(h.Intent(1)))
		}
		seen := map[[32]byte]int{}
		for i, in := range intents {
			r, err := h.New().Prepare(in)
			if err != nil {
				return err
			}
			if j, taken := seen[r.Hash]; taken {
				return fmt.Errorf("intents %d and %d have the same hash", j, i)
			}
			seen[r.Hash] = i
		}
		return nil
	}},
	{"a payload that cannot be rendered is an InvalidError", func(_ context.Context, h *Harness) error {
		for _, in := range h.Invalid {
			_, err := h.New().Prepare(in)
			var invalid *providers.InvalidError
			if !errors.As(err, &invalid) {
				return fmt.Errorf("%s: got %v", in.Payload, err)
			}
			if invalid.Reason == "" || invalid.Path != "" && !strings.HasPrefix(invalid.Path, "/") {
				return fmt.Errorf("%s: path %q, reason %q: want a JSON Pointer and a reason", in.Payload, invalid.Path, invalid.Reason)
			}
		}
		return nil
	}},
}

func coherent(p providers.Provider, c providers.Capabilities) error {
	_, looker := p.(providers.Looker)
	switch {
	case c.Preset == "":
		return errors.New("no preset: nothing pins the settings of a first attempt")
	case c.KeyMemory < 0 || c.LookupLag < 0:
		return errors.New("a negative duration")
	case c.KeyMemory > 0 && c.Replay == "":
		return errors.New("key memory without saying what a repeat gets")
	case c.KeyMemory == 0 && c.Replay != "":
		return errors.New("replay semantics without key memory: it would never be used")
	case c.Lookup && !looker:
		return errors.New("promises a lookup and implements none")
	case !c.Lookup && (c.LookupLag != 0 || c.AbsenceIsProof):
		return errors.New("says something about a lookup that it has not")
	}
	return nil
}

var sending = []Check{
	{"success is accepted, with the provider's id, and happens once", func(ctx context.Context, h *Harness) error {
		in := h.Intent(1)
		a, err := h.sendWant(ctx, h.New(), in, want{accepted, 1, 1})
		if err != nil {
			return err
		}
		return h.checkID(in, a)
	}},
	{"concurrent sends of different intents do not disturb each other", func(ctx context.Context, h *Harness) error {
		const n = 64
		p := h.New()
		errs := make([]error, n)
		var sends sync.WaitGroup
		for i := range n {
			sends.Go(func() {
				in := h.Intent(i)
				a, err := h.sendAmongOthers(ctx, p, in, allow)
				errs[i] = errors.Join(err, h.expect(in, a, want{accepted, 1, 1}), h.checkID(in, a))
			})
		}
		sends.Wait()
		if e, r := h.Effects(""), h.Requests(""); e != n || r != n {
			errs = append(errs, fmt.Errorf("%d sends had %d effects and were %d requests", n, e, r))
		}
		return errors.Join(errs...)
	}},
	{"when nobody listens, nothing was sent", func(ctx context.Context, h *Harness) error {
		_, err := h.sendWant(ctx, h.Unreachable(), h.Intent(1), want{notSent, 0, 0})
		return err
	}},
	{"a context that is over sends nothing", func(ctx context.Context, h *Harness) error {
		over, cancel := context.WithCancel(ctx)
		cancel()
		_, err := h.sendWant(over, h.New(), h.Intent(1), want{notSent, 0, 0})
		return err
	}},
}

// checkID wants an id, and the server's own if the harness knows it.
func (h *Harness) checkID(in providers.Intent, a providers.Answer) error {
	if a.ProviderID == "" {
		return fmt.Errorf("no provider id: %s", show(a))
	}
	if h.ProviderID == nil {
		return nil
	}
	if id := h.ProviderID(in.Reference); id != "" && id != a.ProviderID {
		return fmt.Errorf("provider id %q, but the server calls it %q", a.ProviderID, id)
	}
	return nil
}

// losing: what the adapter may say when the answer did not arrive.
var losing = []Check{
	{"a request that was cut short is never accepted or refused", func(ctx context.Context, h *Harness) error {
		in := h.Intent(1)
		if err := h.inject(CutShort, in); err != nil {
			return err
		}
		_, err := h.sendWant(ctx, h.New(), in, want{append(notSent, unknown...), 0, 1})
		return err
	}},
	{"a connection lost before the effect is unknown", lost(LoseBefore, 0)},
	{"a connection lost after the effect is unknown", lost(LoseAfter, 1)},
	{"an internal error after the effect is unknown", lost(ErrorAfter, 1)},
	{"a redirect is not followed and not taken for an answer", lost(Redirect, 0)},
	{"a success that cannot be read is not denied", func(ctx context.Context, h *Harness) error {
		in := h.Intent(1)
		if err := h.inject(Garbage, in); err != nil {
			return err
		}
		_, err := h.sendWant(ctx, h.New(), in, want{append(accepted, unknown...), 1, 1})
		return err
	}},
	{"a reused connection that dies is one request, lost before the effect", lostReused(LoseBefore, 0)},
	{"a reused connection that dies is one request, lost after the effect", lostReused(LoseAfter, 1)},
	{"a Send whose context is cancelled returns, and the outcome is unknown", func(ctx context.Context, h *Harness) error {
		in := h.Intent(1)
		if err := h.inject(Silence, in); err != nil {
			return err
		}
		a, err := h.sendUntil(ctx, h.New(), in, func(ctx context.Context) error {
			return h.Await(ctx, in.Reference, 1, 1)
		})
		if err != nil {
			return err
		}
		return h.expect(in, a, want{unknown, 1, 1})
	}},
	{"a Send returns when its deadline passes", func(ctx context.Context, h *Harness) error {
		in := h.Intent(1)
		if err := h.inject(Silence, in); err != nil {
			return err
		}
		p := h.New()
		a, err := h.sendUntil(ctx, p, in, func(ctx context.Context) error {
			short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			<-short.Done()
			return ctx.Err()
		})
		if err != nil {
			return err
		}
		if h.Requests(in.Reference) > 0 {
			return h.expect(in, a, want{unknown, -1, 1})
		}
		return h.expect(in, a, want{append(notSent, unknown...), -1, -1})
	}},
	{"an effect that happens after we hung up was not denied", func(ctx context.Context, h *Harness) error {
		in := h.Intent(1)
		if err := h.inject(LateEffect, in); err != nil {
			return err
		}
		a, err := h.sendUntil(ctx, h.New(), in, func(ctx context.Context) error {
			return h.Await(ctx, in.Reference, 1, 0)
		})
		if err != nil {
			return err
		}
		if err := h.Await(ctx, in.Reference, 1, 1); err != nil {
			return err
		}
		return h.expect(in, a, want{append(unknown, accepted...), 1, 1})
	}},
}

// lost sends one intent under a fault and wants an unknown outcome.
func lost(f Fault, effects int) func(context.Context, *Harness) error {
	return func(ctx context.Context, h *Harness) error {
		in := h.Intent(1)
		if err := h.inject(f, in); err != nil {
			return err
		}
		_, err := h.sendWant(ctx, h.New(), in, want{unknown, effects, 1})
		return err
	}
}

// lostReused does the same on a connection that has served before.
func lostReused(f Fault, effects int) func(context.Context, *Harness) error {
	return func(ctx context.Context, h *Harness) error {
		p, in := h.New(), h.Intent(2)
		if err := h.inject(f, in); err != nil {
			return err
		}
		if _, err := h.sendWant(ctx, p, h.Intent(1), want{accepted, 1, 1}); err != nil {
			return err
		}
		_, err := h.sendWant(ctx, p, in, want{unknown, effects, 1})
		return err
	}
}

// refusing: what the provider says no to.
var refusing = []Check{
	{"a refusal for good is final, has the provider's code, and nothing happened", func(ctx context.Context, h *Harness) error {
		in := h.Intent(1)
		if err := h.inject(Refuse, in); err != nil {
			return err
		}
		a, err := h.sendWant(ctx, h.New(), in, want{refused, 0, -1})
		if err == nil && !a.Final {
			err = fmt.Errorf("not final: %s", show(a))
		}
		return err
	}},
	{"a refusal for now may be tried again, and nothing happened", func(ctx context.Context, h *Harness) error {
		in := h.Intent(1)
		if err := h.inject(Defer, in); err != nil {
			return err
		}
		a, err := h.sendWant(ctx, h.New(), in, want{append(notSent, refused...), 0, -1})
		if err == nil && a.Final {
			err = fmt.Errorf("final: %s", show(a))
		}
		return err
	}},
	{"throttled is not sent, and says for how long the lane should pause", func(ctx context.Context, h *Harness) error {
		in := h.Intent(1)
		if err := h.inject(Throttle, in); err != nil {
			return err
		}
		a, err := h.sendWant(ctx, h.New(), in, want{notSent, 0, 1})
		if err == nil && (!a.Throttled || a.RetryAfter <= 0) {
			err = fmt.Errorf("the lane will not know: %s", show(a))
		}
		return err
	}},
	{"refused credentials are no fault of the intent, and somebody is told", func(ctx context.Context, h *Harness) error {
		in := h.Intent(1)
		if err := h.inject(Unauthorized, in); err != nil {
			return err
		}
		a, err := h.sendWant(ctx, h.New(), in, want{notSent, 0, -1})
		if err == nil && !a.Alert {
			err = fmt.Errorf("no alert: %s", show(a))
		}
		return err
	}},
	{"a key that is in progress is unknown, without an alert", func(ctx context.Context, h *Harness) error {
		in := h.Intent(1)
		if err := h.inject(InProgress, in); err != nil {
			return err
		}
		a, err := h.sendWant(ctx, h.New(), in, want{unknown, 0, 1})
		if err == nil && a.Alert {
			err = fmt.Errorf("alert: %s", show(a))
		}
		return err
	}},
}

var permitting = []Check{
	{"without a permit nothing is sent", denied(0)},
	{"without a permit nothing is sent on a connection that is open already", denied(1)},
	{"the permit is asked for once, before anything has arrived", func(ctx context.Context, h *Harness) error {
		in, asked := h.Intent(1), 0
		var early error
		a, err := h.send(ctx, h.New(), in, func(context.Context) error {
			asked++
			if n := h.Requests(in.Reference); n != 0 {
				early = fmt.Errorf("%d requests had arrived when the permit was asked for", n)
			}
			return nil
		})
		if err := errors.Join(err, early); err != nil {
			return err
		}
		if asked != 1 {
			return fmt.Errorf("the permit was asked for %d times", asked)
		}
		return h.expect(in, a, want{accepted, 1, 1})
	}},
}

// denied refuses a permit after some accepted sends, and then grants it.
func denied(before int) func(context.Context, *Harness) error {
	return func(ctx context.Context, h *Harness) error {
		p, in := h.New(), h.Intent(1000)
		for i := range before {
			if _, err := h.sendWant(ctx, p, h.Intent(i), want{accepted, 1, 1}); err != nil {
				return err
			}
		}
		errNo := errors.New("the lease has run out")
		a, err := h.send(ctx, p, in, func(context.Context) error { return errNo })
		if err != nil {
			return err
		}
		if err := h.expect(in, a, want{notSent, 0, 0}); err != nil {
			return err
		}
		if !strings.Contains(a.Reason, errNo.Error()) {
			return fmt.Errorf("the permit's error is not the reason: %s", show(a))
		}
		_, err = h.sendWant(ctx, p, in, want{accepted, 1, 1})
		return err
	}
}

// repeating: what a key that the provider remembers is good for.
var repeating = []Check{
	{"a repeat under the same key happens once and has the same id", func(ctx context.Context, h *Harness) error {
		if err := h.needKey(); err != nil {
			return err
		}
		in := h.Intent(1)
		first, err := h.sendWant(ctx, h.New(), in, want{accepted, 1, 1})
		if err != nil {
			return err
		}
		again, err := h.sendWant(ctx, h.New(), in, want{accepted, 1, 2})
		if err == nil && again.ProviderID != first.ProviderID {
			err = fmt.Errorf("ids %q and %q", first.ProviderID, again.ProviderID)
		}
		return err
	}},
	{"a refusal is the same when it is asked for again", func(ctx context.Context, h *Harness) error {
		if err := h.needKey(); err != nil {
			return err
		}
		in := h.Intent(1)
		if err := h.inject(Refuse, in); err != nil {
			return err
		}
		for range 2 {
			if _, err := h.sendWant(ctx, h.New(), in, want{refused, 0, -1}); err != nil {
				return err
			}
		}
		return nil
	}},
	{"the same key with another body is unknown, with an alert, and never a new effect", func(ctx context.Context, h *Harness) error {
		if err := h.needKey(); err != nil {
			return err
		}
		c, _ := h.capabilities(h.New())
		if h.Other == nil || c.Replay == providers.ReplayKeyWins {
			return skip("no other intent, or the provider ignores the body of a repeat")
		}
		in := h.Intent(1)
		if _, err := h.sendWant(ctx, h.New(), in, want{accepted, 1, 1}); err != nil {
			return err
		}
		a, err := h.sendWant(ctx, h.New(), h.Other(in), want{unknown, 1, 2})
		if err == nil && !a.Alert {
			err = fmt.Errorf("no alert: %s", show(a))
		}
		return err
	}},
}

func (h *Harness) needKey() error {
	c, err := h.capabilities(h.New())
	if err == nil && c.KeyMemory == 0 {
		err = skip("the provider remembers no keys")
	}
	return err
}
