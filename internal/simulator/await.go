package simulator

import (
	"context"
	"encoding/json"
	"fmt"
)

// Snapshot reads the counts while Await evaluates a condition. Await accepts a true
// answer only if nothing changed during the evaluation.
type Snapshot struct{ ledger *ledger }

func (s *Server) snapshot() Snapshot { return Snapshot{s.ledger} }

// Count is the number of effects; an empty reference means all.
func (v Snapshot) Count(service, reference string) int {
	return v.read(service, reference, func(n *tally) int { return len(n.effects) }, func(t *Totals) int { return t.Effects })
}

// Requests is the number of requests to create something; an empty reference means all.
func (v Snapshot) Requests(service, reference string) int {
	return v.read(service, reference, func(n *tally) int { return n.requests }, func(t *Totals) int { return t.Requests })
}

// Lookups is the number of lookups; an empty reference means all.
func (v Snapshot) Lookups(service, reference string) int {
	return v.read(service, reference, func(n *tally) int { return n.lookups }, func(t *Totals) int { return t.Lookups })
}

// Fired is how often faults of a kind struck.
func (v Snapshot) Fired(kind Kind) int {
	v.ledger.mu.Lock()
	defer v.ledger.mu.Unlock()
	return v.ledger.fired[kind]
}

// Held is the number of requests that a Hold has stopped right now; an empty reference
// means all.
func (v Snapshot) Held(service, reference string) int {
	v.ledger.mu.Lock()
	defer v.ledger.mu.Unlock()
	held := 0
	for t, n := range v.ledger.tallies {
		if (service == "" || t.service == service) && (reference == "" || t.reference == reference) {
			held += n.held
		}
	}
	return held
}

// read adds up what is asked for: one reference, or a service's totals.
func (v Snapshot) read(service, reference string, one func(*tally) int, all func(*Totals) int) int {
	v.ledger.mu.Lock()
	defer v.ledger.mu.Unlock()
	sum := 0
	for name, t := range v.ledger.totals {
		switch {
		case service != "" && service != name:
		case reference == "":
			sum += all(t)
		case v.ledger.tallies[target{name, reference}] != nil:
			sum += one(v.ledger.tallies[target{name, reference}])
		}
	}
	return sum
}

// Await blocks until cond holds. It returns ctx's error with the counts so far if ctx
// ends before, so that a test that fails says what it saw.
func (s *Server) Await(ctx context.Context, cond func(Snapshot) bool) error {
	for {
		version, changed := s.ledger.watch()
		if cond(s.snapshot()) {
			if now, _ := s.ledger.watch(); now == version {
				return nil
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			counts, _ := json.Marshal(s.Summary())
			return fmt.Errorf("simulator: awaited condition never held: %w; counted %s", ctx.Err(), counts)
		}
	}
}

// watch returns the ledger's version and a channel that is closed at the next one.
func (l *ledger) watch() (uint64, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.version, l.changed
}
