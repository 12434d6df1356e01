package smtp_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/smtp"
)

// certificate is a server's, for 127.0.0.1, and what a client needs to trust it.
func certificate(t *testing.T) (server, client *tls.Config) {
	s := httptest.NewTLSServer(nil)
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return &tls.Config{Certificates: s.TLS.Certificates}, &tls.Config{RootCAs: roots}
}

func TestMailTravelsUnderTLS(t *testing.T) {
	t.Parallel()
	const password = "pass word"
	encoded := func(s string) string { return strings.ToUpper(base64.StdEncoding.EncodeToString([]byte(s))) }
	for _, mode := range []string{smtp.TLSStart, smtp.TLSImplicit} {
		for _, mechanism := range []string{"PLAIN", "LOGIN"} {
			t.Run(mode+" "+mechanism, func(t *testing.T) {
				t.Parallel()
				serverTLS, clientTLS := certificate(t)
				replies := map[string]string{
					"EHLO": "250-hello\r\n250-STARTTLS\r\n250 AUTH " + mechanism, "STARTTLS": "220 go on", "AUTH": "235 2.7.0 welcome",
				}
				if mechanism == "LOGIN" {
					replies["AUTH"] = "334 VXNlcm5hbWU6"
					replies[encoded("shop")] = "334 UGFzc3dvcmQ6"
					replies[encoded(password)] = "235 2.7.0 welcome"
				}
				s := serve(t, replies, func(s *fakeServer) {
					s.tls = serverTLS
					if mode == smtp.TLSImplicit {
						s.wrap = func(c net.Conn) net.Conn { return tls.Server(c, serverTLS) }
					}
				})
				p := newProvider(t, config(s.address, func(c *smtp.Config) {
					c.TLS, c.TLSConfig, c.Username, c.Password = mode, clientTLS, "shop", password
				}))
				a := p.Send(testContext(t), prepare(t, p, receipt(1)), allow)
				if a.Kind != providers.KindAccepted || len(s.mails()) != 1 {
					t.Fatalf("got %+v", a)
				}
				if s.heard("STARTTLS") != (mode == smtp.TLSStart) || !s.heard("AUTH "+mechanism) || !s.heard("EHLO example.com") {
					t.Fatalf("heard %q", s.lines)
				}
			})
		}
	}
}

func TestACertificateThatIsNotTheServersSendsNothing(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{smtp.TLSStart, smtp.TLSImplicit} {
		serverTLS, _ := certificate(t)
		s := serve(t, map[string]string{"EHLO": "250-hello\r\n250 STARTTLS", "STARTTLS": "220 go on"}, func(s *fakeServer) {
			s.tls = serverTLS
			if mode == smtp.TLSImplicit {
				s.wrap = func(c net.Conn) net.Conn { return tls.Server(c, serverTLS) }
			}
		})
		p := newProvider(t, config(s.address, func(c *smtp.Config) { c.TLS = mode }))
		a := p.Send(testContext(t), prepare(t, p, receipt(1)), allow)
		if a.Kind != providers.KindNotSent || a.Code != "certificate_invalid" || !a.Alert || s.heard("MAIL") {
			t.Errorf("%s: got %+v", mode, a)
		}
	}
}

// Replies that somebody adds in plain text before the handshake must not count after it.
func TestRepliesInjectedBeforeTLSAreDropped(t *testing.T) {
	t.Parallel()
	serverTLS, clientTLS := certificate(t)
	injected := "220 go on" + strings.Repeat("\r\n250 2.0.0 Ok: queued as EVIL", 10)
	s := serve(t, map[string]string{"EHLO": "250-hello\r\n250 STARTTLS", "STARTTLS": injected, "MAIL": "550 5.7.1 no"}, func(s *fakeServer) { s.tls = serverTLS })
	p := newProvider(t, config(s.address, func(c *smtp.Config) { c.TLS, c.TLSConfig = smtp.TLSStart, clientTLS }))
	a := p.Send(testContext(t), prepare(t, p, receipt(1)), allow)
	if a.Kind != providers.KindRefused && a.Kind != providers.KindNotSent {
		t.Fatalf("got %+v", a)
	}
}

func TestNewRefusesWhatCannotWorkAndSaysWhichField(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]func(*smtp.Config){
		"account: is missing":          func(c *smtp.Config) { c.Account = "" },
		"address: \"mail\"":            func(c *smtp.Config) { c.Address = "mail" },
		"tls: \"ssl\" is unknown":      func(c *smtp.Config) { c.TLS = "ssl" },
		"username, password: only one": func(c *smtp.Config) { c.Username = "shop" },
		"tls: none would send the password in plain text": func(c *smtp.Config) {
			c.Address, c.Username, c.Password = "mail.example.com:25", "shop", "hunter2"
		},
		"from: is missing":              func(c *smtp.Config) { c.From = "" },
		"from: is not an address":       func(c *smtp.Config) { c.From = "the shop" },
		"from: the address":             func(c *smtp.Config) { c.From = `"a b"@example.com` },
		"domain: \"a b\"":               func(c *smtp.Config) { c.Domain = "a b" },
		"domain: \"bücher.example\"":    func(c *smtp.Config) { c.From = "shop@bücher.example" },
		"hello: \"x\\r\\ny\"":           func(c *smtp.Config) { c.Hello = "x\r\ny" },
		"cannot be negative":            func(c *smtp.Config) { c.AnswerTimeout = -1 },
		"operations: \"Send mail\" is ": func(c *smtp.Config) { c.Operations = []string{"Send mail"} },
	} {
		_, err := smtp.New(config("127.0.0.1:25", f))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestServesTheOperationsItIsGiven(t *testing.T) {
	t.Parallel()
	p := newProvider(t, config("127.0.0.1:25"))
	c, ok := p.Serves("send_email", 3)
	if !ok || c != (providers.Capabilities{Preset: "1"}) {
		t.Errorf("got %+v, %t", c, ok)
	}
	p = newProvider(t, config("127.0.0.1:25", func(c *smtp.Config) { c.Operations, c.Preset = []string{"receipt.v2"}, "7" }))
	if _, ok := p.Serves("receipt", 1); ok {
		t.Error("serves another version")
	}
	if c, ok := p.Serves("receipt", 2); !ok || c.Preset != "7" {
		t.Errorf("got %+v, %t", c, ok)
	}
}
