package pgtemp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// process is a postmaster that this process started.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once it has ended and is waited for
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) state() string { return p.cmd.ProcessState.String() }

// shutdown ends the postmaster, with harsher means when the mode takes too long.
func (p *process) shutdown(mode Mode) error {
	steps := []struct {
		signal  os.Signal
		timeout time.Duration
	}{{sigFast, fastTimeout}, {sigImmediate, quitTimeout}, {os.Kill, quitTimeout}}
	if mode == ModeImmediate {
		steps = steps[1:]
	}
	for _, step := range steps {
		if err := p.cmd.Process.Signal(step.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("signal postgres (pid %d): %w", p.cmd.Process.Pid, err)
		}
		timer := time.NewTimer(step.timeout)
		select {
		case <-p.done:
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
	return fmt.Errorf("postgres (pid %d) does not end", p.cmd.Process.Pid)
}

// startPostgres starts the server with a fresh log.
func (h *home) startPostgres(bin Binaries, args []string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(h.dir, "server.log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{cmd: exec.Command(bin.path("postgres"), args...), done: make(chan struct{})}
	p.cmd.Dir = h.dir
	p.cmd.Env = cleanEnv()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = serverAttr(h.acct)
	started := make(chan error, 1)
	go func() {
		// The kernel's death signal comes when the starting *thread* ends, and Go ends
		// threads as it likes, but never a locked one: it stays to wait for the server.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	return p, nil
}

// runTool runs a program of the server's to its end, as the server's account.
func runTool(ctx context.Context, acct *account, dir, path string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	var out bytes.Buffer
	cmd.Dir, cmd.Env = dir, cleanEnv()
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = serverAttr(acct)
	cmd.WaitDelay = time.Second
	errc := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // as in startPostgres
		defer runtime.UnlockOSThread()
		errc <- cmd.Run()
	}()
	err := <-errc
	return out.Bytes(), err
}

// cleanEnv is the environment without what would change the server's defaults or the
// language of its messages.
func cleanEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "PG") || strings.HasPrefix(name, "LC_") || name == "LANG" || name == "NOTIFY_SOCKET" {
			continue
		}
		env = append(env, kv)
	}
	return append(env, "LC_ALL=C")
}

// freePort looks below the range from which systems take the ports of outgoing
// connections. Otherwise a client that dials while the server is down for a restart
// could be given the server's own port, connect to itself, and keep the server out.
func freePort() (int, error) {
	const lowest, span = 15000, 17000
	var err error
	for range 100 {
		port := lowest + rand.IntN(span)
		var l net.Listener
		if l, err = net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port: %w", err)
}
