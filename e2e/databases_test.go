package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// beside is a second database with the catalog, and the same providers. Its ledger is its
// own: databases of one template have the template's.
func (b *bundle) beside(url string) *bundle {
	b.t.Helper()
	migrate(b.t, url)
	other := newBundle(b.t, url)
	other.sim, other.dir = b.sim, b.dir
	other.apply(withTimes(patientCall, patientLease))
	return other
}

// manyWorker starts one worker for several databases.
func (b *bundle) manyWorker(urls ...string) *child {
	b.t.Helper()
	return b.worker("many", "DATABASE_URL="+strings.Join(urls, "\n"), "OUTBOX_WORKER__CONCURRENCY=8")
}

// settle waits until each of n charges has succeeded, and once.
func (b *bundle) settle(n int) {
	b.t.Helper()
	b.await(`(SELECT count(*) = $1 FROM outbox.outcomes WHERE state = 'succeeded') AND NOT EXISTS (SELECT FROM outbox.outbox)`, n)
}

// The same keys in two databases are different intents: their ledgers' ids go into the
// references. What the process may have in flight is one bound over both.
func TestOneWorkerServesSeveralDatabases(t *testing.T) {
	t.Parallel()
	const each, atOnce = 40, 8
	a := setup(t, withTimes(patientCall, patientLease))
	z := a.beside(pgtest.EmptyURL(t))
	a.enqueueMany("o", each)
	z.enqueueMany("o", each)
	release := a.sim.Hold(simulator.Charges, "", simulator.BeforeEffect)
	w := a.manyWorker(a.url, z.url)
	a.atProvider(func(s simulator.Snapshot) bool { return s.Held(simulator.Charges, "") == atOnce })
	if n := value[int](a, claims) + value[int](z, claims); n != atOnce {
		t.Errorf("%d are claimed with %d calls in flight: what waits for its turn must not be", n, atOnce)
	}
	release()
	a.settle(each)
	z.settle(each)
	if n := a.sim.Requests(simulator.Charges, ""); n != 2*each {
		t.Errorf("%d requests, want %d", n, 2*each)
	}
	for _, b := range []*bundle{a, z} {
		for _, ref := range value[[]string](b, `array_agg(reference::text) FROM outbox.intents`) {
			b.counted(simulator.Charges, ref, 1, 1)
		}
	}
	w.awaitLog(a, fmt.Sprintf(`"database":%q`, z.address()))
	w.terminate()
	if code := w.exit(stopLimit); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

const claims = `count(*)::int FROM outbox.outbox WHERE state = 'executing'`

// address is what logs call the database.
func (b *bundle) address() string {
	c := b.pool.Config().ConnConfig
	return fmt.Sprintf("%s:%d/%s", c.Host, c.Port, c.Database)
}

// One that is not there, and one that has no schema yet, hold up nobody, and are served
// once they can be.
func TestADatabaseThatCannotBeServedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	a := setup(t, withTimes(patientCall, patientLease))
	late := pgtest.EmptyURL(t)
	w := a.manyWorker("postgres://nobody@127.0.0.1:1/nowhere", late, a.url)
	w.awaitLog(a, "cannot connect to 127.0.0.1:1/nowhere")
	w.awaitLog(a, "outbox-worker migrate")
	a.enqueueMany("o", 3)
	a.settle(3)

	z := a.beside(late)
	z.enqueueMany("o", 3)
	z.settle(3)
	if n := a.sim.Requests(simulator.Charges, ""); n != 6 || len(a.sim.Duplicates()) > 0 {
		t.Errorf("%d requests, want 6; duplicates %v", n, a.sim.Duplicates())
	}
	w.terminate()
	if code := w.exit(stopLimit); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Two workers of one process on one ledger would be harmless; that somebody meant another
// database would not.
func TestADatabaseNamedTwiceIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, withTimes(patientCall, patientLease))
	w := b.manyWorker(b.url, strings.Replace(b.url, "127.0.0.1", "localhost", 1))
	if code := w.exit(time.Minute); code != 1 || !strings.Contains(w.tail(), "the same ledger as another database of this worker") {
		t.Errorf("exit code %d: %s", code, w.tail())
	}
}

// A database that breaks a promise when the worker starts ends it, with its name.
func TestOneDatabaseThatBreaksAPromiseEndsTheStart(t *testing.T) {
	t.Parallel()
	b := setup(t, withTimes(patientCall, patientLease))
	z := b.beside(pgtest.EmptyURL(t))
	_, err := z.pool.Exec(b.ctx, `ALTER TABLE outbox.catalog DISABLE TRIGGER USER; UPDATE outbox.catalog SET spec = jsonb_set(spec, '{timeouts,lease}', '"21s"')`)
	b.must(err)
	w := b.manyWorker(b.url, z.url)
	if code := w.exit(time.Minute); code != 2 || !strings.Contains(w.tail(), z.address()+": ") || !strings.Contains(w.tail(), "does not cover a call") {
		t.Errorf("exit code %d: %s", code, w.tail())
	}
	if a := b.enqueue(plain("1")); a.Kind != outbox.AnswerAccepted {
		t.Errorf("%+v", a)
	}
}
