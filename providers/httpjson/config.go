package httpjson

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-worker/outbox-worker/providers"
)

// None as KeyHeader, IDField or StatusField says that the provider has no such thing.
const None = "-"

// Config describes one account at one provider. Secrets are plain values here: whoever
// reads the configuration file expands them from the environment. Durations decode from
// "10s" with yaml and koanf; encoding/json takes nanoseconds.
type Config struct {
	// Account names the account in which effects happen. Required. Another account, or
	// a sandbox instead of the live system, is another Account.
	Account string `yaml:"account" json:"account"`
	// BaseURL is put before every path: https://api.example.com or with a path. Required.
	// It may carry no user, query or fragment.
	BaseURL string `yaml:"base_url" json:"base_url"`
	// Preset is the revision of these settings. Change it whenever the request, a header
	// that matters to the effect, or the meaning of an answer changes: intents that were
	// tried under the old one then go to review instead of being sent differently.
	// Default: "1".
	Preset string `yaml:"preset" json:"preset"`
	// KeyHeader carries the reference. Default: Idempotency-Key. "-": the provider has no
	// such header; then ReferenceField is required.
	KeyHeader string `yaml:"key_header" json:"key_header"`
	// ReferenceField is a member added to the body that carries the reference, for
	// lookups or as the key. Default: none. A payload that has the member is refused.
	ReferenceField string `yaml:"reference_field" json:"reference_field"`
	// Headers are sent with every request: Authorization, an API version.
	Headers map[string]string `yaml:"headers" json:"headers"`
	// Operations by name, "charge_card" for every version of it or "charge_card.v2" for
	// one, which wins. Required.
	Operations map[string]Operation `yaml:"operations" json:"operations"`

	// DialTimeout bounds the TCP connection. Default: 5 s.
	DialTimeout time.Duration `yaml:"dial_timeout" json:"dial_timeout"`
	// TLSTimeout bounds the TLS handshake. Default: 5 s.
	TLSTimeout time.Duration `yaml:"tls_timeout" json:"tls_timeout"`
	// IdleTimeout closes connections that were unused for so long. A provider that drops
	// one just as it is used again costs an unknown outcome, so stay below the provider's
	// own limit; Node.js and Apache use 5 s. Default: 4 s.
	IdleTimeout time.Duration `yaml:"idle_timeout" json:"idle_timeout"`
	// MaxResponse is how many bytes of an answer are read. The rest counts as unreadable.
	// Default: 1 MiB.
	MaxResponse int64 `yaml:"max_response" json:"max_response"`
	// Proxy is the URL of an HTTP, HTTPS or SOCKS5 proxy. Default: none; the environment
	// is not consulted, because who answers decides what an answer proves.
	Proxy string `yaml:"proxy" json:"proxy"`

	// TLS is for private certificate authorities and client certificates.
	TLS *tls.Config `yaml:"-" json:"-"`
	// Dial replaces the TCP dialler, for tests and unusual networks.
	Dial func(ctx context.Context, network, address string) (net.Conn, error) `yaml:"-" json:"-"`
}

// Operation is what the provider does for one operation. The zero value of everything
// but Path is the cautious one: no key memory, no lookup.
type Operation struct {
	// Path is posted to. {name} stands for a top-level member of the payload, a string or
	// an integer: /v1/charges/{charge}/refunds. Required.
	Path string `yaml:"path" json:"path"`
	// KeyMemory is how long the provider remembers our key; zero: it does not.
	KeyMemory time.Duration `yaml:"key_memory" json:"key_memory"`
	// Replay says what a repeat gets; required with KeyMemory.
	Replay providers.Replay `yaml:"replay" json:"replay"`
	// IDField names the provider's id in a successful answer: a top-level member, or a
	// JSON Pointer such as /data/id, of which lookups use the last part. "-": there is
	// none. Default: id.
	IDField string `yaml:"id_field" json:"id_field"`
	// StatusField names the member that says how the effect fares, in answers and in
	// lookups; an answer without it counts as done. "-": there is none. Default: status.
	StatusField string `yaml:"status_field" json:"status_field"`
	// SuccessStatuses and FailureStatuses are values of StatusField; any other means not
	// yet known. Default: succeeded, success, ok, completed, created, accepted, paid, sent,
	// confirmed, booked; and failed, declined, refused, rejected.
	SuccessStatuses []string `yaml:"success_statuses" json:"success_statuses"`
	FailureStatuses []string `yaml:"failure_statuses" json:"failure_statuses"`
	// ThrottledIsNotSent says that a 429 proves that the request was not begun.
	ThrottledIsNotSent bool `yaml:"throttled_is_not_sent" json:"throttled_is_not_sent"`
	// Answers says what an answer means where the provider's documentation knows better:
	// by status ("202": accepted, "503": not_sent) or by error code
	// ("DUPLICATE_INVOICE_ID": unknown). A code goes before a status. Only a 2xx status can
	// mean accepted.
	Answers map[string]providers.Kind `yaml:"answers" json:"answers"`

	// Lookup is the path that lists effects by reference: GET Lookup?reference=REF gives
	// {"data":[...]}. Default: no lookup.
	Lookup string `yaml:"lookup" json:"lookup"`
	// LookupField is the query parameter, and the member of a listed effect, that carries
	// the reference. Default: ReferenceField, or reference.
	LookupField string `yaml:"lookup_field" json:"lookup_field"`
	// Compare lists the payload's top-level members that a listed effect must show alike
	// to be ours. Default: amount and currency, where the payload has them.
	Compare []string `yaml:"compare" json:"compare"`
	// LookupLag is how long an effect may stay invisible to Lookup.
	LookupLag time.Duration `yaml:"lookup_lag" json:"lookup_lag"`
	// AbsenceIsProof says that what Lookup does not show after LookupLag did not happen.
	AbsenceIsProof bool `yaml:"absence_is_proof" json:"absence_is_proof"`
}

