package httpjson_test

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/httpjson"
)

const (
	isAccepted = providers.KindAccepted
	isRefused  = providers.KindRefused
	isNotSent  = providers.KindNotSent
	isUnknown  = providers.KindUnknown
)

func TestWhatEachAnswerProves(t *testing.T) {
	t.Parallel()
	cautious := func(_ *httpjson.Config, o *httpjson.Operation) { o.ThrottledIsNotSent = false }
	noID := func(_ *httpjson.Config, o *httpjson.Operation) { o.IDField = httpjson.None }
	says := func(key string, kind providers.Kind) func(*httpjson.Config, *httpjson.Operation) {
		return func(_ *httpjson.Config, o *httpjson.Operation) { o.Answers = map[string]providers.Kind{key: kind} }
	}
	type settings = func(*httpjson.Config, *httpjson.Operation)
	for _, tt := range []struct {
		claim    string
		status   int
		body     string
		kind     providers.Kind
		code     string
		flags    string // of final, alert, throttled
		settings settings
	}{
		{"done", 200, created, isAccepted, "", "", nil},
		{"made", 201, created, isAccepted, "", "", nil},
		{"a number is an id", 201, `{"id":42}`, isAccepted, "", "", nil},
		{"no status is no doubt", 201, `{"id":"x"}`, isAccepted, "", "", nil},
		{"an id further down", 201, `{"data":{"id":"x"}}`, isAccepted, "", "", func(_ *httpjson.Config, o *httpjson.Operation) { o.IDField = "/data/id" }},

		{"the body is not JSON", 201, "<html>It works!</html>", isUnknown, "id_missing", "", nil},
		{"there is no body", 204, "", isUnknown, "id_missing", "", nil},
		{"an error under a 200 has no id", 200, `{"ok":false,"error":"invalid_auth"}`, isUnknown, "id_missing", "", nil},
		{"an id that cannot be stored", 200, `{"id":"a\u0000b"}`, isUnknown, "id_missing", "", nil},
		{"a fraction is no id", 200, `{"id":1.5}`, isUnknown, "id_missing", "", nil},
		{"two values are not JSON", 200, `{"id":"x"}{"id":"y"}`, isUnknown, "id_missing", "", nil},
		{"too long to be read", 200, `{"id":"x","pad":"` + strings.Repeat("x", 1<<20) + `"}`, isUnknown, "id_missing", "", nil},
		{"no id is wanted and no body comes", 204, "", isAccepted, "", "", noID},
		{"no id is wanted", 200, "ok", isAccepted, "", "", noID},

		{"still pending", 201, `{"id":"x","status":"pending"}`, isUnknown, "status_pending", "", nil},
		{"a status that is a sentence", 201, `{"id":"x","status":"for Anna"}`, isUnknown, "status_unknown", "", nil},
		{"it says that it failed", 200, `{"id":"x","status":"failed"}`, isRefused, "status_failed", "final", nil},
		{"status means something else here", 200, `{"id":"x","status":"weekday"}`, isAccepted, "", "", func(_ *httpjson.Config, o *httpjson.Operation) { o.StatusField = httpjson.None }},

		{"taken for later", 202, created, isUnknown, "http_202", "", nil},
		{"taken for later, which counts here", 202, created, isAccepted, "", "", says("202", isAccepted)},
		{"several answers in one", 207, created, isUnknown, "http_207", "", nil},

		{"moved", 301, "", isUnknown, "http_301", "alert", nil},
		{"see other, perhaps done", 303, "", isUnknown, "http_303", "alert", nil},
		{"repeat it there", 308, "", isUnknown, "http_308", "alert", nil},

		{"no credentials", 401, "", isNotSent, "http_401", "alert", nil},
		{"wrong credentials", 403, `{"error":{"code":"forbidden"}}`, isNotSent, "forbidden", "alert", nil},
		{"wrong path", 404, "404 page not found", isNotSent, "http_404", "alert", nil},
		{"wrong customer", 404, `{"error":{"code":"no_such_customer"}}`, isNotSent, "no_such_customer", "", nil},
		{"wrong method", 405, "", isNotSent, "http_405", "alert", nil},
		{"wrong type", 415, "", isNotSent, "http_415", "alert", nil},
		{"wrong connection", 421, "", isNotSent, "http_421", "", nil},
		{"too early", 425, "", isNotSent, "http_425", "", nil},
		{"headers too large", 431, "", isNotSent, "http_431", "alert", nil},

		{"malformed", 400, `{"error":{"code":"amount_invalid"}}`, isRefused, "amount_invalid", "final", nil},
		{"declined", 402, `{"error":{"code":"card_declined"}}`, isRefused, "card_declined", "final", nil},
		{"declined without a word", 402, "", isRefused, "http_402", "final", nil},
		{"a message is not a code", 422, `{"error":"Anna Kowalska has no account"}`, isRefused, "http_422", "final", nil},
		{"RFC 9457", 422, `{"type":"https://api.example.com/errors/no-funds","title":"No funds"}`, isRefused, "https://api.example.com/errors/no-funds", "final", nil},
		{"too large", 413, "", isRefused, "http_413", "final", nil},
		{"a refusal that was cut off may be about our key", 400, strings.Repeat(" ", 1<<20+1), isUnknown, "http_400", "", nil},

		{"Stripe: our key, another body", 400, `{"error":{"type":"idempotency_error"}}`, isUnknown, "idempotency_error", "alert", nil},
		{"Stripe: our key, still running", 409, `{"error":{"code":"idempotency_key_in_use","type":"idempotency_error"}}`, isUnknown, "idempotency_key_in_use", "", nil},
		{"Square: our key, another body", 400, `{"errors":[{"code":"IDEMPOTENCY_KEY_REUSED"}]}`, isUnknown, "IDEMPOTENCY_KEY_REUSED", "alert", nil},
		{"Resend: our key, another body", 409, `{"statusCode":409,"name":"invalid_idempotent_request"}`, isUnknown, "invalid_idempotent_request", "alert", nil},
		{"Resend: our key, still running", 409, `{"name":"concurrent_idempotent_requests"}`, isUnknown, "concurrent_idempotent_requests", "", nil},
		{"Zendesk: our key, another body", 400, `{"error":"IdempotentRequestError"}`, isUnknown, "IdempotentRequestError", "alert", nil},
		{"PayPal: our key, another body", 422, `{"name":"UNPROCESSABLE_ENTITY","details":[{"issue":"PAYPAL_REQUEST_ID_PREVIOUSLY_USED"}]}`, isUnknown, "PAYPAL_REQUEST_ID_PREVIOUSLY_USED", "alert", nil},
		{"PayPal: our key, still running", 409, `{"name":"RESOURCE_CONFLICT","details":[{"issue":"PREVIOUS_REQUEST_IN_PROGRESS"}]}`, isUnknown, "PREVIOUS_REQUEST_IN_PROGRESS", "", nil},
		{"PayPal: our invoice is there already", 422, `{"details":[{"issue":"DUPLICATE_INVOICE_ID"}]}`, isUnknown, "DUPLICATE_INVOICE_ID", "", says("DUPLICATE_INVOICE_ID", isUnknown)},
		{"Adyen: our key, still running", 422, `{"status":422,"errorCode":"704","errorType":"validation"}`, isUnknown, "704", "", says("704", isUnknown)},
		{"the settings know a code better", 500, `{"error":{"code":"card_expired"}}`, isRefused, "card_expired", "final", says("card_expired", isRefused)},

		{"conflict", 409, "", isUnknown, "http_409", "", nil},
		{"request timed out there", 408, "", isUnknown, "http_408", "", nil},
		{"gone", 410, "", isUnknown, "http_410", "", nil},
		{"teapot", 418, "", isUnknown, "http_418", "", nil},
		{"broken", 500, `{"error":{"code":"internal"}}`, isUnknown, "internal", "", nil},
		{"broken behind", 502, "<html>", isUnknown, "http_502", "", nil},
		{"overloaded", 503, "", isUnknown, "http_503", "", nil},
		{"overloaded, and the settings say it was not begun", 503, "", isNotSent, "http_503", "", says("503", isNotSent)},
		{"slow behind", 504, "", isUnknown, "http_504", "", nil},

		{"throttled before anything began", 429, "", isNotSent, "http_429", "throttled", nil},
		{"throttled, perhaps in the middle", 429, "", isUnknown, "http_429", "throttled", cautious},
	} {
		t.Run(tt.claim, func(t *testing.T) {
			t.Parallel()
			s, c := answering(t, tt.status, nil, tt.body)
			var change []func(*httpjson.Config, *httpjson.Operation)
			if tt.settings != nil {
				change = append(change, tt.settings)
			}
			p := newProvider(t, config(s.URL, change...))
			a := p.Send(testContext(t), prepare(t, p, charge(1)), allow)
			var flags []string
			for name, set := range map[string]bool{"final": a.Final, "alert": a.Alert, "throttled": a.Throttled} {
				if set {
					flags = append(flags, name)
				}
			}
			if a.Kind != tt.kind || a.Code != tt.code || strings.Join(flags, " ") != tt.flags {
				t.Fatalf("got %+v", a)
			}
			if strings.Contains(a.Reason, "Anna") {
				t.Fatalf("the reason quotes the body: %s", a.Reason)
			}
			c.want(t, 1)
		})
	}
}

