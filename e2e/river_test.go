package e2e_test

import (
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/migrations"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// jobIs is a condition on a job of River's.
const jobIs = `coalesce((SELECT state::text = $2 AND attempt >= $3 FROM outbox.river_job WHERE id = $1), false)`

// A job carries ids and nothing else. Run again, by whatever means, it finds its intents
// settled, and nothing happens.
func TestAJobThatRunsAgainChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, withTimes(patientCall, patientLease))
	worker := b.worker("worker")
	reference := b.charge(full("1"))
	b.state(reference, outbox.Succeeded)
	b.quiet()
	b.await(`NOT EXISTS (SELECT FROM outbox.river_job WHERE state <> 'completed') AND EXISTS (SELECT FROM outbox.river_job)`)
	ledger := func() string {
		return value[string](b, `concat((SELECT string_agg(t::text, ' ' ORDER BY t.at, t.intent_id) FROM outbox.timeline t),
			(SELECT string_agg(e::text, ' ' ORDER BY e.intent_id) FROM outbox.outcomes e), (SELECT count(*) FROM outbox.outbox))`)
	}
	before := ledger()
	effects, requests := len(b.sim.Effects("")), b.sim.Requests("", "")

	// Restored, as from a backup of River's tables: every job of the past, twice.
	const restore = `INSERT INTO outbox.river_job (state, max_attempts, priority, args, kind, metadata, queue, tags)
		SELECT 'available', max_attempts, priority, args, kind, '{}', queue, tags FROM outbox.river_job, generate_series(1, 2)
		WHERE id <= $1`
	last := value[int64](b, `max(id) FROM outbox.river_job`)
	_, err := b.pool.Exec(b.ctx, restore, last)
	b.must(err)
	b.await(`NOT EXISTS (SELECT FROM outbox.river_job WHERE id > $1 AND state <> 'completed')`, last)
	// Retried, as from River's own console.
	client, err := river.NewClient(riverpgxv5.New(b.pool), &river.Config{Schema: migrations.Schema})
	b.must(err)
	for _, id := range value[[]int64](b, `array_agg(id) FROM outbox.river_job WHERE id <= $1`, last) {
		_, err := client.JobRetry(b.ctx, id)
		b.must(err)
		b.await(jobIs, id, "completed", 2)
	}
	// And then what is new, so that nothing can be still to come.
	next := b.charge(plain("2"))
	b.state(next, outbox.Succeeded)
	b.quiet()
	worker.alive()

	if n := len(b.sim.Effects("")); n != effects+1 {
		t.Errorf("%d effects, want %d and the new one's", n, effects)
	}
	if n := b.sim.Requests("", ""); n != requests+1 {
		t.Errorf("%d requests, want %d and the new one's", n, requests)
	}
	if after := value[string](b, `concat((SELECT string_agg(t::text, ' ' ORDER BY t.at, t.intent_id) FROM outbox.timeline t JOIN outbox.intents i ON i.id = t.intent_id WHERE i.reference <> $1),
			(SELECT string_agg(e::text, ' ' ORDER BY e.intent_id) FROM outbox.outcomes e JOIN outbox.intents i ON i.id = e.intent_id WHERE i.reference <> $1), (SELECT count(*) FROM outbox.outbox))`, next); after != before {
		t.Errorf("the ledger was\n%s\nand is\n%s", before, after)
	}
	b.compare()
}

// rescueCall is longer than River takes to rescue a job and to run it again.
const rescueCall = time.Minute

// rescue has River take the one job that runs for one whose worker has died: days pass,
// and the next worker to start leads. retries says how often River may run it again,
// beyond what we ask for.
func (b *bundle) rescue(retries int) (job int64) {
	b.t.Helper()
	job = value[int64](b, `id FROM outbox.river_job WHERE state = 'running'`)
	_, err := b.pool.Exec(b.ctx, `UPDATE outbox.river_job SET attempted_at = attempted_at - interval '3 days', max_attempts = max_attempts + $2 WHERE id = $1`, job, retries)
	b.must(err)
	_, err = b.pool.Exec(b.ctx, `DELETE FROM outbox.river_leader`)
	b.must(err)
	return job
}

// A job that is run again while its intents are being sent sends nothing, be its first
// worker alive or dead.
func TestAJobThatRiverRescuesSendsNothingTwice(t *testing.T) {
	t.Parallel()
	for _, dead := range []bool{false, true} {
		t.Run(map[bool]string{false: "worker alive", true: "worker dead"}[dead], func(t *testing.T) {
			t.Parallel()
			b := setup(t, withTimes(rescueCall, rescueCall+5*time.Second))
			answer := b.sim.Hold(simulator.Charges, "", simulator.AfterEffect)
			first := b.worker("first")
			reference := b.charge(plain("1"))
			b.held(simulator.Charges, reference)
			if dead {
				first.kill()
			}
			job := b.rescue(10)
			b.worker("second")
			b.await(jobIs, job, "completed", 2)
			b.counted(simulator.Charges, reference, 1, 1)
			b.again(plain("1"), reference, outbox.AnswerInFlight, outbox.Executing)

			answer()
			if !dead {
				b.state(reference, outbox.Succeeded)
			}
			b.state(b.charge(plain("2")), outbox.Succeeded)
			b.counted(simulator.Charges, reference, 1, 1)
			if claims := value[int](b, `count(*)::int FROM outbox.timeline h JOIN outbox.intents i ON i.id = h.intent_id
				WHERE h.event = 'claimed' AND i.reference = $1`, reference); claims != 1 {
				t.Errorf("claimed %d times, want 1", claims)
			}
			b.compare()
		})
	}
}

// The jobs of workers that were killed do not stay in River's table for ever.
func TestAJobWhoseWorkerWasKilledIsClearedAway(t *testing.T) {
	t.Parallel()
	b := setup(t, withTimes(patientCall, patientLease))
	answer := b.sim.Hold(simulator.Charges, "", simulator.BeforeEffect)
	defer answer()
	victim := b.worker("victim")
	reference := b.charge(plain("1"))
	b.held(simulator.Charges, reference)
	victim.kill()
	job := b.rescue(0)
	b.worker("other")
	b.await(jobIs, job, "discarded", 1)
	b.again(plain("1"), reference, outbox.AnswerInFlight, outbox.Executing)
}