const (
	defaultKeyHeader   = "Idempotency-Key"
	defaultMaxResponse = 1 << 20
)

var (
	defaultSuccess = []string{"succeeded", "success", "ok", "completed", "created", "accepted", "paid", "sent", "confirmed", "booked"}
	defaultFailure = []string{"failed", "declined", "refused", "rejected"}
	defaultCompare = []string{"amount", "currency"}

	replays = []providers.Replay{
		providers.ReplayAllAfterStart, providers.ReplaySuccessOnly, providers.ReplayReexecuteFailed,
		providers.ReplayCurrentState, providers.ReplayKeyWins,
	}
	// unsettable headers are net/http's or ours; Expect would change what a write proves.
	unsettable = []string{"Connection", "Content-Length", "Expect", "Host", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

	fieldName     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)
	operationName = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.v[1-9][0-9]{0,8})?$`)
	headerName    = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
	statusName    = regexp.MustCompile(`^[1-9][0-9]{2}$`)
)

// withDefaults fills what is empty; it does not validate.
func (c Config) withDefaults() Config {
	c.Preset = cmp.Or(c.Preset, "1")
	c.KeyHeader = cmp.Or(c.KeyHeader, defaultKeyHeader)
	c.DialTimeout = cmp.Or(c.DialTimeout, 5*time.Second)
	c.TLSTimeout = cmp.Or(c.TLSTimeout, 5*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 4*time.Second)
	c.MaxResponse = cmp.Or(c.MaxResponse, defaultMaxResponse)
	operations := make(map[string]Operation, len(c.Operations))
	for name, o := range c.Operations {
		o.IDField = cmp.Or(o.IDField, "id")
		o.StatusField = cmp.Or(o.StatusField, "status")
		o.LookupField = cmp.Or(o.LookupField, c.ReferenceField, "reference")
		if o.SuccessStatuses == nil {
			o.SuccessStatuses = defaultSuccess
		}
		if o.FailureStatuses == nil {
			o.FailureStatuses = defaultFailure
		}
		if o.Compare == nil {
			o.Compare = defaultCompare
		}
		operations[name] = o
	}
	c.Operations = operations
	return c
}

// validate reports everything that is wrong, each with the field and what to do.
func (c Config) validate() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
	if c.Account == "" {
		bad("account", "is missing; name the account in which effects happen, as in acct_live")
	}
	if reason := checkBaseURL(c.BaseURL); reason != "" {
		bad("base_url", "%s", reason)
	}
	if c.Proxy != "" {
		if u, err := url.Parse(c.Proxy); err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme) {
			bad("proxy", "is not a proxy; give a URL such as http://proxy.internal:3128")
		}
	}
	if c.KeyHeader == None && c.ReferenceField == "" {
		bad("reference_field", "is missing; with key_header %q the provider would never learn the reference", None)
	}
	if c.KeyHeader != None && (!headerName.MatchString(c.KeyHeader) || slices.Contains(unsettable, textproto.CanonicalMIMEHeaderKey(c.KeyHeader))) {
		bad("key_header", "%q cannot carry a key; give a header's name, or %q if there is none", c.KeyHeader, None)
	}
	if c.ReferenceField != "" && !fieldName.MatchString(c.ReferenceField) {
		bad("reference_field", "%q is not the name of a top-level member; use letters, digits, _ and -", c.ReferenceField)
	}
	errs = append(errs, c.validateHeaders()...)
	for field, d := range map[string]time.Duration{"dial_timeout": c.DialTimeout, "tls_timeout": c.TLSTimeout, "idle_timeout": c.IdleTimeout} {
		if d < 0 {
			bad(field, "%v is negative; give a duration such as 5s", d)
		}
	}
	if c.MaxResponse < 0 {
		bad("max_response", "%d is negative; give a number of bytes", c.MaxResponse)
	}
	if len(c.Operations) == 0 {
		bad("operations", "is empty; name at least one operation and its path")
	}
	for name, o := range c.Operations {
		if !operationName.MatchString(name) {
			bad("operations."+name, "is not an operation's name; give one such as charge_card or charge_card.v2")
		}
		for _, err := range o.validate() {
			errs = append(errs, fmt.Errorf("operations.%s.%w", name, err))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

func checkBaseURL(s string) string {
	u, err := url.Parse(s)
	switch {
	case s == "":
		return "is missing; give one such as https://api.example.com"
	case err != nil:
		return "is not a URL; give one such as https://api.example.com"
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return "is not an http or https URL with a host; give one such as https://api.example.com"
	case u.User != nil:
		return "has a user in it, which would end up in logs; use headers.Authorization"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "has a query or fragment; give scheme, host and path only"
	}
	return ""
}

func (c Config) validateHeaders() (errs []error) {
	seen := map[string]bool{}
	for name, value := range c.Headers {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !headerName.MatchString(name):
			errs = append(errs, fmt.Errorf("headers: %q is not a header's name", name))
		case slices.Contains(unsettable, canonical):
			errs = append(errs, fmt.Errorf("headers.%s: is set by the connection; remove it", name))
		case strings.EqualFold(name, c.KeyHeader):
			errs = append(errs, fmt.Errorf("headers.%s: is the key header, which is set per intent; remove it", name))
		case seen[canonical]:
			errs = append(errs, fmt.Errorf("headers.%s: is there twice in different case; remove one", name))
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			errs = append(errs, fmt.Errorf("headers.%s: the value has a control character, perhaps a line end from a file; remove it", name))
		case strings.TrimSpace(value) == "":
			errs = append(errs, fmt.Errorf("headers.%s: is empty; set it, or remove it (is an environment variable missing?)", name))
		}
		seen[canonical] = true
	}
	return errs
}

// validate names fields relative to the operation.
func (o Operation) validate() (errs []error) {
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
	if _, err := parsePath(o.Path); err != nil {
		bad("path", "%v", err)
	}
	switch {
	case o.KeyMemory < 0:
		bad("key_memory", "%v is negative; give how long the provider remembers a key, or leave it out", o.KeyMemory)
	case o.KeyMemory > 0 && o.Replay == "":
		bad("replay", "is missing; key_memory is useless without knowing what a repeat gets: one of %v", replays)
	case o.KeyMemory == 0 && o.Replay != "":
		bad("key_memory", "is missing; replay is only asked for while the provider remembers the key")
	}
	if o.Replay != "" && !slices.Contains(replays, o.Replay) {
		bad("replay", "%q is unknown; give one of %v", o.Replay, replays)
	}
	if o.IDField != None && !validPointer(o.IDField) {
		bad("id_field", "%q is neither a member's name nor a JSON Pointer", o.IDField)
	}
	if o.StatusField != None && !validPointer(o.StatusField) {
		bad("status_field", "%q is neither a member's name nor a JSON Pointer", o.StatusField)
	}
	for _, s := range o.SuccessStatuses {
		if slices.Contains(o.FailureStatuses, s) {
			bad("failure_statuses", "%q is a success status too; remove it from one of them", s)
		}
	}
	for key, kind := range o.Answers {
		if reason := checkAnswer(key, kind); reason != "" {
			bad("answers."+key, "%s", reason)
		}
	}
	return append(errs, o.validateLookup()...)
}

func checkAnswer(key string, kind providers.Kind) string {
	status := 0
	if statusName.MatchString(key) {
		status, _ = strconv.Atoi(key)
	}
	switch {
	case key == "":
		return "needs a status or an error code before the colon"
	case kind != providers.KindAccepted && kind != providers.KindRefused && kind != providers.KindNotSent && kind != providers.KindUnknown:
		return fmt.Sprintf("%q is no outcome; give accepted, refused, not_sent or unknown", kind)
	case status == http.StatusTooManyRequests:
		return "use throttled_is_not_sent for 429"
	case kind == providers.KindAccepted && status/100 != 2:
		return "only a 2xx status can mean accepted"
	}
	return ""
}

func (o Operation) validateLookup() (errs []error) {
	bad := func(field, reason string) { errs = append(errs, fmt.Errorf("%s: %s", field, reason)) }
	switch {
	case o.LookupLag < 0:
		bad("lookup_lag", "is negative; give how long an effect may stay invisible")
	case o.Lookup == "" && o.LookupLag != 0:
		bad("lookup", "is missing; lookup_lag means nothing without it")
	case o.Lookup == "" && o.AbsenceIsProof:
		bad("lookup", "is missing; without it nothing is ever found absent")
	}
	if o.Lookup != "" {
		if _, err := parsePath(o.Lookup); err != nil {
			bad("lookup", err.Error())
		}
		if !fieldName.MatchString(o.LookupField) {
			bad("lookup_field", "is not a member's name; it is both the query parameter and the member of a listed effect")
		}
	}
	return errs
}
