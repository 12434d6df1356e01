package simulator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// bundle is a simulator with a client that hides nothing: no reused connections, which
// net/http would silently retry on, and no followed redirects.
type bundle struct {
	*Server
	t      *testing.T
	ctx    context.Context
	client *http.Client
}

func setup(t *testing.T, o Options) *bundle {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	s, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &bundle{s, t, ctx, client}
}

// reply is what a client saw: an answer, or an error.
type reply struct {
	status int
	header http.Header
	text   string
	body   map[string]any
	err    error
}

func (r reply) code() string {
	e, _ := r.body["error"].(map[string]any)
	return fmt.Sprint(e["code"])
}

func (r reply) id() string { return fmt.Sprint(r.body["id"]) }

const order = `{"amount":24000,"currency":"eur","customer":"c_71"}`

// charge posts the usual order under key.
func (b *bundle) charge(key string) reply { return b.post(b.ctx, Charges, key, order) }

func (b *bundle) post(ctx context.Context, service, key, body string) reply {
	header := http.Header{}
	if key != "" {
		header.Set("Idempotency-Key", key)
	}
	return b.do(ctx, http.MethodPost, "/v1/"+service, header, body)
}

func (b *bundle) get(path string) reply { return b.do(b.ctx, http.MethodGet, path, nil, "") }

func (b *bundle) do(ctx context.Context, method, path string, header http.Header, body string) reply {
	req, err := http.NewRequestWithContext(ctx, method, b.HTTPURL()+path, strings.NewReader(body))
	if err != nil {
		return reply{err: err}
	}
	if header != nil {
		req.Header = header
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	r := reply{status: resp.StatusCode, header: resp.Header, text: string(data), err: err}
	_ = json.Unmarshal(data, &r.body)
	return r
}

// async runs f and gives its result later.
func async[T any](f func() T) <-chan T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	return c
}

func (b *bundle) script(faults ...Fault) {
	b.t.Helper()
	if err := b.Script(faults...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bundle) await(what string, cond func(Snapshot) bool) {
	b.t.Helper()
	if err := b.Await(b.ctx, cond); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

func (b *bundle) wantCount(service, reference string, want int) {
	b.t.Helper()
	if got := b.Count(service, reference); got != want {
		b.t.Errorf("effects of %s %q: %d, want %d", service, reference, got, want)
	}
}

func (b *bundle) wantStatus(r reply, want int) {
	b.t.Helper()
	if r.err != nil || r.status != want {
		b.t.Errorf("answered %d %q (error %v), want %d", r.status, r.text, r.err, want)
	}
}
