package httpjson_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/httpjson"
)

func TestWhatEachListProves(t *testing.T) {
	t.Parallel()
	ours := func(members string) string {
		return `{"id":"ch_1","reference":"` + reference(1) + `"` + members + `}`
	}
	list := func(items ...string) string { return `{"data":[` + strings.Join(items, ",") + `]}` }
	const asked = `,"amount":101,"currency":"eur"` // as charge(1)
	compare := func(fields ...string) func(*httpjson.Config, *httpjson.Operation) {
		return func(_ *httpjson.Config, o *httpjson.Operation) { o.Compare = append([]string{}, fields...) }
	}
	for _, tt := range []struct {
		claim    string
		status   int
		body     string
		kind     providers.FindingKind
		code     string
		settings func(*httpjson.Config, *httpjson.Operation)
	}{
		{"it is there", 200, list(ours(asked)), providers.Found, "", nil},
		{"it is there among others", 200, list(`{"id":"x"}`, ours(asked), `{"id":"y","reference":"z"}`), providers.Found, "", nil},
		{"it is there in the provider's own writing", 200, list(ours(`,"amount":"101.00","currency":"EUR"`)), providers.Found, "", nil},
		{"it is there, whatever it cost", 200, list(ours("")), providers.Found, "", compare()},
		{"it is there on a page with a successor", 200, `{"data":[` + ours(asked) + `],"has_more":true}`, providers.Found, "", nil},
		{"nothing is there", 200, list(), providers.Absent, "", nil},

		{"another amount", 200, list(ours(`,"amount":102,"currency":"eur"`)), providers.Differs, "differs", nil},
		{"a cent more", 200, list(ours(`,"amount":101.01,"currency":"eur"`)), providers.Differs, "differs", nil},
		{"another currency", 200, list(ours(`,"amount":101,"currency":"usd"`)), providers.Differs, "differs", nil},
		{"an amount that is no amount", 200, list(ours(`,"amount":[101],"currency":"eur"`)), providers.Differs, "differs", nil},
		{"two of them", 200, list(ours(asked), ours(asked)), providers.Differs, "several", nil},

		{"it does not show the amount", 200, list(ours(`,"currency":"eur"`)), providers.NotLooked, "not_comparable", nil},
		{"it has no id", 200, list(`{"reference":"` + reference(1) + `"` + asked + `}`), providers.NotLooked, "id_missing", nil},
		{"it is pending", 200, list(ours(asked + `,"status":"pending"`)), providers.NotLooked, "status_pending", nil},
		{"the filter was ignored", 200, list(`{"id":"x","reference":"` + reference(2) + `"}`), providers.NotLooked, "filter_ignored", nil},
		{"the reference is not shown", 200, list(`{"id":"x"}`), providers.NotLooked, "filter_ignored", nil},
		{"the reference is a number", 200, list(`{"id":"x","reference":1}`), providers.NotLooked, "filter_ignored", nil},
		{"there are more pages", 200, `{"data":[],"has_more":true}`, providers.NotLooked, "has_more", nil},
		{"null is no list", 200, `{"data":null}`, providers.NotLooked, "unreadable", nil},
		{"an error under a 200", 200, `{"ok":false}`, providers.NotLooked, "unreadable", nil},
		{"not JSON", 200, "<html>", providers.NotLooked, "unreadable", nil},
		{"too long", 200, `{"data":[]` + strings.Repeat(" ", 1<<20) + `}`, providers.NotLooked, "unreadable", nil},
		{"no content", 204, "", providers.NotLooked, "http_204", nil},
		{"moved", 302, "", providers.NotLooked, "http_302", nil},
		{"wrong path", 404, list(), providers.NotLooked, "http_404", nil},
		{"throttled", 429, list(), providers.NotLooked, "http_429", nil},
		{"broken", 500, list(), providers.NotLooked, "http_500", nil},
	} {
		t.Run(tt.claim, func(t *testing.T) {
			t.Parallel()
			s, c := answering(t, tt.status, http.Header{"Location": {"/elsewhere"}}, tt.body)
			var change []func(*httpjson.Config, *httpjson.Operation)
			if tt.settings != nil {
				change = append(change, tt.settings)
			}
			p := newProvider(t, config(s.URL, change...))
			f := p.Lookup(testContext(t), prepare(t, p, charge(1)))
			if f.Kind != tt.kind || f.Code != tt.code {
				t.Fatalf("got %+v", f)
			}
			if f.Kind == providers.Found && (f.Answer.Kind != providers.KindAccepted || f.Answer.ProviderID != "ch_1" || len(f.Answer.Result) == 0) {
				t.Fatalf("got %+v", f.Answer)
			}
			if c.last.Method != http.MethodGet || c.last.RequestURI != "/v1/charges?reference="+reference(1) {
				t.Fatalf("asked %s %s", c.last.Method, c.last.RequestURI)
			}
			c.want(t, 1)
		})
	}
}

func TestALookupTellsHowAnEffectEnded(t *testing.T) {
	t.Parallel()
	s, _ := answering(t, 200, nil, `{"data":[{"id":"ch_1","ref":"`+reference(1)+`","amount":101,"currency":"eur","state":"declined"}]}`)
	p := newProvider(t, config(s.URL, func(_ *httpjson.Config, o *httpjson.Operation) {
		o.LookupField, o.StatusField, o.IDField = "ref", "/charge/state", "/charge/id"
	}))
	f := p.Lookup(testContext(t), prepare(t, p, charge(1)))
	if f.Kind != providers.Found || f.Answer.Kind != isRefused || !f.Answer.Final || f.Answer.Code != "status_declined" {
		t.Fatalf("got %+v", f)
	}
}
