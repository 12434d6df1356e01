package catalog_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

func hours(n int) catalog.Duration { return catalog.Duration{Duration: time.Duration(n) * time.Hour} }

func TestParseFillsDefaults(t *testing.T) {
	t.Parallel()
	c := parse(t, edit(t))
	if want := (catalog.Lane{Name: "payments", Provider: "stripe", Concurrency: 20, Burst: 1}); c.Lanes[0] != want {
		t.Errorf("lane: %+v", c.Lanes[0])
	}
	second := catalog.Duration{Duration: time.Second}
	want := catalog.Operation{
		Name: "charge", Version: 1, Class: catalog.KeyProtected, Lane: "payments",
		Key:        catalog.Key{Rule: catalog.KeyBusiness, Fields: []string{"/order_id"}},
		Input:      json.RawMessage(`{"properties":{"order_id":{"type":"string"}},"required":["order_id"],"type":"object"}`),
		MaxPayload: 65536,
		Timeouts:   catalog.Timeouts{Call: catalog.Duration{Duration: 10 * time.Second}, Lease: catalog.Duration{Duration: 20 * time.Second}, Reconcile: hours(24)},
		Retry:      catalog.Retry{MaxAttempts: 8, Initial: second, Max: catalog.Duration{Duration: 5 * time.Minute}, Multiplier: 2, Jitter: 0.5},
		Retention:  catalog.Retention{Details: hours(48), Tombstone: hours(9600)},
		Approval:   catalog.Approval{People: 1, Expires: hours(24)},
		Review:     catalog.Review{Owner: "oncall"},
	}
	if got := c.Operations[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("\n got: %+v\nwant: %+v", got, want)
	}
}

func TestParseFillsDependentDefaults(t *testing.T) {
	t.Parallel()
	o := parse(t, edit(t, more("timeouts: {call: 3s}"))).Operations[0]
	if o.Timeouts.Lease.Duration != 13*time.Second {
		t.Errorf("lease %s", o.Timeouts.Lease)
	}
	o = parse(t, edit(t, [2]string{"{rule: business, fields: [/order_id]}", "{rule: arguments}"})).Operations[0]
	if o.Key.Window.Duration != 15*time.Minute {
		t.Errorf("window %s", o.Key.Window)
	}
	o = parse(t, edit(t, more("retry: {jitter: 0}"))).Operations[0]
	if o.Retry.Jitter != 0 {
		t.Errorf("an explicit zero became %v", o.Retry.Jitter)
	}
	o = parse(t, edit(t, [2]string{"    review: {owner: oncall}\n", ""}, [2]string{"key_protected", "naturally_idempotent"})).Operations[0]
	if o.Review.Owner != "unassigned" {
		t.Errorf("owner %q", o.Review.Owner)
	}
	l := parse(t, edit(t, [2]string{"stripe}", "stripe, rate: 2.5}"})).Lanes[0]
	if l.Burst != 3 {
		t.Errorf("burst %d", l.Burst)
	}
}

// Each of these says the same as base, so none may make a new revision.
func TestSpecIgnoresSpelling(t *testing.T) {
	t.Parallel()
	want, _ := json.Marshal(parse(t, edit(t)).Operations[0])
	asJSON := `{"operations": [{"review": {"owner": "oncall"}, "version": 1, "name": "charge", "class": "key_protected", "lane": "payments",
		"key": {"fields": ["/order_id"], "rule": "business"},
		"input": {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}}],
		"lanes": {"payments": {"provider": "stripe"}}}`
	for name, text := range map[string]string{
		"JSON":     asJSON,
		"comments": strings.ReplaceAll(edit(t), "\n", " # a comment\n"),
		"defaults": edit(t, more("max_payload: 65536", "timeouts: {call: 10000ms, lease: 0m20s, reconcile: 24h}", "retry: {multiplier: 2.0}", "retired: false")),
		"alias":    edit(t, [2]string{"{owner: oncall}", "&r {owner: oncall}"}),
	} {
		if got, _ := json.Marshal(parse(t, text).Operations[0]); string(got) != string(want) {
			t.Errorf("%s:\n got: %s\nwant: %s", name, got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", time.Minute: "1m", 90 * time.Second: "1m30s", time.Hour: "1h", 10 * time.Minute: "10m",
		24*time.Hour + 5*time.Second: "24h0m5s", 100 * time.Hour: "100h", time.Hour + 10*time.Minute: "1h10m", time.Millisecond: "1ms",
	} {
		text, _ := catalog.Duration{Duration: d}.MarshalText()
		var back catalog.Duration
		if err := back.UnmarshalText(text); string(text) != want || err != nil || back.Duration != d {
			t.Errorf("%v is written %s and read as %v, %v", d, text, back, err)
		}
	}
}

func TestRetrySpan(t *testing.T) {
	t.Parallel()
	// Seven waits of 1 to 64 seconds, half as much again at most.
	if got := parse(t, edit(t)).Operations[0].Retry.Span(); got != 127*time.Second*3/2 {
		t.Errorf("span %s", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(base)
	f.Add(shop)
	for _, test := range refusals() {
		f.Add(edit(f, test.edits...))
	}
	f.Add("lanes: {}\noperations: [{input: {$ref: '#', properties: {a: {$ref: '#', default: 1}}}}]")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := catalog.Parse("f", []byte(text))
		if err != nil {
			if len(err.Error()) == 0 {
				t.Error("an error that says nothing")
			}
			return
		}
		for _, o := range c.Operations {
			if _, err := json.Marshal(o); err != nil {
				t.Errorf("accepted, but cannot be stored: %v", err)
			}
		}
	})
}
