package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/pflag"

	"github.com/outbox-worker/outbox-worker/dispatch"
	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/httpjson"
	"github.com/outbox-worker/outbox-worker/providers/smtp"
)

// point is a place in an attempt at which a worker can be stopped and killed.
type point string

// The points of dispatch.Hooks.
const (
	beforeClaim  point = "BeforeClaim"
	afterClaim   point = "AfterClaim"
	beforeWrite  point = "BeforeWrite"
	afterCall    point = "AfterCall"
	beforeSettle point = "BeforeSettle"
	afterSettle  point = "AfterSettle"
	beforeResend point = "BeforeResend"
)

// How a test tells its own binary to be a worker, and where that worker stops.
const (
	pointEnv     = "E2E_STOP_AT"
	referenceEnv = "E2E_STOP_FOR"
)

// hooked is a worker that stops at a point, until it is killed or told to go on.
type hooked struct {
	*child
	reached chan string // gets what the worker says when it is there
	goOn    func()
}

// hookedWorker starts this binary as a worker that stops at the point for the reference.
func (b *bundle) hookedWorker(name string, at point, reference string, env ...string) *hooked {
	b.t.Helper()
	self, err := os.Executable()
	b.must(err)
	out, in, err := os.Pipe()
	b.must(err)
	wait, goOn, err := os.Pipe()
	b.must(err)
	b.t.Cleanup(func() { _ = goOn.Close() })
	cmd := exec.Command(self)
	cmd.Env = append(b.workerEnvironment(name), pointEnv+"="+string(at), referenceEnv+"="+reference)
	cmd.Env = append(cmd.Env, env...)
	cmd.ExtraFiles = []*os.File{in, wait}
	h := &hooked{child: b.start(name, cmd), reached: make(chan string, 1), goOn: func() { _ = goOn.Close() }}
	_, _ = in.Close(), wait.Close()
	go func() {
		defer func() { _ = out.Close() }()
		s := bufio.NewScanner(out)
		for s.Scan() {
			h.reached <- s.Text()
		}
		close(h.reached)
	}()
	return h
}

// await waits until the worker stands at its point.
func (h *hooked) await(b *bundle) {
	b.t.Helper()
	select {
	case said, ok := <-h.reached:
		if !ok {
			b.t.Fatalf("%s ended before its point: %s\n%s", h.name, h.cmd.ProcessState, h.tail())
		}
		b.t.Log(said)
	case <-b.ctx.Done():
		b.t.Fatalf("%s did not reach its point\n%s\n%s", h.name, h.tail(), b.dump())
	}
}

// hookedMain is this binary as a worker: "outbox-worker run", but for the points.
func hookedMain() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := work(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func work(ctx context.Context) error {
	cfg, err := cli.Load(cli.Env{Environ: os.Environ()}, pflag.NewFlagSet("worker", pflag.ContinueOnError))
	if err != nil {
		return err
	}
	accounts, err := openProviders(cfg)
	if err != nil {
		return err
	}
	pc, err := cfg.Database.PoolConfig("hooked worker")
	if err != nil {
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return err
	}
	defer pool.Close()
	w, err := dispatch.New(dispatch.Config{
		Pool: pool, Providers: accounts, Logger: slog.New(slog.NewJSONHandler(os.Stderr, nil)), Name: cfg.Worker.Name,
		ReleaseLease: cfg.Worker.ReleaseLease, IdlePoll: cfg.Worker.IdlePoll, SweepEvery: cfg.Worker.SweepEvery,
		StopTimeout: cfg.Worker.StopTimeout,
		Hooks:       stopAt(point(os.Getenv(pointEnv)), os.Getenv(referenceEnv), os.NewFile(3, "reached"), os.NewFile(4, "wait")),
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// stopAt makes hooks that say when they are reached, and then wait for the end of a file.
func stopAt(at point, reference string, reached io.Writer, wait io.Reader) dispatch.Hooks {
	stop := func(here point) func(string) {
		return func(r string) {
			if here == at && r == reference {
				_, _ = fmt.Fprintf(reached, "at %s of %s\n", at, r)
				_, _ = io.Copy(io.Discard, wait)
			}
		}
	}
	return dispatch.Hooks{
		BeforeClaim: func(references []string) {
			if slices.Contains(references, reference) {
				stop(beforeClaim)(reference)
			}
		},
		AfterClaim: stop(afterClaim), BeforeWrite: stop(beforeWrite), AfterCall: stop(afterCall),
		BeforeSettle: stop(beforeSettle), AfterSettle: stop(afterSettle), BeforeResend: stop(beforeResend),
	}
}

// openProviders makes the providers of the worker's configuration.
func openProviders(cfg cli.Config) (map[string]providers.Provider, error) {
	opened := map[string]providers.Provider{}
	for _, name := range cfg.ProviderNames() {
		adapter, decode, err := cfg.Provider(name)
		if err != nil {
			return nil, err
		}
		switch adapter {
		case "httpjson":
			var c httpjson.Config
			if err = decode(&c); err == nil {
				opened[name], err = httpjson.New(c)
			}
		case "smtp":
			var c smtp.Config
			if err = decode(&c); err == nil {
				opened[name], err = smtp.New(c)
			}
		default:
			err = fmt.Errorf("no adapter %q", adapter)
		}
		if err != nil {
			return nil, fmt.Errorf("provider %s: %w", name, err)
		}
	}
	return opened, nil
}
