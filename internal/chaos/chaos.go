package chaos

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/internal/children"
	"github.com/outbox-worker/outbox-worker/internal/pgtemp"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/migrations"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

// Options say what to break, and how often.
type Options struct {
	// Program is the path of outbox-worker: workers and providers are its processes.
	Program string
	// Seed of everything that is drawn; 0 takes one from the clock.
	Seed uint64
	// Intents to enqueue, follow-ons not counted.
	Intents int
	// Faults of the schedule, those of the providers not counted.
	Faults int
	// Duration over which the intents are spread.
	Duration time.Duration
	// Keep leaves the logs, and the database, even if all went well.
	Keep bool
	// Progress gets a line now and then.
	Progress io.Writer
}

// The system under test. Call and lease are as short as the catalog allows; window is how
// long an outcome may stay unknown, so that the end does not have to be waited for.
const (
	workers      = 3
	enqueuers    = 8
	call         = time.Second
	lease        = 6 * time.Second
	window       = 30 * time.Second
	slowProvider = 1200 * time.Millisecond
	lookupLag    = 5 * time.Second
	memory       = "24h"

	// quietLimit covers the window, a lease and the lanes' limits, several times over.
	quietLimit = 150 * time.Second
	quietPoll  = 250 * time.Millisecond
	sayEvery   = 5 * time.Second
	// patience is how long the next fault waits for effects before it strikes anyway.
	patience = 4 * time.Second
)

//go:embed catalog.yaml
var catalogText []byte

// run is one run.
type run struct {
	o         Options
	dir       string
	config    string
	began     time.Time
	servers   int
	pool      *pgxpool.Pool // past the proxy: what judges must see everything
	database  *proxy
	http      *proxy
	smtp      *proxy
	url       string // through the proxy
	sim       *simulator.Client
	processes children.Group
	slots     []*slot
	cleanup   []func() error

	mu     sync.Mutex
	server *pgtemp.Server // the primary; faults that change it take turns
	struck map[Kind]int
}

// Run breaks the system and returns the verdict. The error is that of a run that could
// not be brought to its end; whatever was promised and not kept is in the Report.
// Everything it started has ended when it returns.
func Run(ctx context.Context, o Options) (report Report, err error) {
	o.Seed = seedOr(o.Seed)
	r := &run{o: o, began: time.Now(), struck: map[Kind]int{}}
	r.dir, err = os.MkdirTemp("", "outbox-chaos-")
	if err != nil {
		return report, err
	}
	r.processes.Program, r.processes.Dir = o.Program, r.dir
	defer func() {
		err = errors.Join(err, r.end())
		if !o.Keep && (err == nil && report.OK() || ctx.Err() != nil) {
			err = errors.Join(err, os.RemoveAll(r.dir))
			return
		}
		r.say("logs are in %s", r.dir)
	}()
	// Postgres runs as another user when this is root.
	if err := os.Chmod(r.dir, 0o755); err != nil {
		return report, err
	}
	r.say("seed %d: %d intents and %d faults over %s", o.Seed, o.Intents, o.Faults, o.Duration)
	if err := r.setUp(ctx); err != nil {
		return report, err
	}
	return r.play(ctx)
}

// seedOr draws a seed if none is given, one that is exact in every JSON reader.
func seedOr(seed uint64) uint64 {
	if seed == 0 {
		return rand.Uint64() >> 11
	}
	return seed
}

func (r *run) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.o.Progress, "%6.1fs  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// setUp starts the database, the providers, the proxies and the workers.
func (r *run) setUp(ctx context.Context) (err error) {
	if r.server, err = pgtemp.Start(ctx, pgtemp.Options{Fast: true, Dir: r.dataDir()}); err != nil {
		return err
	}
	r.cleanup = append(r.cleanup, r.server.Stop)
	if err := r.open(ctx); err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	r.cleanup = append(r.cleanup, func() error { r.pool.Close(); return nil })
	if err := r.applySchema(ctx); err != nil {
		return err
	}
	at, err := r.processes.Simulator(ctx, r.o.Seed)
	if err != nil {
		return err
	}
	r.sim = simulator.NewClient(at.HTTP)
	if err := r.sim.SetBehaviour(ctx, simulator.Bookings, simulator.Behaviour{Keys: simulator.Ignore, LookupLag: lookupLag / 10}); err != nil {
		return err
	}
	if err := r.sim.Script(ctx, misbehaviour()...); err != nil {
		return fmt.Errorf("script the providers' faults: %w", err)
	}
	if err := r.connect(ctx, at); err != nil {
		return err
	}
	for i := range workers {
		r.slots = append(r.slots, r.newSlot(i+1))
	}
	r.say("Postgres %s, providers and %d workers run", r.server.Version(), workers)
	return nil
}

// dataDir is where the next server keeps its data; "" is a temporary directory.
func (r *run) dataDir() string {
	if !r.o.Keep {
		return ""
	}
	r.servers++
	return filepath.Join(r.dir, fmt.Sprintf("postgres-%d", r.servers))
}

