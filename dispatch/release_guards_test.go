package dispatch

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// What is released and what is in flight both count, whoever released it.
func TestAReleaseTakesWhatTheLaneHasRoomForAndNoMore(t *testing.T) {
	t.Parallel()
	b := steps(t)
	b.do(`UPDATE outbox.lanes SET concurrency = 4`)
	b.put("pay", isReleased)
	b.put("pay", isLeased)
	for range 5 {
		b.put("pay")
	}
	for i, want := range []int{2, 0} {
		n, full, err := b.w.releaseOnce(b.ctx, b.l)
		b.must(err)
		if n != want || (full > 0) != (want == 0) {
			t.Errorf("release %d: %d, to look again in %s; want %d", i+1, n, full, want)
		}
	}
	b.is("due", b.ask(`SELECT count(*) FROM outbox.outbox WHERE phase = 'due'`), "3")
}

// Two replicas that released for a lane at once would each see the same room.
func TestOneReplicaAtATimeReleasesForALane(t *testing.T) {
	t.Parallel()
	b := steps(t)
	b.put("pay")
	other, err := b.pool.Begin(b.ctx)
	b.must(err)
	if _, err := collect(b.ctx, other, lockLaneSQL, pgx.RowTo[string], b.l.id); err != nil {
		t.Fatal(err)
	}
	n, full, err := b.w.releaseOnce(b.ctx, b.l)
	b.must(err)
	if n != 0 || full != otherPoll {
		t.Errorf("while another releases: %d, to look again in %s", n, full)
	}
	b.must(other.Rollback(b.ctx))
	if n, _, err = b.w.releaseOnce(b.ctx, b.l); err != nil || n != 1 {
		t.Errorf("after it: %d, %v", n, err)
	}
}

// Every time in the outbox comes round by itself, whatever became of the job or the worker.
func TestWhateverRanOutIsSwept(t *testing.T) {
	t.Parallel()
	const over = `next_at = clock_timestamp() - interval '1 second'`
	b := steps(t)
	leased, late := b.put("pay", isLeased), b.put("pay", isLeased, over)
	released, lost := b.put("pay", isReleased), b.put("pay", isReleased, over)
	probing, silent := b.put("pay", isProbing), b.put("pay", isProbing, over)
	expired := b.put("pay", `deadline = clock_timestamp() - interval '1 second'`)
	b.w.sweepOnce(b.ctx)
	for _, c := range []struct {
		what string
		id   int64
		want string
	}{
		{"leased", leased, "executing leased 1"},
		{"its lease is over", late, "outcome_unknown asking 1 of 1"},
		{"released", released, "accepted released 0"},
		{"nobody claimed it", lost, "accepted due 0"},
		{"asked about", probing, "outcome_unknown probing 2 of 1"},
		{"nobody answered", silent, "outcome_unknown asking 2 of 1"},
	} {
		b.is(c.what, b.open(c.id), c.want)
	}
	b.is("its deadline is over", b.outcome(expired), "failed_final 0")
}
