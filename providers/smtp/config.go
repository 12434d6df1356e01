package smtp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"regexp"
	"slices"
	"strings"
	"time"
)

// TLS modes.
const (
	TLSNone     = "none"     // plain text: only to a server on this machine or a network you own
	TLSStart    = "starttls" // plain text, then TLS before anything is said; never without (port 587, 25)
	TLSImplicit = "tls"      // TLS from the first byte (port 465)
)

// Config describes one account at one mail server. Secrets are plain values here: whoever
// reads the configuration file expands them from the environment. Durations decode from
// "10s" with yaml and koanf; encoding/json takes nanoseconds.
type Config struct {
	// Account names the account from which mail goes out. Required.
	Account string `yaml:"account" json:"account"`
	// Address is host:port of the server. Required.
	Address string `yaml:"address" json:"address"`
	// Preset is the revision of these settings; change it with From or Domain. Default: "1".
	Preset string `yaml:"preset" json:"preset"`
	// Operations that this account performs, "send_email" for every version or
	// "send_email.v2" for one. Default: send_email.
	Operations []string `yaml:"operations" json:"operations"`

	// TLS is none, starttls or tls. Default: starttls.
	TLS string `yaml:"tls" json:"tls"`
	// Username and Password, if the server wants them. Not in plain text, except to this
	// machine.
	Username string `yaml:"username" json:"username"`
	Password string `yaml:"password" json:"password"`

	// From is the sender, "shop@example.com" or "The Shop <shop@example.com>". Required.
	From string `yaml:"from" json:"from"`
	// Domain is the right side of the Message-ID. Default: From's domain.
	Domain string `yaml:"domain" json:"domain"`
	// Hello is the name given to the server. Default: Domain.
	Hello string `yaml:"hello" json:"hello"`

	// DialTimeout bounds the TCP connection. Default: 10 s.
	DialTimeout time.Duration `yaml:"dial_timeout" json:"dial_timeout"`
	// CommandTimeout bounds each step before the final dot. Default: 30 s.
	CommandTimeout time.Duration `yaml:"command_timeout" json:"command_timeout"`
	// AnswerTimeout bounds the wait for the reply to the final dot, when a mail that was
	// accepted looks lost if one does not wait long enough. RFC 5321 asks for 10 minutes;
	// the context of Send ends the wait in any case, so the lease has to cover it.
	// Default: as long as the context lasts, at most 10 minutes.
	AnswerTimeout time.Duration `yaml:"answer_timeout" json:"answer_timeout"`

	// TLSConfig is for private certificate authorities and client certificates.
	TLSConfig *tls.Config `yaml:"-" json:"-"`
	// Dial replaces the TCP dialler, for tests and unusual networks.
	Dial func(ctx context.Context, network, address string) (net.Conn, error) `yaml:"-" json:"-"`
}

const rfcAnswerTimeout = 10 * time.Minute

var (
	operationName = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.v[1-9][0-9]{0,8})?$`)
	hostName      = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)
)

// settings are a Config with its texts parsed.
type settings struct {
	Config
	host     string
	fromName string
	from     address
}

// parse fills defaults and reports everything that is wrong, each with the field and what
// to do.
func (c Config) parse() (settings, error) {
	s := settings{Config: c}
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
	if c.Account == "" {
		bad("account", "is missing; name the account from which mail goes out")
	}
	s.Preset = cmp.Or(c.Preset, "1")
	s.TLS = cmp.Or(c.TLS, TLSStart)
	s.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	s.CommandTimeout = cmp.Or(c.CommandTimeout, 30*time.Second)
	if s.DialTimeout < 0 || s.CommandTimeout < 0 || s.AnswerTimeout < 0 {
		bad("dial_timeout, command_timeout, answer_timeout", "cannot be negative; give durations such as 30s")
	}
	host, port, err := net.SplitHostPort(c.Address)
	if err != nil || host == "" || port == "" {
		bad("address", "%q is not host:port; give one such as smtp.example.com:587", c.Address)
	}
	s.host = host
	if !slices.Contains([]string{TLSNone, TLSStart, TLSImplicit}, s.TLS) {
		bad("tls", "%q is unknown; give none, starttls or tls", c.TLS)
	}
	if (c.Username == "") != (c.Password == "") {
		bad("username, password", "only one of them is set (is an environment variable missing?); set both or neither")
	}
	if c.Username != "" && s.TLS == TLSNone && !isLoopback(host) {
		bad("tls", "none would send the password in plain text to %s; use starttls or tls", host)
	}
	if err := s.parseFrom(); err != nil {
		bad("from", "%v", err)
	}
	s.Domain = cmp.Or(c.Domain, s.from.domain)
	if !hostName.MatchString(s.Domain) {
		bad("domain", "%q is not an ASCII domain; give the one for Message-IDs, such as example.com", s.Domain)
	}
	s.Hello = cmp.Or(c.Hello, s.Domain)
	if !hostName.MatchString(s.Hello) {
		bad("hello", "%q is not an ASCII host name", s.Hello)
	}
	if len(c.Operations) == 0 {
		s.Operations = []string{"send_email"}
	}
	for _, name := range s.Operations {
		if !operationName.MatchString(name) {
			bad("operations", "%q is not an operation's name; give one such as send_email or send_email.v2", name)
		}
	}
	return s, errors.Join(errs...)
}

func (s *settings) parseFrom() error {
	if s.From == "" {
		return errors.New("is missing; give the sender's address, such as shop@example.com")
	}
	parsed, err := mail.ParseAddress(s.From)
	if err != nil {
		return fmt.Errorf("is not an address such as shop@example.com or The Shop <shop@example.com>: %w", err)
	}
	s.fromName = parsed.Name
	if reason := checkLine(parsed.Name, maxName); reason != "" {
		return errors.New("the name " + reason)
	}
	if s.from, err = parseAddress(parsed.Address); err != nil {
		return fmt.Errorf("the address %w", err)
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
