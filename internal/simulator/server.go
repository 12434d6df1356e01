package simulator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Options of a simulator. The zero value works.
type Options struct {
	// HTTPAddr and SMTPAddr are where to listen. Default: 127.0.0.1:0.
	HTTPAddr, SMTPAddr string
	// Services sets how HTTP services behave; see Behaviour for the default.
	Services map[string]Behaviour
	// Seed of faults with a probability that have none of their own.
	Seed uint64
	// Logger gets one line per request at debug level. Default: none.
	Logger *slog.Logger
	// Journal is a file to which each effect is appended, and from which effects and
	// saved answers are read at the start. Default: none.
	Journal string
}

// Server is a running simulator. All methods are safe for concurrent use.
type Server struct {
	ledger *ledger
	log    *slog.Logger
	http   *http.Server
	web    *port
	mail   *port

	closing   chan struct{}
	closeOnce sync.Once
	closeErr  error
	// serving counts goroutines and requests that Close waits for.
	mu      sync.Mutex
	idle    *sync.Cond
	serving int
	closed  bool
}

// Start listens and serves until Close. ctx bounds the start only.
func Start(ctx context.Context, o Options) (*Server, error) {
	s := &Server{
		ledger:  newLedger(o.Seed),
		log:     cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
		closing: make(chan struct{}),
	}
	s.idle = sync.NewCond(&s.mu)
	for name, b := range o.Services {
		if err := s.SetBehaviour(name, b); err != nil {
			return nil, err
		}
	}
	if o.Journal != "" {
		if err := s.ledger.openJournal(o.Journal); err != nil {
			return nil, fmt.Errorf("simulator: journal: %w", err)
		}
	}
	s.http = s.webServer()
	var err error
	s.web, err = openPort(ctx, s, cmp.Or(o.HTTPAddr, "127.0.0.1:0"), s.http.Serve)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("simulator: http: %w", err), s.ledger.close())
	}
	s.mail, err = openPort(ctx, s, cmp.Or(o.SMTPAddr, "127.0.0.1:0"), s.mailServer().Serve)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("simulator: smtp: %w", err), s.Close())
	}
	return s, nil
}

func (s *Server) webServer() *http.Server {
	return &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// Close cuts every connection and returns when nothing runs any more. A request that had
// no effect yet has none.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		close(s.closing)
		err := errors.Join(s.web.close(), s.mail.close())
		_ = s.http.Close() // its listener is closed already, and it complains
		s.mu.Lock()
		for s.serving > 0 {
			s.idle.Wait()
		}
		s.mu.Unlock()
		s.closeErr = errors.Join(err, s.ledger.close())
	})
	return s.closeErr
}

// begin counts something that Close has to wait for, unless it is too late.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.serving++
	return true
}

func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serving--
	s.idle.Broadcast()
}

// sleep reports false if the server closed meanwhile.
func (s *Server) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.closing:
		return false
	}
}

// HTTPURL is the base of the HTTP providers and of the control interface, without a
// slash at the end.
func (s *Server) HTTPURL() string { return "http://" + s.web.addr }

// SMTPAddr is host:port of the mail server; MailDown does not change it.
func (s *Server) SMTPAddr() string { return s.mail.addr }

// MailDown closes the mail server's port and its connections; dials are refused. A mail
// whose dot had arrived may still be counted.
func (s *Server) MailDown() { _ = s.mail.down(nil) }

// MailUp listens on the same port again.
func (s *Server) MailUp(ctx context.Context) error { return s.mail.up(ctx) }

// HTTPDown closes the port of the HTTP providers, and of the control interface, and its
// connections; dials are refused. What had arrived may still have its effect.
func (s *Server) HTTPDown() { _ = s.web.down(nil) }

// HTTPUp listens on the same port again.
func (s *Server) HTTPUp(ctx context.Context) error { return s.web.up(ctx) }

// Script adds faults, to be tried after those that are there. One that could not do what
// it says is an error, and then none is added.
func (s *Server) Script(faults ...Fault) error {
	for i, f := range faults {
		if err := f.Validate(); err != nil {
			return fmt.Errorf("fault %d: %w", i+1, err)
		}
	}
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	for _, f := range faults {
		s.ledger.script = append(s.ledger.script, &scripted{Fault: f})
	}
	s.ledger.touch()
	return nil
}

// ClearFaults ends the script. Requests that have already met a fault keep it.
func (s *Server) ClearFaults() {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.script = nil
	s.ledger.touch()
}

// SetBehaviour changes how a service treats requests from now on.
func (s *Server) SetBehaviour(service string, b Behaviour) error {
	if err := b.validate(service); err != nil {
		return err
	}
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.behaviours[service] = b
	s.ledger.touch()
	return nil
}

// Advance moves the simulator's clock forward: keys age, lookup lags pass. Delays are
// real time and do not shorten.
func (s *Server) Advance(d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("advance by %v: time goes forward only", d)
	}
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.offset += d
	s.ledger.touch()
	return nil
}

// Reset empties the ledger, the counts, the keys, the script and the journal. Behaviour
// and clock stay. What still runs has its effect afterwards, and is counted then.
func (s *Server) Reset() error {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	defer s.ledger.touch()
	s.ledger.empty()
	if s.ledger.journal == nil {
		return nil
	}
	return s.ledger.journal.file.Truncate(0)
}

// Effects of a service in the order in which they happened; of all services if empty.
func (s *Server) Effects(service string) []Effect {
	return s.effects(service, "")
}

func (s *Server) effects(service, reference string) []Effect {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return s.ledger.selectEffects(func(e Effect) bool {
		return (service == "" || e.Service == service) && (reference == "" || e.Reference == reference)
	})
}

// Count is the number of effects of a reference; of all references if it is empty.
func (s *Server) Count(service, reference string) int { return s.snapshot().Count(service, reference) }

// Requests is the number of requests to create something, whatever came of them; of all
// references if reference is empty. A mail is a request once its headers are read.
func (s *Server) Requests(service, reference string) int {
	return s.snapshot().Requests(service, reference)
}

// Lookups is the number of lookups by reference or id.
func (s *Server) Lookups(service, reference string) int {
	return s.snapshot().Lookups(service, reference)
}

// Recipients is the number of RCPT commands for an address.
func (s *Server) Recipients(address string) int {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return s.ledger.recipients[foldAddress(address)]
}

// Duplicates are the references with more than one effect.
func (s *Server) Duplicates() []Duplicate {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	return s.ledger.duplicates()
}

// Summary is everything counted.
func (s *Server) Summary() Summary {
	sum := s.ledger.summary()
	sum.MailDown = s.mail.isDown()
	return sum
}

func (l *ledger) close() error {
	if l.journal == nil {
		return nil
	}
	return l.journal.file.Close()
}

// Run starts a simulator, prints {"http":"http://...","smtp":"host:port"} as one line to
// out, and serves until ctx ends.
func Run(ctx context.Context, o Options, out io.Writer) error {
	s, err := Start(ctx, o)
	if err != nil {
		return err
	}
	line := struct {
		HTTP string `json:"http"`
		SMTP string `json:"smtp"`
	}{s.HTTPURL(), s.SMTPAddr()}
	if err := json.NewEncoder(out).Encode(line); err != nil {
		return errors.Join(err, s.Close())
	}
	<-ctx.Done()
	return s.Close()
}
