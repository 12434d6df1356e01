package smtp_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/smtp"
)

func TestWhatEachReplyProves(t *testing.T) {
	t.Parallel()
	const (
		accepted = providers.KindAccepted
		notSent  = providers.KindNotSent
		refused  = providers.KindRefused
		unknown  = providers.KindUnknown
	)
	for _, tt := range []struct {
		claim       string
		verb, reply string
		kind        providers.Kind
		code        string
		final       bool
		alert       bool
		mails       int
	}{
		{"the server takes responsibility", ".", "250 2.0.0 Ok: queued as Q1", accepted, "", false, false, 1},
		{"the server takes responsibility in its own words", ".", "250 fine", accepted, "", false, false, 1},

		{"busy at the door", "connect", "421 4.3.2 busy", notSent, "4.3.2", false, false, 0},
		{"no mail here", "connect", "554 no", notSent, "smtp_554", false, true, 0},
		{"closed at the door", "connect", "", notSent, "connection_lost", false, false, 0},
		{"not SMTP at all", "connect", "HTTP/1.1 400 Bad Request", notSent, "connection_lost", false, false, 0},
		{"lost at EHLO", "EHLO", "", notSent, "connection_lost", false, false, 0},

		{"sender deferred", "MAIL", "451 4.7.1 later", notSent, "4.7.1", false, false, 0},
		{"sender refused", "MAIL", "550 5.7.1 not you", refused, "5.7.1", false, true, 0},
		{"authentication wanted", "MAIL", "530 5.7.0 log in", notSent, "5.7.0", false, true, 0},
		{"mail too large", "MAIL", "552 5.3.4 too large", refused, "5.3.4", true, false, 0},

		{"greylisted", "RCPT", "450 4.2.0 anna@example.com: try again", notSent, "4.2.0", false, false, 0},
		{"no such recipient", "RCPT", "550 5.1.1 <anna@example.com>: unknown", refused, "5.1.1", true, false, 0},
		{"no such recipient, plainly", "RCPT", "550 unknown", refused, "smtp_550", true, false, 0},
		{"reset at RCPT", "RCPT", "reset", notSent, "connection_lost", false, false, 0},

		{"DATA deferred", "DATA", "451 4.3.0 later", notSent, "4.3.0", false, false, 0},
		{"DATA refused", "DATA", "554 5.7.1 no", refused, "5.7.1", true, false, 0},

		{"deferred at the dot", ".", "451 4.3.0 later", notSent, "4.3.0", false, false, 0},
		{"refused at the dot", ".", "554 5.7.1 spam", refused, "5.7.1", true, false, 0},
		{"a reply that is none", ".", "354 more?", unknown, "smtp_354", false, false, 0},
		{"noise", ".", "what", unknown, "connection_lost", false, false, 0},
		{"closed after the dot", ".", "", unknown, "connection_lost", false, false, 1},
		{"reset after the dot", ".", "reset", unknown, "connection_lost", false, false, 0},

		{"closed after acceptance", "QUIT", "", accepted, "", false, false, 1},
		{"a false alarm after acceptance", "QUIT", "554 5.0.0 never mind", accepted, "", false, false, 1},
	} {
		t.Run(tt.claim, func(t *testing.T) {
			t.Parallel()
			s := serve(t, map[string]string{tt.verb: tt.reply})
			p := newProvider(t, config(s.address))
			a := p.Send(testContext(t), prepare(t, p, receipt(1)), allow)
			if a.Kind != tt.kind || a.Code != tt.code || a.Final != tt.final || a.Alert != tt.alert {
				t.Fatalf("got %+v", a)
			}
			if strings.Contains(a.Reason, "anna@") {
				t.Fatalf("the reason names the recipient: %s", a.Reason)
			}
			if got := len(s.mails()); got != tt.mails {
				t.Fatalf("%d mails accepted, want %d", got, tt.mails)
			}
		})
	}
}

func TestAcceptedMailHasAnID(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]string{
		"250 2.0.0 Ok: queued as 4XyZ-1": "4XyZ-1",
		"250 ok":                         "<" + reference(1) + "@example.com>",
	} {
		s := serve(t, map[string]string{".": reply})
		p := newProvider(t, config(s.address))
		if a := p.Send(testContext(t), prepare(t, p, receipt(1)), allow); a.ProviderID != want {
			t.Errorf("%q: got %+v, want id %s", reply, a, want)
		}
	}
}

func TestADeniedPermitSendsNoContent(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	p := newProvider(t, config(s.address))
	asked := 0
	a := p.Send(testContext(t), prepare(t, p, receipt(1)), func(context.Context) error {
		asked++
		if !s.heard("DATA") {
			t.Error("the permit was asked for before the server was ready")
		}
		return errors.New("the lease ran out")
	})
	if a.Kind != providers.KindNotSent || a.Code != "not_permitted" || asked != 1 || !strings.Contains(a.Reason, "lease") {
		t.Fatalf("asked %d times, got %+v", asked, a)
	}
	if len(s.mails()) != 0 {
		t.Fatal("a mail was accepted")
	}
}

func TestASendEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for verb, want := range map[string]providers.Kind{
		"connect": providers.KindNotSent, "EHLO": providers.KindNotSent, "RCPT": providers.KindNotSent,
		"DATA": providers.KindNotSent, ".": providers.KindUnknown, "QUIT": providers.KindAccepted,
	} {
		t.Run("silence at "+verb, func(t *testing.T) {
			t.Parallel()
			s := serve(t, map[string]string{verb: "hang"})
			p := newProvider(t, config(s.address))
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			began := time.Now()
			a := p.Send(ctx, prepare(t, p, receipt(1)), allow)
			if took := time.Since(began); took > 5*time.Second {
				t.Fatalf("took %v", took)
			}
			if a.Kind != want || want != providers.KindAccepted && a.Code != "timeout" {
				t.Fatalf("got %+v, want %s", a, want)
			}
		})
	}
}

func TestTimeoutsBoundASendWithoutADeadline(t *testing.T) {
	t.Parallel()
	for verb, want := range map[string]providers.Kind{"RCPT": providers.KindNotSent, ".": providers.KindUnknown} {
		s := serve(t, map[string]string{verb: "hang"})
		p := newProvider(t, config(s.address, func(c *smtp.Config) {
			c.CommandTimeout, c.AnswerTimeout = 300*time.Millisecond, 300*time.Millisecond
		}))
		began := time.Now()
		a := p.Send(testContext(t), prepare(t, p, receipt(1)), allow)
		if took := time.Since(began); a.Kind != want || took > 10*time.Second {
			t.Errorf("%s: got %+v after %v, want %s", verb, a, took, want)
		}
	}
}

func TestRefusedDialIsNotSent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	p := newProvider(t, config(l.Addr().String()))
	if a := p.Send(testContext(t), prepare(t, p, receipt(1)), allow); a.Kind != providers.KindNotSent || a.Code != "not_connected" {
		t.Fatalf("got %+v", a)
	}
}

// brokenPipe fails the n-th write without taking a byte, or after one.
type brokenPipe struct {
	net.Conn
	takes  int
	broken func(b []byte) bool
}

func (c *brokenPipe) Write(b []byte) (int, error) {
	if !c.broken(b) {
		return c.Conn.Write(b)
	}
	n, _ := c.Conn.Write(b[:c.takes])
	c.Conn.Close()
	return n, errors.New("broken pipe")
}

func TestOneByteOfTheDotIsEnoughToBeUnknown(t *testing.T) {
	t.Parallel()
	for takes, want := range map[int]providers.Kind{0: providers.KindNotSent, 1: providers.KindUnknown} {
		s := serve(t, nil)
		p := newProvider(t, config(s.address, func(c *smtp.Config) {
			c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
				return &brokenPipe{conn, takes, func(b []byte) bool { return strings.HasSuffix(string(b), "\r\n.\r\n") }}, err
			}
		}))
		if a := p.Send(testContext(t), prepare(t, p, receipt(1)), allow); a.Kind != want {
			t.Errorf("%d bytes taken: got %+v, want %s", takes, a, want)
		}
		if len(s.mails()) != 0 {
			t.Error("a mail was accepted")
		}
	}
}

func TestWithoutSTARTTLSNothingIsSaid(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	p := newProvider(t, config(s.address, func(c *smtp.Config) { c.TLS = "" }))
	a := p.Send(testContext(t), prepare(t, p, receipt(1)), allow)
	if a.Kind != providers.KindNotSent || a.Code != "starttls_missing" || !a.Alert || s.heard("MAIL") {
		t.Fatalf("got %+v", a)
	}
}

func TestRefusedCredentialsAreNotTheMailsFault(t *testing.T) {
	t.Parallel()
	for name, replies := range map[string]map[string]string{
		"refused":       {"EHLO": "250-hello\r\n250 AUTH PLAIN LOGIN", "AUTH": "535 5.7.8 no"},
		"login refused": {"EHLO": "250-hello\r\n250 AUTH LOGIN", "AUTH": "535 5.7.8 no"},
		"not offered":   {"EHLO": "250 hello"},
		"odd prompt":    {"EHLO": "250-hello\r\n250 AUTH LOGIN", "AUTH": "334 d2hhdD8="},
	} {
		s := serve(t, replies)
		p := newProvider(t, config(s.address, func(c *smtp.Config) { c.Username, c.Password = "shop", "secret" }))
		a := p.Send(testContext(t), prepare(t, p, receipt(1)), allow)
		if a.Kind != providers.KindNotSent || !a.Alert || s.heard("MAIL") || strings.Contains(a.Reason, "secret") {
			t.Errorf("%s: got %+v", name, a)
		}
	}
}

func TestAnAddressThatTheServerCannotCarryIsRefusedForGood(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"jürgen@example.com", "anna@bücher.example"} {
		s := serve(t, nil)
		p := newProvider(t, config(s.address))
		a := p.Send(testContext(t), prepare(t, p, receipt(1, "to", to)), allow)
		if a.Kind != providers.KindRefused || !a.Final || a.Code != "smtputf8_missing" || s.heard("MAIL") {
			t.Errorf("%s: got %+v", to, a)
		}
		able := serve(t, map[string]string{"EHLO": "250-hello\r\n250-8BITMIME\r\n250 SMTPUTF8"})
		p = newProvider(t, config(able.address))
		a = p.Send(testContext(t), prepare(t, p, receipt(1, "to", to)), allow)
		if a.Kind != providers.KindAccepted || !able.heard("MAIL FROM:<shop@example.com> BODY=8BITMIME SMTPUTF8") || !able.heard("RCPT TO:<"+to+">") {
			t.Errorf("%s: got %+v", to, a)
		}
	}
}
