package e2e_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// running counts the children that have not ended.
var running atomic.Int64

// child is a process that a test started. It is killed when the test ends, and its
// output shown if the test failed.
type child struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	log  string        // the file with its output
	done chan struct{} // closed when it has ended
}

// start starts the command; what it writes goes to a file, unless the caller has another
// place for its standard output.
func (b *bundle) start(name string, cmd *exec.Cmd) *child {
	b.t.Helper()
	c := &child{t: b.t, name: name, cmd: cmd, log: filepath.Join(b.dir, name+".log"), done: make(chan struct{})}
	log, err := os.Create(c.log)
	b.must(err)
	cmd.Stderr, cmd.Dir, cmd.SysProcAttr = log, b.dir, childAttributes()
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	started := make(chan error, 1)
	go func() {
		// The kernel's death signal comes when the starting thread ends, and Go never
		// ends a locked one.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer func() { _ = log.Close() }()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		running.Add(1)
		started <- nil
		_ = cmd.Wait() // how it ended stands in ProcessState
		running.Add(-1)
		close(c.done)
	}()
	if err := <-started; err != nil {
		b.t.Fatalf("start %s: %v", name, err)
	}
	b.t.Cleanup(func() {
		c.kill()
		if b.t.Failed() {
			b.t.Logf("%s (%s) wrote:\n%s", name, cmd.ProcessState, c.tail())
		}
	})
	return c
}

// kill ends the process as a crash would, and returns when it is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended by itself
	<-c.done
}

// terminate asks the process to stop, as a deployment does.
func (c *child) terminate() { c.t.Helper(); c.signal(syscall.SIGTERM) }

// freeze keeps the process from doing anything until it is thawed, as when its machine
// sleeps.
func (c *child) freeze() { c.t.Helper(); c.signal(syscall.SIGSTOP) }

func (c *child) thaw() { c.t.Helper(); c.signal(syscall.SIGCONT) }

func (c *child) signal(s os.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.t.Fatalf("signal %s: %v", c.name, err)
	}
}

// exit waits until the process has ended and returns its exit code. A process that does
// not end in time is killed, and fails the test.
func (c *child) exit(limit time.Duration) int {
	c.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		c.t.Errorf("%s still runs after %s", c.name, limit)
		c.kill()
	}
	return c.cmd.ProcessState.ExitCode()
}

// alive fails the test if the process has ended.
func (c *child) alive() {
	c.t.Helper()
	select {
	case <-c.done:
		c.t.Fatalf("%s ended by itself: %s\n%s", c.name, c.cmd.ProcessState, c.tail())
	default:
	}
}

const logPoll = 10 * time.Millisecond

// awaitLog waits until the process has written the text.
func (c *child) awaitLog(b *bundle, text string) {
	c.t.Helper()
	tick := time.NewTicker(logPoll)
	defer tick.Stop()
	for {
		if written, err := os.ReadFile(c.log); err == nil && bytes.Contains(written, []byte(text)) {
			return
		}
		select {
		case <-c.done:
			c.t.Fatalf("%s ended before it wrote %q: %s\n%s", c.name, text, c.cmd.ProcessState, c.tail())
		case <-b.ctx.Done():
			c.t.Fatalf("%s did not write %q: %v\n%s", c.name, text, b.ctx.Err(), c.tail())
		case <-tick.C:
		}
	}
}

const tailLines = 40

// tail is the end of what the process wrote.
func (c *child) tail() string {
	written, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(written), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}

// ended is a command that ran to its end.
type ended struct {
	code           int
	stdout, stderr string
}

// call runs a command to its end.
func (b *bundle) call(stdin string, env []string, path string, args ...string) ended {
	b.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(b.ctx, path, args...)
	cmd.Env, cmd.Dir = append(b.environment(), env...), b.dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		b.t.Errorf("%s: %v\n%s", filepath.Base(path), err, &stderr)
	}
	return ended{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}
