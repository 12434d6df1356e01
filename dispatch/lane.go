package dispatch

import (
	"context"
	"time"
)

// lane is this process's side of a lane: its slots, and the signals that move its
// releaser. Everything that replicas share stands in the database.
type lane struct {
	id      int32
	name    string
	slots   *slots
	probes  *slots        // for asking what became of attempts, beside slots
	freed   chan struct{} // a slot came free here
	woken   chan struct{} // enqueue notified
	unknown chan struct{} // an outcome is unknown
}

// probeShare is how much of a lane's concurrency a replica may use for questions, beside
// what it sends: a tenth, one at least.
const probeShare = 10

func newLane(id int32, name string, concurrency int) *lane {
	return &lane{
		id: id, name: name, slots: newSlots(concurrency), probes: newSlots(max(1, concurrency/probeShare)),
		freed: make(chan struct{}, 1), woken: make(chan struct{}, 1), unknown: make(chan struct{}, 1),
	}
}

// resize follows a change of the lane's concurrency; what is in flight finishes.
func (l *lane) resize(concurrency int) {
	l.slots.resize(concurrency)
	l.probes.resize(max(1, concurrency/probeShare))
}

// queue is the lane's River queue.
func (l *lane) queue() string { return "lane_" + l.name }

func (l *lane) kick() { signal(l.freed) }
func (l *lane) wake() { signal(l.woken) }

// sleep waits for the time, the end of ctx, or a signal; true for the signal. A nil
// signal never comes.
func (l *lane) sleep(ctx context.Context, d time.Duration, signal <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false
	case <-ctx.Done():
		return false
	case <-signal:
		return true
	}
}

// signal leaves a signal unless one is waiting already.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
