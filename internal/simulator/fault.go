package simulator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// The services that the simulator plays.
const (
	Charges   = "charges"
	Refunds   = "refunds"
	Shipments = "shipments"
	Bookings  = "bookings"
	Mail      = "mail"
)

// Services lists every service, HTTP first.
func Services() []string { return []string{Charges, Refunds, Shipments, Bookings, Mail} }

// Kind says what a fault does.
type Kind string

const (
	// Delay sleeps for Duration before the effect (for mail: at the dot).
	Delay Kind = "delay"
	// SlowBody sends status and headers at once and the body over Duration.
	SlowBody Kind = "slow_body"

	// ResetBefore resets the connection; no effect.
	ResetBefore Kind = "reset_before"
	// ErrorBefore answers Status (503); no effect.
	ErrorBefore Kind = "error_before"
	// InProgress answers 409 idempotency_key_in_use; no effect of this request.
	InProgress Kind = "in_progress"
	// Throttle answers 429 with RetryAfter seconds (1); no effect.
	Throttle Kind = "throttle"
	// Unauthorized answers 401; no effect.
	Unauthorized Kind = "unauthorized"
	// Redirect answers Status (302) to Location; no effect. The default location
	// answers 200 with something that looks like success, and counts who fell for it.
	Redirect Kind = "redirect"

	// Refuse is the provider's final no: Status (402) and Code (card_declined), saved
	// under the key, no effect.
	Refuse Kind = "refuse"

	// ResetAfter has the effect, then resets the connection.
	ResetAfter Kind = "reset_after"
	// ErrorAfter has the effect, then answers Status (500).
	ErrorAfter Kind = "error_after"
	// Lost has the effect, then holds the connection until the client leaves.
	Lost Kind = "lost"
	// Truncated has the effect, then cuts the connection in the middle of the 201's body.
	Truncated Kind = "truncated"
	// Garbage has the effect, then answers 200 with a body that is not JSON.
	Garbage Kind = "garbage"

	// RefuseRcpt refuses the recipient: Status (550) and enhanced Code (5.1.1).
	RefuseRcpt Kind = "refuse_rcpt"
	// RefuseDot refuses the message at the dot: Status (554) and enhanced Code (5.7.1).
	RefuseDot Kind = "refuse_dot"
	// Tempfail answers Status (451) and Code (4.3.0) at RCPT or, by default, at the dot;
	// no effect.
	Tempfail Kind = "tempfail"
	// DropBeforeDot resets the connection once the headers are read; no effect. The
	// client may already have sent the dot.
	DropBeforeDot Kind = "drop_before_dot"
	// LostAfterDot accepts and counts the mail, then resets the connection instead of
	// replying.
	LostAfterDot Kind = "lost_after_dot"
)

// Values of Fault.On.
const (
	OnCreate = "create"
	OnLookup = "lookup"
)

// Values of Fault.At.
const (
	AtRcpt = "rcpt"
	AtDot  = "dot"
)

// Fault is one line of the script. Zero values match everything; in JSON the members
// are named in snake case and durations are strings such as "2s".
type Fault struct {
	// Kind is required.
	Kind Kind
	// Service limits the fault to one service; empty means any that knows the kind.
	Service string
	// Reference limits it to one reference.
	Reference string
	// On is OnCreate, the default, or OnLookup: GET by reference or id.
	On string
	// Nth limits it to the nth request of its reference, counted from 1 since the start
	// or the last reset. At RCPT, where no reference is known, the nth for the recipient.
	Nth int
	// Count is how often it fires; 0 means always.
	Count int
	// Probability, if not 0, lets chance decide. The same seed, reference and nth decide
	// alike, in whatever order requests come.
	Probability float64
	// Seed of the chance; 0 means the server's.
	Seed uint64

	// Duration of Delay and SlowBody.
	Duration time.Duration
	// Status answered, where the kind has one; 0 means the kind's default.
	Status int
	// Code of a refusal; for mail the enhanced status code.
	Code string
	// RetryAfter is the header's seconds for Throttle; 0 means 1.
	RetryAfter int
	// Location of Redirect, a path here or a URL.
	Location string
	// At is where Tempfail strikes: AtDot, the default, or AtRcpt.
	At string
	// Recipient limits a mail fault to one address.
	Recipient string
}

