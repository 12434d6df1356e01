package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/outbox-worker/outbox-worker/internal/pgtemp"
)

// arrival is how long a worker gets to come by a point; then it happens where it is.
const arrival = 5 * time.Second

const effectPoll = 20 * time.Millisecond

// strikeAll carries out the schedule, and returns when the last fault is over.
func (r *run) strikeAll(ctx context.Context, events []event) error {
	var under sync.WaitGroup
	defer under.Wait()
	var database sync.Mutex
	errs := make(chan error, len(events))
	for _, e := range events {
		if err := r.await(ctx, e.after); err != nil {
			return err
		}
		time.Sleep(e.late) // not to wait for anything, but to hit any moment
		under.Go(func() {
			if err := r.strike(ctx, e, &database); err != nil {
				errs <- err
			}
		})
	}
	under.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// await waits until the providers have counted n effects, or have not counted any more for
// a while: faults must not wait for what faults hold up.
func (r *run) await(ctx context.Context, n int) error {
	tick := time.NewTicker(effectPoll)
	defer tick.Stop()
	last, since := -1, time.Now()
	for {
		counts, err := r.sim.Count(ctx, "", "")
		if err != nil {
			return err
		}
		if counts.Effects >= n {
			return nil
		}
		if counts.Effects != last {
			last, since = counts.Effects, time.Now()
		}
		if time.Since(since) > patience {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// strike does one thing and returns when it is over.
func (r *run) strike(ctx context.Context, e event, database *sync.Mutex) error {
	s := r.slots[e.worker]
	switch e.kind {
	case Kill, KillAt, Stop, Pause, PauseAt:
		s.turn.Lock()
		defer s.turn.Unlock()
	case Restart, Promote, MuteDatabase, DelayDatabase, LoseCommits:
		database.Lock()
		defer database.Unlock()
	}
	did := true
	switch e.kind {
	case Kill:
		p := s.doom(e.span)
		if did = p != nil; did {
			p.Kill()
		}
	case KillAt:
		p := s.doom(e.span)
		if did = p != nil; did {
			s.order(orderKill, e.point)
			select {
			case <-p.Done():
			case <-time.After(arrival):
				p.Kill()
			}
		}
	case Stop:
		p := s.doom(e.span)
		if did = p != nil; did {
			_ = p.Stop() // one that does not stop in time is killed, which is a fault too
		}
	case Pause, PauseAt:
		did = s.pause(e)
	case Restart:
		if err := r.primary().Restart(ctx, pgtemp.ModeImmediate); err != nil {
			return fmt.Errorf("restart the database: %w", err)
		}
	case Promote:
		if err := r.promote(ctx, e.span); err != nil {
			return err
		}
	case CutDatabase:
		r.database.cut()
	case CutProvider:
		r.http.cut()
		r.smtp.cut()
	case DelayDatabase:
		r.database.slow(maxDelay/8, e.span) // a transaction has several round trips
	case DelayProvider:
		r.bothProviders(func(p *proxy) { p.slow(maxDelay, e.span) })
	case MuteDatabase:
		r.database.mute(e.span)
	case LoseCommits:
		r.database.loseCommits(e.span)
	case MuteProvider:
		r.bothProviders(func(p *proxy) { p.mute(e.span) })
	}
	if did {
		r.mu.Lock()
		r.struck[e.kind]++
		r.mu.Unlock()
		r.say("%s%s", e.kind, e.detail())
	}
	return nil
}

// promote makes a synchronous standby under load, lets the load go on with it for a while,
// and has it take over from a primary that crashes.
func (r *run) promote(ctx context.Context, after time.Duration) error {
	primary := r.primary()
	standby, err := primary.Standby(ctx, r.dataDir())
	if err != nil {
		return err
	}
	r.cleanup = append(r.cleanup, standby.Stop)
	time.Sleep(after)
	if err := primary.Halt(pgtemp.ModeImmediate); err != nil {
		return err
	}
	r.database.cut()
	if err := standby.Promote(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	r.server = standby
	r.mu.Unlock()
	r.database.lead(standby.Address())
	return primary.Stop()
}

func (e event) detail() string {
	switch e.kind {
	case Kill, Stop:
		return fmt.Sprintf(" of worker-%d", e.worker+1)
	case KillAt:
		return fmt.Sprintf(" %s of worker-%d", e.point, e.worker+1)
	case Pause:
		return fmt.Sprintf(" of worker-%d for %s", e.worker+1, e.span.Round(time.Millisecond))
	case PauseAt:
		return fmt.Sprintf(" %s of worker-%d for %s", e.point, e.worker+1, e.span.Round(time.Millisecond))
	}
	return ""
}

func (r *run) bothProviders(do func(*proxy)) {
	var both sync.WaitGroup
	for _, p := range []*proxy{r.http, r.smtp} {
		both.Go(func() { do(p) })
	}
	both.Wait()
}

// pause has the worker sleep for longer than its leases.
func (s *slot) pause(e event) bool {
	s.mu.Lock()
	p := s.current
	s.mu.Unlock()
	if p == nil {
		return false
	}
	if e.kind == PauseAt {
		select {
		case <-s.asleep: // of an order that came too late
		default:
		}
		s.order(orderPause, e.point)
		select {
		case <-s.asleep:
		case <-p.Done():
			return false
		case <-time.After(arrival):
			s.order(orderNothing, "")
		}
	}
	if p.Signal(syscall.SIGSTOP) != nil {
		return false
	}
	time.Sleep(e.span)
	_ = p.Signal(syscall.SIGCONT)
	// It may have fallen asleep by the order as well, and only now.
	time.Sleep(2 * fallAsleep)
	return p.Signal(syscall.SIGCONT) == nil
}
