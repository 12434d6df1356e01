package simulator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strings"
	"syscall"
	"testing"
	"time"
)

// smtpClient speaks SMTP by hand, so that a test decides what leaves and when.
type smtpClient struct {
	t    *testing.T
	conn net.Conn
	text *textproto.Conn
}

func (b *bundle) dial() *smtpClient {
	b.t.Helper()
	conn, err := net.Dial("tcp", b.SMTPAddr())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	c := &smtpClient{b.t, conn, textproto.NewConn(conn)}
	if _, _, err := c.text.ReadResponse(220); err != nil {
		b.t.Fatal(err)
	}
	c.want(250, "EHLO client.invalid")
	return c
}

func (c *smtpClient) cmd(format string, args ...any) (int, string, error) {
	if _, err := c.text.Cmd(format, args...); err != nil {
		return 0, "", err
	}
	return c.text.ReadResponse(0)
}

func (c *smtpClient) want(code int, format string, args ...any) string {
	c.t.Helper()
	got, message, err := c.cmd(format, args...)
	if got != code {
		c.t.Fatalf("%q: replied %d %q (%v), want %d", fmt.Sprintf(format, args...), got, message, err, code)
	}
	return message
}

// envelope goes as far as DATA.
func (c *smtpClient) envelope(to ...string) {
	c.t.Helper()
	c.want(250, "MAIL FROM:<shop@example.com>")
	for _, a := range to {
		c.want(250, "RCPT TO:<%s>", a)
	}
	c.want(354, "DATA")
}

func message(reference string) string {
	return "From: shop@example.com\r\nTo: ann@example.com\r\nSubject: Receipt\r\n" +
		"Message-ID: <" + reference + "@example.com>\r\n\r\nThank you.\r\n..dot\r\n"
}

// send writes a whole message and reads the reply to the dot.
func (c *smtpClient) send(text string) (int, string, error) {
	if _, err := io.WriteString(c.conn, text+".\r\n"); err != nil {
		return 0, "", err
	}
	return c.text.ReadResponse(0)
}

func (b *bundle) mail(reference string) (int, string, error) {
	b.t.Helper()
	c := b.dial()
	c.envelope("ann@example.com")
	return c.send(message(reference))
}

func TestAcceptedMailIsCountedAndKept(t *testing.T) {
	b := setup(t, Options{})
	c := b.dial()
	c.envelope("ann@example.com", "Bob@Example.com")
	code, reply, err := c.send(message("r1"))
	if code != 250 {
		t.Fatalf("%d %q %v", code, reply, err)
	}
	c.want(221, "QUIT")
	b.wantCount(Mail, "r1", 1)
	e := b.Effects(Mail)[0]
	m := e.Mail
	if !strings.HasPrefix(e.ProviderID, "ma_") || !strings.Contains(reply, e.ProviderID) {
		t.Errorf("id %q, reply %q", e.ProviderID, reply)
	}
	if m.From != "shop@example.com" || fmt.Sprint(m.To) != "[ann@example.com Bob@Example.com]" ||
		fmt.Sprint(m.Header["Subject"]) != "[Receipt]" || m.Body != "Thank you.\r\n.dot\r\n" {
		t.Errorf("kept %+v", m)
	}
	if n := b.Recipients("BOB@example.com"); n != 1 {
		t.Errorf("recipients: %d", n)
	}
}

func TestEveryAcceptedMailIsAnEffect(t *testing.T) {
	b := setup(t, Options{})
	c := b.dial()
	for range 2 { // on one connection, with one Message-ID
		c.envelope("ann@example.com")
		if code, reply, err := c.send(message("r1")); code != 250 {
			t.Fatalf("%d %q %v", code, reply, err)
		}
	}
	b.wantCount(Mail, "r1", 2)
	if d := b.Duplicates(); len(d) != 1 || d[0] != (Duplicate{Mail, "r1", 2}) {
		t.Errorf("duplicates %v", d)
	}
	if n := b.Requests(Mail, "r1"); n != 2 {
		t.Errorf("requests: %d", n)
	}
}

