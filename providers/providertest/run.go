package providertest

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Check is one claim about an adapter.
type Check struct {
	// Claim is a sentence that is true of a conforming adapter.
	Claim string
	// Prove returns an error that says what was seen instead, or [ErrNotApplicable]
	// (wrapped) when the adapter or its protocol has nothing that the claim is about.
	Prove func(ctx context.Context, h *Harness) error
}

// ErrNotApplicable is no failure.
var ErrNotApplicable = errors.New("not applicable")

// claimTimeout ends a check that hangs.
const claimTimeout = time.Minute

// Run proves every claim, each on a harness of its own and in parallel.
func Run(t *testing.T, setup func(t *testing.T) Harness) {
	t.Helper()
	for _, c := range Checks() {
		t.Run(c.Claim, func(t *testing.T) {
			t.Parallel()
			h := setup(t)
			ctx, cancel := context.WithTimeout(t.Context(), claimTimeout)
			defer cancel()
			switch err := c.run(ctx, &h); {
			case errors.Is(err, ErrNotApplicable):
				t.Skip(err)
			case err != nil:
				t.Fatal(err)
			}
		})
	}
}

func (c Check) run(ctx context.Context, h *Harness) error {
	if err := h.validate(); err != nil {
		return err
	}
	return c.Prove(ctx, h)
}

// Checks lists the claims, for those who run them otherwise than by [Run].
func Checks() []Check {
	var all []Check
	for _, group := range [][]Check{preparing, sending, losing, refusing, permitting, repeating, looking} {
		all = append(all, group...)
	}
	return all
}
