package dispatch_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/outbox-worker/outbox-worker/dispatch"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// asBefore has the effect of an intent happen without this ledger's knowledge: in the
// future that a failover or a restore has forgotten.
func (b *testBundle) asBefore(a outbox.Answer, order string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.ctx, http.MethodPost, b.sim.HTTPURL()+"/v1/charges",
		strings.NewReader(`{"amount":1200,"currency":"EUR","order_id":"`+order+`"}`))
	b.must(err)
	r.Header.Set("Idempotency-Key", a.Reference)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	b.must(err)
	b.must(resp.Body.Close())
	b.effects(simulator.Charges, a.Reference, 1)
}

func TestAfterAFailoverWhatMayHaveBeenSentIsFoundOutFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.charges = canBeAsked
	b.must(b.sim.SetBehaviour(simulator.Charges, simulator.Behaviour{Keys: simulator.Ignore}))
	b.run(nil)() // a worker has been here
	forgotten := b.charge("forgotten")
	b.asBefore(forgotten, "forgotten")
	later := b.enqueue(outbox.Intent{Payload: charge{"later", 5, "EUR"}, NotBefore: forgotten.CreatedAt.AddDate(0, 0, 7)})
	_, err := b.pool.Exec(b.ctx, `UPDATE outbox.ledger SET timeline = timeline - 1`)
	b.must(err)
	b.run(nil)
	b.state(forgotten.Reference, outbox.Succeeded)
	b.effects(simulator.Charges, forgotten.Reference, 1)
	b.sent(forgotten.Reference, 1) // the one of before
	b.state(later.Reference, outbox.Accepted)
	sameJSON(t, b.history(forgotten.Reference)[:2], []string{"0 committed accepted", "1 accepted ledger_moved outcome_unknown"})
	fresh := b.charge("after the failover")
	b.state(fresh.Reference, outbox.Succeeded)
	b.never(fresh.Reference, "ledger_moved")
}

func TestACloneSendsNothingUntilToldThatItIsTheOriginal(t *testing.T) {
	t.Parallel()
	for _, change := range []string{`database = 'another'`, `system_identifier = system_identifier + 1`} {
		b := setup(t)
		b.run(nil)()
		a := b.charge("cloned")
		_, err := b.pool.Exec(b.ctx, `UPDATE outbox.ledger SET `+change)
		b.must(err)
		w, err := dispatch.New(dispatch.Config{Pool: b.open(8), Providers: b.accounts("acct_pay"), Logger: b.logger()})
		b.must(err)
		if err := w.Run(b.ctx); err == nil || !strings.Contains(err.Error(), "ledger adopt") {
			t.Fatalf("a worker ran on a clone: %v", err)
		}
		b.sent(a.Reference, 0)
		b.state(a.Reference, outbox.Accepted)
		if n := b.scalar(`SELECT outbox.adopt('ops', 'the old server is gone')`); n != 1 {
			t.Errorf("%d intents doubted, want 1", n)
		}
		b.run(nil)
		b.state(a.Reference, outbox.Succeeded)
		b.effects(simulator.Charges, a.Reference, 1)
	}
}
