package httpjson_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/httpjson"
)

func TestWhatReachesTheProvider(t *testing.T) {
	t.Parallel()
	s, c := answering(t, http.StatusCreated, nil, created)
	p := newProvider(t, config(s.URL+"/api/", func(c *httpjson.Config, o *httpjson.Operation) {
		c.ReferenceField = "reference"
		c.Headers = map[string]string{"Authorization": "Bearer abc", "content-type": "application/vnd.api+json"}
		o.Path = "/charges/{charge}/refunds"
	}))
	in := charge(1)
	in.Payload = json.RawMessage(`{"amount":9007199254740991,"charge":"ch 1;x","note":"<&>\u2028"}`)
	wantKind(t, p.Send(testContext(t), prepare(t, p, in), allow), isAccepted)
	if got, want := c.last.RequestURI, "/api/charges/ch%201%3Bx/refunds"; got != want {
		t.Errorf("path %s, want %s", got, want)
	}
	if got, want := string(c.body), `{"reference":"`+reference(1)+`","amount":9007199254740991,"charge":"ch 1;x","note":"<&>\u2028"}`; got != want {
		t.Errorf("body %s, want %s", got, want)
	}
	for name, want := range map[string]string{
		"Idempotency-Key": reference(1), "Authorization": "Bearer abc", "Content-Type": "application/vnd.api+json",
		"Accept-Encoding": "", "User-Agent": "outbox-worker", "Cookie": "",
	} {
		if got := c.last.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if c.last.ContentLength != int64(len(c.body)) {
		t.Errorf("length %d of %d", c.last.ContentLength, len(c.body))
	}
}

func TestWithoutAKeyHeaderNoneIsSent(t *testing.T) {
	t.Parallel()
	s, c := answering(t, http.StatusCreated, nil, created)
	p := newProvider(t, config(s.URL, func(c *httpjson.Config, _ *httpjson.Operation) {
		c.KeyHeader, c.ReferenceField = httpjson.None, "idempotency_key"
	}))
	in := charge(1)
	in.Payload = json.RawMessage(`{}`)
	wantKind(t, p.Send(testContext(t), prepare(t, p, in), allow), isAccepted)
	if _, sent := c.last.Header["Idempotency-Key"]; sent {
		t.Error("sent the header")
	}
	if got, want := string(c.body), `{"idempotency_key":"`+reference(1)+`"}`; got != want {
		t.Errorf("body %s, want %s", got, want)
	}
}

func TestAPayloadThatCannotBeSentIsRefusedWithItsPath(t *testing.T) {
	t.Parallel()
	p := newProvider(t, config("https://api.example.com", func(c *httpjson.Config, o *httpjson.Operation) {
		c.ReferenceField = "reference"
		o.Path = "/charges/{charge}"
	}))
	for payload, path := range map[string]string{
		`[]`:                                "",
		`null`:                              "",
		`{"charge":"x"`:                     "",
		`{}`:                                "/charge",
		`{"charge":""}`:                     "/charge",
		`{"charge":null}`:                   "/charge",
		`{"charge":1.5}`:                    "/charge",
		`{"charge":{"id":"x"}}`:             "/charge",
		`{"charge":".."}`:                   "/charge",
		`{"charge":"../admin"}`:             "/charge",
		`{"charge":"x%2fadmin"}`:            "/charge",
		`{"charge":"x?admin=1"}`:            "/charge",
		`{"charge":"x\r\nHost: y"}`:         "/charge",
		`{"charge":"x","reference":"mine"}`: "/reference",
	} {
		in := charge(1)
		in.Payload = json.RawMessage(payload)
		_, err := p.Prepare(in)
		var invalid *providers.InvalidError
		if !errors.As(err, &invalid) || invalid.Path != path {
			t.Errorf("%s: got %v, want path %q", payload, err, path)
		}
	}
	for _, bad := range []string{"", "short", reference(1) + "0", "0000000000000000000000000000000\n", "0000000000000000000000000000000W"} {
		in := charge(1)
		in.Reference, in.Payload = bad, json.RawMessage(`{"charge":"x"}`)
		if _, err := p.Prepare(in); err == nil {
			t.Errorf("accepted reference %q", bad)
		}
	}
	in := charge(1)
	in.Operation = "refund"
	if _, err := p.Prepare(in); err == nil {
		t.Error("prepared an operation that is not configured")
	}
}

// Whatever could change the effect changes the hash; credentials, which rotate, do not.
func TestTheHashCoversWhatCouldChangeTheEffect(t *testing.T) {
	t.Parallel()
	hash := func(in providers.Intent, change ...func(*httpjson.Config, *httpjson.Operation)) [32]byte {
		return prepare(t, newProvider(t, config("https://api.example.com", change...)), in).Hash
	}
	base := hash(charge(1))
	if hash(charge(1), func(c *httpjson.Config, _ *httpjson.Operation) {
		c.Headers = map[string]string{"Authorization": "Bearer new"}
		c.DialTimeout = 1
	}) != base {
		t.Error("new credentials change the hash")
	}
	otherPayload, otherReference := charge(1), charge(1)
	otherPayload.Payload = charge(2).Payload
	otherReference.Reference = reference(2)
	seen := map[[32]byte]string{base: "the base"}
	for name, h := range map[string][32]byte{
		"payload":   hash(otherPayload),
		"reference": hash(otherReference),
		"path":      hash(charge(1), func(_ *httpjson.Config, o *httpjson.Operation) { o.Path = "/v2/charges" }),
		"host":      hash(charge(1), func(c *httpjson.Config, _ *httpjson.Operation) { c.BaseURL = "https://sandbox.example.com" }),
		"header":    hash(charge(1), func(c *httpjson.Config, _ *httpjson.Operation) { c.KeyHeader = "X-Request-Id" }),
		"stamp":     hash(charge(1), func(c *httpjson.Config, _ *httpjson.Operation) { c.ReferenceField = "reference" }),
	} {
		if other, taken := seen[h]; taken {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[h] = name
	}
}

func TestARequestOfAnotherAdapterIsNotSent(t *testing.T) {
	t.Parallel()
	s, c := answering(t, http.StatusCreated, nil, created)
	p := newProvider(t, config(s.URL))
	wantKind(t, p.Send(testContext(t), providers.Request{Intent: charge(1)}, allow), isNotSent)
	wantKind(t, p.Send(testContext(t), prepare(t, p, charge(1)), nil), isNotSent)
	if f := p.Lookup(testContext(t), providers.Request{Intent: charge(1)}); f.Kind != providers.NotLooked {
		t.Errorf("got %+v", f)
	}
	c.want(t, 0)
}
