package providertest

import (
	"context"
	"fmt"
	"time"

	"github.com/outbox-worker/outbox-worker/providers"
)

// looking: what a lookup may say.
var looking = []Check{
	{"a lookup finds what was sent, with its id", func(ctx context.Context, h *Harness) error {
		in := h.Intent(1)
		if err := h.needLookup(); err != nil {
			return err
		}
		a, err := h.sendWant(ctx, h.New(), in, want{accepted, 1, 1})
		if err != nil {
			return err
		}
		return h.wantFound(ctx, in, a.ProviderID)
	}},
	{"a lookup finds what happened when the answer was lost", func(ctx context.Context, h *Harness) error {
		in := h.Intent(1)
		if err := h.needLookup(); err != nil {
			return err
		}
		if err := h.inject(LoseAfter, in); err != nil {
			return err
		}
		if _, err := h.sendWant(ctx, h.New(), in, want{unknown, 1, 1}); err != nil {
			return err
		}
		return h.wantFound(ctx, in, "")
	}},
	{"a lookup says absent of what was not sent, and sends nothing", func(ctx context.Context, h *Harness) error {
		if err := h.needLookup(); err != nil {
			return err
		}
		// Somebody else's effect must not be taken for ours.
		if _, err := h.sendWant(ctx, h.New(), h.Intent(2), want{accepted, 1, 1}); err != nil {
			return err
		}
		_, err := h.lookWant(ctx, h.New(), h.Intent(1), providers.Absent)
		return err
	}},
	{"an effect that is not what we asked for differs", func(ctx context.Context, h *Harness) error {
		if err := h.needLookup(); err != nil {
			return err
		}
		if h.Other == nil {
			return skip("no other intent")
		}
		in := h.Intent(1)
		if _, err := h.sendWant(ctx, h.New(), in, want{accepted, 1, 1}); err != nil {
			return err
		}
		_, err := h.lookWant(ctx, h.New(), h.Other(in), providers.Differs)
		return err
	}},
	{"a provider that cannot be reached is no proof of absence", func(ctx context.Context, h *Harness) error {
		if err := h.needLookup(); err != nil {
			return err
		}
		_, err := h.lookWant(ctx, h.Unreachable(), h.Intent(1), providers.NotLooked)
		return err
	}},
	{"a lookup that fails is no proof of absence", func(ctx context.Context, h *Harness) error {
		if err := h.needLookup(); err != nil {
			return err
		}
		in := h.Intent(1)
		if err := h.inject(LookupError, in); err != nil {
			return err
		}
		_, err := h.lookWant(ctx, h.New(), in, providers.NotLooked)
		return err
	}},
	{"a lookup returns when its deadline passes", func(ctx context.Context, h *Harness) error {
		if err := h.needLookup(); err != nil {
			return err
		}
		in := h.Intent(1)
		if err := h.inject(LookupSilence, in); err != nil {
			return err
		}
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := h.lookWant(short, h.New(), in, providers.NotLooked)
		if took := time.Since(began); took > margin {
			return fmt.Errorf("took %v", took)
		}
		return err
	}},
}

func (h *Harness) needLookup() error {
	c, err := h.capabilities(h.New())
	if err == nil && !c.Lookup {
		err = skip("no lookup")
	}
	return err
}

// lookWant looks in up and wants a kind of finding.
func (h *Harness) lookWant(ctx context.Context, p providers.Provider, in providers.Intent, kind providers.FindingKind) (providers.Finding, error) {
	looker, ok := p.(providers.Looker)
	if !ok {
		return providers.Finding{}, fmt.Errorf("promises a lookup and implements none")
	}
	r, err := p.Prepare(in)
	if err != nil {
		return providers.Finding{}, err
	}
	effects, requests := h.Effects(""), h.Requests("")
	f := looker.Lookup(ctx, r)
	if e, r := h.Effects("")-effects, h.Requests("")-requests; e != 0 || r != 0 {
		return f, fmt.Errorf("the lookup caused %d requests and %d effects", r, e)
	}
	if f.Kind != kind {
		return f, fmt.Errorf("want %s, got %s (code %q, %q; answer %s)", kind, f.Kind, f.Code, f.Reason, show(f.Answer))
	}
	if secret := leaked(in.Payload, f.Code+" "+f.Reason); secret != "" {
		return f, fmt.Errorf("code or reason repeats the payload (%q): they go into logs", secret)
	}
	return f, nil
}

// wantFound wants in found as accepted; id "" is any that the server knows.
func (h *Harness) wantFound(ctx context.Context, in providers.Intent, id string) error {
	f, err := h.lookWant(ctx, h.New(), in, providers.Found)
	if err != nil {
		return err
	}
	if f.Answer.Kind != providers.KindAccepted {
		return fmt.Errorf("found it, but not as accepted: %s", show(f.Answer))
	}
	if id != "" && f.Answer.ProviderID != id {
		return fmt.Errorf("found id %q, but the answer was %q", f.Answer.ProviderID, id)
	}
	return h.checkID(in, f.Answer)
}
