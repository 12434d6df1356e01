package catalog_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

// parent succeeded in Stockholm: its time must come out in UTC.
func parent() catalog.Parent {
	return catalog.Parent{
		Intent: catalog.ParentIntent{
			Reference: "0123456789abcdefghijklmnopqrstuv", Tenant: "acme", Subject: "customer_7",
			Payload: []byte(`{"amount":9007199254740991,"email":"a@example.com","rate":1e-7,"s":"s3cret","vat":0.1}`),
		},
		Outcome: catalog.ParentOutcome{
			ProviderID: "ch_1", Account: "acct_1", Result: []byte(`{"fee":2.5, "net": 1e3}`),
			SettledAt: time.Date(2025, 3, 1, 1, 2, 3, 456789000, time.FixedZone("", 3600)),
		},
	}
}

// with gives base two versions of jq: when and payload of a follow-on of charge.
func with(t *testing.T, filters ...[2]string) string {
	t.Helper()
	lines := []string{"follow_ons:"}
	for i, f := range filters {
		lines = append(lines, "  - name: f"+string(rune('a'+i)), "    operation: mail.v1", "    payload: "+quote(f[1]))
		if f[0] != "" {
			lines = append(lines, "    when: "+quote(f[0]))
		}
	}
	return edit(t, mail, more(lines...))
}

func TestFollowOns(t *testing.T) {
	t.Parallel()
	const never = `{"unused":1}`
	for _, test := range []struct{ when, payload, want string }{
		{"", "{}", "{}"},
		{"true", "{}", "{}"},
		{"false", "{}", ""},
		{"false", "error", ""}, // not evaluated
		{".outcome.account == \"acct_1\"", "{a: 1}", `{"a":1}`},
		{"", ".intent | del(.payload)", `{"reference":"0123456789abcdefghijklmnopqrstuv","subject":"customer_7","tenant":"acme"}`},
		{"", ".outcome", `{"account":"acct_1","provider_id":"ch_1","result":{"fee":2.5,"net":1000},"settled_at":"2025-03-01T00:02:03.456789Z"}`},
		{"", ".intent.payload", `{"amount":9007199254740991,"email":"a@example.com","rate":1e-7,"s":"s3cret","vat":0.1}`},
		{"", "{a: .intent.payload.amount}", `{"a":9007199254740991}`},
		{"", "{a: (.intent.payload.amount - 1)}", `{"a":9007199254740990}`},
		{"", "{a: (.intent.payload.amount * 2 / 2)}", `{"a":9007199254740991}`},
		{"", "{a: (.outcome.result.net + 1), b: 1e3, c: (240 / 100), d: (24000 / 100)}", `{"a":1001,"b":1000,"c":2.4,"d":240}`},
		{"", `{to: .intent.payload.email, text: "Hej \(.intent.subject) <b>&"}`, `{"text":"Hej customer_7 <b>&","to":"a@example.com"}`},
		{"", `{b: 1, a: [.outcome.missing?, .intent.payload.missing // "none"]}`, `{"a":[null,"none"],"b":1}`},
		{"", `{t: (.outcome.settled_at | sub("\\.[0-9]+"; "") | fromdate | todate)}`, `{"t":"2025-03-01T00:02:03Z"}`},

		{"null", never, "follow-on fa: when: it gives neither true nor false"},
		{".intent.payload.email", never, "follow-on fa: when: it gives neither true nor false"},
		{"empty", never, "follow-on fa: when: it gives no value"},
		{"true, true", never, "follow-on fa: when: it gives more than one value"},
		{"", "empty", "follow-on fa: payload: it gives no value"},
		{"", "{}, {}", "follow-on fa: payload: it gives more than one value"},
		{"", "{}, error(\"x\")", "follow-on fa: payload: error: x"},
		{"", ".intent.payload.email", "follow-on fa: payload: canonical: not_an_object: send an object, and other values as a member of it"},
		{"", "null", "follow-on fa: payload: canonical: not_an_object: send an object, and other values as a member of it"},
		{"", "{a: (.intent.payload.amount + 1)}", "follow-on fa: payload: canonical: number_not_exact at /a: send amounts as integers of minor units, and longer numbers as strings"},
		{"", "{a: (0.1 + 0.2)}", "follow-on fa: payload: canonical: number_not_exact at /a: send amounts as integers of minor units, and longer numbers as strings"},
		{"", "{a: nan}", "follow-on fa: payload: it has a number that is not finite"},
		{"", "{a: [infinite]}", "follow-on fa: payload: it has a number that is not finite"},
		{"", "{a: reduce range(10000) as $i (0; [.])}", "follow-on fa: payload: it is nested more than 64 deep"},
		{"", `{a: "\u0000"}`, "follow-on fa: payload: canonical: nul_character at /a: remove U+0000; encode binary data as base64"},
		{"", `{a: ("x" * 1048576)}`, "follow-on fa: payload: canonical: too_large: 1048584 bytes are over the limit of 1048576; send a reference to the data instead of the data"},
		{"", "error(\"no address\")", "follow-on fa: payload: error: no address"},
		{"", "def f: f; f", "follow-on fa: payload: it does not end within 1s"},
		{"", "[repeat(1)]", "follow-on fa: payload: it does not end within 1s"},

		// What the interpreter says about values is cut off.
		{"", "{a: (.intent.payload.s + 1)}", "follow-on fa: payload: cannot add: string"},
		{"", ".intent.payload.s | fromjson", "follow-on fa: payload: fromjson cannot be applied to this value"},
		{"", ".intent.payload.s | startswith(1)", "follow-on fa: payload: startswith"},
		{"", ".intent.payload.s as $s | 1 | startswith($s)", "follow-on fa: payload: startswith"},
		{"", ".intent.payload.s | .a", "follow-on fa: payload: expected an object but got: string"},
		{"", ".intent.payload.s | keys", "follow-on fa: payload: keys cannot be applied to: string"},
		{"", ".intent.payload.s[]", "follow-on fa: payload: cannot iterate over: string"},
		{"", "{a: (1 / (.intent.payload.s | length - 6))}", "follow-on fa: payload: cannot divide number"},
		{"", "{(.intent.payload.amount): 1}", "follow-on fa: payload: expected a string for object key but got: number"},
	} {
		text := with(t, [2]string{test.when, test.payload})
		rendered, err := compiled(t, text, "charge.v1").FollowOns(t.Context(), parent())
		got := ""
		if err != nil {
			got = err.Error()
			var e *catalog.RenderError
			if !errors.As(err, &e) || e.FollowOn != "fa" {
				t.Errorf("%s: not a RenderError: %v", test.payload, err)
			}
		} else if len(rendered) > 0 {
			got = string(rendered[0].Payload)
			if rendered[0].Name != "fa" || rendered[0].Operation != "mail.v1" || rendered[0].Digest != sha256.Sum256(rendered[0].Payload) {
				t.Errorf("%+v", rendered[0])
			}
		}
		if got != test.want {
			t.Errorf("%s / %s\n got: %s\nwant: %s", test.when, test.payload, got, test.want)
		}
		if err != nil && strings.Contains(got, "s3cret") {
			t.Errorf("%s: the payload is told: %s", test.payload, got)
		}
	}
}

