// Package children runs outbox-worker as processes of its own, for what has to see it die:
// the demo and the breaker. What a process writes to standard error goes to a file of its
// name. Children do not outlive this process, on Linux even if it is killed.
package children

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopTime is what a process gets to stop before it is killed.
const stopTime = 40 * time.Second

// logTail is how much of its log an error quotes.
const logTail = 500

// Group starts processes and ends what is left of them.
type Group struct {
	// Program is the path of outbox-worker.
	Program string
	// Dir is where the processes work and their logs are.
	Dir string

	mu  sync.Mutex
	all []*Process
}

// Command is what to run.
type Command struct {
	// Name is the log's name, without its ending.
	Name string
	// Env is added to this process's.
	Env []string
	// Args of outbox-worker.
	Args []string
	// Stdin and Stdout may be nil.
	Stdin  io.Reader
	Stdout io.Writer
}

// Process is a child.
type Process struct {
	Name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// Start starts a process.
func (g *Group) Start(c Command) (*Process, error) {
	p := &Process{Name: c.Name, cmd: exec.Command(g.Program, c.Args...), log: filepath.Join(g.Dir, c.Name+".log"), done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = c.Stdin, c.Stdout, log
	p.cmd.Env, p.cmd.Dir, p.cmd.SysProcAttr = append(os.Environ(), c.Env...), g.Dir, childAttributes()
	started := make(chan error, 1)
	go func() {
		// The kernel's death signal comes when the starting thread ends, and Go never
		// ends a locked one.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer func() { _ = log.Close() }()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // how it ended stands in ProcessState
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, p)
	return p, nil
}

// End stops what still runs, the newest first.
func (g *Group) End() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for i := len(g.all) - 1; i >= 0; i-- {
		errs = append(errs, g.all[i].Stop())
	}
	return errors.Join(errs...)
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Log is the path of the file with what it wrote to standard error.
func (p *Process) Log() string { return p.log }

// Resident is the memory that the process has in use, in kB, where there is a /proc.
func (p *Process) Resident() (kB int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(text), "VmRSS:")
	if !ok {
		return 0, fmt.Errorf("%s: no VmRSS in its status", p.Name)
	}
	_, err = fmt.Sscan(rest, &kB)
	return kB, err
}

// Kill ends the process at once, as a crash would, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Signal sends s. A process that has ended is no error.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// Stop ends the process as a deployment would, and kills it if that takes too long.
func (p *Process) Stop() error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTime):
		p.Kill()
		return fmt.Errorf("%s did not stop within %s; see %s", p.Name, stopTime, p.log)
	}
}

// Ended is an error, with the end of the log, when the process is gone.
func (p *Process) Ended() error {
	select {
	case <-p.done:
		tail, _ := os.ReadFile(p.log)
		return fmt.Errorf("%s ended by itself (%s): %s", p.Name, p.cmd.ProcessState, tail[max(0, len(tail)-logTail):])
	default:
		return nil
	}
}

// Addresses is the first line that the simulator prints.
type Addresses struct {
	HTTP string `json:"http"`
	SMTP string `json:"smtp"`
}

// Simulator starts the providers' process, named providers, and waits for its addresses.
func (g *Group) Simulator(ctx context.Context, seed uint64) (a Addresses, _ error) {
	out, in, err := os.Pipe()
	if err != nil {
		return a, err
	}
	defer func() { _ = out.Close() }()
	p, err := g.Start(Command{Name: "providers", Stdout: in, Args: []string{"simulator", "--seed", fmt.Sprint(seed)}})
	_ = in.Close()
	if err != nil {
		return a, err
	}
	line := make(chan []byte, 1)
	go func() {
		s := bufio.NewScanner(out)
		s.Scan()
		line <- s.Bytes()
	}()
	select {
	case text := <-line:
		if err := json.Unmarshal(text, &a); err != nil {
			return a, errors.Join(fmt.Errorf("read the simulator's addresses: %w", err), p.Ended())
		}
		return a, nil
	case <-ctx.Done():
		return a, ctx.Err()
	}
}
