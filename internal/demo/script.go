package demo

import (
	"fmt"
	"time"

	"github.com/outbox-worker/outbox-worker/internal/children"
	"github.com/outbox-worker/outbox-worker/internal/simulator"
)

// faults is every misbehaviour that the simulator knows, each a few times, struck by
// chance (with a fixed seed) on the first attempt of an intent.
func faults() (script []simulator.Fault) {
	chance := func(service string, kind simulator.Kind, count int, change ...func(*simulator.Fault)) {
		f := simulator.Fault{Kind: kind, Service: service, Nth: 1, Count: count, Probability: 0.1}
		for _, c := range change {
			c(&f)
		}
		script = append(script, f)
	}
	lasting := func(d time.Duration) func(*simulator.Fault) {
		return func(f *simulator.Fault) { f.Duration = d }
	}
	for _, service := range []string{simulator.Charges, simulator.Shipments} {
		for _, kind := range []simulator.Kind{
			simulator.ResetBefore, simulator.ErrorBefore, simulator.InProgress, simulator.Throttle, simulator.Unauthorized, simulator.Redirect,
			simulator.Refuse, simulator.ResetAfter, simulator.ErrorAfter, simulator.Lost, simulator.Truncated, simulator.Garbage,
		} {
			chance(service, kind, 2)
		}
		chance(service, simulator.Delay, 20, lasting(300*time.Millisecond))
		chance(service, simulator.SlowBody, 5, lasting(300*time.Millisecond))
	}
	for _, kind := range []simulator.Kind{
		simulator.RefuseRcpt, simulator.RefuseDot, simulator.Tempfail, simulator.DropBeforeDot, simulator.LostAfterDot, simulator.Lost,
	} {
		chance(simulator.Mail, kind, 2)
	}
	chance(simulator.Mail, simulator.Delay, 5, lasting(300*time.Millisecond))
	return script
}

// Addresses are where the simulator's providers are.
type Addresses = children.Addresses

// WorkerConfig is the configuration file of workers that use the simulator.
func WorkerConfig(at Addresses) string {
	http := func(account, operation, path string) string {
		return fmt.Sprintf(`
    adapter: httpjson
    account: %s
    base_url: %s
    operations:
      %s: {path: %s, key_memory: 24h, replay: success_only, throttled_is_not_sent: true}
`, account, at.HTTP, operation, path)
	}
	return "providers:\n  payments:" + http("acct_demo", "charge_card", "/v1/charges") +
		"  shipping:" + http("ship_demo", "create_shipment", "/v1/shipments") + fmt.Sprintf(`  mail:
    adapter: smtp
    account: mail_demo
    address: %s
    tls: none
    from: The Shop <orders@shop.example>
    operations: [send_receipt]
`, at.SMTP)
}
