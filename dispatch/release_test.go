package dispatch

import "testing"

func TestAJobIsSmallWhenLittleIsDueAndLargeUnderLoad(t *testing.T) {
	for _, test := range []struct{ due, jobs, largest int }{
		{1, 1, 1}, {3, 3, 1}, {16, 16, 1}, {17, 9, 2}, {250, 16, 16}, {4000, 16, 250}, {4001, 17, 250}, {8000, 32, 250},
	} {
		all := jobs(newLane(1, "payments", 1), make([]ticket, test.due))
		sum, largest := 0, 0
		for _, j := range all {
			n := len(j.Args.(dispatchArgs).IDs)
			sum, largest = sum+n, max(largest, n)
		}
		if len(all) != test.jobs || largest != test.largest || sum != test.due {
			t.Errorf("%d due: %d jobs, largest %d, %d intents in all; want %d, %d, %d", test.due, len(all), largest, sum, test.jobs, test.largest, test.due)
		}
	}
}