// stage is the point of a request at which a kind strikes.
type stage int

const (
	modify  stage = iota // adds to whatever else happens
	gate                 // before the key is looked at
	execute              // instead of the effect
	after                // once there is an effect or a saved answer
	rcpt                 // at RCPT
)

// trait is what there is to know about a kind.
type trait struct {
	stage              stage
	http, mail, lookup bool
	status             [2]int   // allowed range of Status; zero: Status means nothing
	fields             []string // other fields the kind understands, as in JSON
}

var traits = map[Kind]trait{
	Delay:    {stage: modify, http: true, mail: true, lookup: true, fields: []string{"duration"}},
	SlowBody: {stage: modify, http: true, lookup: true, fields: []string{"duration"}},

	ResetBefore:  {stage: gate, http: true, lookup: true},
	ErrorBefore:  {stage: gate, http: true, lookup: true, status: [2]int{500, 599}},
	InProgress:   {stage: gate, http: true},
	Throttle:     {stage: gate, http: true, lookup: true, fields: []string{"retry_after"}},
	Unauthorized: {stage: gate, http: true, lookup: true},
	Redirect:     {stage: gate, http: true, lookup: true, status: [2]int{300, 399}, fields: []string{"location"}},

	Refuse: {stage: execute, http: true, status: [2]int{400, 499}, fields: []string{"code"}},

	ResetAfter: {stage: after, http: true},
	ErrorAfter: {stage: after, http: true, status: [2]int{500, 599}},
	Lost:       {stage: after, http: true, mail: true, lookup: true},
	Truncated:  {stage: after, http: true, lookup: true},
	Garbage:    {stage: after, http: true, lookup: true},

	RefuseRcpt:    {stage: rcpt, mail: true, status: [2]int{500, 599}, fields: []string{"code"}},
	RefuseDot:     {stage: execute, mail: true, status: [2]int{500, 599}, fields: []string{"code"}},
	Tempfail:      {stage: execute, mail: true, status: [2]int{400, 499}, fields: []string{"code", "at"}},
	DropBeforeDot: {stage: gate, mail: true},
	LostAfterDot:  {stage: after, mail: true},
}

// stage is where this fault strikes, which for Tempfail is a choice.
func (f Fault) stage() stage {
	if f.Kind == Tempfail && f.At == AtRcpt {
		return rcpt
	}
	return traits[f.Kind].stage
}

// Validate reports the first thing about f that could not do what it says.
func (f Fault) Validate() error {
	t, ok := traits[f.Kind]
	if !ok {
		return fmt.Errorf("kind %q is unknown; kinds are %s", f.Kind, kindList())
	}
	if f.Service != "" && !slices.Contains(Services(), f.Service) {
		return fmt.Errorf("service %q is unknown; services are %s", f.Service, strings.Join(Services(), ", "))
	}
	switch {
	case f.Service == Mail && !t.mail:
		return fmt.Errorf("%s cannot happen to mail", f.Kind)
	case f.Service != "" && f.Service != Mail && !t.http:
		return fmt.Errorf("%s can only happen to mail", f.Kind)
	case f.On != "" && f.On != OnCreate && f.On != OnLookup:
		return fmt.Errorf("on %q: want %s or %s", f.On, OnCreate, OnLookup)
	case f.On == OnLookup && (!t.lookup || f.Service == Mail):
		return fmt.Errorf("%s cannot happen to a lookup of %q", f.Kind, f.Service)
	case f.Nth < 0 || f.Count < 0 || f.RetryAfter < 0 || f.Duration < 0:
		return fmt.Errorf("%s: nth, count, retry_after and duration cannot be negative", f.Kind)
	case f.Probability < 0 || f.Probability > 1:
		return fmt.Errorf("%s: probability %v is not between 0 and 1", f.Kind, f.Probability)
	case f.stage() == rcpt && f.Reference != "":
		return fmt.Errorf("%s: the reference is not known at RCPT; name the recipient", f.Kind)
	case f.Recipient != "" && (!t.mail || f.Service != Mail):
		return fmt.Errorf("%s: recipient needs service %q", f.Kind, Mail)
	}
	return f.validateFields(t)
}

