package smtp

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/smtp"
	"net/textproto"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/outbox-worker/outbox-worker/providers"
)

// Send implements [providers.Provider].
func (p *Provider) Send(ctx context.Context, r providers.Request, permit providers.Permit) providers.Answer {
	m, ok := r.Data.(*message)
	if !ok || permit == nil {
		return providers.NotSent("not_prepared", "want a request of this adapter's Prepare, and a permit", 0)
	}
	conn, err := p.Dial(ctx, "tcp", p.Address)
	if err != nil {
		return notSent(ctx, "not_connected", err)
	}
	s := &session{provider: p, message: m, conn: &meter{Conn: conn}}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()

	for _, step := range []func() error{s.greet, s.startTLS, s.authenticate, s.envelope, s.data} {
		if err := step(); err != nil {
			return s.before(ctx, err)
		}
	}
	if err := permit(ctx); err != nil {
		return providers.NotSent("not_permitted", clean(err.Error()), 0)
	}
	a := s.content(ctx)
	s.quit()
	return a
}

// session is one mail on one connection.
type session struct {
	provider *Provider
	message  *message
	conn     *meter
	client   *smtp.Client
	stage    stage
}

// refusal is a reply that ends the session, with what it proves.
type refusal struct{ answer providers.Answer }

func (r *refusal) Error() string { return r.answer.Reason }

// before is the answer to an error before the final dot: nothing was accepted.
func (s *session) before(ctx context.Context, err error) providers.Answer {
	var refused *refusal
	var reply *textproto.Error
	switch {
	case errors.As(err, &refused):
		s.quit()
		return refused.answer
	case errors.As(err, &reply):
		s.quit()
		return classify(s.stage, reply.Code, reply.Msg)
	}
	a := notSent(ctx, "connection_lost", err)
	if certificate := (*tls.CertificateVerificationError)(nil); errors.As(err, &certificate) {
		a.Code, a.Alert = "certificate_invalid", true
	}
	return a
}

func notSent(ctx context.Context, code string, err error) providers.Answer {
	if ctx.Err() != nil {
		code = "timeout"
	}
	return providers.NotSent(code, "the mail did not leave: "+clean(err.Error()), 0)
}

// start begins a stage, with its time.
func (s *session) start(at stage) {
	s.stage = at
	_ = s.conn.SetDeadline(time.Now().Add(s.provider.CommandTimeout))
}

func (s *session) greet() (err error) {
	s.start(atGreeting)
	var conn net.Conn = s.conn
	if s.provider.TLS == TLSImplicit {
		secure := tls.Client(s.conn, s.provider.tlsConfig())
		if err := secure.Handshake(); err != nil {
			return err
		}
		conn = secure
	}
	if s.client, err = smtp.NewClient(conn, s.provider.host); err != nil {
		return err
	}
	s.start(atHello)
	return s.client.Hello(s.provider.Hello)
}

func (p *Provider) tlsConfig() *tls.Config {
	c := &tls.Config{}
	if p.TLSConfig != nil {
		c = p.TLSConfig.Clone()
	}
	c.ServerName = cmp.Or(c.ServerName, p.host)
	return c
}

// startTLS never goes on in plain text: whoever strips the offer would read the mail.
func (s *session) startTLS() error {
	if s.provider.TLS != TLSStart {
		return nil
	}
	s.start(atStartTLS)
	if offered, _ := s.client.Extension("STARTTLS"); !offered {
		return alert("starttls_missing", "the server does not offer STARTTLS; nothing was said in plain text")
	}
	return s.client.StartTLS(s.provider.tlsConfig())
}

func alert(code, reason string) error {
	a := providers.NotSent(code, reason, 0)
	a.Alert = true
	return &refusal{a}
}

func (s *session) authenticate() error {
	p := s.provider
	if p.Username == "" {
		return nil
	}
	s.start(atAuth)
	_, offered := s.client.Extension("AUTH")
	mechanisms := strings.Fields(strings.ToUpper(offered))
	var auth smtp.Auth
	switch {
	case slices.Contains(mechanisms, "PLAIN"):
		auth = smtp.PlainAuth("", p.Username, p.Password, p.host)
	case slices.Contains(mechanisms, "LOGIN"):
		auth = &loginAuth{p.Username, p.Password}
	default:
		return alert("auth_missing", "the server offers neither AUTH PLAIN nor LOGIN")
	}
	err := s.client.Auth(auth)
	if reply := (*textproto.Error)(nil); err != nil && !errors.As(err, &reply) && !isNetwork(err) {
		return alert("auth_failed", clean(err.Error()))
	}
	return err
}

