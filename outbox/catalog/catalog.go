package catalog

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Catalog is what a catalog file says, with every default made explicit.
type Catalog struct {
	Lanes      []Lane
	Operations []Operation

	source source
}

// Lane is the path to one provider account.
type Lane struct {
	Name string `json:"name"`
	// Provider is the name of a provider in the worker's configuration.
	Provider string `json:"provider"`
	// Concurrency is how many calls may run at once, over all replicas. Default 20.
	Concurrency int `json:"concurrency"`
	// Rate is how many calls may start per second, over all replicas; 0 is unlimited,
	// which is the default.
	Rate float64 `json:"rate,omitempty"`
	// Burst is how many may start at once after a quiet time. Default: the rate, rounded
	// up, and 1 without a rate.
	Burst int `json:"burst"`
}

// Operation is a kind of effect and its rules. Its JSON form is what the database keeps
// as the revision's spec.
type Operation struct {
	Name        string `json:"name"`
	Version     int    `json:"version"`
	Description string `json:"description,omitempty"`
	Class       Class  `json:"class"`
	Lane        string `json:"lane"`
	Key         Key    `json:"key"`
	// Input is the JSON Schema of the payload, in canonical JSON.
	Input json.RawMessage `json:"input"`
	// MaxPayload bounds the payload in bytes, as sent. Default 64 KiB.
	MaxPayload int       `json:"max_payload"`
	Timeouts   Timeouts  `json:"timeouts"`
	Retry      Retry     `json:"retry"`
	Retention  Retention `json:"retention"`
	Approval   Approval  `json:"approval"`
	// Unknown is the choice for a provider that has neither key memory nor lookup; empty
	// when none was made, and then the worker refuses such a provider.
	Unknown OnUnknown `json:"unknown,omitempty"`
	Review  Review    `json:"review"`
	Money   Money     `json:"money,omitzero"`
	// Retired operations accept nothing new; what is open is finished.
	Retired   bool           `json:"retired"`
	FollowOns []FollowOnRule `json:"follow_ons,omitempty"`
}

// ID is the operation with its version, as in charge_card.v1.
func (o Operation) ID() string { return fmt.Sprintf("%s.v%d", o.Name, o.Version) }

// Class says what a second execution would do.
type Class string

// The classes, from harmless to dangerous.
const (
	ReadOnly            Class = "read_only"            // no effect
	NaturallyIdempotent Class = "naturally_idempotent" // the second time changes nothing
	KeyProtected        Class = "key_protected"        // the provider recognises our key
	Compensatable       Class = "compensatable"        // can be undone by another operation
	NonRepeatable       Class = "non_repeatable"       // happens again
)

// KeyRule says how the key of an intent is decided.
type KeyRule string

// The rules, in the order of preference.
const (
	KeyBusiness    KeyRule = "business"     // from fields of the payload
	KeyOperationID KeyRule = "operation_id" // by the caller, who stored it before the first attempt
	KeyArguments   KeyRule = "arguments"    // from caller and payload, within a window
)

// Key says how the key of an intent is decided.
type Key struct {
	Rule KeyRule `json:"rule"`
	// Fields are JSON Pointers to the payload fields that form a business key.
	Fields []string `json:"fields,omitempty"`
	// PerSubject adds the intent's subject to the key.
	PerSubject bool `json:"per_subject"`
	// PerVersion gives this version keys of its own. Otherwise all versions share them,
	// so that a deployment between two attempts does not cause a second effect.
	PerVersion bool `json:"per_version"`
	// Window is how long, from the first intent, the same arguments are a repeat. Only
	// for arguments; default 15 minutes.
	Window Duration `json:"window,omitzero"`
}

// Timeouts bound one attempt and the time in which an outcome may stay unknown.
type Timeouts struct {
	// Call bounds one provider call. Default 10 s.
	Call Duration `json:"call"`
	// Lease is how long an attempt may run before it counts as lost. At least
	// [LeaseMargin] longer than Call; default 10 s longer.
	Lease Duration `json:"lease"`
	// Reconcile is how long an unknown outcome is looked up before it goes to review.
	// Default 24 h.
	Reconcile Duration `json:"reconcile"`
}

