package rooms_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/examples/rooms"
	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

// How a test tells its own binary to be the hotel's worker.
const (
	databaseEnv = "ROOMS_TEST_DATABASE"
	smtpEnv     = "ROOMS_TEST_SMTP"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(databaseEnv); url != "" {
		if err := work(url, os.Getenv(smtpEnv)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(pgtest.Main(m))
}

func work(url, smtp string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() { // not without the test
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	return rooms.Work(ctx, pool, smtp, slog.New(slog.DiscardHandler))
}

type testBundle struct {
	t   *testing.T
	ctx context.Context
	db  *pgxpool.Pool
	url string
	sim *simulator.Server
}

func setup(t *testing.T) *testBundle {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	b := &testBundle{t: t, ctx: ctx, url: pgtest.URL(t)}
	var err error
	b.db, err = pgxpool.New(ctx, b.url)
	b.must(err)
	t.Cleanup(b.db.Close)
	parsed, err := catalog.Parse("catalog.yaml", rooms.Catalog)
	b.must(err)
	_, err = catalog.Apply(ctx, b.db, parsed, "test")
	b.must(err)
	b.must(rooms.Setup(ctx, b.db))
	b.sim, err = simulator.Start(ctx, simulator.Options{})
	b.must(err)
	t.Cleanup(func() { b.must(b.sim.Close()) })
	return b
}

func (b *testBundle) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// worker starts a process; what it returns kills it.
func (b *testBundle) worker() (kill func()) {
	b.t.Helper()
	self, err := os.Executable()
	b.must(err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), databaseEnv+"="+b.url, smtpEnv+"="+b.sim.SMTPAddr())
	cmd.Stderr = b.t.Output()
	alive, err := cmd.StdinPipe()
	b.must(err)
	b.must(cmd.Start())
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // by a signal
		_ = alive.Close()
	})
	b.t.Cleanup(kill)
	return kill
}

func (b *testBundle) ask(room, guest string) uuid.UUID {
	b.t.Helper()
	id, err := rooms.Ask(b.ctx, b.db, rooms.Stay{Room: room, Night: "2027-01-31", Guest: guest})
	b.must(err)
	return id
}

func (b *testBundle) book(id uuid.UUID) outbox.Answer {
	b.t.Helper()
	a, err := rooms.Book(b.ctx, b.db, id)
	b.must(err)
	return a
}

// settled waits for the outcome.
func (b *testBundle) settled(reference string) outbox.Answer {
	b.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		a, err := outbox.Get(b.ctx, b.db, "hotel", reference)
		b.must(err)
		if a.Kind == outbox.AnswerSettled {
			return a
		}
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			b.t.Fatalf("%s does not settle: %+v", reference, a)
		}
	}
}

func count(b *testBundle, query string, args ...any) int {
	b.t.Helper()
	rows, err := b.db.Query(b.ctx, "SELECT count(*)::int FROM "+query, args...)
	b.must(err)
	n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	b.must(err)
	return n
}

func TestABookingIsMadeOnceAndConfirmedOnce(t *testing.T) {
	b := setup(t)
	b.worker()
	id := b.ask("12", "ann@example.com")
	first := b.book(id)
	if first.Kind != outbox.AnswerAccepted {
		t.Fatalf("booked: %+v", first)
	}
	done := b.settled(first.Reference)
	if done.State != outbox.Succeeded || done.ProviderID != "12-2027-01-31" {
		t.Errorf("settled: %+v", done)
	}
	if again := b.book(id); again.Kind != outbox.AnswerSettled || again.Reference != first.Reference || again.ProviderID != done.ProviderID {
		t.Errorf("the same request again: %+v", again)
	}
	// Other details under that id are a conflict, and book nothing.
	changed, err := outbox.Enqueue(b.ctx, b.db, rooms.Intent(id, rooms.Stay{Room: "14", Night: "2027-01-31", Guest: "ann@example.com"}))
	b.must(err)
	if changed.Kind != outbox.AnswerConflict || len(changed.Differs) != 1 || changed.Differs[0] != "/room" {
		t.Errorf("other details: %+v", changed)
	}
	// Another guest is told that the room is taken, and gets no mail.
	taken := b.settled(b.book(b.ask("12", "bob@example.com")).Reference)
	if taken.State != outbox.FailedFinal || taken.Code != "room_taken" {
		t.Errorf("a room that is taken: %+v", taken)
	}
	b.must(b.sim.Await(b.ctx, func(s simulator.Snapshot) bool { return s.Count(simulator.Mail, "") == 1 }))
	if n := count(b, "rooms.bookings"); n != 1 {
		t.Errorf("%d bookings, want 1", n)
	}
	if n := count(b, "outbox.intents"); n != 3 {
		t.Errorf("%d intents, want two requests and one confirmation", n)
	}
}

// Workers are killed while bookings are in flight, and every request is made again, by a
// caller that does not know: one booking each, one mail each, and no outcome unknown.
func TestKilledWorkersLeaveOneBookingAndOneMailForEachRequest(t *testing.T) {
	b := setup(t)
	const guests, kills = 60, 6
	ids := make([]uuid.UUID, guests)
	for i := range ids {
		ids[i] = b.ask(fmt.Sprint(i), fmt.Sprintf("guest%d@example.com", i))
	}
	kill := b.worker()
	for k := range kills {
		for _, id := range ids[k*guests/kills : (k+1)*guests/kills] {
			b.book(id)
		}
		b.await("(SELECT count(*) FROM rooms.bookings) > $1", k*guests/kills) // some of these are made, most are not
		kill()
		kill = b.worker()
		for _, id := range ids[:(k+1)*guests/kills] {
			if a := b.book(id); a.Kind != outbox.AnswerInFlight && a.Kind != outbox.AnswerSettled {
				t.Errorf("asked again: %+v", a)
			}
		}
	}
	b.await("NOT EXISTS (SELECT FROM outbox.outbox WHERE phase <> 'parked')")
	if n := count(b, "rooms.bookings"); n != guests {
		t.Errorf("%d bookings, want %d", n, guests)
	}
	if n := count(b, "outbox.history h JOIN outbox.intents i ON i.id = h.intent_id JOIN outbox.catalog c ON c.id = i.catalog_id WHERE c.name = 'book_room' AND h.to_state = 'outcome_unknown'"); n != 0 {
		t.Errorf("%d bookings were unknown; an effect of this database never is", n)
	}
	mails := map[string]int{}
	for _, e := range b.sim.Effects(simulator.Mail) {
		mails[e.Reference]++
	}
	review := count(b, "outbox.outbox WHERE state = 'needs_review'") // killed at the mail server's dot
	if len(mails) < guests-review || len(mails) > guests {
		t.Errorf("%d mails and %d in review, for %d bookings", len(mails), review, guests)
	}
	for reference, n := range mails {
		if n != 1 {
			t.Errorf("%d mails of %s", n, reference)
		}
	}
	t.Logf("%d bookings, %d mails, %d in review", guests, len(mails), review)
}

func (b *testBundle) await(condition string, args ...any) {
	b.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var holds bool
		b.must(b.db.QueryRow(b.ctx, "SELECT "+condition, args...).Scan(&holds))
		if holds {
			return
		}
		<-tick.C
	}
}
