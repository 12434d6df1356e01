package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/examples/shop"
	"github.com/outbox-worker/outbox-worker/internal/children"
	"github.com/outbox-worker/outbox-worker/internal/pgtemp"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/migrations"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

// Options say how to run the demo.
type Options struct {
	// Program is the path of outbox-worker: workers and providers are its processes.
	Program string
	// DatabaseURL uses that database instead of a private one. It must be empty of
	// earlier demos; its outbox and shop schemas stay.
	DatabaseURL string
	// Keep leaves logs, and the private database's data, in the directory that the
	// report names.
	Keep bool
	// Progress gets a line now and then.
	Progress io.Writer
}

// Limits of the demo: it is over in a minute or says what hangs.
const (
	workers    = 3
	customers  = 16
	quietLimit = 45 * time.Second
	quietPoll  = 100 * time.Millisecond
	outage     = 2 * time.Second
	sayEvery   = time.Second

	simulatorSeed = 7
)

// ErrInUse refuses a database that has a ledger or a shop: the demo would charge, at a
// simulator, what somebody wants to be charged.
var ErrInUse = errors.New("the database has a schema outbox or shop already, and the demo would mix with it")

// demo is one run.
type demo struct {
	o         Options
	dir       string
	began     time.Time
	pool      *pgxpool.Pool
	url       string
	config    string
	sim       *simulator.Client
	processes children.Group
	workers   map[string]*children.Process
	cleanup   []func() error
}

// Run runs the demo and returns its verdict. The error is that of a demo that could not
// be run to its end; duplicates and losses are in the Report. Everything it started has
// ended when it returns.
func Run(ctx context.Context, o Options) (report Report, err error) {
	d := &demo{o: o, began: time.Now(), workers: map[string]*children.Process{}}
	d.dir, err = os.MkdirTemp("", "outbox-demo-")
	if err != nil {
		return report, err
	}
	d.processes.Program, d.processes.Dir = o.Program, d.dir
	defer func() {
		err = errors.Join(err, d.end())
		switch {
		case !o.Keep && (err == nil && report.OK() || ctx.Err() != nil || errors.Is(err, ErrInUse)):
			err = errors.Join(err, os.RemoveAll(d.dir))
		case o.Keep && o.DatabaseURL == "":
			d.say("logs and database are in %[1]s; outbox-worker dev --data-dir %[1]s opens it", d.dir)
		default:
			d.say("logs are in %s", d.dir)
		}
	}()
	// Postgres runs as another user when this is root.
	if err := os.Chmod(d.dir, 0o755); err != nil {
		return report, err
	}
	if err := d.setUp(ctx); err != nil {
		return report, err
	}
	fed, err := d.play(ctx)
	if err != nil {
		return report, err
	}
	return d.judge(ctx, fed)
}