func TestMailThatCannotBeCountedIsRefused(t *testing.T) {
	b := setup(t, Options{})
	for _, text := range []string{
		"Subject: no id\r\n\r\nx\r\n",
		"Message-ID: <no-domain>\r\n\r\nx\r\n",
		"Message-ID: <@example.com>\r\n\r\nx\r\n",
		"no headers at all\r\n",
	} {
		c := b.dial()
		c.envelope("ann@example.com")
		if code, reply, err := c.send(text); code != 554 {
			t.Errorf("%q: %d %q %v", text, code, reply, err)
		}
	}
	c := b.dial()
	c.envelope("ann@example.com")
	if code, reply, err := c.send(message("big") + strings.Repeat("0123456789\r\n", maxBody/12)); code != 552 {
		t.Errorf("too large: %d %q %v", code, reply, err)
	}
	if n := b.Count(Mail, ""); n != 0 {
		t.Errorf("effects: %d", n)
	}
	c = b.dial() // headers only is a mail
	c.envelope("ann@example.com")
	if code, reply, err := c.send("Message-ID: <r1@example.com>\r\n"); code != 250 {
		t.Errorf("headers only: %d %q %v", code, reply, err)
	}
	b.wantCount(Mail, "r1", 1)
}

func TestMailCutBeforeTheDotIsNotAccepted(t *testing.T) {
	b := setup(t, Options{})
	for _, part := range []string{message("r1"), "Message-ID: <r1@exam"} {
		c := b.dial()
		c.envelope("ann@example.com")
		if _, err := io.WriteString(c.conn, part); err != nil {
			t.Fatal(err)
		}
		c.conn.Close()
	}
	b.await("the first's headers are read", func(v Snapshot) bool { return v.Requests(Mail, "r1") == 1 })
	if err := b.Close(); err != nil { // nothing of them runs any more
		t.Fatal(err)
	}
	b.wantCount(Mail, "", 0)
}

func TestRefusedRecipient(t *testing.T) {
	b := setup(t, Options{})
	b.script(
		Fault{Kind: RefuseRcpt, Service: Mail, Recipient: "Gone@example.com"},
		Fault{Kind: RefuseRcpt, Service: Mail, Recipient: "full@example.com", Status: 552, Code: "5.2.2", Nth: 2},
	)
	c := b.dial()
	c.want(250, "MAIL FROM:<shop@example.com>")
	if m := c.want(550, "RCPT TO:<gone@example.com>"); !strings.HasPrefix(m, "5.1.1 ") {
		t.Errorf("replied %q", m)
	}
	c.want(502, "DATA") // nobody to send to
	c.want(250, "RCPT TO:<full@example.com>")
	if m := c.want(552, "RCPT TO:<full@example.com>"); !strings.HasPrefix(m, "5.2.2 ") {
		t.Errorf("replied %q", m)
	}
	b.wantCount(Mail, "", 0)
	if n := b.Recipients("gone@example.com"); n != 1 {
		t.Errorf("RCPT commands: %d", n)
	}
}

func TestTemporaryFailureHasNoEffect(t *testing.T) {
	b := setup(t, Options{})
	b.script(
		Fault{Kind: Tempfail, Reference: "r1", Nth: 1},
		Fault{Kind: Tempfail, At: AtRcpt, Status: 450, Code: "4.2.1", Count: 1, Service: Mail, Recipient: "busy@example.com"},
	)
	code, reply, err := b.mail("r1")
	if code != 451 || !strings.HasPrefix(reply, "4.3.0 ") {
		t.Errorf("at the dot: %d %q %v", code, reply, err)
	}
	b.wantCount(Mail, "r1", 0)
	if code, reply, err := b.mail("r1"); code != 250 {
		t.Errorf("again: %d %q %v", code, reply, err)
	}
	b.wantCount(Mail, "r1", 1)

	c := b.dial()
	c.want(250, "MAIL FROM:<shop@example.com>")
	if m := c.want(450, "RCPT TO:<busy@example.com>"); !strings.HasPrefix(m, "4.2.1 ") {
		t.Errorf("at RCPT: %q", m)
	}
	c.want(250, "RCPT TO:<busy@example.com>")
}

func TestRefusedAtTheDotHasNoEffect(t *testing.T) {
	b := setup(t, Options{})
	b.script(Fault{Kind: RefuseDot, Service: Mail, Recipient: "ann@example.com", Count: 1})
	code, reply, err := b.mail("r1")
	if code != 554 || !strings.HasPrefix(reply, "5.7.1 ") {
		t.Errorf("%d %q %v", code, reply, err)
	}
	b.wantCount(Mail, "r1", 0)
}