// open connects to whatever server is the primary when a connection is made.
func (r *run) open(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(r.server.URL())
	if err != nil {
		return err
	}
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		now, err := pgx.ParseConfig(r.primary().URL())
		if err == nil {
			c.Port = now.Port
		}
		return err
	}
	r.pool, err = pgxpool.NewWithConfig(ctx, config)
	return err
}

func (r *run) primary() *pgtemp.Server {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.server
}

func (r *run) applySchema(ctx context.Context) error {
	if err := migrations.Up(ctx, r.pool); err != nil {
		return err
	}
	if _, err := r.pool.Exec(ctx, `CREATE SCHEMA chaos; CREATE TABLE chaos.orders (name text PRIMARY KEY)`); err != nil {
		return fmt.Errorf("make the application's table: %w", err)
	}
	times := strings.NewReplacer("CALL", call.String(), "LEASE", lease.String(), "WINDOW", window.String())
	c, err := catalog.Parse("chaos.yaml", []byte(times.Replace(string(catalogText))))
	if err != nil {
		return err
	}
	_, err = catalog.Apply(ctx, r.pool, c, "chaos")
	return err
}

// connect puts a proxy in front of everything, and writes the workers' configuration.
func (r *run) connect(ctx context.Context, at children.Addresses) error {
	database, err := url.Parse(r.server.URL())
	if err != nil {
		return err
	}
	providers, err := url.Parse(at.HTTP)
	if err != nil {
		return err
	}
	for _, p := range []struct {
		into   **proxy
		target string
	}{{&r.database, database.Host}, {&r.http, providers.Host}, {&r.smtp, at.SMTP}} {
		if *p.into, err = newProxy(ctx, p.target); err != nil {
			return err
		}
		r.cleanup = append(r.cleanup, (*p.into).close)
	}
	database.Host, providers.Host = r.database.addr(), r.http.addr()
	r.url = database.String()
	r.config = filepath.Join(r.dir, "outbox-worker.yaml")
	return os.WriteFile(r.config, []byte(workerConfig(providers.String(), r.smtp.addr())), 0o600)
}

func workerConfig(http, smtp string) string {
	return fmt.Sprintf(`providers:
  payments:
    adapter: httpjson
    account: acct_chaos
    base_url: %[1]s
    operations:
      charge: {path: /v1/charges, key_memory: %[3]s, replay: success_only, throttled_is_not_sent: true}
  bookings:
    adapter: httpjson
    account: book_chaos
    base_url: %[1]s
    operations:
      book: {path: /v1/bookings, lookup: /v1/bookings, lookup_lag: %[4]s, absence_is_proof: true, throttled_is_not_sent: true}
  mail:
    adapter: smtp
    account: mail_chaos
    address: %[2]s
    tls: none
    from: Chaos <chaos@shop.example>
    operations: [write]
`, http, smtp, memory, lookupLag)
}

// play enqueues and breaks at once, waits until nothing moves any more, and judges.
func (r *run) play(ctx context.Context) (Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	breaking := make(chan error, 1)
	go func() { breaking <- r.strikeAll(ctx, schedule(r.o.Seed, r.o.Faults, r.o.Intents)) }()
	ledger, err := r.enqueueAll(ctx)
	if err != nil {
		return Report{}, err
	}
	r.say("all intents are committed")
	if err := <-breaking; err != nil {
		return Report{}, err
	}
	if err := r.sim.ClearFaults(ctx); err != nil {
		return Report{}, err
	}
	r.say("no more faults; waiting until nothing moves")
	if err := r.quiet(ctx); err != nil {
		return Report{}, err
	}
	e, err := r.gather(ctx, ledger)
	if err != nil {
		return Report{}, err
	}
	report := judge(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	report.Seed, report.Faults, report.Seconds = r.o.Seed, r.struck, time.Since(r.began).Seconds()
	return report, nil
}

// quiet waits until no intent can move by itself any more, or the time for it is over:
// judge then finds what is stuck.
func (r *run) quiet(ctx context.Context) error {
	deadline, said := time.Now().Add(quietLimit), time.Now()
	poll := time.NewTicker(quietPoll)
	defer poll.Stop()
	for {
		var moving int
		if err := r.pool.QueryRow(ctx, `SELECT count(*) FROM outbox.outbox WHERE phase <> 'parked'`).Scan(&moving); err != nil {
			return fmt.Errorf("look at the outbox: %w", err)
		}
		if moving == 0 || time.Now().After(deadline) {
			return nil
		}
		if time.Since(said) > sayEvery {
			said = time.Now()
			r.say("%d intents move", moving)
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// end stops what was started, in the opposite order.
func (r *run) end() error {
	for _, s := range r.slots {
		s.retire()
	}
	errs := []error{r.processes.End()}
	for i := len(r.cleanup) - 1; i >= 0; i-- {
		errs = append(errs, r.cleanup[i]())
	}
	return errors.Join(errs...)
}
