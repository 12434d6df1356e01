package httpjson_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/httpjson"
)

func TestOneSendIsOneRequestEvenWhenAReusedConnectionDies(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]func(net.Conn) bool{
		"closed after the request was read": func(net.Conn) bool { return false },
		"reset after the request was read":  reset,
		"reset in the middle of the answer": func(c net.Conn) bool { _, _ = c.Write([]byte("HTTP/1.1 201 Cre")); return reset(c) },
	} {
		for _, header := range []string{"Idempotency-Key", "idempotency-key", "X-Idempotency-Key"} {
			t.Run(name+", "+header, func(t *testing.T) {
				t.Parallel()
				s := scripted(t, func(n int, conn net.Conn) bool {
					if n != 2 {
						return respond(conn, "201 Created", created)
					}
					return kill(conn)
				})
				p := newProvider(t, config(s.url, func(c *httpjson.Config, _ *httpjson.Operation) { c.KeyHeader = header }))
				ctx := testContext(t)
				wantKind(t, p.Send(ctx, prepare(t, p, charge(1)), allow), providers.KindAccepted)
				wantKind(t, p.Send(ctx, prepare(t, p, charge(2)), allow), providers.KindUnknown)
				wantKind(t, p.Send(ctx, prepare(t, p, charge(3)), allow), providers.KindAccepted)
				s.want(t, 3)
				// net/http did not even try again: that would have been a third connection.
				if n := s.connections.Load(); n != 2 {
					t.Fatalf("%d connections, want 2", n)
				}
			})
		}
	}
}

// The control for the test above: it would see a replay if there were one.
func TestAnOrdinaryClientSendsAKeyedRequestTwice(t *testing.T) {
	t.Parallel()
	s := scripted(t, func(n int, conn net.Conn) bool {
		return n != 2 && respond(conn, "201 Created", created)
	})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for range 2 {
		req, err := http.NewRequestWithContext(testContext(t), http.MethodPost, s.url, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "k")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Write(discard{})
		resp.Body.Close()
	}
	s.want(t, 3)
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

func TestADeniedPermitLeavesNothingAtTheServer(t *testing.T) {
	t.Parallel()
	errLease := errors.New("the lease ran out")
	for _, scheme := range []string{"http", "https"} {
		for _, connection := range []string{"new", "reused"} {
			t.Run(scheme+", "+connection+" connection", func(t *testing.T) {
				t.Parallel()
				c := &tally{}
				s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					c.add(r, nil)
					w.WriteHeader(http.StatusCreated)
					_, _ = w.Write([]byte(created))
				}))
				s.EnableHTTP2 = true // offered, and not taken
				s.StartTLS()
				if scheme == "http" {
					s.Close()
					s = httptest.NewServer(s.Config.Handler)
				}
				defer s.Close()
				var handshaken atomic.Bool
				p := newProvider(t, config(s.URL, func(hc *httpjson.Config, _ *httpjson.Operation) {
					hc.TLS = &tls.Config{RootCAs: pool(s), VerifyConnection: func(tls.ConnectionState) error {
						handshaken.Store(true)
						return nil
					}}
				}))
				ctx, before := testContext(t), 0
				if connection == "reused" {
					wantKind(t, p.Send(ctx, prepare(t, p, charge(1)), allow), providers.KindAccepted)
					before = 1
				}
				asked := 0
				a := p.Send(ctx, prepare(t, p, charge(2)), func(context.Context) error {
					asked++
					if scheme == "https" && !handshaken.Load() {
						t.Error("the permit was asked for before the handshake was over")
					}
					return errLease
				})
				wantKind(t, a, providers.KindNotSent)
				if asked != 1 || a.Code != "not_permitted" || !strings.Contains(a.Reason, errLease.Error()) {
					t.Fatalf("asked %d times, got %+v", asked, a)
				}
				c.want(t, before)

				wantKind(t, p.Send(ctx, prepare(t, p, charge(2)), allow), providers.KindAccepted)
				c.want(t, before+1)
				if got := c.last.Proto; got != "HTTP/1.1" {
					t.Fatalf("spoke %s", got)
				}
			})
		}
	}
}

func pool(s *httptest.Server) *x509.CertPool {
	certs := x509.NewCertPool()
	if s.Certificate() != nil {
		certs.AddCert(s.Certificate())
	}
	return certs
}

func TestThePermitIsAskedOnceAndBeforeTheFirstByte(t *testing.T) {
	t.Parallel()
	s, c := answering(t, http.StatusCreated, nil, created)
	p := newProvider(t, config(s.URL))
	asked := 0
	a := p.Send(testContext(t), prepare(t, p, charge(1)), func(context.Context) error {
		asked++
		c.want(t, 0)
		return nil
	})
	wantKind(t, a, providers.KindAccepted)
	if asked != 1 {
		t.Fatalf("asked %d times", asked)
	}
}

