package httpjson_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/httpjson"
)

// allow is the permit of a healthy lease.
func allow(context.Context) error { return nil }

// testContext ends long before the test binary's own limit, so that a hang is a failure
// with a name.
func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func reference(n int) string { return fmt.Sprintf("%032d", n) }

func charge(n int) providers.Intent {
	return providers.Intent{
		Reference: reference(n), Operation: "charge_card", Version: 1,
		Payload: json.RawMessage(fmt.Sprintf(`{"amount":%d,"currency":"eur"}`, 100+n)),
	}
}

// config is the smallest useful one; change adapts it.
func config(baseURL string, change ...func(*httpjson.Config, *httpjson.Operation)) httpjson.Config {
	c := httpjson.Config{Account: "acct_test", BaseURL: baseURL}
	o := httpjson.Operation{
		Path: "/v1/charges", KeyMemory: 24 * time.Hour, Replay: providers.ReplayAllAfterStart,
		Lookup: "/v1/charges", AbsenceIsProof: true, ThrottledIsNotSent: true,
	}
	for _, f := range change {
		f(&c, &o)
	}
	c.Operations = map[string]httpjson.Operation{"charge_card": o}
	return c
}

func newProvider(t *testing.T, c httpjson.Config) *httpjson.Provider {
	t.Helper()
	p, err := httpjson.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func prepare(t *testing.T, p providers.Provider, in providers.Intent) providers.Request {
	t.Helper()
	r, err := p.Prepare(in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wantKind(t *testing.T, a providers.Answer, want providers.Kind) {
	t.Helper()
	if a.Kind != want {
		t.Fatalf("got %s (%s: %s), want %s", a.Kind, a.Code, a.Reason, want)
	}
}

// tally counts the requests that a server has received in full.
type tally struct {
	mu       sync.Mutex
	requests int
	last     *http.Request
	body     []byte
}

func (c *tally) add(r *http.Request, body []byte) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	c.last, c.body = r, body
	return c.requests
}

func (c *tally) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

func (c *tally) want(t *testing.T, requests int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests != requests {
		t.Fatalf("the server saw %d requests, want %d", c.requests, requests)
	}
}

const created = `{"id":"ch_1","status":"succeeded","amount":101}`

// answering serves one answer to everything.
func answering(t *testing.T, status int, header http.Header, body string) (*httptest.Server, *tally) {
	c := &tally{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, _ := io.ReadAll(r.Body)
		c.add(r, got)
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s, c
}

// scriptedServer speaks HTTP/1 by hand: act decides per request what becomes of the
// connection. It returns false to close it.
type scriptedServer struct {
	*tally
	url         string
	connections *atomic.Int32
}

func scripted(t *testing.T, act func(n int, conn net.Conn) bool) scriptedServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := scriptedServer{&tally{}, "http://" + l.Addr().String(), new(atomic.Int32)}
	var serving sync.WaitGroup
	t.Cleanup(func() { l.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.connections.Add(1)
			serving.Go(func() { s.serve(conn, act) })
		}
	})
	return s
}

func (s scriptedServer) serve(conn net.Conn, act func(n int, conn net.Conn) bool) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	r := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		if !act(s.add(req, body), conn) {
			return
		}
	}
}

func respond(conn net.Conn, status, body string) bool {
	_, err := fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
	return err == nil
}

// reset makes the client see RST.
func reset(conn net.Conn) bool {
	_ = conn.(*net.TCPConn).SetLinger(0)
	return false
}