func (f Fault) validateFields(t trait) error {
	given := map[string]bool{
		"duration":    f.Duration != 0,
		"code":        f.Code != "",
		"retry_after": f.RetryAfter != 0,
		"location":    f.Location != "",
		"at":          f.At != "",
	}
	for _, name := range []string{"duration", "code", "retry_after", "location", "at"} {
		if given[name] && !slices.Contains(t.fields, name) {
			return fmt.Errorf("%s: %s means nothing here", f.Kind, name)
		}
	}
	switch {
	case slices.Contains(t.fields, "duration") && f.Duration == 0:
		return fmt.Errorf("%s: needs a duration", f.Kind)
	case f.At != "" && f.At != AtRcpt && f.At != AtDot:
		return fmt.Errorf("%s: at %q: want %s or %s", f.Kind, f.At, AtRcpt, AtDot)
	case f.Status != 0 && t.status == [2]int{}:
		return fmt.Errorf("%s: status means nothing here", f.Kind)
	case f.Status != 0 && (f.Status < t.status[0] || f.Status > t.status[1]):
		return fmt.Errorf("%s: status %d is not between %d and %d", f.Kind, f.Status, t.status[0], t.status[1])
	case f.Code != "" && t.mail:
		if _, err := parseEnhancedCode(f.Code); err != nil {
			return fmt.Errorf("%s: %w", f.Kind, err)
		}
	}
	return nil
}

// status is the fault's, or the kind's own.
func (f Fault) status(usual int) int {
	if f.Status != 0 {
		return f.Status
	}
	return usual
}

