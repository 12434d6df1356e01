package dispatch

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/providers"
)

// LeaseMargin is what a lease must outlast the call by: time to claim, to write the
// request late, and to record the answer.
const LeaseMargin = 5 * time.Second

// Config says what a worker works on and how hard.
type Config struct {
	// Pool is the worker's own connection pool, not shared with an application: calls
	// never hold a connection, but a starved pool would let leases run out. New refuses
	// less than MinConns connections; BusyConns says how many are used under load. Unless
	// PollOnly, ListenConns more are opened beside the pool. Required.
	Pool *pgxpool.Pool

	// Providers by the name that the catalog's lanes use. A worker takes only intents
	// whose lane names one of them and whose operation it serves. Required.
	Providers map[string]providers.Provider

	// Logger gets one line per attempt, never a payload. Defaults to slog.Default.
	Logger *slog.Logger

	// Name is who the history says acted. Defaults to host and process id.
	Name string

	// Concurrency bounds the calls in flight of this process, over all lanes. A lane's
	// own concurrency bounds its calls over all processes. Defaults to 100.
	Concurrency int

	// Calls, if set, stands in the place of Concurrency: the bound of this worker and of
	// all others it was given to, such as one for each of several databases.
	Calls *Calls

	// ReleaseLease is how long a released intent may wait to be claimed before it is
	// released again. Too short only costs jobs that find nothing. Defaults to 30 s.
	ReleaseLease time.Duration

	// IdlePoll is how often an idle lane looks for due work that no notification
	// announced: retries, schedules, missed wake-ups. Defaults to 1 s, with PollOnly to
	// 250 ms.
	IdlePoll time.Duration

	// SweepEvery is how often expired leases and deadlines are looked for. An expired
	// lease is outcome_unknown within this time. Defaults to 1 s.
	SweepEvery time.Duration

	// TrimEvery is how often what is past its retention is looked for. Defaults to 1 min.
	TrimEvery time.Duration

	// KeepAll does without retention in this worker: nothing is forgotten by it.
	KeepAll bool

	// StopTimeout bounds a graceful stop: calls in flight may finish in it; what then
	// still runs is cut off and recorded as unknown. Defaults to 30 s.
	StopTimeout time.Duration

	// PollOnly does without LISTEN/NOTIFY, for a pooler in transaction mode. Work is
	// then found within IdlePoll.
	PollOnly bool

	// Hooks are called at named points, for tests and fault injection; nil ones are
	// skipped.
	Hooks Hooks

	holder uuid.UUID
}

// Hooks are called synchronously at the points where a crash or a pause would hurt
// most. They must not be used to change what the worker does.
type Hooks struct {
	BeforeClaim  func(references []string)
	AfterClaim   func(reference string)
	BeforeWrite  func(reference string) // the request is rendered, the connection is there
	AfterCall    func(reference string) // the provider answered, nothing is recorded
	BeforeSettle func(reference string)
	AfterSettle  func(reference string) // recorded, the River job still runs
	BeforeResend func(reference string) // before a resend that is to learn an outcome is claimed
}

func (c Config) withDefaults() (Config, error) {
	if c.Pool == nil {
		return c, errors.New("dispatch: Config.Pool is required")
	}
	if n := c.Pool.Config().MaxConns; n < MinConns {
		return c, fmt.Errorf("dispatch: Config.Pool has %d connections; give it at least %d", n, MinConns)
	}
	if len(c.Providers) == 0 {
		return c, errors.New("dispatch: Config.Providers is empty; a worker without a provider can send nothing")
	}
	for name, value := range map[string]int64{
		"Concurrency": int64(c.Concurrency), "ReleaseLease": int64(c.ReleaseLease),
		"IdlePoll": int64(c.IdlePoll), "SweepEvery": int64(c.SweepEvery), "TrimEvery": int64(c.TrimEvery), "StopTimeout": int64(c.StopTimeout),
	} {
		if value < 0 {
			return c, fmt.Errorf("dispatch: Config.%s is negative", name)
		}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "worker"
		}
		c.Name = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	if c.Calls == nil {
		c.Calls = ShareCalls(c.Concurrency)
	} else if c.Concurrency != 0 {
		return c, errors.New("dispatch: Config.Concurrency and Config.Calls are both set; give one")
	}
	c.Concurrency = c.Calls.slots.size
	c.ReleaseLease = orDefault(c.ReleaseLease, 30*time.Second)
	c.IdlePoll = orDefault(c.IdlePoll, c.poll(time.Second, 250*time.Millisecond))
	c.SweepEvery = orDefault(c.SweepEvery, time.Second)
	c.TrimEvery = orDefault(c.TrimEvery, time.Minute)
	c.StopTimeout = orDefault(c.StopTimeout, 30*time.Second)
	id, err := uuid.NewV7()
	if err != nil {
		return c, fmt.Errorf("dispatch: make an id for this worker: %w", err)
	}
	c.holder = id
	return c, nil
}

// poll chooses between what is polled in case a notification was missed, and what is all
// there is without notifications.
func (c Config) poll(notified, pollOnly time.Duration) time.Duration {
	if c.PollOnly {
		return pollOnly
	}
	return notified
}

func orDefault[T int | time.Duration](value, def T) T {
	if value == 0 {
		return def
	}
	return value
}
