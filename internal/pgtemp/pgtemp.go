package pgtemp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	startTimeout = 60 * time.Second // from launch to the first answered query, recovery included
	fastTimeout  = 15 * time.Second // a fast shutdown, before it becomes an immediate one
	quitTimeout  = 8 * time.Second  // an immediate shutdown, before the postmaster is killed
	readyPoll    = 10 * time.Millisecond
	resumePoll   = 100 * time.Millisecond // while something of the old server is in the way
	portAttempts = 5
)

// Options say what to start. The zero value is a temporary server of the newest
// version found.
type Options struct {
	// Dir keeps the data between runs; it is made when missing. One server at a time
	// may use it. Empty means a temporary directory that Stop removes.
	Dir string

	// Version is the major version wanted, such as 15; it is fetched when no binaries
	// of it are found. 0 means the version Dir was made by, else the newest found, and
	// fetches DefaultVersion only when none is found.
	Version int

	// Settings are server settings by name. Those that keep the server private and
	// reachable (port, listen_addresses, unix_socket_directories) cannot be changed.
	// max_connections is 200 unless set here.
	Settings map[string]string

	// Logger hears about fetches at Info and about the rest at Debug. May be nil.
	Logger *slog.Logger

	// Fast turns fsync and full_page_writes off, for tests and the demo: data survives
	// every crash of a process, Restart(Immediate) and kill -9 included, but not one of
	// the machine. synchronous_commit stays on, so commits wait for their WAL to be
	// written just as in production. A temporary directory is made in memory, where
	// there is plenty and TMPDIR does not name another place.
	Fast bool
}

// Mode is the way a server goes down.
type Mode string

const (
	// ModeFast ends sessions, writes a checkpoint and exits.
	ModeFast Mode = "fast"
	// ModeImmediate exits at once, like a crash: the next start recovers from the WAL.
	ModeImmediate Mode = "immediate"
)

// Server is a running Postgres. Its methods may be called from any goroutine.
type Server struct {
	opts Options
	log  *slog.Logger
	bin  Binaries
	home *home
	port int

	follows int // the port of the primary that it was made from; 0 for none

	mu      sync.Mutex // held while the server goes up or down
	proc    *process   // nil while down
	stopped bool
}

// Start starts a server and returns once it answers queries. ctx bounds the start
// alone, not the life of the server. After an error nothing runs and no temporary
// directory is left.
func Start(ctx context.Context, o Options) (*Server, error) {
	s, err := start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("pgtemp: %w", err)
	}
	return s, nil
}

func start(ctx context.Context, o Options) (_ *Server, err error) {
	if !supported {
		return nil, errors.New("cannot start a private Postgres on this system; set DATABASE_URL to use a running one")
	}
	s := &Server{opts: o, log: o.Logger}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	began := time.Now()
	acct, err := serverAccount()
	if err != nil {
		return nil, err
	}
	if s.home, err = openHome(o, acct, s.log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.home.close())
		}
	}()
	version := o.Version
	if have := s.home.major; have != 0 {
		if version != 0 && version != have {
			return nil, fmt.Errorf("%s holds the data of a Postgres %d, but version %d is wanted: choose another directory, or remove this one to start afresh",
				s.home.dir, have, version)
		}
		version = have
	}
	if s.bin, err = findOrFetch(ctx, version, s.home.acct, s.log); err != nil {
		return nil, err
	}
	if s.home.major == 0 {
		if err := s.home.initdb(ctx, s.bin, o.Fast); err != nil {
			return nil, err
		}
	}
	if err := s.launchOnFreePort(ctx); err != nil {
		return nil, err
	}
	s.log.Debug("postgres started", "version", s.bin.Version, "port", s.port, "dir", s.home.dir, "took", time.Since(began))
	return s, nil
}

// URL connects as the superuser to the database postgres. It stays the same over
// Restart.
func (s *Server) URL() string {
	return fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", s.Address())
}

// Address is host and port.
func (s *Server) Address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Version is the full version, such as "15.18".
func (s *Server) Version() string { return s.bin.Version }

// Major is the major version, such as 15.
func (s *Server) Major() int { return s.bin.Major }

// Log returns the last lines the server wrote.
func (s *Server) Log() string { return s.home.logTail() }

// Halt takes the server down and keeps its data and port for Resume. It is bounded: a
// mode that takes too long is followed by a harsher one. Halting a server that is down
// does nothing.
func (s *Server) Halt(mode Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.halt(mode); err != nil {
		return fmt.Errorf("pgtemp: %w", err)
	}
	return nil
}

// Resume starts a halted server on the port it had and returns once it answers
// queries. It starts one that ended by itself, too.
func (s *Server) Resume(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.resume(ctx); err != nil {
		return fmt.Errorf("pgtemp: %w", err)
	}
	return nil
}

// Restart is Halt and Resume.
func (s *Server) Restart(ctx context.Context, mode Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.halt(mode)
	if err == nil {
		err = s.resume(ctx)
	}
	if err != nil {
		return fmt.Errorf("pgtemp: restart: %w", err)
	}
	return nil
}

