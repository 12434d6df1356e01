package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// All workers are told to stop while they work as hard as they can. They stop in time,
// and what the ledger says then is what the provider counted.
func TestWorkersThatAreStoppedInABurstLeaveALedgerThatEqualsTheProvider(t *testing.T) {
	t.Parallel()
	const intents = 400
	b := setup(t, withTimes(patientCall, patientLease))
	b.slowly(200 * time.Millisecond)
	var workers []*child
	for i := range 3 {
		workers = append(workers, b.worker(fmt.Sprint("worker-", i)))
	}
	b.ready(workers...)
	b.enqueueMany("o", intents)
	b.atProvider(func(s simulator.Snapshot) bool { return s.Count(simulator.Charges, "") >= intents/10 })

	told := time.Now()
	for _, w := range workers {
		w.terminate()
	}
	for _, w := range workers {
		if code := w.exit(stopLimit); code != 0 {
			t.Errorf("%s ended with %d", w.name, code)
		}
	}
	t.Logf("stopped within %s", time.Since(told).Round(time.Millisecond))
	if n := value[int](b, `count(*)::int FROM outbox.outbox WHERE state = 'executing'`); n != 0 {
		t.Errorf("%d are still executing", n)
	}
	states := b.compare()
	if states[outbox.Succeeded] == 0 || states[outbox.Accepted] == 0 || states[outbox.Succeeded]+states[outbox.Accepted] != intents {
		t.Errorf("states %v: want some of %d succeeded, the others untouched", states, intents)
	}

	b.worker("next")
	b.quiet()
	if states := b.compare(); states[outbox.Succeeded] != intents {
		t.Errorf("states %v, want %d succeeded", states, intents)
	}
}

// A provider that does not answer does not keep a deployment waiting: the call is cut
// off, and said to be unknown.
func TestAWorkerThatIsStoppedDoesNotWaitForAProviderForEver(t *testing.T) {
	t.Parallel()
	b := setup(t, withTimes(patientCall, patientLease))
	answer := b.sim.Hold(simulator.Charges, "", simulator.AfterEffect)
	defer answer()
	worker := b.worker("worker", "OUTBOX_WORKER__STOP_TIMEOUT=1s")
	reference := b.charge(plain("1"))
	b.held(simulator.Charges, reference)

	worker.terminate()
	if code := worker.exit(patientCall); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	b.state(reference, outbox.OutcomeUnknown) // until a worker asks
	b.counted(simulator.Charges, reference, 1, 1)
	b.compare()
}
