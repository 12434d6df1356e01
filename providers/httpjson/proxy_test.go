package httpjson_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/httpjson"
)

// proxy forwards what it is asked for, in plain text or by CONNECT, and counts.
func proxy(t *testing.T) (url string, seen *tally) {
	seen = &tally{}
	var tunnels sync.WaitGroup
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.add(r, nil)
		if r.Method != http.MethodConnect {
			resp, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			defer resp.Body.Close()
			w.WriteHeader(resp.StatusCode)
			_, _ = io.Copy(w, resp.Body)
			return
		}
		target, err := net.Dial("tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		tunnels.Add(2) // before Close loses sight of the connection
		client, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			tunnels.Add(-2)
			return
		}
		_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
		for _, pair := range [][2]net.Conn{{client, target}, {target, client}} {
			go func() {
				defer tunnels.Done()
				_, _ = io.Copy(pair[0], pair[1])
				pair[0].Close()
			}()
		}
	}))
	t.Cleanup(func() { s.Close(); tunnels.Wait() })
	return s.URL, seen
}

func TestThroughAProxyTheSameIsProven(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			c := &tally{}
			origin := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.add(r, nil)
				_, _ = io.WriteString(w, created)
			}))
			if scheme == "https" {
				origin.StartTLS()
			} else {
				origin.Start()
			}
			defer origin.Close()
			url, seen := proxy(t)
			through := func(baseURL string) *httpjson.Provider {
				return newProvider(t, config(baseURL, func(hc *httpjson.Config, _ *httpjson.Operation) {
					hc.Proxy, hc.TLS = url, &tls.Config{RootCAs: pool(origin)}
				}))
			}
			p, ctx := through(origin.URL), testContext(t)
			defer p.Close()
			denied := func(context.Context) error { return errors.New("the lease ran out") }
			for _, before := range []int{0, 1} { // on a new connection and on one that was used
				wantKind(t, p.Send(ctx, prepare(t, p, charge(1)), denied), isNotSent)
				c.want(t, before)
				wantKind(t, p.Send(ctx, prepare(t, p, charge(1)), allow), isAccepted)
				c.want(t, before+1)
			}
			if seen.count() == 0 {
				t.Fatal("the proxy was not used")
			}

			// Without a tunnel nothing is sent; a proxy that speaks plain HTTP may have sent it.
			down := through(scheme + "://127.0.0.1:1")
			want := map[string]providers.Kind{"http": isUnknown, "https": isNotSent}[scheme]
			wantKind(t, down.Send(ctx, prepare(t, down, charge(2)), allow), want)
		})
	}
}
