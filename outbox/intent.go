package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outbox-worker/outbox-worker/outbox/canonical"
)

// Intent is one effect that somebody wants to happen once. Its operation's entry in the
// catalog decides how its key is formed: from fields of the payload, from OperationID,
// or from caller and arguments within a window.
type Intent struct {
	// Tenant on whose behalf; part of the key. Required, at most 255 characters.
	Tenant string
	// Operation with its contract version, as in "charge_card.v1". Required.
	Operation string
	// Payload is a JSON object: a json.RawMessage as it is, anything else as
	// encoding/json renders it. Numbers must be exact: amounts are integers of minor
	// units, or strings. Required, 64 KiB unless the catalog says otherwise.
	Payload any

	// OperationID names the intent where the catalog's rule is operation_id: created
	// and stored by the caller before the first attempt, the same on every attempt.
	OperationID string
	// Subject is whom the effect concerns; part of the key where the catalog says so.
	Subject string
	// Principal is who asks, through which agent and host; the first is the caller, and
	// part of the key where the rule is arguments.
	Principal []string
	// Task is an identifier of the caller's surrounding work, kept for people.
	Task string
	// Parent is the reference of an intent of the same tenant that led to this one.
	Parent string
	// Supersedes is the reference of the latest intent under the same key, when its
	// effect is proven not to have happened (failed_final, cancelled, exhausted). Only
	// this opens a used key again.
	Supersedes string
	// Compensates is the reference of an intent that succeeded and that this one
	// undoes: a refund, a void. It has a key of its own.
	Compensates string

	// NotBefore is the earliest time to send. Zero: now.
	NotBefore time.Time
	// Deadline is when sending no longer makes sense: what has not been sent by then
	// ends in failed_final. Zero: never.
	Deadline time.Time
	// Priority orders a tenant's own intents in a lane, from -100 to 100; higher goes
	// sooner. It never passes another tenant's turn.
	Priority int
	// Trace is a W3C traceparent, carried to the attempt and to follow-ons.
	Trace string

	// NoWait answers Busy at once where another transaction holds the key and has not
	// committed, instead of waiting for it as a unique constraint does.
	NoWait bool
}

// AnswerKind is what the ledger says to an intent.
type AnswerKind string

const (
	AnswerAccepted AnswerKind = "accepted"  // new; committed with the transaction
	AnswerBusy     AnswerKind = "busy"      // another transaction holds the key: ask again, same key
	AnswerInFlight AnswerKind = "in_flight" // the same intent is open: ask for its status, do not resubmit
	AnswerSettled  AnswerKind = "settled"   // the same intent ended: here is how
	AnswerConflict AnswerKind = "conflict"  // the key is taken by another payload; nothing was recorded
	AnswerExpired  AnswerKind = "expired"   // it ended long ago: outcome and reference only
	AnswerRefused  AnswerKind = "refused"   // bad input: see Code, Path, Hint
	AnswerNotFound AnswerKind = "not_found" // Get only: no such reference for this tenant
)

// Answer is what the ledger says to an intent, or of a reference.
type Answer struct {
	Kind       AnswerKind      `json:"answer"`
	Reference  string          `json:"reference,omitempty"` // what the provider knows the effect by
	State      State           `json:"state,omitempty"`
	Operation  string          `json:"operation,omitempty"` // under which the intent was recorded
	Attempt    int             `json:"attempt,omitempty"`
	Code       string          `json:"code,omitempty"`    // why refused, or the provider's code
	Path       string          `json:"path,omitempty"`    // JSON Pointer into the payload, when refused
	Hint       string          `json:"hint,omitempty"`    // what to do
	Differs    []string        `json:"differs,omitempty"` // JSON Pointers of what a conflict differs in
	ProviderID string          `json:"provider_id,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"` // what was kept of the provider's answer
	CreatedAt  time.Time       `json:"created_at,omitzero"`
	SettledAt  time.Time       `json:"settled_at,omitzero"`
}

// maxPayload bounds what this package reads; the operation's own limit is checked by
// the database.
const maxPayload = 16 << 20

// prepared is an intent ready for the database, or refused.
type prepared struct {
	payload string
	digest  []byte
	refusal *Answer
}

// prepare canonicalises the payload on the caller's side, so that the database need not.
func (in Intent) prepare() (prepared, error) {
	if a := in.unstorable(); a != nil {
		return prepared{refusal: a}, nil
	}
	text, err := payloadText(in.Payload)
	if err != nil {
		return prepared{}, fmt.Errorf("outbox: payload of %s: %w", in.Operation, err)
	}
	if text == nil {
		return prepared{refusal: &Answer{Kind: AnswerRefused, Code: "payload_missing", Hint: "Give a JSON object."}}, nil
	}
	canon, err := canonical.Admit(text, maxPayload)
	var refused *canonical.Error
	switch {
	case errors.As(err, &refused):
		return prepared{refusal: &Answer{Kind: AnswerRefused, Code: string(refused.Code), Path: refused.Path, Hint: refused.Hint}}, nil
	case err != nil:
		return prepared{}, fmt.Errorf("outbox: payload of %s: %w", in.Operation, err)
	}
	sum := canonical.Digest(canon)
	return prepared{payload: string(canon), digest: sum[:]}, nil
}

// unstorable refuses what the database would not take: its error would take the caller's
// transaction along.
func (in Intent) unstorable() *Answer {
	texts := append([]string{
		in.Tenant, in.Operation, in.OperationID, in.Subject, in.Task, in.Parent, in.Supersedes, in.Compensates, in.Trace,
	}, in.Principal...)
	for _, text := range texts {
		if !storable(text) {
			return &Answer{
				Kind: AnswerRefused, Code: "text_invalid",
				Hint: fmt.Sprintf("Give text in UTF-8, without U+0000: %+q is not.", text),
			}
		}
	}
	for _, t := range []time.Time{in.NotBefore, in.Deadline} {
		if year := t.UTC().Year(); year < 1 || year > 9999 {
			return &Answer{Kind: AnswerRefused, Code: "time_out_of_range", Hint: "Give a time in the years 1 to 9999, or none."}
		}
	}
	return nil
}

// storable reports whether Postgres can hold the text.
func storable(text string) bool {
	return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0
}

func payloadText(payload any) ([]byte, error) {
	switch p := payload.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		return p, nil
	default:
		return json.Marshal(p)
	}
}
