package dispatch

import "testing"

func TestAJobIsSmallWhenLittleIsDueAndLargeUnderLoad(t *testing.T) {
	for _, test := range []struct{ concurrency, due, jobs, largest int }{
		{1, 1, 1, 1},
		{1, 3, 3, 1},
		{4, 16, 16, 1},
		{4, 17, 9, 2},
		{4, 250, 16, 16},
		{4, 4000, 16, 250},
		{4, 4001, 17, 250},
		{4, 8000, 32, 250},
		{100, 1, 1, 1},
		{100, 25, 1, 25},
		{100, 26, 2, 25},
		{100, 4000, 16, 250},
		{2000, 100, 1, 100},
		{2000, 101, 2, 100},
		{2000, 4000, 16, 250},
	} {
		all := jobs(newLane(1, "payments", 1), make([]ticket, test.due), test.concurrency)
		sum, largest := 0, 0
		for _, j := range all {
			n := len(j.Args.(dispatchArgs).IDs)
			sum, largest = sum+n, max(largest, n)
		}
		if len(all) != test.jobs || largest != test.largest || sum != test.due {
			t.Errorf("concurrency %d, %d due: %d jobs, largest %d, %d intents in all; want %d, %d, %d", test.concurrency, test.due, len(all), largest, sum, test.jobs, test.largest, test.due)
		}
	}
}
