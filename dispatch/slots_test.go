package dispatch

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// waiting takes slots beside the test, and tells how many it got; 0 while it waits.
func waiting(ctx context.Context, s *slots, want int) *atomic.Int32 {
	var got atomic.Int32
	go func() { got.Store(int32(s.take(ctx, want))) }()
	return &got
}

func TestMoreSlotsWakeWhoWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1)
		s.take(t.Context(), 1)
		one, two := waiting(t.Context(), s, 1), waiting(t.Context(), s, 1)
		synctest.Wait()
		if one.Load()+two.Load() != 0 {
			t.Fatal("more were taken than there are")
		}
		s.resize(3)
		synctest.Wait()
		if one.Load() != 1 || two.Load() != 1 || s.free != 0 {
			t.Errorf("took %d and %d of two more, %d are free", one.Load(), two.Load(), s.free)
		}
	})
}

func TestFewerSlotsLetWhatIsInFlightFinish(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := newSlots(5)
		s.take(ctx, 4)
		s.resize(2)
		next := waiting(ctx, s, 5)
		s.give(1) // 3 in flight, where 2 may be
		s.give(1)
		synctest.Wait()
		if n := next.Load(); n != 0 {
			t.Fatalf("took %d while 2 of 2 are in flight", n)
		}
		s.give(1)
		synctest.Wait()
		if n := next.Load(); n != 1 {
			t.Fatalf("took %d, want the one that came free", n)
		}
		last := waiting(ctx, s, 1)
		synctest.Wait()
		cancel()
		synctest.Wait()
		if n := last.Load(); n != 0 {
			t.Errorf("took %d after the end", n)
		}
		s.give(2)
		if s.free != 2 || s.size != 2 {
			t.Errorf("%d of %d are free at the end", s.free, s.size)
		}
	})
}

func TestNoMoreSlotsAreTakenThanThereAre(t *testing.T) {
	t.Parallel()
	const size = 7
	s := newSlots(size)
	s.resize(3)
	s.resize(size)
	var inFlight, most atomic.Int32
	var takers sync.WaitGroup
	for range 40 {
		takers.Go(func() {
			for range 100 {
				n := s.take(t.Context(), 1+rand.IntN(3))
				if n < 1 || n > 3 {
					t.Errorf("took %d", n)
				}
				for now := inFlight.Add(int32(n)); ; {
					if m := most.Load(); m >= now || most.CompareAndSwap(m, now) {
						break
					}
				}
				runtime.Gosched()
				inFlight.Add(int32(-n))
				s.give(n)
			}
		})
	}
	takers.Wait()
	if most.Load() > size || s.free != size {
		t.Errorf("%d at once of %d, %d free at the end", most.Load(), size, s.free)
	}
}

func TestALaneKeepsATenthBesideForQuestions(t *testing.T) {
	t.Parallel()
	l := newLane(1, "pay", 1)
	for _, test := range []struct{ concurrency, probes int }{{1, 1}, {9, 1}, {20, 2}, {105, 10}, {4, 1}} {
		l.resize(test.concurrency)
		if l.slots.free != test.concurrency || l.probes.free != test.probes {
			t.Errorf("concurrency %d: %d to send and %d to ask, want %d", test.concurrency, l.slots.free, l.probes.free, test.probes)
		}
	}
}
