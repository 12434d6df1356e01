package chaos

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/outbox-worker/outbox-worker/internal/children"
)

// restartPause is what a deployment would wait before it starts a worker anew.
const restartPause = 300 * time.Millisecond

// slot is a replica: there is a worker in it, and another one when that has ended. Faults
// take turns at it.
type slot struct {
	r    *run
	name string

	turn sync.Mutex // held by the fault that has to do with this slot

	mu      sync.Mutex
	current *children.Process
	orders  io.WriteCloser
	asleep  chan struct{} // gets something when the worker says that it falls asleep
	doomed  bool          // this worker is to end
	away    time.Duration // until the next one starts
	crashes []string

	retired chan struct{}
	gone    chan struct{}
}

func (r *run) newSlot(n int) *slot {
	s := &slot{r: r, name: fmt.Sprintf("worker-%d", n), asleep: make(chan struct{}, 1), retired: make(chan struct{}), gone: make(chan struct{})}
	go s.supervise()
	return s
}

// retire lets the worker of the slot be the last one.
func (s *slot) retire() {
	close(s.retired)
	s.mu.Lock()
	p := s.current
	s.doomed = true
	s.mu.Unlock()
	if p != nil {
		_ = p.Signal(syscall.SIGCONT)
		_ = p.Stop() // if it would not, it has been killed
	}
	<-s.gone
}

// supervise does what a deployment does.
func (s *slot) supervise() {
	defer close(s.gone)
	for n := 1; ; n++ {
		select {
		case <-s.retired:
			return
		default:
		}
		p, err := s.start(n)
		if err != nil {
			s.crash(err.Error())
		} else {
			<-p.Done()
			s.ended(p)
		}
		s.mu.Lock()
		pause := max(s.away, restartPause)
		s.away = 0
		s.mu.Unlock()
		select {
		case <-s.retired:
			return
		case <-time.After(pause):
		}
	}
}

func (s *slot) start(n int) (*children.Process, error) {
	out, said, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	read, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s-%d", s.name, n)
	p, err := s.r.processes.Start(children.Command{
		Name: name, Stdin: read, Stdout: said,
		Env: []string{
			"DATABASE_URL=" + s.r.url, "OUTBOX_DATABASE__MAX_CONNS=6", "OUTBOX_WORKER__SWEEP_EVERY=250ms",
			"OUTBOX_WORKER__RELEASE_LEASE=3s", "OUTBOX_WORKER__STOP_TIMEOUT=5s",
		},
		Args: []string{"chaos", "worker", "--config", s.r.config, "--worker-name", name, "--log-format", "json"},
	})
	_, _ = read.Close(), said.Close()
	if err != nil {
		_, _ = out.Close(), orders.Close()
		return nil, err
	}
	go func() {
		defer func() { _ = out.Close() }()
		for lines := bufio.NewScanner(out); lines.Scan(); {
			select {
			case s.asleep <- struct{}{}:
			default:
			}
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.orders, s.doomed = p, orders, false
	return p, nil
}

// ended notes a worker that had begun to work and ended although nobody made it. One that
// could not begin, because the database was away, only has to be started again.
func (s *slot) ended(p *children.Process) {
	s.mu.Lock()
	doomed := s.doomed
	_ = s.orders.Close()
	s.current = nil
	s.mu.Unlock()
	if log, err := os.ReadFile(p.Log()); !doomed && err == nil && bytes.Contains(log, []byte(`"worker started"`)) {
		s.crash(p.Ended().Error())
	}
}

func (s *slot) crash(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crashes = append(s.crashes, what)
}

// doom announces that the worker is to end, and for how long it is to be missed. It
// returns nil if there is none at the moment.
func (s *slot) doom(away time.Duration) *children.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		s.doomed, s.away = true, away
	}
	return s.current
}

// order tells the worker what to do to itself.
func (s *slot) order(what, point string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		_, _ = fmt.Fprintln(s.orders, what, point) // it may just have ended
	}
}