func TestFollowOnsOfABareParent(t *testing.T) {
	t.Parallel()
	text := with(t, [2]string{"", "[.intent.subject, .outcome.provider_id, .outcome.account, .outcome.result] | {a: .}"})
	rendered, err := compiled(t, text, "charge.v1").FollowOns(t.Context(), catalog.Parent{Intent: catalog.ParentIntent{Payload: []byte(`{}`)}})
	if err != nil || string(rendered[0].Payload) != `{"a":[null,null,null,null]}` {
		t.Errorf("%s, %v", rendered, err)
	}
}

func TestFollowOnsFailByThemselves(t *testing.T) {
	t.Parallel()
	text := with(t, [2]string{"", "{a: 1}"}, [2]string{"", "error(\"x\")"}, [2]string{"false", "{}"}, [2]string{"", "{d: 1}"}, [2]string{"1", "{}"})
	rendered, err := compiled(t, text, "charge.v1").FollowOns(t.Context(), parent())
	if len(rendered) != 2 || rendered[0].Name != "fa" || rendered[1].Name != "fd" {
		t.Errorf("%+v", rendered)
	}
	if want := "follow-on fb: payload: error: x\nfollow-on fe: when: it gives neither true nor false"; err == nil || err.Error() != want {
		t.Error(err)
	}
}

// A worker that stops must not put follow-ons before a person.
func TestFollowOnsStop(t *testing.T) {
	t.Parallel()
	text := with(t, [2]string{"", "def f: f; f"})
	r := compiled(t, text, "charge.v1")
	stop := errors.New("the worker stops")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	_, err := r.FollowOns(ctx, parent())
	var e *catalog.RenderError
	if !errors.Is(err, stop) || errors.As(err, &e) {
		t.Error(err)
	}
}

func TestFollowOnsAtOnce(t *testing.T) {
	t.Parallel()
	text := with(t, [2]string{"", `.intent.payload | .email |= ascii_upcase | .list = ([3, 2, 1] | sort)`})
	r := compiled(t, text, "charge.v1")
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 100 {
				rendered, err := r.FollowOns(t.Context(), parent())
				if err != nil || !strings.Contains(string(rendered[0].Payload), `"email":"A@EXAMPLE.COM","list":[1,2,3]`) {
					t.Errorf("%s, %v", rendered, err)
					return
				}
			}
		})
	}
	wait.Wait()
}
