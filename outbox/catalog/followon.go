package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/outbox-worker/outbox-worker/outbox/canonical"
)

// Parent is an intent that succeeded, as its follow-ons see it: the input of their jq
// expressions, under these names.
type Parent struct {
	Intent  ParentIntent  `json:"intent"`
	Outcome ParentOutcome `json:"outcome"`
}

// ParentIntent is what was wanted.
type ParentIntent struct {
	Reference string          `json:"reference"`
	Tenant    string          `json:"tenant"`
	Subject   string          `json:"subject"` // null in jq when empty
	Payload   json.RawMessage `json:"payload"`
}

// ParentOutcome is what came of it.
type ParentOutcome struct {
	ProviderID string          `json:"provider_id"` // null in jq when empty
	Account    string          `json:"account"`     // null in jq when empty
	Result     json.RawMessage `json:"result"`      // null in jq when nil
	SettledAt  time.Time       `json:"settled_at"`  // in jq: RFC 3339 in UTC
}

// FollowOn is an intent to be created.
type FollowOn struct {
	Name      string // with the parent's reference, its key
	Operation string // with its version: send_receipt.v1
	Payload   []byte // canonical, without the operation's defaults
	Digest    [32]byte
}

// RenderError names a follow-on that could not be rendered. The same parent will fail
// again until the catalog is changed: put it before a person.
type RenderError struct {
	FollowOn string
	Reason   string
}

// Error has the follow-on and the reason.
func (e *RenderError) Error() string { return fmt.Sprintf("follow-on %s: %s", e.FollowOn, e.Reason) }

// FollowOns renders what follows the parent's success, in the order of the catalog. It
// does no I/O, gives the same result for the same parent at any time on any machine,
// and is safe for concurrent use.
//
// If some cannot be rendered, the others are returned together with an error that
// joins a [*RenderError] for each. If ctx ends, the error is its cause alone: that says
// nothing about the follow-ons.
func (r *Revision) FollowOns(ctx context.Context, parent Parent) ([]FollowOn, error) {
	if len(r.followOns) == 0 {
		return nil, nil
	}
	input, err := parent.input()
	if err != nil {
		return nil, &RenderError{r.followOns[0].Name, err.Error()}
	}
	var rendered []FollowOn
	var failed []error
	for _, f := range r.followOns {
		payload, err := f.render(ctx, input)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			failed = append(failed, &RenderError{f.Name, err.Error()})
		case payload != nil:
			rendered = append(rendered, FollowOn{f.Name, f.Operation, payload, canonical.Digest(payload)})
		}
	}
	return rendered, errors.Join(failed...)
}

// input is the parent as jq takes it. Numbers stay as spelled until jq computes with
// them.
func (p Parent) input() (any, error) {
	text, err := json.Marshal(map[string]any{
		"intent": map[string]any{
			"reference": p.Intent.Reference, "tenant": p.Intent.Tenant, "subject": orNull(p.Intent.Subject), "payload": p.Intent.Payload,
		},
		"outcome": map[string]any{
			"provider_id": orNull(p.Outcome.ProviderID), "account": orNull(p.Outcome.Account), "result": p.Outcome.Result,
			"settled_at": p.Outcome.SettledAt.UTC(),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("the parent is not JSON: %w", err)
	}
	return decodeJSON(text)
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// followOn is a rule with its expressions compiled.
type followOn struct {
	FollowOnRule
	when    *filter // nil: always
	payload *filter
}

// render gives the canonical payload, nil when the follow-on is not wanted.
func (f *followOn) render(ctx context.Context, input any) ([]byte, error) {
	if f.when != nil {
		wanted, err := f.when.one(ctx, input)
		if err != nil {
			return nil, fmt.Errorf("when: %w", err)
		}
		switch wanted {
		case false:
			return nil, nil
		case true:
		default:
			return nil, errors.New("when: it gives neither true nor false")
		}
	}
	v, err := f.payload.one(ctx, input)
	if err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	if err := encodable(v, 0); err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	payload, err := canonical.Admit(text, maxPayload)
	if err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	return payload, nil
}

// encodable refuses what an encoder would turn into something else (gojq's own makes
// null of NaN and the largest number of infinity) or would exhaust its stack on.
func encodable(v any, depth int) error {
	if depth > canonical.MaxDepth {
		return fmt.Errorf("it is nested more than %d deep", canonical.MaxDepth)
	}
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return errors.New("it has a number that is not finite")
		}
	case []any:
		for _, item := range v {
			if err := encodable(item, depth+1); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, item := range v {
			if err := encodable(item, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func compileFollowOn(rule FollowOnRule) (*followOn, error) {
	f := &followOn{FollowOnRule: rule}
	var err error
	if rule.When != "" {
		if f.when, err = newFilter(rule.When); err != nil {
			return nil, fmt.Errorf("follow-on %s, when: %w", rule.Name, err)
		}
	}
	if f.payload, err = newFilter(rule.Payload); err != nil {
		return nil, fmt.Errorf("follow-on %s, payload: %w", rule.Name, err)
	}
	return f, nil
}
