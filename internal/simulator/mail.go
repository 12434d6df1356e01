package simulator

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/emersion/go-smtp"
)

// mailServer configures the library. It is never closed: its Close races with its
// connections, and closing their sockets ends them as well.
func (s *Server) mailServer() *smtp.Server {
	m := smtp.NewServer(smtp.BackendFunc(s.newSession))
	m.Domain = "simulator.invalid"
	m.MaxMessageBytes = maxBody
	m.MaxRecipients = 100
	m.ReadTimeout = 5 * time.Minute
	m.WriteTimeout = time.Minute
	m.EnableSMTPUTF8 = true
	m.ErrorLog = slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)
	return m
}

// session is one SMTP session; the library calls it from one goroutine at a time.
type session struct {
	sim  *Server
	conn *portConn
	from string
	to   []string
}

func (s *Server) newSession(c *smtp.Conn) (smtp.Session, error) {
	conn, ok := c.Conn().(*portConn)
	if !ok {
		return nil, errors.New("not a connection of this server")
	}
	return &session{sim: s, conn: conn}, nil
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
	if p.kind() == Tempfail || p.kind() == RefuseDot {
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
		_, _ = io.Copy(io.Discard, s.conn)
		return s.cut()
	}
	return &smtp.SMTPError{Code: 250, EnhancedCode: smtp.EnhancedCode{2, 0, 0}, Message: "OK: queued as " + e.ProviderID}
}

// cut resets the connection, so that whatever the library replies reaches nobody.
func (s *session) cut() error {
	reset(s.conn)
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
	case RefuseDot:
		status, code = 554, "5.7.1"
	}
	enhanced, err := parseEnhancedCode(cmp.Or(f.Code, code))
	if err != nil {
		panic(err) // Validate let it pass
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
