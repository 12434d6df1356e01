package httpjson

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-worker/outbox-worker/providers"
)

// reply is an answer of the provider, read.
type reply struct {
	status   int
	header   http.Header
	body     []byte
	complete bool // the body is all there
}

// verdict is what a status proves when nothing in the body or the settings says otherwise.
type verdict struct {
	kind  providers.Kind
	alert bool
	// needsBody: only together with the whole body, which could say that our key was used
	// before.
	needsBody bool
}

// verdicts of the statuses that prove something. Any other is unknown.
var verdicts = map[int]verdict{
	http.StatusOK:                   {kind: providers.KindAccepted},
	http.StatusCreated:              {kind: providers.KindAccepted},
	http.StatusNonAuthoritativeInfo: {kind: providers.KindAccepted},
	http.StatusNoContent:            {kind: providers.KindAccepted},
	http.StatusResetContent:         {kind: providers.KindAccepted},

	http.StatusBadRequest:            {kind: providers.KindRefused, needsBody: true},
	http.StatusPaymentRequired:       {kind: providers.KindRefused, needsBody: true},
	http.StatusUnprocessableEntity:   {kind: providers.KindRefused, needsBody: true},
	http.StatusRequestEntityTooLarge: {kind: providers.KindRefused},

	// Turned away at the door, which says nothing about the intent: with other credentials
	// or another path the same request may pass. Where our settings are at fault, somebody
	// has to know.
	http.StatusUnauthorized:                {kind: providers.KindNotSent, alert: true},
	http.StatusForbidden:                   {kind: providers.KindNotSent, alert: true},
	http.StatusNotFound:                    {kind: providers.KindNotSent, alert: true},
	http.StatusMethodNotAllowed:            {kind: providers.KindNotSent, alert: true},
	http.StatusUnsupportedMediaType:        {kind: providers.KindNotSent, alert: true},
	http.StatusRequestHeaderFieldsTooLarge: {kind: providers.KindNotSent, alert: true},
	http.StatusMisdirectedRequest:          {kind: providers.KindNotSent},
	http.StatusTooEarly:                    {kind: providers.KindNotSent},
}

// classify says what an answer proves about the effect.
func classify(o *operation, r reply) providers.Answer {
	content, isJSON := decode(r.body)
	isJSON = isJSON && r.complete
	var said []string
	if isJSON && r.status >= 300 {
		said = codes(content)
	}
	code := httpCode(r.status)
	if len(said) > 0 {
		code = said[0]
	}
	v := judge(o, r, said)
	a := providers.Answer{Kind: v.kind, Code: code, Reason: reason(r.status, said), Alert: v.alert}
	if isJSON {
		a.Result = keep(r.body)
	}
	a.RetryAfter = retryAfter(r.header, time.Now())
	a.Throttled = r.status == http.StatusTooManyRequests
	switch v.kind {
	case providers.KindAccepted:
		return accept(o, a, content, isJSON)
	case providers.KindRefused:
		a.Final = true
	}
	return a
}

// judge applies, in this order: the settings' word on a code, a mismatch of keys, the
// settings' word on the status, the table.
func judge(o *operation, r reply, said []string) verdict {
	for _, code := range said {
		if kind, ok := o.Answers[code]; ok && kind != providers.KindAccepted {
			return verdict{kind: kind}
		}
	}
	if r.status/100 != 2 && slices.ContainsFunc(said, aboutKeys) {
		return verdict{kind: providers.KindUnknown, alert: !slices.ContainsFunc(said, inProgress)}
	}
	if kind, ok := o.Answers[strconv.Itoa(r.status)]; ok {
		return verdict{kind: kind}
	}
	if r.status == http.StatusTooManyRequests && o.ThrottledIsNotSent {
		return verdict{kind: providers.KindNotSent}
	}
	v := verdicts[r.status]
	switch {
	case v.needsBody && !r.complete:
		return verdict{kind: providers.KindUnknown}
	case r.status/100 == 3:
		// The effect may have happened before the redirect (303 is made for that), and no
		// intent of this account will get anywhere until somebody corrects base_url.
		return verdict{kind: providers.KindUnknown, alert: true}
	case r.status == http.StatusNotFound && len(said) > 0:
		// Not a wrong path but, say, a wrong customer.
		v.alert = false
	}
	v.kind = cmp.Or(v.kind, providers.KindUnknown)
	return v
}

// aboutKeys: the provider knows our key, with another body or with a request still
// running. Neither is a refusal of this effect.
func aboutKeys(code string) bool {
	c := strings.ToLower(code)
	return strings.Contains(c, "idempoten") || c == "paypal_request_id_previously_used" || inProgress(code)
}

func inProgress(code string) bool {
	c := strings.ToLower(code)
	return strings.Contains(c, "key_in_use") || strings.Contains(c, "concurrent_idempoten") ||
		strings.Contains(c, "idempotency_concurrent") || c == "previous_request_in_progress"
}

// accept reads what a success says. Without a readable id the outcome is unknown although
// the status says done: a proxy's page has the same status, an error told under a 200 has
// no id either, and only as unknown will somebody look for the id that refunds need.
func accept(o *operation, a providers.Answer, content any, isJSON bool) providers.Answer {
	if status, ok := at(content, o.StatusField).(string); ok && !slices.Contains(o.SuccessStatuses, status) {
		return unfinished(o, a, status)
	}
	if o.IDField == None {
		return done(a, "")
	}
	id := identifier(at(content, o.IDField))
	if !isJSON || id == "" {
		a.Kind, a.Code = providers.KindUnknown, "id_missing"
		a.Reason += fmt.Sprintf(", but no readable %s", o.IDField)
		return a
	}
	return done(a, id)
}

func done(a providers.Answer, id string) providers.Answer {
	a.Kind, a.ProviderID, a.Code, a.Reason, a.RetryAfter = providers.KindAccepted, id, "", "", 0
	return a
}

// unfinished is an effect in a status other than success.
func unfinished(o *operation, a providers.Answer, status string) providers.Answer {
	a.Kind, a.Code = providers.KindUnknown, "status_unknown"
	a.Reason = "the provider's status is not one of the settings' success or failure statuses"
	if strings.Trim(status, codeCharacters) == "" && len(status) <= maxCode {
		a.Code = "status_" + status
	}
	if slices.Contains(o.FailureStatuses, status) {
		a.Kind, a.Final = providers.KindRefused, true
		a.Reason = "the provider's status says that it failed"
	}
	return a
}

// reason repeats nothing of the body but codes: messages may quote the payload.
func reason(status int, said []string) string {
	s := strings.TrimSpace(fmt.Sprintf("HTTP %d %s", status, http.StatusText(status)))
	if len(said) > 0 {
		s += " (" + strings.Join(slices.Compact(said), ", ") + ")"
	}
	return s
}

const maxRetryAfter = 24 * time.Hour

// retryAfter reads both forms, bounded; a date counts from the provider's own clock if it
// shows that.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			return maxRetryAfter
		}
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	until, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(until.Sub(now), 0), maxRetryAfter)
}
