package figures

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/dispatch"
	"github.com/outbox-worker/outbox-worker/internal/children"
	"github.com/outbox-worker/outbox-worker/providers"
)

// Child is the worker that the figures start as processes of their own, on the place at
// url, until ctx ends.
func Child(ctx context.Context, url string, concurrency int, delay time.Duration) error {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	config.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	w, err := dispatch.New(dispatch.Config{
		Pool: pool, Providers: map[string]providers.Provider{"bench": &provider{delay: delay}}, Concurrency: concurrency,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// scale drains with three worker processes and with one, each with the same limit of its
// own.
func (r *run) scale(ctx context.Context, p *place) (got pair, err error) {
	const limit, delay = 100, 20 * time.Millisecond
	got.Baseline, err = r.drainedBy(ctx, p, 1, limit, delay, r.o.Intents/2)
	if err == nil {
		got.Value, err = r.drainedBy(ctx, p, 3, limit, delay, r.o.Intents)
	}
	return got, err
}

// drainedBy preloads n intents and gives the rate at which so many processes settle them,
// from the first tenth settled to the last one, so that their start is not in it.
func (r *run) drainedBy(ctx context.Context, p *place, processes, limit int, delay time.Duration, n int) (rate float64, err error) {
	if err := p.preload(ctx, n, nil); err != nil {
		return 0, err
	}
	if err := p.calm(ctx, "outbox.outbox", "outbox.river_job"); err != nil {
		return 0, err
	}
	url, err := p.url()
	if err != nil {
		return 0, err
	}
	group, err := r.group()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, group.End(), os.RemoveAll(group.Dir)) }()
	for i := range processes {
		_, err := group.Start(children.Command{Name: fmt.Sprintf("worker-%d", i+1), Args: []string{
			"worker", "-url", url, "-concurrency", fmt.Sprint(limit), "-delay", delay.String(),
		}})
		if err != nil {
			return 0, err
		}
	}
	begin, err := p.awaitOpen(ctx, n-n/10)
	if err != nil {
		return 0, err
	}
	end, err := p.awaitOpen(ctx, 0)
	return float64(n-n/10) / end.Sub(begin).Seconds(), err
}

// awaitOpen waits until at most n intents are open, and says when that was.
func (p *place) awaitOpen(ctx context.Context, n int) (time.Time, error) {
	for {
		var open int
		if err := p.pool.QueryRow(ctx, "SELECT count(*) FROM outbox.outbox").Scan(&open); err != nil || open <= n {
			return time.Now(), err
		}
		if err := pause(ctx, settledPoll); err != nil {
			return time.Now(), err
		}
	}
}

// memory is the resident size of the real program, in MiB, with 1,000 calls in flight
// over HTTP to a provider that answers none of them yet.
func (r *run) memory(ctx context.Context, p *place) (_ pair, err error) {
	const calls = 1000
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return pair{}, err
	}
	var inFlight atomic.Int64
	full, release := make(chan struct{}), make(chan struct{})
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		if inFlight.Add(1) == calls {
			close(full)
		}
		<-release
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(resultOf)
	})}
	go func() { _ = server.Serve(listener) }()
	defer func() { err = errors.Join(err, server.Close()) }()

	url, err := p.url()
	if err != nil {
		return pair{}, err
	}
	group, err := r.group()
	if err != nil {
		return pair{}, err
	}
	group.Program = r.o.Program
	defer func() { err = errors.Join(err, group.End(), os.RemoveAll(group.Dir)) }()
	settings := filepath.Join(group.Dir, "outbox-worker.yaml")
	if err := os.WriteFile(settings, fmt.Appendf(nil, memorySettings, listener.Addr()), 0o600); err != nil {
		return pair{}, err
	}
	if err := p.limit(ctx, 2*calls); err != nil {
		return pair{}, err
	}
	if err := p.preload(ctx, calls, nil); err != nil {
		return pair{}, err
	}
	worker, err := group.Start(children.Command{
		Name: "outbox-worker", Args: []string{"run", "--config", settings, "--worker-concurrency", fmt.Sprint(calls)},
		Env: []string{"DATABASE_URL=" + url},
	})
	if err != nil {
		return pair{}, err
	}
	select {
	case <-full:
	case <-worker.Done():
		return pair{}, worker.Ended()
	case <-ctx.Done():
		return pair{}, ctx.Err()
	}
	kB, err := worker.Resident()
	close(release)
	_, waitErr := p.awaitOpen(ctx, 0)
	return pair{Value: float64(kB) / 1024}, errors.Join(err, waitErr)
}

const memorySettings = `
providers:
  bench:
    adapter: httpjson
    account: acct_bench
    base_url: http://%s
    operations:
      bench_charge: {path: /v1/charges, key_memory: 24h, replay: success_only}
`

// group starts processes of this program.
func (r *run) group() (*children.Group, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "outbox-bench-")
	return &children.Group{Program: program, Dir: dir}, err
}