func kindList() string {
	var names []string
	for k := range traits {
		names = append(names, string(k))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// faultJSON is Fault on the wire.
type faultJSON struct {
	Kind        Kind    `json:"kind"`
	Service     string  `json:"service,omitempty"`
	Reference   string  `json:"reference,omitempty"`
	On          string  `json:"on,omitempty"`
	Nth         int     `json:"nth,omitempty"`
	Count       int     `json:"count,omitempty"`
	Probability float64 `json:"probability,omitempty"`
	Seed        uint64  `json:"seed,omitempty"`
	Duration    string  `json:"duration,omitempty"`
	Status      int     `json:"status,omitempty"`
	Code        string  `json:"code,omitempty"`
	RetryAfter  int     `json:"retry_after,omitempty"`
	Location    string  `json:"location,omitempty"`
	At          string  `json:"at,omitempty"`
	Recipient   string  `json:"recipient,omitempty"`
}

// MarshalJSON writes durations as strings.
func (f Fault) MarshalJSON() ([]byte, error) {
	return json.Marshal(faultJSON{
		f.Kind, f.Service, f.Reference, f.On, f.Nth, f.Count, f.Probability, f.Seed,
		durationText(f.Duration), f.Status, f.Code, f.RetryAfter, f.Location, f.At, f.Recipient,
	})
}

// UnmarshalJSON refuses unknown members: a misspelt fault must not be a fault that
// never fires.
func (f *Fault) UnmarshalJSON(data []byte) error {
	var j faultJSON
	if err := decodeStrict(data, &j); err != nil {
		return err
	}
	d, err := parseDuration(j.Duration)
	if err != nil {
		return fmt.Errorf("%s: duration: %w", j.Kind, err)
	}
	*f = Fault{
		j.Kind, j.Service, j.Reference, j.On, j.Nth, j.Count, j.Probability, j.Seed,
		d, j.Status, j.Code, j.RetryAfter, j.Location, j.At, j.Recipient,
	}
	return nil
}

// KeyMode is what a provider does with the header Idempotency-Key.
type KeyMode string

const (
	// Honour replays the saved answer to a known key; a request without key is refused.
	Honour KeyMode = "honour"
	// Ignore makes every accepted POST an effect.
	Ignore KeyMode = "ignore"
)

// Behaviour is how one HTTP service behaves when nothing is scripted. The zero value
// honours keys for ever and shows effects to lookups at once.
type Behaviour struct {
	// Keys is Honour when empty.
	Keys KeyMode
	// Memory is how long after its first use a key is known; then a repeat is a new
	// effect. 0 means for ever.
	Memory time.Duration
	// SaveErrors makes the error of ErrorAfter the answer that is saved and replayed, as
	// Stripe v1 does. By default the success behind it is saved.
	SaveErrors bool
	// LookupLag is how long an effect stays invisible to lookups by reference.
	LookupLag time.Duration
}

type behaviourJSON struct {
	Keys       KeyMode `json:"keys,omitempty"`
	Memory     string  `json:"memory,omitempty"`
	SaveErrors bool    `json:"save_errors,omitempty"`
	LookupLag  string  `json:"lookup_lag,omitempty"`
}

// MarshalJSON writes durations as strings.
func (b Behaviour) MarshalJSON() ([]byte, error) {
	return json.Marshal(behaviourJSON{b.Keys, durationText(b.Memory), b.SaveErrors, durationText(b.LookupLag)})
}

// UnmarshalJSON refuses unknown members.
func (b *Behaviour) UnmarshalJSON(data []byte) error {
	var j behaviourJSON
	if err := decodeStrict(data, &j); err != nil {
		return err
	}
	memory, err := parseDuration(j.Memory)
	if err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	lag, err := parseDuration(j.LookupLag)
	if err != nil {
		return fmt.Errorf("lookup_lag: %w", err)
	}
	*b = Behaviour{j.Keys, memory, j.SaveErrors, lag}
	return nil
}

func (b Behaviour) validate(service string) error {
	switch {
	case service == Mail || !slices.Contains(Services(), service):
		return fmt.Errorf("service %q has no behaviour to set", service)
	case b.Keys != "" && b.Keys != Honour && b.Keys != Ignore:
		return fmt.Errorf("%s: keys %q: want %s or %s", service, b.Keys, Honour, Ignore)
	case b.Memory < 0 || b.LookupLag < 0:
		return fmt.Errorf("%s: memory and lookup_lag cannot be negative", service)
	}
	return nil
}

func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func parseDuration(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	return time.ParseDuration(s)
}

// decodeStrict reads exactly one JSON value with no unknown members.
func decodeStrict(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	dec.UseNumber()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("something follows the JSON value")
	}
	return nil
}

// gateAnswer is what a gate fault answers; ok is false for those that just cut.
func (f Fault) gateAnswer() (a answer, ok bool) {
	switch f.Kind {
	case ErrorBefore:
		return errorAnswer(f.status(http.StatusServiceUnavailable), "unavailable", "scripted: the service is down"), true
	case InProgress:
		return keyInUse(), true
	case Throttle:
		a = errorAnswer(http.StatusTooManyRequests, "rate_limited", "scripted: too many requests")
		a.header("Retry-After", fmt.Sprint(max(f.RetryAfter, 1)))
		return a, true
	case Unauthorized:
		return errorAnswer(http.StatusUnauthorized, "unauthorized", "scripted: bad credentials"), true
	case Redirect:
		a = errorAnswer(f.status(http.StatusFound), "moved", "scripted: look elsewhere")
		a.header("Location", f.location())
		return a, true
	}
	return answer{}, false
}

func (f Fault) location() string {
	if f.Location != "" {
		return f.Location
	}
	return decoyPath
}
