package simulator

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
)

// mailServer is the SMTP side: a port that can go down and up, and its connections.
type mailServer struct {
	sim    *Server
	server *smtp.Server
	addr   string

	mu       sync.Mutex
	listener net.Listener // nil while down
	conns    map[*mailConn]struct{}
	closed   bool
}

func startMail(ctx context.Context, sim *Server, addr string) (*mailServer, error) {
	m := &mailServer{sim: sim, addr: addr, conns: map[*mailConn]struct{}{}}
	m.server = smtp.NewServer(smtp.BackendFunc(m.newSession))
	m.server.Domain = "simulator.invalid"
	m.server.MaxMessageBytes = maxBody
	m.server.MaxRecipients = 100
	m.server.ReadTimeout = 5 * time.Minute
	m.server.WriteTimeout = time.Minute
	m.server.EnableSMTPUTF8 = true
	m.server.ErrorLog = slog.NewLogLogger(sim.log.Handler(), slog.LevelDebug)
	if err := m.listen(ctx); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *mailServer) listen(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return net.ErrClosed
	}
	if m.listener != nil {
		return nil
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", m.addr)
	if err != nil {
		return err
	}
	m.listener, m.addr = l, l.Addr().String()
	if !m.sim.begin() {
		return l.Close()
	}
	go func() {
		defer m.sim.end()
		_ = m.server.Serve(&mailListener{Listener: l, mail: m})
	}()
	return nil
}

// up retries for a while: something else may have borrowed the port for a moment.
func (m *mailServer) up(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err := m.listen(ctx)
		if err == nil {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("simulator: smtp: %w", err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("simulator: smtp: %w", err)
		}
	}
}

func (m *mailServer) down() { _ = m.stop(false) }

func (m *mailServer) close() error { return m.stop(true) }

// stop closes sockets only. The library's own Close would race with its connections.
func (m *mailServer) stop(forever bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = m.closed || forever
	var err error
	if m.listener != nil {
		err = m.listener.Close()
		m.listener = nil
	}
	for c := range m.conns {
		reset(c.Conn)
	}
	return err
}

func (m *mailServer) isDown() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.listener == nil
}

type mailListener struct {
	net.Listener
	mail *mailServer
}

func (l *mailListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.mail.add(conn, l.Listener); c != nil {
			return c, nil
		}
		reset(conn)
	}
}

// add tracks a connection; nil if the port went down while it was accepted.
func (m *mailServer) add(conn net.Conn, from net.Listener) *mailConn {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listener != from || !m.sim.begin() {
		return nil
	}
	c := &mailConn{Conn: conn, mail: m}
	m.conns[c] = struct{}{}
	return c
}

// mailConn is a connection that the library closes when it is done with it.
type mailConn struct {
	net.Conn
	mail *mailServer
	once sync.Once
}

// Close is the library's; faults and stop reset the embedded connection instead.
func (c *mailConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.mail.mu.Lock()
		delete(c.mail.conns, c)
		c.mail.mu.Unlock()
		c.mail.sim.end()
	})
	return err
}

// session is one SMTP session; the library calls it from one goroutine at a time.
type session struct {
	sim  *Server
	conn *mailConn
	from string
	to   []string
}

func (m *mailServer) newSession(c *smtp.Conn) (smtp.Session, error) {
	conn, ok := c.Conn().(*mailConn)
	if !ok {
		return nil, errors.New("not a connection of this server")
	}
	return &session{sim: m.sim, conn: conn}, nil
}

func (s *session) Reset() { s.from, s.to = "", nil }

func (s *session) Logout() error { return nil }

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	s.from = from
	return nil
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	f := s.sim.ledger.arriveRcpt(foldAddress(to))
	if f != nil {
		return f.smtpReply()
	}
	s.to = append(s.to, to)
	return nil
}

