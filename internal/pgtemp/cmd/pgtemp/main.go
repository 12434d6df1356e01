// Command pgtemp runs a command with a private Postgres:
//
//	pgtemp [-version N] [-also N] [-lenient] [-dir DIR] -- command [argument ...]
//
// The command finds the server's URL in OUTBOX_TEST_DATABASE_URL, and the one of each
// further major version N asked for with -also in OUTBOX_TEST_DATABASE_URL_N. The
// servers stop when the command ends. Signals are passed on to the command, and its
// exit code is pgtemp's.
//
// A version that is neither found nor fetched is an error. With -lenient pgtemp takes
// the newest found for -version and does without -also; it says so before the command
// and once more after it, where it is read.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/outbox-worker/outbox-worker/internal/pgtemp"
)

const envName = "OUTBOX_TEST_DATABASE_URL"

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func run(args []string) (code int, err error) {
	flags := flag.NewFlagSet("pgtemp", flag.ContinueOnError)
	version := flags.Int("version", 0, "major version; 0 takes the newest found")
	lenient := flags.Bool("lenient", false, "go on without versions that cannot be had, and say so")
	dir := flags.String("dir", "", "keep the data of the first server in this directory")
	var also []int
	flags.Func("also", "a further major version (may be given several times)", func(s string) error {
		n, err := strconv.Atoi(s)
		also = append(also, n)
		return err
	})
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0, nil
	case err != nil:
		return 2, nil // flag has told it
	case flags.NArg() == 0:
		return 2, errors.New("usage: pgtemp [-version N] [-also N] [-lenient] [-dir DIR] -- command [argument ...]")
	}

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	wanted := map[string]pgtemp.Options{envName: {Version: *version, Dir: *dir}}
	for _, n := range also {
		wanted[envName+"_"+strconv.Itoa(n)] = pgtemp.Options{Version: n}
	}
	s, err := start(wanted, *lenient, signals)
	defer func() { err = errors.Join(err, s.stop()) }()
	if err != nil {
		return 1, err
	}
	code, err = command(flags.Args(), s.env, signals)
	for _, note := range s.missing {
		fmt.Fprintln(os.Stderr, note)
	}
	return code, err
}

// servers are those that run, what the command is told of them, and a line for each
// version that it has to do without.
type servers struct {
	mu      sync.Mutex
	running []*pgtemp.Server
	env     []string
	missing []string
	errs    []error
}

func (s *servers) stop() error {
	var errs []error
	for _, r := range s.running {
		errs = append(errs, r.Stop())
	}
	return errors.Join(errs...)
}

// add starts one server.
func (s *servers) add(ctx context.Context, name string, o pgtemp.Options, lenient bool) {
	r, err := pgtemp.Start(ctx, o)
	if err != nil && lenient && o.Version != 0 && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		note := fmt.Sprintf("pgtemp: NOTE: this ran without Postgres %d, which is not here and could not be fetched", o.Version)
		if name == envName {
			o.Version = 0
			if r, err = pgtemp.Start(ctx, o); err == nil {
				note += fmt.Sprintf("; %d took its place", r.Major())
			}
		} else {
			err = nil
		}
		s.mu.Lock()
		s.missing = append(s.missing, note)
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.errs = append(s.errs, err)
	}
	if r != nil {
		s.running = append(s.running, r)
		s.env = append(s.env, name+"="+r.URL())
	}
}

// start starts all servers at once; a signal meanwhile gives it up. The servers that
// run are to be stopped also after an error.
func start(wanted map[string]pgtemp.Options, lenient bool, signals <-chan os.Signal) (*servers, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	var wg sync.WaitGroup
	s := &servers{}
	for name, o := range wanted {
		o.Fast = true
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
		wg.Go(func() { s.add(ctx, name, o, lenient) })
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case sig := <-signals:
		cancel(fmt.Errorf("stopped by a signal: %v", sig))
		<-done
		s.errs = append(s.errs, context.Cause(ctx))
	case <-done:
		cancel(nil)
	}
	return s, errors.Join(s.errs...)
}

// command runs the command to its end and returns its exit code as a shell would.
func command(args, env []string, signals <-chan os.Signal) (int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return 127, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case sig := <-signals:
			// Keys like Ctrl-C reach the command by themselves. Sent twice they would
			// mean "do not wait for your cleanup" to many programs.
			if (sig == os.Interrupt || sig == syscall.SIGQUIT) && term.IsTerminal(int(os.Stdin.Fd())) {
				continue
			}
			_ = cmd.Process.Signal(sig)
		case err := <-done:
			if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
				return 1, err
			}
			if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
				return 128 + int(ws.Signal()), nil
			}
			return cmd.ProcessState.ExitCode(), nil
		}
	}
}
