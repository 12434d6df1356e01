package dispatch

import (
	"context"
	"reflect"
	"testing"
)

func TestAWonTicketBelongsToOneCandidateAtThatAttempt(t *testing.T) {
	at := func(id int64, attempt int) *candidate { return &candidate{ticket: ticket{id, attempt}} }
	// The same intent from two jobs, a stale ticket of it, and one that was not won.
	got := owned([]*candidate{at(1, 0), at(1, 1), at(1, 1), at(2, 0), at(3, 0)}, []ticket{{1, 1}, {3, 0}})
	if want := []bool{false, true, false, false, true}; !reflect.DeepEqual(got, want) {
		t.Errorf("owned = %v, want %v", got, want)
	}
}

func TestAStoppingWorkerTakesNoSlots(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := newSlots(3)
	if n := s.take(ctx, 5); n != 3 {
		t.Fatalf("took %d of 3", n)
	}
	s.give(3)
	cancel()
	if n := s.take(ctx, 1); n != 0 {
		t.Errorf("took %d after the stop", n)
	}
}
