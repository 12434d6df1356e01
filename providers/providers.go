// Package providers is the contract between the worker and whoever causes an effect.
//
// An adapter reports facts: what the provider said, and whether anything that could
// cause the effect may have left this machine. It never schedules, retries, waits or
// remembers; the worker does, from the capabilities that the adapter declares. So an
// adapter must switch off every retry of its own, of its SDK and of its transport: one
// Send is at most one request that can cause the effect (or one per named step).
//
// The default after the first byte of such a request may have been written is
// [Unknown]. Everything else needs proof: an answer of the provider that says so, or
// the certainty that nothing was written. [NotSent] for a request that did leave is a
// second charge; [Unknown] for one that did not costs a lookup. When in doubt: Unknown.
//
// This package uses the standard library only. The suite in providertest proves an
// adapter against a real server.
package providers

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"
)

// Provider causes effects of one account at one provider. It is used concurrently.
type Provider interface {
	// Account names the account in which effects happen, as in "acct_1FxQ". The first
	// attempt of an intent pins it; an intent that was sent from another account goes
	// to review instead of being sent again.
	Account() string

	// Serves tells what the adapter can do for an operation, and false when it cannot
	// perform it. The worker takes only intents that some provider serves.
	Serves(operation string, version int) (Capabilities, bool)

	// Prepare renders the request for an intent. It does no I/O and depends on nothing
	// but the intent and the adapter's settings: the same intent under the same preset
	// gives the same Hash. An *InvalidError refuses the intent for good, unsent.
	Prepare(in Intent) (Request, error)

	// Send performs the request once. It returns when ctx ends at the latest; what the
	// provider has not answered by then is Unknown if anything may have been written.
	// It calls permit immediately before the first byte that could cause the effect,
	// after dialling and handshakes, and sends nothing if permit fails: then the answer
	// is NotSent with permit's error.
	Send(ctx context.Context, r Request, permit Permit) Answer
}

// Looker is implemented by providers that can be asked what became of a reference.
type Looker interface {
	// Lookup asks for the effect of r by its reference, and compares what it finds with
	// r. It causes no effect. It returns when ctx ends at the latest.
	Lookup(ctx context.Context, r Request) Finding
}

// Permit says whether the sender may still send: its lease runs, the intent's deadline
// has not passed. It is cheap and does no I/O.
type Permit func(ctx context.Context) error

// Intent is what an adapter knows of the effect it is to cause.
type Intent struct {
	Reference string          // the idempotency key to give: 32 characters of [0-9a-v], the same on every attempt
	Parent    string          // the reference of the intent this one follows, or ""
	Tenant    string          // on whose behalf
	Subject   string          // whom it concerns, or ""
	Operation string          // name without version: "charge_card"
	Version   int             // of the operation's contract
	Payload   json.RawMessage // canonical JSON object, defaults filled in
}

// Request is a rendered intent.
type Request struct {
	Intent Intent
	// Hash covers everything that reaches the provider and could change the effect. It
	// is pinned by the first attempt: a retry whose request differs is not sent.
	Hash [sha256.Size]byte
	// Data is the adapter's own: what Prepare rendered for Send and Lookup.
	Data any
}

// Capabilities are what a provider promises for an operation. The zero value promises
// nothing: no key, no lookup.
type Capabilities struct {
	// Preset is the revision of the settings that shape requests; pinned by the first
	// attempt. Change it whenever the request or the meaning of an answer changes.
	Preset string
	// KeyMemory is how long the provider remembers our key, counted from the first
	// attempt. Zero: it ignores keys. Within it, less a margin, the same request may be
	// sent again to learn the outcome; after it, never.
	KeyMemory time.Duration
	// Replay says what a repeat under the same key gets. Required with KeyMemory.
	Replay Replay
	// Lookup is true when the provider can be asked by reference (see Looker).
	Lookup bool
	// LookupLag is how long an effect may take to become visible to Lookup.
	LookupLag time.Duration
	// AbsenceIsProof is true when not found after LookupLag means not executed.
	AbsenceIsProof bool
}

// Replay is what a provider does with a repeat under a key it remembers.
type Replay string

