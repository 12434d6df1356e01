// Package local is the provider for effects that live in the ledger's own database: a
// room booking, a posting, a stock movement.
//
// Such an effect commits in the same transaction as the settlement of its intent. There
// is no moment in which one is there without the other, so it happens exactly once
// without a key, a lookup or a lease, and its outcome is never unknown: a crash undoes
// both. The worker recognises the provider by its Perform (dispatch.Local).
//
// An effect writes through the transaction that it is given and through nothing else. A
// mail, a call or a second connection inside of it would be outside the guarantee; make
// it a follow-on.
package local

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/providers"
)

// Effect has an intent's effect through tx. [providers.Accepted] keeps it, with an id and
// a result of its own choice; [providers.Refused] undoes it for good (the room is taken);
// [providers.NotSent] undoes it and tries again. A database error may be returned as
// [Failed]. It must not commit, roll back, or use anything but tx.
type Effect func(ctx context.Context, tx pgx.Tx, in providers.Intent) providers.Answer

// Config says which operations are effects in this database.
type Config struct {
	// Account is recorded with each outcome. Default: "local".
	Account string
	// Preset is the revision of the effects. Change it when an effect changes what it
	// writes. Default: "1".
	Preset string
	// Effects by operation: "book_room" for every version, "book_room.v2" for one, which
	// wins. Required.
	Effects map[string]Effect
}

// Provider performs the effects of a Config. It is safe for concurrent use if they are.
type Provider struct{ cfg Config }

var operationName = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.v[1-9][0-9]{0,8})?$`)

// New checks the Config.
func New(cfg Config) (*Provider, error) {
	if cfg.Account == "" {
		cfg.Account = "local"
	}
	if cfg.Preset == "" {
		cfg.Preset = "1"
	}
	errs := []error{}
	if len(cfg.Effects) == 0 {
		errs = append(errs, errors.New("local: Effects is empty: name an operation and its effect"))
	}
	for name, effect := range cfg.Effects {
		if !operationName.MatchString(name) {
			errs = append(errs, fmt.Errorf("local: Effects: %q is no operation: write book_room or book_room.v1", name))
		}
		if effect == nil {
			errs = append(errs, fmt.Errorf("local: Effects: %s has no effect", name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Provider{cfg}, nil
}

// Account names where effects happen.
func (p *Provider) Account() string { return p.cfg.Account }

// Serves tells whether there is an effect. It needs no other capability.
func (p *Provider) Serves(operation string, version int) (providers.Capabilities, bool) {
	return providers.Capabilities{Preset: p.cfg.Preset}, p.effect(operation, version) != nil
}

func (p *Provider) effect(operation string, version int) Effect {
	if e := p.cfg.Effects[fmt.Sprintf("%s.v%d", operation, version)]; e != nil {
		return e
	}
	return p.cfg.Effects[operation]
}

// Prepare has nothing to render: the request is the payload.
func (p *Provider) Prepare(in providers.Intent) (providers.Request, error) {
	return providers.Request{Intent: in, Hash: sha256.Sum256(in.Payload)}, nil
}

// Send refuses: the effect belongs into the settling transaction.
func (p *Provider) Send(context.Context, providers.Request, providers.Permit) providers.Answer {
	return providers.NotSent("local_only", "performed in the settling transaction only, by a worker that knows dispatch.Local", 0)
}

// Perform has the effect through tx.
func (p *Provider) Perform(ctx context.Context, tx pgx.Tx, r providers.Request) providers.Answer {
	e := p.effect(r.Intent.Operation, r.Intent.Version)
	if e == nil {
		return providers.NotSent("not_served", "no effect for "+r.Intent.Operation, 0)
	}
	return e(ctx, tx, r.Intent)
}

// Failed is the answer to a database error inside an effect: undone, and tried again.
func Failed(err error) providers.Answer { return providers.NotSent("database", err.Error(), 0) }
