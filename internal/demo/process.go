package demo

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
	"syscall"
	"time"
)

// stopTime is what a process gets to stop before it is killed.
const stopTime = 40 * time.Second

// process is a child: this program under another command.
type process struct {
	name string
	cmd  *exec.Cmd
	log  *os.File
	done chan struct{} // closed when it has ended
}

// start runs this program with the arguments. Its standard error goes to a log file.
func (d *demo) start(name string, stdout io.Writer, env []string, args ...string) (*process, error) {
	log, err := os.Create(filepath.Join(d.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: exec.Command(d.o.Program, args...), log: log, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env, p.cmd.Dir = stdout, log, append(os.Environ(), env...), d.dir
	p.cmd.SysProcAttr = childAttributes()
	if err := p.cmd.Start(); err != nil {
		_ = log.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended stands in ProcessState
		_ = log.Close()
		close(p.done)
	}()
	d.processes = append(d.processes, p)
	return p, nil
}

// kill ends the process at once, as a crash would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop ends the process as a deployment would, and kills it if that takes too long.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTime):
		p.kill()
		return fmt.Errorf("%s did not stop within %s; see %s", p.name, stopTime, p.log.Name())
	}
}

// ended reports a process that is gone although nobody ended it.
func (p *process) ended() error {
	select {
	case <-p.done:
		tail, _ := os.ReadFile(p.log.Name())
		return fmt.Errorf("%s ended by itself (%s): %s", p.name, p.cmd.ProcessState, tail[max(0, len(tail)-500):])
	default:
		return nil
	}
}

// Addresses is the first line that the simulator prints.
type Addresses struct {
	HTTP string `json:"http"`
	SMTP string `json:"smtp"`
}

// startSimulator starts the providers' process and waits for its addresses.
func (d *demo) startSimulator(ctx context.Context) (a Addresses, _ error) {
	out, in, err := os.Pipe()
	if err != nil {
		return a, err
	}
	defer func() { _ = out.Close() }()
	p, err := d.start("providers", in, nil, "simulator", "--seed", "7")
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
			return a, errors.Join(fmt.Errorf("read the simulator's addresses: %w", err), p.ended())
		}
		return a, nil
	case <-ctx.Done():
		return a, ctx.Err()
	}
}