const (
	ReplayAllAfterStart   Replay = "all_after_start"       // the saved answer, errors included, once execution began (Stripe v1)
	ReplaySuccessOnly     Replay = "success_only"          // the saved success; failures run again
	ReplayReexecuteFailed Replay = "reexecute_failed"      // failed or partial work runs again, success does not (Stripe v2)
	ReplayCurrentState    Replay = "current_state"         // the object as it is now (PayPal, Braintree, Shopify)
	ReplayKeyWins         Replay = "key_wins_body_ignored" // the saved answer whatever the body
)

// Kind is what is known after an attempt.
type Kind string

const (
	KindAccepted Kind = "accepted" // the effect has happened
	KindRefused  Kind = "refused"  // the provider said no: the effect has not happened
	KindNotSent  Kind = "not_sent" // nothing that could cause it was written, or the provider says it was not begun
	KindUnknown  Kind = "unknown"  // anything else
)

// Answer is what one attempt brought. Make one with Accepted, Refused, NotSent or
// Unknown; the zero Answer counts as Unknown.
type Answer struct {
	Kind       Kind            `json:"kind"`
	ProviderID string          `json:"provider_id,omitempty"` // the provider's name for the effect
	Result     json.RawMessage `json:"result,omitempty"`      // what to keep of its answer, as JSON
	Code       string          `json:"code,omitempty"`        // the provider's code, or a short one of ours: "card_declined", "http_503"
	Reason     string          `json:"reason,omitempty"`      // for people; no secrets, no payload
	// Final on a refusal: the same request will be refused again. Otherwise it may be
	// retried under the same key.
	Final bool `json:"final,omitempty"`
	// RetryAfter is how long the provider asked to wait; zero: it did not say.
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	// Throttled: the whole account is asked to slow down, so the lane pauses once for
	// everybody, for RetryAfter.
	Throttled bool `json:"throttled,omitempty"`
	// Alert asks for a person's attention beside the outcome: the provider saw our key
	// with another body, or our credentials are refused.
	Alert bool `json:"alert,omitempty"`
}

// Accepted: the effect has happened. A missing id is possible (the body was lost);
// then it is looked up.
func Accepted(providerID string, result json.RawMessage) Answer {
	return Answer{Kind: KindAccepted, ProviderID: providerID, Result: result}
}

// Refused: the provider said no, and the effect has not happened.
func Refused(code, reason string, final bool) Answer {
	return Answer{Kind: KindRefused, Code: code, Reason: reason, Final: final}
}

// NotSent: proven not executed; may be tried again after retryAfter (zero: when the
// operation's backoff says).
func NotSent(code, reason string, retryAfter time.Duration) Answer {
	return Answer{Kind: KindNotSent, Code: code, Reason: reason, RetryAfter: retryAfter}
}

// Unknown: it may have happened.
func Unknown(code, reason string) Answer {
	return Answer{Kind: KindUnknown, Code: code, Reason: reason}
}

// FindingKind is what a lookup brought.
type FindingKind string

const (
	Found     FindingKind = "found"      // an effect with our reference that is what we asked for
	Absent    FindingKind = "absent"     // none visible now; a proof only as Capabilities say
	Differs   FindingKind = "differs"    // an effect with our reference that is not what we asked for
	NotLooked FindingKind = "not_looked" // the question was not answered
)

// Finding is what a lookup brought. With Found, Answer says how it ended: Accepted or
// Refused.
type Finding struct {
	Kind   FindingKind `json:"kind"`
	Answer Answer      `json:"answer,omitzero"`
	Code   string      `json:"code,omitempty"`
	Reason string      `json:"reason,omitempty"`
}

// InvalidError refuses an intent that cannot be rendered, whoever sends it and when.
type InvalidError struct {
	Path   string // JSON Pointer into the payload
	Reason string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("payload%s: %s", e.Path, e.Reason)
}

// StepKey derives the key for one step of an adapter that needs several requests
// (create, then buy): 32 characters of [0-9a-v], the same for the same reference and
// step on every attempt.
func StepKey(reference, step string) string {
	h := sha256.New()
	for _, part := range []string{reference, step} {
		var length [4]byte
		binary.BigEndian.PutUint32(length[:], uint32(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return lowerHex.EncodeToString(h.Sum(nil)[:20])
}

var lowerHex = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)