// Stop takes the server down with a fast shutdown, lets go of its directory and
// removes it if it was temporary. It is bounded, and further calls do nothing.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	if err := errors.Join(s.halt(ModeFast), s.home.close()); err != nil {
		return fmt.Errorf("pgtemp: stop: %w", err)
	}
	return nil
}

func (s *Server) halt(mode Mode) error {
	if mode != ModeFast && mode != ModeImmediate {
		return fmt.Errorf("unknown shutdown mode %q", mode)
	}
	if s.proc == nil {
		return nil
	}
	err := s.proc.shutdown(mode)
	if err == nil {
		s.proc = nil
	}
	return err
}

func (s *Server) resume(ctx context.Context) error {
	if s.stopped {
		return errors.New("the server was stopped")
	}
	if s.proc != nil && !s.proc.ended() {
		return nil
	}
	s.proc = nil
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := s.launch(ctx)
		if !errors.Is(err, errPortTaken) && !errors.Is(err, errLingering) {
			return err
		}
		s.log.Debug("postgres cannot start yet", "err", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(resumePoll):
		}
	}
}

func (s *Server) launchOnFreePort(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		s.port = port
		err = s.launch(ctx)
		if err == nil || attempt == portAttempts || !errors.Is(err, errPortTaken) {
			return err
		}
	}
}

// launch starts the server process and waits until it answers. On an error it is down.
func (s *Server) launch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := awaitGone(s.home.data(), goneTimeout); err != nil {
		return err
	}
	p, err := s.home.startPostgres(s.bin, s.args())
	if err != nil {
		return err
	}
	if err := s.awaitReady(ctx, p); err != nil {
		return errors.Join(err, p.shutdown(ModeImmediate))
	}
	s.proc = p
	return nil
}

// args puts the settings that must hold last: the last of two wins.
func (s *Server) args() []string {
	args := []string{"-D", s.home.data(), "-c", "max_connections=200"}
	if s.opts.Fast {
		args = append(args, "-c", "fsync=off", "-c", "full_page_writes=off")
	}
	if s.home.temp {
		// Shared memory in the directory goes with it, however the server ended.
		args = append(args, "-c", "dynamic_shared_memory_type=mmap")
	}
	if s.follows != 0 { // heeded while it is a standby
		args = append(args, "-c", "primary_slot_name="+standbyName,
			"-c", fmt.Sprintf("primary_conninfo=host=127.0.0.1 port=%d user=postgres application_name=%s", s.follows, standbyName))
	}
	for name, value := range s.opts.Settings {
		args = append(args, "-c", name+"="+value)
	}
	return append(args,
		"-c", "listen_addresses=127.0.0.1",
		"-c", fmt.Sprintf("port=%d", s.port),
		"-c", "unix_socket_directories=")
}

var (
	errPortTaken = errors.New("the port was taken meanwhile")
	errLingering = errors.New("sessions of a killed server still linger")
)

func (s *Server) awaitReady(ctx context.Context, p *process) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	var last error
	for {
		if last = s.ping(ctx); last == nil {
			return nil
		}
		select {
		case <-p.done:
			return s.endedEarly(p)
		case <-ctx.Done():
			return fmt.Errorf("postgres %s does not answer: %w (last answer: %v); its log ends with:\n%s",
				s.bin.Version, ctx.Err(), last, s.home.logTail())
		case <-tick.C:
		}
	}
}

func (s *Server) endedEarly(p *process) error {
	tail := s.home.logTail()
	err := fmt.Errorf("postgres %s ended while starting (%v); its log ends with:\n%s", s.bin.Version, p.state(), tail)
	switch {
	case strings.Contains(tail, "could not bind IPv4 address"):
		return fmt.Errorf("%w: %w", errPortTaken, err)
	case strings.Contains(tail, "pre-existing shared memory block"):
		return fmt.Errorf("%w: %w", errLingering, err)
	}
	return err
}

// ping also asks whose data it reached: another server may sit on a port that ours
// failed to get.
func (s *Server) ping(ctx context.Context) error {
	cfg, err := pgx.ParseConfig(s.URL())
	if err != nil {
		return err
	}
	cfg.ConnectTimeout = 5 * time.Second
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var dir string
	if err := conn.QueryRow(ctx, "SELECT current_setting('data_directory')").Scan(&dir); err != nil {
		return err
	}
	if dir != s.home.data() {
		return fmt.Errorf("port %d belongs to a server with data in %s", s.port, dir)
	}
	return nil
}

const tailLines = 15

func (h *home) logTail() string {
	b, err := os.ReadFile(filepath.Join(h.dir, "server.log"))
	if err != nil {
		return err.Error()
	}
	return cmp.Or(tail(b), "(nothing)")
}

func tail(b []byte) string {
	lines := strings.Split(string(bytes.TrimSpace(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
