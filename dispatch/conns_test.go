package dispatch_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/outbox-worker/outbox-worker/dispatch"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
)

func TestAPoolThatIsTooSmallIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := dispatch.New(dispatch.Config{Pool: b.open(dispatch.MinConns - 1), Providers: b.accounts("acct_pay")})
	if err == nil || err.Error() != "dispatch: Config.Pool has 3 connections; give it at least 4" {
		t.Errorf("%v", err)
	}
}

// The smallest pool is slow, and it is enough: nobody waits for a connection with one in
// hand.
func TestTheSmallestPoolIsEnough(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.patient()
	pool := b.open(dispatch.MinConns)
	const orders = 300
	for n := range orders {
		b.charge(fmt.Sprint("order ", n))
	}
	var log bytes.Buffer // the handler writes to it one line at a time
	stop := b.run(func(c *dispatch.Config) {
		c.Pool, c.Logger = pool, slog.New(slog.NewTextHandler(&log, nil))
	})
	b.allSettled()
	stop()
	if n := strings.Count(log.String(), "few connections: under load statements will wait for each other\" connections=4 lanes=2 advised=12\n"); n != 1 {
		t.Errorf("warned %d times:\n%s", n, &log)
	}
	for service, want := range map[string]int{simulator.Charges: orders, simulator.Shipments: orders} {
		if n := len(b.sim.Effects(service)); n != want {
			t.Errorf("%d effects of %s, want %d", n, service, want)
		}
	}
	if n := pool.Stat().TotalConns(); n > dispatch.MinConns {
		t.Errorf("the pool has %d connections", n)
	}
}
