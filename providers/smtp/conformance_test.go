package smtp_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/providertest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	providertest.Run(t, harness)
}

// faults are what the simulator calls the suite's faults. SMTP knows no keys and lookups,
// no redirects, and no errors behind a success.
var faults = map[providertest.Fault]simulator.Fault{
	providertest.CutShort:   {Kind: simulator.DropBeforeDot},
	providertest.LoseAfter:  {Kind: simulator.LostAfterDot},
	providertest.Silence:    {Kind: simulator.Lost},
	providertest.LateEffect: {Kind: simulator.Delay, Duration: 500 * time.Millisecond},
	providertest.Refuse:     {Kind: simulator.RefuseDot},
	providertest.Defer:      {Kind: simulator.Tempfail},
}

func harness(t *testing.T) providertest.Harness {
	sim, err := simulator.Start(t.Context(), simulator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	mail := func(n int) providers.Intent {
		return receipt(n, "to", fmt.Sprintf("anna%d@example.com", n), "subject", fmt.Sprintf("Receipt %d", n))
	}
	return providertest.Harness{
		New:         func() providers.Provider { return newProvider(t, config(sim.SMTPAddr())) },
		Unreachable: func() providers.Provider { return newProvider(t, config(closedPort(t))) },
		Intent:      mail,
		Other: func(in providers.Intent) providers.Intent {
			in.Payload = receipt(1, "text", "Something else.").Payload
			return in
		},
		Invalid: []providers.Intent{receipt(1, "subject", "Hi\r\nBcc: everybody@example.com"), receipt(1, "cc", "x@example.com")},
		Inject: func(f providertest.Fault, reference string) bool {
			fault, known := faults[f]
			fault.Service, fault.Reference = simulator.Mail, reference
			if known {
				if err := sim.Script(fault); err != nil {
					t.Fatal(err)
				}
			}
			return known
		},
		Effects:  func(reference string) int { return sim.Count(simulator.Mail, reference) },
		Requests: func(reference string) int { return sim.Requests(simulator.Mail, reference) },
		Await: func(ctx context.Context, reference string, requests, effects int) error {
			return sim.Await(ctx, func(s simulator.Snapshot) bool {
				return s.Requests(simulator.Mail, reference) >= requests && s.Count(simulator.Mail, reference) >= effects
			})
		},
		ProviderID: func(reference string) string {
			for _, e := range sim.Effects(simulator.Mail) {
				if e.Reference == reference {
					return e.ProviderID
				}
			}
			return ""
		},
	}
}

// closedPort is an address at which nothing listens.
func closedPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
