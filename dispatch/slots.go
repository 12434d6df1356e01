package dispatch

import (
	"context"
	"sync"
)

// Calls bounds the calls in flight of several workers of a process together: see
// Config.Calls.
type Calls struct{ slots *slots }

// defaultCalls is the bound when nobody sets one.
const defaultCalls = 100

// ShareCalls makes a bound of n calls; 0 is 100, as for Config.Concurrency. Workers that
// wait for a call to end have the same chance at the next one, whatever each of them has in
// flight.
func ShareCalls(n int) *Calls { return &Calls{newSlots(max(orDefault(n, defaultCalls), 1))} }

// slots are the calls that may be in flight at once. A job takes as many as are free,
// and claims only those: what has not been claimed is provably not sent.
type slots struct {
	mu   sync.Mutex
	size int
	free int           // below zero while more are taken than there should be
	wake chan struct{} // closed and replaced when slots come back
}

func newSlots(n int) *slots { return &slots{size: n, free: n, wake: make(chan struct{})} }

// take waits until a slot is free and takes up to want of them. It returns 0 when ctx
// ends first.
func (s *slots) take(ctx context.Context, want int) int {
	for ctx.Err() == nil {
		s.mu.Lock()
		if s.free > 0 {
			n := min(want, s.free)
			s.free -= n
			s.mu.Unlock()
			return n
		}
		wake := s.wake
		s.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
		}
	}
	return 0
}

// resize changes how many there are.
func (s *slots) resize(n int) {
	s.mu.Lock()
	more := n - s.size
	s.size = n
	s.free += more
	s.mu.Unlock()
	if more > 0 {
		s.give(0)
	}
}

func (s *slots) give(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free += n
	close(s.wake)
	s.wake = make(chan struct{})
}
