package smtp_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/smtp"
)

func allow(context.Context) error { return nil }

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func reference(n int) string { return fmt.Sprintf("%032d", n) }

// receipt is a valid intent with the payload's members replaced or added.
func receipt(n int, members ...string) providers.Intent {
	payload := map[string]string{"to": "anna@example.com", "subject": "Your receipt", "text": "Thank you.\n"}
	for i := 0; i < len(members); i += 2 {
		payload[members[i]] = members[i+1]
	}
	data, err := json.Marshal(payload)
	if err != nil {
		panic(err)
	}
	return providers.Intent{Reference: reference(n), Operation: "send_email", Version: 1, Payload: data}
}

func config(address string, change ...func(*smtp.Config)) smtp.Config {
	c := smtp.Config{Account: "mail_test", Address: address, TLS: smtp.TLSNone, From: "The Shop <shop@example.com>"}
	for _, f := range change {
		f(&c)
	}
	return c
}

func newProvider(t *testing.T, c smtp.Config) *smtp.Provider {
	t.Helper()
	p, err := smtp.New(c)
	if err != nil {
		t.Fatal(err)
	}
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

// fakeServer is a mail server whose every reply a test can choose.
type fakeServer struct {
	address string
	// reply answers a verb: "connect", "EHLO", ... and "." for the dot. Default: success.
	// "" closes the connection, "hang" waits until the test is over.
	replies map[string]string
	over    chan struct{}
	wrap    func(net.Conn) net.Conn
	tls     *tls.Config // for STARTTLS

	mu       sync.Mutex
	accepted []string // contents that got a 250
	lines    []string
}

func serve(t testing.TB, replies map[string]string, change ...func(*fakeServer)) *fakeServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeServer{address: l.Addr().String(), replies: replies, over: make(chan struct{}), wrap: func(c net.Conn) net.Conn { return c }}
	for _, f := range change {
		f(s)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() { close(s.over); l.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { s.session(s.wrap(conn)) })
		}
	})
	return s
}

var usual = map[string]string{
	"connect": "220 ready", "EHLO": "250-hello\r\n250-8BITMIME\r\n250 SIZE 1000000", "HELO": "250 hello", "MAIL": "250 ok",
	"RCPT": "250 ok", "DATA": "354 go on", ".": "250 2.0.0 Ok: queued as Q1", "QUIT": "221 bye",
}

// say reports false when the session is over.
func (s *fakeServer) say(conn net.Conn, verb string) bool {
	reply, chosen := s.replies[verb]
	if !chosen {
		reply, chosen = usual[verb]
	}
	if !chosen {
		reply = "502 5.5.1 what?"
	}
	switch reply {
	case "":
		return false
	case "reset":
		_ = conn.(*net.TCPConn).SetLinger(0)
		return false
	case "hang":
		<-s.over
		return false
	}
	_, err := conn.Write([]byte(reply + "\r\n"))
	return err == nil
}

func (s *fakeServer) session(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	r := bufio.NewReader(conn)
	if !s.say(conn, "connect") {
		return
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		s.mu.Lock()
		s.lines = append(s.lines, line)
		s.mu.Unlock()
		verb, _, _ := strings.Cut(strings.ToUpper(line), " ")
		if !s.say(conn, verb) {
			return
		}
		if verb == "STARTTLS" && s.tls != nil {
			conn = tls.Server(conn, s.tls)
			r = bufio.NewReader(conn)
		}
		if verb == "DATA" && s.replies["DATA"] == "" {
			content, ok := readContent(r)
			if !ok {
				return
			}
			if reply := s.replies["."]; reply == "" || strings.HasPrefix(reply, "2") {
				s.mu.Lock()
				s.accepted = append(s.accepted, content)
				s.mu.Unlock()
			}
			if !s.say(conn, ".") {
				return
			}
		}
	}
}

func readContent(r *bufio.Reader) (string, bool) {
	var b strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return "", false
		}
		if line == ".\r\n" {
			return b.String(), true
		}
		b.WriteString(strings.TrimPrefix(line, "."))
	}
}

// mails are the contents that the server took responsibility for.
func (s *fakeServer) mails() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.accepted...)
}

func (s *fakeServer) heard(prefix string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.lines {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}