func isNetwork(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// loginAuth is AUTH LOGIN, which some large providers offer instead of PLAIN.
type loginAuth struct{ username, password string }

// Start insists on TLS unless the server is this machine; see Config.parse.
func (a *loginAuth) Start(server *smtp.ServerInfo) (string, []byte, error) {
	if !server.TLS && !isLoopback(server.Name) {
		return "", nil, errors.New("unencrypted connection")
	}
	return "LOGIN", nil, nil
}

func (a *loginAuth) Next(prompt []byte, more bool) ([]byte, error) {
	switch p := strings.ToLower(string(prompt)); {
	case !more:
		return nil, nil
	case strings.HasPrefix(p, "user"):
		return []byte(a.username), nil
	case strings.HasPrefix(p, "pass"):
		return []byte(a.password), nil
	}
	return nil, errors.New("unexpected prompt of AUTH LOGIN")
}

// envelope names sender and recipient.
func (s *session) envelope() error {
	m := s.message
	sender := "MAIL FROM:<" + m.from.String() + ">"
	if m.utf8 {
		eightBit, _ := s.client.Extension("8BITMIME")
		international, _ := s.client.Extension("SMTPUTF8")
		if !eightBit || !international {
			return &refusal{providers.Refused("smtputf8_missing", "the server cannot carry an address that is not ASCII; a domain can be given as xn--", true)}
		}
		sender += " BODY=8BITMIME SMTPUTF8"
	}
	if sized, _ := s.client.Extension("SIZE"); sized {
		sender += fmt.Sprintf(" SIZE=%d", len(m.content(time.Now())))
	}
	s.start(atMail)
	if err := s.command(2, sender); err != nil {
		return err
	}
	s.start(atRcpt)
	return s.command(2, "RCPT TO:<"+m.to.String()+">")
}

func (s *session) data() error {
	s.start(atData)
	return s.command(354, "DATA")
}

// command sends a line and wants a reply that starts with the digits of want.
func (s *session) command(want int, line string) error {
	if err := s.client.Text.PrintfLine("%s", line); err != nil {
		return err
	}
	_, _, err := s.client.Text.ReadResponse(want)
	return err
}

// content sends the mail and its dot and waits for the reply.
func (s *session) content(ctx context.Context) providers.Answer {
	s.start(atContent)
	w := s.client.Text.DotWriter()
	if _, err := w.Write(s.message.content(time.Now())); err != nil {
		return notSent(ctx, "connection_lost", err)
	}
	s.stage = atDot
	_ = s.conn.SetDeadline(time.Now().Add(cmp.Or(s.provider.AnswerTimeout, rfcAnswerTimeout)))
	before := s.conn.written.Load()
	if err := w.Close(); err != nil {
		if s.conn.written.Load() == before {
			return notSent(ctx, "connection_lost", err)
		}
		return unanswered(ctx, err)
	}
	code, text, err := s.client.Text.ReadResponse(0)
	switch {
	case err != nil:
		return unanswered(ctx, err)
	case code/100 == 2:
		return s.accepted(text)
	}
	return classify(atDot, code, text)
}

func unanswered(ctx context.Context, err error) providers.Answer {
	code := "connection_lost"
	if network := net.Error(nil); ctx.Err() != nil || errors.As(err, &network) && network.Timeout() {
		code = "timeout"
	}
	return providers.Unknown(code, "no reply to the final dot: "+clean(err.Error()))
}

// accepted names the mail by the server's queue id if the reply tells it, else by its
// Message-ID; bounces and logs have both.
func (s *session) accepted(text string) providers.Answer {
	id := s.message.messageID
	if found := queueID.FindStringSubmatch(text); found != nil {
		id = found[1]
	}
	result, _ := json.Marshal(map[string]string{"message_id": s.message.messageID, "reply": clean(text)})
	return providers.Accepted(id, result)
}

// quit is a courtesy. What it brings changes nothing.
func (s *session) quit() {
	if s.client == nil {
		return
	}
	_ = s.conn.SetDeadline(time.Now().Add(2 * time.Second))
	_ = s.command(221, "QUIT")
}

// meter counts what the kernel took, and reads only so much of what a server may say.
type meter struct {
	net.Conn
	written atomic.Int64
	read    int
}

const maxSaid = 1 << 20

func (m *meter) Write(b []byte) (int, error) {
	n, err := m.Conn.Write(b)
	m.written.Add(int64(n))
	return n, err
}

func (m *meter) Read(b []byte) (int, error) {
	if m.read > maxSaid {
		return 0, errors.New("the server says too much")
	}
	n, err := m.Conn.Read(b)
	m.read += n
	return n, err
}
