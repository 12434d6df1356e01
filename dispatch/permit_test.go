package dispatch

import (
	"errors"
	"testing"
	"time"
	"unsafe"

	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

// apart moves a time on the two clocks by different durations, as no call of package time
// can: a machine that sleeps stops its monotonic clock, and a person sets the wall clock.
func apart(t testing.TB, at time.Time, wall, monotonic time.Duration) time.Time {
	t.Helper()
	moved := at.Add(wall)
	*(*int64)(unsafe.Add(unsafe.Pointer(&moved), unsafe.Sizeof(uint64(0)))) += int64(monotonic - wall)
	if w, m := moved.Round(0).Sub(at.Round(0)), moved.Sub(at); w != wall || m != monotonic {
		t.Fatalf("moved by %s on the wall and %s: package time is built otherwise now", w, m)
	}
	return moved
}

func TestAPermitRefusesByEitherClock(t *testing.T) {
	t.Parallel()
	const lease, hour = time.Minute, time.Hour
	now := time.Now()
	moved := func(wall, monotonic time.Duration) time.Time { return apart(t, now, wall, monotonic) }
	for _, test := range []struct {
		claim          string
		asked, expires time.Time
		want           error
	}{
		{"within the lease, no deadline", now, time.Time{}, nil},
		{"within the lease and before the deadline", now, moved(hour, hour), nil},
		{"almost over", moved(-lease+10*time.Second, -lease+10*time.Second), time.Time{}, nil},
		{"over on both clocks", moved(-lease, -lease), time.Time{}, errLeaseOver},
		{"over on the wall: the machine slept", moved(-lease, 0), time.Time{}, errLeaseOver},
		{"over by the monotonic clock: the wall clock was put back", moved(0, -lease), time.Time{}, errLeaseOver},
		{"the deadline has passed on both clocks", now, moved(-1, -1), errDeadlineOver},
		{"the deadline has passed on the wall", now, moved(-1, hour), errDeadlineOver},
		{"the deadline has passed by the monotonic clock", now, moved(hour, -1), errDeadlineOver},
		{"both", moved(-lease, -lease), moved(-1, -1), errLeaseOver},
	} {
		c := &candidate{revision: &catalog.Revision{}, expires: test.expires}
		c.revision.Spec.Timeouts.Lease.Duration = lease
		if err := permit(c, test.asked)(t.Context()); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.claim, err, test.want)
		}
	}
}