// LeaseMargin is how much longer a lease must be than the call it covers.
const LeaseMargin = 5 * time.Second

// Retry says when and how often an attempt that was proven not executed is repeated.
type Retry struct {
	// MaxAttempts counts the first one too. Default 8.
	MaxAttempts int `json:"max_attempts"`
	// Initial is the delay after the first attempt (default 1 s), Multiplier what each
	// later one is longer by (default 2), Max the longest before jitter (default 5 m).
	Initial    Duration `json:"initial"`
	Max        Duration `json:"max"`
	Multiplier float64  `json:"multiplier"`
	// Jitter spreads each delay evenly over delay × [1 − Jitter, 1 + Jitter], from 0 to
	// 1. Default 0.5.
	Jitter float64 `json:"jitter"`
}

// Span is the longest that all delays together can be.
func (r Retry) Span() time.Duration {
	var sum time.Duration
	for attempt := 1; attempt < r.MaxAttempts; attempt++ {
		sum += time.Duration(float64(r.base(attempt)) * (1 + r.Jitter))
	}
	return sum
}

func (r Retry) base(attempt int) time.Duration {
	d := float64(r.Initial.Duration) * math.Pow(r.Multiplier, float64(attempt-1))
	if d >= float64(r.Max.Duration) { // +Inf too
		return r.Max.Duration
	}
	return time.Duration(d)
}

// Retention says how long a settled intent is kept.
type Retention struct {
	// Details is how long payload, result and history stay. Default 48 h.
	Details Duration `json:"details"`
	// Tombstone is how long key, digest and outcome stay, which is how long a repeat is
	// recognised. At least [Operation.TombstoneFloor]; default 9600 h (400 days).
	Tombstone Duration `json:"tombstone"`
}

// TombstoneFloor is the shortest tombstone with which a late retry cannot become a new
// effect, as far as the catalog knows: the reconcile window, all retries with their
// leases, and the window of arguments. The worker adds the provider's key memory.
func (o Operation) TombstoneFloor() time.Duration {
	return o.Timeouts.Reconcile.Duration + o.Retry.Span() +
		time.Duration(o.Retry.MaxAttempts)*o.Timeouts.Lease.Duration + o.Key.Window.Duration
}

// Approval says whether people must agree before anything is sent.
type Approval struct {
	Required bool `json:"required"`
	// People is how many different ones. Default 1.
	People int `json:"people"`
	// Expires is when an intent that nobody decided on is cancelled. Default 24 h.
	Expires Duration `json:"expires"`
}

// OnUnknown is what to risk when an outcome can be neither looked up nor learned by a
// safe replay.
type OnUnknown string

// The choices.
const (
	AtMostOnce  OnUnknown = "at_most_once"  // rather never than twice: review
	AtLeastOnce OnUnknown = "at_least_once" // rather twice than never
)

// Review names who decides what neither lookup nor replay can.
type Review struct {
	// Owner is a person, team or rota. Required unless a second execution is harmless
	// (read_only, naturally_idempotent); then it defaults to "unassigned".
	Owner string `json:"owner"`
}

// Money points to the amount in the payload, for those who decide about many intents.
type Money struct {
	Amount   string `json:"amount"`
	Currency string `json:"currency,omitempty"`
}

// FollowOnRule creates an intent when the operation has succeeded.
type FollowOnRule struct {
	// Name is unique in the operation and forms the new intent's key together with the
	// parent's reference.
	Name string `json:"name"`
	// Operation is the new intent's, with its version: send_receipt.v1.
	Operation string `json:"operation"`
	// When is a jq expression that gives true or false; empty means always.
	When string `json:"when,omitempty"`
	// Payload is a jq expression that gives the new intent's payload, an object.
	Payload string `json:"payload"`
}