// Data reads the headers, decides, reads up to the dot, and only then has the effect.
func (s *session) Data(r io.Reader) error {
	if !s.sim.begin() {
		return s.cut()
	}
	defer s.sim.end()

	br := bufio.NewReader(byteReader{r})
	header, err := textproto.NewReader(br).ReadMIMEHeader()
	if err != nil && err != io.EOF { // EOF is the dot: a mail of headers only
		return malformed(err) // or cut, and then nobody reads it
	}
	reference := messageReference(header.Get("Message-Id"))
	if reference == "" {
		s.sim.ledger.countRejected(target{service: Mail})
		return malformed(errors.New("the simulator counts by Message-ID: <reference@domain>"))
	}
	to := make([]string, len(s.to))
	for i, a := range s.to {
		to[i] = foldAddress(a)
	}
	p := s.sim.ledger.arrive(target{Mail, reference}, [sha256.Size]byte{}, to)
	s.sim.log.Debug("mail", "reference", reference, "request", p.request, "fault", p.kind())
	if p.gated() {
		return s.cut()
	}
	body, err := io.ReadAll(io.MultiReader(io.LimitReader(br, int64(br.Buffered())), r))
	if err != nil {
		return err // cut before the dot: not accepted
	}
	return s.atDot(p, Message{From: s.from, To: slices.Clone(s.to), Header: header, Body: string(body)})
}

// byteReader reads no further than asked. The library's reader fills its buffer before it
// returns, and would wait for the dot to show the headers.
type byteReader struct{ r io.Reader }

func (b byteReader) Read(p []byte) (int, error) {
	if len(p) > 1 {
		p = p[:1]
	}
	return b.r.Read(p)
}

// atDot has the effect, or not, and replies, or not.
func (s *session) atDot(p plan, m Message) error {
	if !s.sim.sleep(p.delay) || !s.sim.ledger.wait(p.target, BeforeEffect, s.sim.closing) {
		return s.cut()
	}
	if p.kind() == Tempfail || p.kind() == Refuse {
		return p.fault.smtpReply()
	}
	e, _ := s.sim.ledger.record(p, Effect{Mail: &m})
	if !s.sim.ledger.wait(p.target, AfterEffect, s.sim.closing) {
		return s.cut()
	}
	switch p.kind() {
	case LostAfterDot:
		return s.cut()
	case Lost:
		// A client sends nothing before it has a reply: reading ends when it leaves.
		_ = s.conn.SetReadDeadline(time.Time{})
		_, _ = io.Copy(io.Discard, s.conn.Conn)
		return s.cut()
	}
	return &smtp.SMTPError{Code: 250, EnhancedCode: smtp.EnhancedCode{2, 0, 0}, Message: "OK: queued as " + e.ProviderID}
}

// cut resets the connection, so that whatever the library replies reaches nobody.
func (s *session) cut() error {
	reset(s.conn.Conn)
	return net.ErrClosed
}

// messageReference is the local part of a Message-ID.
func messageReference(id string) string {
	id = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(id), "<"), ">")
	at := strings.LastIndexByte(id, '@')
	if at < 0 || at > maxKey {
		return ""
	}
	return id[:at]
}

func malformed(err error) error {
	return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: "Malformed: " + err.Error()}
}

// smtpReply is what a fault at RCPT or at the dot replies.
func (f Fault) smtpReply() error {
	status, code := 451, "4.3.0"
	switch f.Kind {
	case RefuseRcpt:
		status, code = 550, "5.1.1"
	case Refuse:
		status, code = 554, "5.7.1"
	}
	enhanced, err := parseEnhancedCode(cmp.Or(f.Code, code))
	if err != nil {
		enhanced = smtp.EnhancedCodeNotSet // a refusal scripted for any service, with a word
	}
	return &smtp.SMTPError{Code: f.status(status), EnhancedCode: enhanced, Message: "scripted: " + string(f.Kind)}
}

func parseEnhancedCode(s string) (smtp.EnhancedCode, error) {
	var e smtp.EnhancedCode
	if n, err := fmt.Sscanf(s, "%d.%d.%d", &e[0], &e[1], &e[2]); err != nil || n != 3 {
		return e, fmt.Errorf("code %q: want an enhanced status code such as 5.1.1", s)
	}
	return e, nil
}
