package dispatch_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/dispatch"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// login makes a user that has the group's rights and no other, and returns a URL for it.
func (b *testBundle) login(group string) string {
	b.t.Helper()
	name := "u_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	_, err := b.pool.Exec(b.ctx, fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD 'x' IN ROLE %s`, name, group))
	b.must(err)
	b.t.Cleanup(func() {
		_, err := b.pool.Exec(context.WithoutCancel(b.ctx), `DROP ROLE `+name)
		b.must(err)
	})
	u, err := url.Parse(b.url)
	b.must(err)
	u.User = url.UserPassword(name, "x")
	return u.String()
}

// A deployment gives application and worker nothing but their groups.
func TestApplicationAndWorkerNeedNoMoreThanTheirRoles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	worker, app := b.login("outbox_worker"), b.login("outbox_app")
	b.run(func(c *dispatch.Config) { c.Pool = b.openURL(worker, 8) })
	conn, err := pgx.Connect(b.ctx, app)
	b.must(err)
	a, err := outbox.Enqueue(b.ctx, conn, outbox.Intent{Tenant: "shop", Operation: "charge_card.v1", Payload: charge{"by role", 5, "EUR"}})
	b.must(err)
	refused := b.enqueue(outbox.Intent{Payload: map[string]any{"order_id": "bad", "amount": -1, "currency": "EUR"}})
	late := b.enqueue(outbox.Intent{Payload: charge{"late", 5, "EUR"}, Deadline: time.Unix(1, 0)})
	b.must(b.sim.Script(simulator.Fault{Kind: simulator.Throttle, Reference: a.Reference, Nth: 1}))
	b.state(a.Reference, outbox.Succeeded)
	b.state(refused.Reference, outbox.FailedFinal)
	b.state(late.Reference, outbox.FailedFinal)
	b.allSettled()
	b.effects(simulator.Charges, a.Reference, 1)
	if n := len(b.sim.Effects(simulator.Shipments)); n != 1 {
		t.Errorf("%d shipments, want 1", n)
	}
	got, err := outbox.Get(b.ctx, conn, "shop", a.Reference)
	b.must(err)
	if got.State != outbox.Succeeded {
		t.Errorf("the application sees %+v", got)
	}
	b.must(conn.Close(b.ctx))
}

func TestAWorkerBehindAPoolerInTransactionModeOnlyPolls(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.run(func(c *dispatch.Config) {
		config := b.pool.Config()
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		c.Pool, c.PollOnly = b.openConfig(config), true
	})
	a := b.charge("polled")
	b.allSettled()
	b.effects(simulator.Charges, a.Reference, 1)
	if n := b.scalar(`SELECT count(*) FROM outbox.lanes WHERE asleep`); n != 0 {
		t.Error("a lane that nobody can wake fell asleep")
	}
}

// NOTIFY takes a global lock at commit, so enqueue notifies only while a releaser
// sleeps, and then a releaser wakes up long before its next poll.
func TestEnqueueNotifiesOnlyWhileAReleaserSleeps(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn, err := pgx.Connect(b.ctx, b.url)
	b.must(err)
	defer func() { b.must(conn.Close(b.ctx)) }()
	_, err = conn.Exec(b.ctx, "LISTEN outbox_due")
	b.must(err)

	b.charge("nobody sleeps")
	_, err = b.pool.Exec(b.ctx, `UPDATE outbox.lanes SET asleep = true WHERE name = 'payments'`)
	b.must(err)
	b.charge("somebody sleeps")
	lane := fmt.Sprint(b.scalar(`SELECT id FROM outbox.lanes WHERE name = 'payments'`))
	n, err := conn.WaitForNotification(b.ctx)
	b.must(err)
	if n.Payload != lane {
		t.Errorf("notified lane %s, want %s", n.Payload, lane)
	}
	// Only that one: the next to arrive is ours.
	_, err = b.pool.Exec(b.ctx, `NOTIFY outbox_due, 'end'`)
	b.must(err)
	if n, err = conn.WaitForNotification(b.ctx); err != nil || n.Payload != "end" {
		t.Errorf("%+v, %v: want the end", n, err)
	}

	// A poll is an hour away, so only the notification can wake this worker.
	b.run(func(c *dispatch.Config) { c.IdlePoll = time.Hour })
	b.await(`(SELECT bool_and(asleep) FROM outbox.lanes WHERE name = 'payments') AND NOT EXISTS (SELECT FROM outbox.outbox)`)
	a := b.charge("wake up")
	b.state(a.Reference, outbox.Succeeded)
}