func TestDropBeforeDotHasNoEffect(t *testing.T) {
	b := setup(t, Options{})
	b.script(Fault{Kind: DropBeforeDot, Reference: "r1", Nth: 1})
	c := b.dial()
	c.envelope("ann@example.com")
	head, _, _ := strings.Cut(message("r1"), "Thank")
	if _, err := io.WriteString(c.conn, head); err != nil {
		t.Fatal(err)
	}
	// Nothing more is sent: the cut comes before the dot by the server's own doing.
	if _, _, err := c.text.ReadResponse(0); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("client saw %v, want a reset", err)
	}
	b.wantCount(Mail, "r1", 0)
	if n := b.Requests(Mail, "r1"); n != 1 {
		t.Errorf("requests: %d", n)
	}
}

func TestLostAfterDotIsCountedWithoutReply(t *testing.T) {
	b := setup(t, Options{})
	b.script(Fault{Kind: LostAfterDot, Nth: 1})
	if code, reply, err := b.mail("r1"); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("client saw %d %q %v, want a reset", code, reply, err)
	}
	b.wantCount(Mail, "r1", 1)
}

func TestLostMailIsCountedAndNeverReplied(t *testing.T) {
	b := setup(t, Options{})
	b.script(Fault{Kind: Lost, Service: Mail, Nth: 1})
	c := b.dial()
	c.envelope("ann@example.com")
	replied := async(func() error { _, _, err := c.send(message("r1")); return err })
	b.await("effect", func(v Snapshot) bool { return v.Count(Mail, "r1") == 1 })
	select {
	case err := <-replied:
		t.Fatalf("replied, or cut: %v", err)
	default:
	}
	_ = c.conn.SetReadDeadline(time.Now())
	if err := <-replied; !errors.Is(err, context.DeadlineExceeded) && !isTimeout(err) {
		t.Errorf("client saw %v", err)
	}
	b.wantCount(Mail, "r1", 1)
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

func TestMailDelayAndHold(t *testing.T) {
	b := setup(t, Options{})
	b.script(Fault{Kind: Delay, Duration: time.Hour, Service: Mail, Reference: "slow"},
		Fault{Kind: Delay, Duration: 20 * time.Millisecond, Service: Mail, Reference: "r1"})
	c := b.dial()
	c.envelope("ann@example.com")
	if _, err := io.WriteString(c.conn, message("slow")+".\r\n"); err != nil {
		t.Fatal(err)
	}
	b.await("delay", func(v Snapshot) bool { return v.Fired(Delay) == 1 })

	release := b.Hold(Mail, "r1", AfterEffect)
	defer release()
	began := time.Now()
	replied := async(func() int { code, _, _ := b.mail("r1"); return code })
	b.await("held", func(v Snapshot) bool { return v.Held(Mail, "r1") == 1 })
	b.wantCount(Mail, "r1", 1)
	release()
	if code := <-replied; code != 250 || time.Since(began) < 20*time.Millisecond {
		t.Errorf("replied %d after %v", code, time.Since(began))
	}
	b.wantCount(Mail, "slow", 0)
}

func TestMailDownRefusesAndComesBackOnTheSamePort(t *testing.T) {
	b := setup(t, Options{})
	addr := b.SMTPAddr()
	open := b.dial()
	for range 3 {
		b.MailDown()
		b.MailDown() // idempotent
		if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("dial while down: %v", err)
		}
		if !b.Summary().MailDown {
			t.Error("the summary does not say down")
		}
		if err := b.MailUp(b.ctx); err != nil {
			t.Fatal(err)
		}
		if err := b.MailUp(b.ctx); err != nil {
			t.Fatal(err)
		}
		if b.SMTPAddr() != addr || b.Summary().MailDown {
			t.Errorf("up at %s, was %s", b.SMTPAddr(), addr)
		}
	}
	if _, _, err := open.cmd("NOOP"); err == nil {
		t.Error("a connection survived")
	}
	if code, reply, err := b.mail("r1"); code != 250 {
		t.Errorf("%d %q %v", code, reply, err)
	}
}

func TestManyMailsAtOnce(t *testing.T) {
	b := setup(t, Options{})
	const n = 60
	codes := make(chan int, n)
	for i := range n {
		go func() { code, _, _ := b.mail(fmt.Sprint("r", i)); codes <- code }()
	}
	for range n {
		if code := <-codes; code != 250 {
			t.Errorf("replied %d", code)
		}
	}
	if s := b.Summary().Services[Mail]; s.Effects != n || s.References != n || s.Duplicates != 0 {
		t.Errorf("counted %+v", s)
	}
}
