package httpjson_test

import (
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/httpjson"
)

func TestNewRefusesWhatCannotWorkAndSaysWhichField(t *testing.T) {
	t.Parallel()
	type change = func(*httpjson.Config, *httpjson.Operation)
	for want, f := range map[string]change{
		"account: is missing":         func(c *httpjson.Config, _ *httpjson.Operation) { c.Account = "" },
		"base_url: is missing":        func(c *httpjson.Config, _ *httpjson.Operation) { c.BaseURL = "" },
		"base_url: is not an http":    func(c *httpjson.Config, _ *httpjson.Operation) { c.BaseURL = "ftp://x" },
		"base_url: has a user":        func(c *httpjson.Config, _ *httpjson.Operation) { c.BaseURL = "https://k:s@x" },
		"base_url: has a query":       func(c *httpjson.Config, _ *httpjson.Operation) { c.BaseURL = "https://x?a=b" },
		"proxy: ":                     func(c *httpjson.Config, _ *httpjson.Operation) { c.Proxy = "proxy:3128" },
		"reference_field: is missing": func(c *httpjson.Config, _ *httpjson.Operation) { c.KeyHeader = "-" },
		"reference_field: \"a.b\"":    func(c *httpjson.Config, _ *httpjson.Operation) { c.ReferenceField = "a.b" },
		"key_header: \"Host\"":        func(c *httpjson.Config, _ *httpjson.Operation) { c.KeyHeader = "Host" },
		"key_header: \"a b\"":         func(c *httpjson.Config, _ *httpjson.Operation) { c.KeyHeader = "a b" },
		"headers.Authorization: the value has a": func(c *httpjson.Config, _ *httpjson.Operation) {
			c.Headers = map[string]string{"Authorization": "Bearer x\n"}
		},
		"headers.Authorization: is empty": func(c *httpjson.Config, _ *httpjson.Operation) { c.Headers = map[string]string{"Authorization": ""} },
		"headers.expect: is set by the connection": func(c *httpjson.Config, _ *httpjson.Operation) {
			c.Headers = map[string]string{"expect": "100-continue"}
		},
		"headers.idempotency-key: is the key header":    func(c *httpjson.Config, _ *httpjson.Operation) { c.Headers = map[string]string{"idempotency-key": "k"} },
		"dial_timeout: -1s is negative":                 func(c *httpjson.Config, _ *httpjson.Operation) { c.DialTimeout = -time.Second },
		"operations.charge_card.path: ":                 func(_ *httpjson.Config, o *httpjson.Operation) { o.Path = "v1/charges" },
		"segment \"..\"":                                func(_ *httpjson.Config, o *httpjson.Operation) { o.Path = "/v1/../admin" },
		"segment \"charges?a=b\"":                       func(_ *httpjson.Config, o *httpjson.Operation) { o.Path = "/v1/charges?a=b" },
		"segment \"ch-{id}\"":                           func(_ *httpjson.Config, o *httpjson.Operation) { o.Path = "/v1/ch-{id}" },
		"operations.charge_card.replay: is missing":     func(_ *httpjson.Config, o *httpjson.Operation) { o.Replay = "" },
		"operations.charge_card.replay: \"maybe\"":      func(_ *httpjson.Config, o *httpjson.Operation) { o.Replay = "maybe" },
		"operations.charge_card.key_memory: is missing": func(_ *httpjson.Config, o *httpjson.Operation) { o.KeyMemory = 0 },
		"operations.charge_card.key_memory: -1h":        func(_ *httpjson.Config, o *httpjson.Operation) { o.KeyMemory = -time.Hour },
		"operations.charge_card.lookup: is missing":     func(_ *httpjson.Config, o *httpjson.Operation) { o.Lookup = "" },
		"operations.charge_card.lookup_lag: ":           func(_ *httpjson.Config, o *httpjson.Operation) { o.LookupLag = -1 },
		"operations.charge_card.id_field: ":             func(_ *httpjson.Config, o *httpjson.Operation) { o.IDField = "a.b" },
		"operations.charge_card.failure_statuses: ":     func(_ *httpjson.Config, o *httpjson.Operation) { o.FailureStatuses = []string{"paid"} },
		"only a 2xx status can mean accepted": func(_ *httpjson.Config, o *httpjson.Operation) {
			o.Answers = map[string]providers.Kind{"409": "accepted"}
		},
		"use throttled_is_not_sent": func(_ *httpjson.Config, o *httpjson.Operation) {
			o.Answers = map[string]providers.Kind{"429": "not_sent"}
		},
		"\"fine\" is no outcome": func(_ *httpjson.Config, o *httpjson.Operation) { o.Answers = map[string]providers.Kind{"200": "fine"} },
	} {
		if _, err := httpjson.New(config("https://api.example.com", f)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	empty := config("https://api.example.com")
	empty.Operations = nil
	if _, err := httpjson.New(empty); err == nil || !strings.Contains(err.Error(), "operations: is empty") {
		t.Errorf("got %v", err)
	}
	for _, name := range []string{"Charge", "charge_card.v0", "charge card", "charge_card.v1.v2"} {
		c := config("https://api.example.com")
		c.Operations = map[string]httpjson.Operation{name: c.Operations["charge_card"]}
		if _, err := httpjson.New(c); err == nil || !strings.Contains(err.Error(), "operations."+name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestASecretNeverAppearsInAnError(t *testing.T) {
	t.Parallel()
	c := config("https://user:hunter2@api.example.com", func(c *httpjson.Config, _ *httpjson.Operation) {
		c.Headers = map[string]string{"Authorization": "Bearer hunter2\n"}
		c.Proxy = "ftp://user:hunter2@proxy"
	})
	if _, err := httpjson.New(c); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Fatalf("got %v", err)
	}
}

func TestAConfigDecodesFromYAML(t *testing.T) {
	t.Parallel()
	var c httpjson.Config
	dec := yaml.NewDecoder(strings.NewReader(`
account: acct_live
base_url: https://api.example.com/v2
preset: "3"
key_header: X-Request-Id
reference_field: reference
headers: {Authorization: Bearer abc}
dial_timeout: 2s
operations:
  charge_card:
    path: /charges
    key_memory: 24h
    replay: all_after_start
    throttled_is_not_sent: true
    answers: {"202": accepted, CARD_LOCKED: refused}
    lookup: /charges
    compare: [amount]
    lookup_lag: 1m
    absence_is_proof: true
  charge_card.v2:
    path: /v2/charges
`))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil {
		t.Fatal(err)
	}
	p := newProvider(t, c)
	got, ok := p.Serves("charge_card", 1)
	want := providers.Capabilities{
		Preset: "3", KeyMemory: 24 * time.Hour, Replay: providers.ReplayAllAfterStart,
		Lookup: true, LookupLag: time.Minute, AbsenceIsProof: true,
	}
	if !ok || got != want {
		t.Errorf("v1: got %+v", got)
	}
	if got, ok := p.Serves("charge_card", 2); !ok || got != (providers.Capabilities{Preset: "3"}) {
		t.Errorf("v2: got %+v", got)
	}
	if _, ok := p.Serves("refund", 1); ok {
		t.Error("serves what is not there")
	}
}