func (d *demo) say(format string, args ...any) {
	_, _ = fmt.Fprintf(d.o.Progress, "%6.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

// setUp starts the database, the providers' process and the workers.
func (d *demo) setUp(ctx context.Context) error {
	if err := d.openDatabase(ctx); err != nil {
		return err
	}
	if err := migrations.Up(ctx, d.pool); err != nil {
		return err
	}
	if err := shop.Setup(ctx, d.pool); err != nil {
		return err
	}
	operations, err := d.applyCatalog(ctx)
	if err != nil {
		return err
	}
	d.say("schema outbox migrated, catalog applied: %s", strings.Join(operations, ", "))
	at, err := d.processes.Simulator(ctx, simulatorSeed)
	if err != nil {
		return err
	}
	d.sim = simulator.NewClient(at.HTTP)
	d.say("providers (payments, shipping at %s, mail at %s) run as a process of their own", at.HTTP, at.SMTP)
	if err := d.sim.Script(ctx, faults()...); err != nil {
		return fmt.Errorf("script the faults: %w", err)
	}
	d.config = filepath.Join(d.dir, "outbox-worker.yaml")
	if err := os.WriteFile(d.config, []byte(WorkerConfig(at)), 0o600); err != nil {
		return err
	}
	for i := range workers {
		if err := d.startWorker(i + 1); err != nil {
			return err
		}
	}
	d.say("%d workers run, each a process", workers)
	return nil
}

func (d *demo) openDatabase(ctx context.Context) error {
	d.url = d.o.DatabaseURL
	if d.url == "" {
		o := pgtemp.Options{Fast: true}
		if d.o.Keep {
			o.Dir = filepath.Join(d.dir, "postgres")
		}
		server, err := pgtemp.Start(ctx, o)
		if err != nil {
			return err
		}
		d.cleanup = append(d.cleanup, server.Stop)
		d.url = server.URL()
		d.say("private Postgres %s started", server.Version())
	}
	pool, err := pgxpool.New(ctx, d.url)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	d.pool = pool
	d.cleanup = append(d.cleanup, func() error { pool.Close(); return nil })
	var used bool
	if err := pool.QueryRow(ctx, `SELECT to_regnamespace('outbox') IS NOT NULL OR to_regnamespace('shop') IS NOT NULL`).Scan(&used); err != nil {
		return fmt.Errorf("look at the database: %w", err)
	}
	if used {
		return ErrInUse
	}
	return nil
}

// applyCatalog applies the shop's catalog with times that suit a minute's demo: a
// call that is lost is given up after 2 s instead of 10.
func (d *demo) applyCatalog(ctx context.Context) (operations []string, _ error) {
	c, err := catalog.Parse("examples/shop/catalog.yaml", shop.Catalog)
	if err != nil {
		return nil, err
	}
	for i := range c.Operations {
		o := &c.Operations[i]
		o.Timeouts.Call.Duration, o.Timeouts.Lease.Duration = 2*time.Second, 8*time.Second
		o.Retry.Initial.Duration, o.Retry.Max.Duration = 200*time.Millisecond, 2*time.Second
		operations = append(operations, o.ID())
	}
	_, err = catalog.Apply(ctx, d.pool, c, "demo")
	return operations, err
}

func (d *demo) startWorker(n int) error {
	name := fmt.Sprintf("worker-%d", n)
	p, err := d.processes.Start(children.Command{
		Name: name, Env: []string{"DATABASE_URL=" + d.url},
		Args: []string{"run", "--config", d.config, "--worker-name", name, "--log-format", "json"},
	})
	d.workers[name] = p
	return err
}

// play has the shop take all orders, ends a worker and the mail server in the middle,
// and waits until nothing moves any more.
func (d *demo) play(ctx context.Context) (shop.Summary, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return shop.Summary{}, err
	}
	server := &http.Server{Handler: shop.Handler(d.pool, slog.New(slog.DiscardHandler)), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		_ = server.Close()
		<-served
	}()

	d.say("the shop takes %d orders (%d customers at once)", bytes.Count(shop.Orders, []byte("\n")), customers)
	trouble := make(chan error, 1)
	troubleCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { trouble <- d.makeTrouble(troubleCtx) }()
	fed, err := shop.Feed(ctx, "http://"+listener.Addr().String(), bytes.NewReader(shop.Orders), customers)
	if err != nil {
		return fed, err
	}
	d.say("all orders placed: %d new, %d asked twice, %d changed under the same number and refused", fed.Accepted, fed.Repeated, fed.Conflict)
	if err := <-trouble; err != nil {
		return fed, err
	}
	return fed, d.quiet(ctx)
}

// makeTrouble kills a worker and takes the mail server away, at points that the
// providers' own count announces.
func (d *demo) makeTrouble(ctx context.Context) error {
	if _, err := d.sim.AwaitEffects(ctx, simulator.Mail, "", 10); err != nil {
		return err
	}
	if err := d.sim.MailDown(ctx); err != nil {
		return err
	}
	d.say("mail server taken down for %s", outage)
	back := time.NewTimer(outage)
	defer back.Stop()
	if _, err := d.sim.AwaitEffects(ctx, simulator.Charges, "", 100); err != nil {
		return err
	}
	d.workers["worker-1"].Kill()
	delete(d.workers, "worker-1")
	d.say("worker-1 killed (SIGKILL) with calls in flight")
	select {
	case <-back.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := d.sim.MailUp(ctx); err != nil {
		return err
	}
	d.say("mail server back")
	if err := d.startWorker(workers + 1); err != nil {
		return err
	}
	d.say("worker-%d takes the place of worker-1", workers+1)
	return nil
}

// quiet waits until no intent can move by itself any more.
func (d *demo) quiet(ctx context.Context) error {
	deadline := time.Now().Add(quietLimit)
	poll := time.NewTicker(quietPoll)
	defer poll.Stop()
	said := time.Now()
	for {
		var moving, intents, settled, unknown int
		err := d.pool.QueryRow(ctx, `SELECT
			(SELECT count(*) FROM outbox.outbox WHERE phase <> 'parked'),
			(SELECT count(*) FROM outbox.intents), (SELECT count(*) FROM outbox.outcomes),
			(SELECT count(*) FROM outbox.outbox WHERE state = 'outcome_unknown')`).Scan(&moving, &intents, &settled, &unknown)
		if err != nil {
			return fmt.Errorf("look at the outbox: %w", err)
		}
		if time.Since(said) > sayEvery || moving == 0 {
			said = time.Now()
			d.say("intents %d, settled %d, moving %d, outcome unknown %d", intents, settled, moving, unknown)
		}
		if moving == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			d.say("%d intents still move after %s: that is no end, so they count as lost", moving, quietLimit)
			return nil
		}
		for _, p := range d.workers {
			if err := p.Ended(); err != nil {
				return err
			}
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// end stops what was started, in the opposite order.
func (d *demo) end() error {
	errs := []error{d.processes.End()}
	for i := len(d.cleanup) - 1; i >= 0; i-- {
		errs = append(errs, d.cleanup[i]())
	}
	return errors.Join(errs...)
}