func TestAnAnswerThatBreaksOffIsUnknown(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"in the headers":          "HTTP/1.1 201 Created\r\nContent-Le",
		"in the body":             "HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n" + created,
		"in the chunks":           "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2f\r\n" + created + "\r\n",
		"in a refusal about keys": "HTTP/1.1 400 Bad Request\r\nContent-Length: 100\r\n\r\n" + `{"error":`,
		"it is not HTTP":          "220 mail.example.com ESMTP\r\n",
		"headers without end":     "HTTP/1.1 201 Created\r\nX: " + strings.Repeat("x", 1<<17),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scripted(t, func(_ int, conn net.Conn) bool { _, _ = conn.Write([]byte(answer)); return false })
			p := newProvider(t, config(s.url))
			wantKind(t, p.Send(testContext(t), prepare(t, p, charge(1)), allow), isUnknown)
			s.want(t, 1)
		})
	}
}

func TestRetryAfterIsReadInBothFormsAndBounded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	date := now.Format(http.TimeFormat)
	for value, want := range map[string]time.Duration{
		"":                     0,
		"7":                    7 * time.Second,
		" 7 ":                  7 * time.Second,
		"0":                    0,
		"-5":                   0,
		"1.5":                  0,
		"soon":                 0,
		"99999999":             24 * time.Hour,
		"99999999999999999999": 24 * time.Hour,
		now.Add(time.Minute).Format(http.TimeFormat):          time.Minute, // by the server's clock
		now.Add(-time.Minute).Format(http.TimeFormat):         0,
		now.Add(365 * 24 * time.Hour).Format(http.TimeFormat): 24 * time.Hour,
	} {
		s, _ := answering(t, http.StatusTooManyRequests, http.Header{"Retry-After": {value}, "Date": {date}}, "")
		p := newProvider(t, config(s.URL))
		if a := p.Send(testContext(t), prepare(t, p, charge(1)), allow); a.RetryAfter != want {
			t.Errorf("%q: got %v, want %v", value, a.RetryAfter, want)
		}
	}
}

func TestTheResultIsWhatTheLedgerCanKeep(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{ "id": "x" }`:                                          `{"id":"x"}`,
		`{"id":"x","n":9007199254740993}`:                        `{"id":"x","n":9007199254740993}`,
		`{"id":"x","note":"a\u0000b"}`:                           "",
		`{"id":"x","pad":"` + strings.Repeat("x", 70_000) + `"}`: "",
	} {
		s, _ := answering(t, http.StatusCreated, nil, body)
		p := newProvider(t, config(s.URL))
		a := p.Send(testContext(t), prepare(t, p, charge(1)), allow)
		wantKind(t, a, isAccepted)
		if a.ProviderID != "x" || string(a.Result) != want {
			t.Errorf("%.40s: id %q, result %.40s", body, a.ProviderID, a.Result)
		}
	}
}
