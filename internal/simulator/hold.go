package simulator

import (
	"slices"
	"sync"
)

// Point is a place in a request where [Server.Hold] stops it.
type Point string

const (
	// BeforeEffect is after the key was taken and before the effect.
	BeforeEffect Point = "before_effect"
	// AfterEffect is once the effect is in the ledger and its answer saved, before any
	// of the answer is sent.
	AfterEffect Point = "after_effect"
)

type hold struct {
	target   target
	point    Point
	released chan struct{}
}

// wait blocks while a hold fits, or until closing; it reports whether to go on.
func (l *ledger) wait(t target, at Point, closing <-chan struct{}) bool {
	for {
		h := l.enterHold(t, at)
		if h == nil {
			return true
		}
		open := true
		select {
		case <-h.released:
		case <-closing:
			open = false
		}
		l.leaveHold(t)
		if !open {
			return false
		}
	}
}

func (l *ledger) enterHold(t target, at Point) *hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.holds {
		if h.point == at && (h.target.service == "" || h.target.service == t.service) &&
			(h.target.reference == "" || h.target.reference == t.reference) {
			l.tally(t).held++
			l.touch()
			return h
		}
	}
	return nil
}

func (l *ledger) leaveHold(t target) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally(t).held--
	l.touch()
}

// Hold stops requests at a point until release is called; empty service or reference
// means any. Await with Snapshot.Held tells when one has got there. Release is
// idempotent.
func (s *Server) Hold(service, reference string, at Point) (release func()) {
	h := &hold{target: target{service, reference}, point: at, released: make(chan struct{})}
	s.ledger.mu.Lock()
	s.ledger.holds = append(s.ledger.holds, h)
	s.ledger.mu.Unlock()
	return sync.OnceFunc(func() {
		s.ledger.mu.Lock()
		defer s.ledger.mu.Unlock()
		s.ledger.holds = slices.DeleteFunc(s.ledger.holds, func(x *hold) bool { return x == h })
		close(h.released)
	})
}
