package providertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outbox-worker/outbox-worker/providers"
)

// margin is how long after its context's end a Send may return. Generous: the machine may
// be busy, and an adapter that ignores its context is later by minutes.
const margin = 5 * time.Second

func allow(context.Context) error { return nil }

func skip(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNotApplicable, fmt.Sprintf(format, args...))
}

// inject skips the claim when the protocol has no such fault.
func (h *Harness) inject(f Fault, in providers.Intent) error {
	if !h.Inject(f, in.Reference) {
		return skip("no fault %s here", f)
	}
	return nil
}

// capabilities for the harness's intents.
func (h *Harness) capabilities(p providers.Provider) (providers.Capabilities, error) {
	in := h.Intent(1)
	c, ok := p.Serves(in.Operation, in.Version)
	if !ok {
		return c, fmt.Errorf("does not serve %s.v%d, which the harness's intents are of", in.Operation, in.Version)
	}
	return c, nil
}

// send prepares and sends in, alone, and checks the invariants that hold for every Send.
func (h *Harness) send(ctx context.Context, p providers.Provider, in providers.Intent, permit providers.Permit) (providers.Answer, error) {
	effects, requests := h.Effects(""), h.Requests("")
	a, err := h.sendAmongOthers(ctx, p, in, permit)
	// In all: a second request may well go under another key.
	if n := h.Requests("") - requests; n > 1 {
		err = errors.Join(err, fmt.Errorf("one Send was %d requests: %s", n, show(a)))
	}
	if n := h.Effects("") - effects; n > 1 {
		err = errors.Join(err, fmt.Errorf("one Send had %d effects: %s", n, show(a)))
	}
	return a, err
}

// sendAmongOthers checks what can be told while others send too.
func (h *Harness) sendAmongOthers(ctx context.Context, p providers.Provider, in providers.Intent, permit providers.Permit) (providers.Answer, error) {
	r, err := p.Prepare(in)
	if err != nil {
		return providers.Answer{}, fmt.Errorf("Prepare: %w", err)
	}
	before := h.Effects(in.Reference)
	a := p.Send(ctx, r, permit)
	return a, errors.Join(h.checkEffects(in, a, before), checkShape(in, a))
}

// checkEffects holds an answer against the effects now and before Send.
func (h *Harness) checkEffects(in providers.Intent, a providers.Answer, before int) error {
	now := h.Effects(in.Reference)
	switch {
	case a.Kind == providers.KindNotSent && now > before:
		return fmt.Errorf("said not sent, but it happened: %s", show(a))
	case a.Kind == providers.KindRefused && now > 0:
		return fmt.Errorf("said refused, but it happened: %s", show(a))
	case a.Kind == providers.KindAccepted && now == 0:
		return fmt.Errorf("said accepted, but nothing happened: %s", show(a))
	}
	return nil
}

// checkShape holds an answer against what the contract says of its fields.
func checkShape(in providers.Intent, a providers.Answer) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch a.Kind {
	case providers.KindAccepted, providers.KindRefused, providers.KindNotSent, providers.KindUnknown:
	default:
		bad("kind %q is none of the contract's", a.Kind)
	}
	if a.Kind != providers.KindAccepted && (a.Code == "" || a.Reason == "") {
		bad("without code or reason nobody will understand it: %s", show(a))
	}
	if a.Final && a.Kind != providers.KindRefused {
		bad("only a refusal can be final: %s", show(a))
	}
	if a.RetryAfter < 0 {
		bad("retry after %v", a.RetryAfter)
	}
	if len(a.Result) > 0 && !json.Valid(a.Result) {
		bad("the result is not JSON: %q", a.Result)
	}
	if secret := leaked(in.Payload, a.Code+" "+a.Reason); secret != "" {
		bad("code or reason repeats the payload (%q): they go into logs", secret)
	}
	return errors.Join(errs...)
}

// leaked finds a text of the payload, of some length, in what is said about it.
func leaked(payload json.RawMessage, said string) string {
	var v any
	_ = json.Unmarshal(payload, &v)
	var find func(any) string
	find = func(v any) string {
		switch x := v.(type) {
		case string:
			if len(x) >= 8 && strings.Contains(said, x) {
				return x
			}
		case []any:
			for _, item := range x {
				if s := find(item); s != "" {
					return s
				}
			}
		case map[string]any:
			for _, item := range x {
				if s := find(item); s != "" {
					return s
				}
			}
		}
		return ""
	}
	return find(v)
}

func show(a providers.Answer) string {
	return fmt.Sprintf("%s, code %q, %q, id %q, final %t, retry after %v, throttled %t, alert %t",
		a.Kind, a.Code, a.Reason, a.ProviderID, a.Final, a.RetryAfter, a.Throttled, a.Alert)
}

// want is a claim about an answer and the counts after it; -1 counts nothing.
type want struct {
	kinds             []providers.Kind
	effects, requests int
}

func (h *Harness) expect(in providers.Intent, a providers.Answer, w want) error {
	fits := false
	for _, k := range w.kinds {
		fits = fits || a.Kind == k
	}
	if !fits {
		return fmt.Errorf("want %v, got %s", w.kinds, show(a))
	}
	if got := h.Effects(in.Reference); w.effects >= 0 && got != w.effects {
		return fmt.Errorf("%d effects, want %d, after %s", got, w.effects, show(a))
	}
	if got := h.Requests(in.Reference); w.requests >= 0 && got != w.requests {
		return fmt.Errorf("%d requests, want %d, after %s", got, w.requests, show(a))
	}
	return nil
}

// sendWant sends and expects.
func (h *Harness) sendWant(ctx context.Context, p providers.Provider, in providers.Intent, w want) (providers.Answer, error) {
	a, err := h.send(ctx, p, in, allow)
	if err != nil {
		return a, err
	}
	return a, h.expect(in, a, w)
}

// ending is a Send whose context is over: on time, or not.
type ending struct {
	answer providers.Answer
	err    error
}

// sendUntil sends in while act decides when to end the context, and wants Send to return
// within the margin of it.
func (h *Harness) sendUntil(ctx context.Context, p providers.Provider, in providers.Intent, act func(ctx context.Context) error) (providers.Answer, error) {
	sending, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan ending, 1)
	go func() {
		a, err := h.send(sending, p, in, allow)
		done <- ending{a, err}
	}()
	if err := act(sending); err != nil {
		return providers.Answer{}, err
	}
	cancel()
	late := time.NewTimer(margin)
	defer late.Stop()
	select {
	case e := <-done:
		return e.answer, e.err
	case <-late.C:
		return providers.Answer{}, fmt.Errorf("Send was still running %v after its context had ended", margin)
	}
}