func TestWhatWasNeverWrittenIsNotSent(t *testing.T) {
	t.Parallel()
	dial := func(err error) func(*httpjson.Config, *httpjson.Operation) {
		return func(c *httpjson.Config, _ *httpjson.Operation) {
			c.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, err }
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := "http://" + l.Addr().String()
	l.Close()
	plain, c := answering(t, http.StatusCreated, nil, created)
	ended, end := context.WithCancel(t.Context())
	end()
	for name, tt := range map[string]struct {
		ctx context.Context
		c   httpjson.Config
	}{
		"dial refused":              {t.Context(), config(refused)},
		"name does not resolve":     {t.Context(), config("http://nowhere.invalid", dial(&net.DNSError{Err: "no such host"}))},
		"server speaks no TLS":      {t.Context(), config(strings.Replace(plain.URL, "http:", "https:", 1))},
		"context over":              {ended, config(plain.URL)},
		"context over during dial":  {ended, config(plain.URL, dial(context.Canceled))},
		"proxy refuses connections": {t.Context(), config("https://api.example.com", func(c *httpjson.Config, _ *httpjson.Operation) { c.Proxy = refused })},
		"first write takes no byte": {t.Context(), config(plain.URL, func(c *httpjson.Config, _ *httpjson.Operation) {
			c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
				return deadConn{conn}, err
			}
		})},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t, tt.c)
			a := p.Send(tt.ctx, prepare(t, p, charge(1)), allow)
			wantKind(t, a, providers.KindNotSent)
			if a.Code == "" || a.Reason == "" {
				t.Fatalf("no code or reason: %+v", a)
			}
			c.want(t, 0)
		})
	}
}

// deadConn is a connection that was reset while it was idle.
type deadConn struct{ net.Conn }

func (deadConn) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// stingyConn takes some bytes and breaks.
type stingyConn struct{ net.Conn }

func (c stingyConn) Write(b []byte) (int, error) {
	n, _ := c.Conn.Write(b[:1])
	return n, errors.New("broken pipe")
}

func TestOneByteIsEnoughToBeUnknown(t *testing.T) {
	t.Parallel()
	s, _ := answering(t, http.StatusCreated, nil, created)
	p := newProvider(t, config(s.URL, func(c *httpjson.Config, _ *httpjson.Operation) {
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			return stingyConn{conn}, err
		}
	}))
	wantKind(t, p.Send(testContext(t), prepare(t, p, charge(1)), allow), providers.KindUnknown)
}

func TestASendEndsWithItsContextAndIsThenUnknown(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	release := make(chan struct{})
	s := scripted(t, func(int, net.Conn) bool { close(arrived); <-release; return false })
	defer close(release)
	p := newProvider(t, config(s.url))
	ctx, cancel := context.WithCancel(testContext(t))
	answered := make(chan providers.Answer, 1)
	r := prepare(t, p, charge(1))
	go func() { answered <- p.Send(ctx, r, allow) }()
	<-arrived
	cancel()
	select {
	case a := <-answered:
		wantKind(t, a, providers.KindUnknown)
		if a.Code != "timeout" {
			t.Fatalf("code %q", a.Code)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Send outlived its context")
	}
}

func TestASendToAServerThatNeverReadsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			ready := httptest.NewUnstartedServer(nil)
			ready.StartTLS()
			defer ready.Close()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			var conns sync.WaitGroup
			release := make(chan struct{})
			conns.Go(func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				if scheme == "https" {
					_ = tls.Server(conn, ready.TLS).Handshake()
				}
				<-release
			})
			defer conns.Wait()
			defer close(release)
			p := newProvider(t, config(scheme+"://"+l.Addr().String(), func(c *httpjson.Config, _ *httpjson.Operation) {
				c.TLS = &tls.Config{RootCAs: pool(ready)}
			}))
			in := charge(1)
			in.Payload = []byte(`{"amount":1,"note":"` + strings.Repeat("x", 16<<20) + `"}`)
			ctx, cancel := context.WithCancel(testContext(t))
			permitted := make(chan struct{})
			r := prepare(t, p, in)
			answered := make(chan providers.Answer, 1)
			go func() {
				answered <- p.Send(ctx, r, func(context.Context) error { close(permitted); return nil })
			}()
			<-permitted
			cancel()
			select {
			case a := <-answered:
				if a.Kind != providers.KindUnknown && a.Kind != providers.KindNotSent {
					t.Fatalf("got %+v", a)
				}
			case <-time.After(3 * time.Second):
				t.Fatal("Send outlived its context")
			}
		})
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	decoy, decoys := answering(t, http.StatusOK, nil, created)
	for _, status := range []int{301, 302, 303, 307, 308} {
		s, c := answering(t, status, http.Header{"Location": {decoy.URL}}, "")
		p := newProvider(t, config(s.URL))
		a := p.Send(testContext(t), prepare(t, p, charge(1)), allow)
		wantKind(t, a, providers.KindUnknown)
		if !a.Alert {
			t.Fatalf("%d: nobody is told", status)
		}
		c.want(t, 1)
	}
	decoys.want(t, 0)
}

func TestConcurrentSendsAreSafeAndEachIsOneRequest(t *testing.T) {
	t.Parallel()
	s, c := answering(t, http.StatusCreated, nil, created)
	p := newProvider(t, config(s.URL))
	ctx := testContext(t)
	var sends sync.WaitGroup
	for n := range 200 {
		sends.Go(func() {
			r, err := p.Prepare(charge(n))
			if err != nil {
				t.Error(err)
				return
			}
			permit := allow
			if n%2 == 1 {
				permit = func(context.Context) error { return errors.New("denied") }
			}
			a := p.Send(ctx, r, permit)
			if want := []providers.Kind{providers.KindAccepted, providers.KindNotSent}[n%2]; a.Kind != want {
				t.Errorf("%d: got %+v, want %s", n, a, want)
			}
		})
	}
	sends.Wait()
	c.want(t, 100)
}
