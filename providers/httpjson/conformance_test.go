package httpjson_test

import (
	"context"
	"encoding/json"
	"net"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/httpjson"
	"github.com/outbox-worker/outbox-worker/providers/providertest"
)

func TestConformanceWithAKeyHeader(t *testing.T) {
	t.Parallel()
	providertest.Run(t, func(t *testing.T) providertest.Harness {
		return harness(t, simulator.Behaviour{})
	})
}

func TestConformanceWithoutKeys(t *testing.T) {
	t.Parallel()
	providertest.Run(t, func(t *testing.T) providertest.Harness {
		return harness(t, simulator.Behaviour{Keys: simulator.Ignore}, func(c *httpjson.Config, o *httpjson.Operation) {
			c.KeyHeader, c.ReferenceField = httpjson.None, "reference"
			o.KeyMemory, o.Replay = 0, ""
		})
	})
}

// faults are what the simulator calls the suite's faults. It has none for a request that
// is cut short, and HTTP no refusal for now.
var faults = map[providertest.Fault]simulator.Fault{
	providertest.LoseBefore:    {Kind: simulator.ResetBefore},
	providertest.LoseAfter:     {Kind: simulator.ResetAfter},
	providertest.Silence:       {Kind: simulator.Lost},
	providertest.LateEffect:    {Kind: simulator.Delay, Duration: 500 * time.Millisecond},
	providertest.ErrorAfter:    {Kind: simulator.ErrorAfter},
	providertest.Garbage:       {Kind: simulator.Garbage},
	providertest.Redirect:      {Kind: simulator.Redirect},
	providertest.Refuse:        {Kind: simulator.Refuse},
	providertest.Throttle:      {Kind: simulator.Throttle, RetryAfter: 7},
	providertest.Unauthorized:  {Kind: simulator.Unauthorized},
	providertest.InProgress:    {Kind: simulator.InProgress},
	providertest.LookupError:   {Kind: simulator.Garbage, On: simulator.OnLookup},
	providertest.LookupSilence: {Kind: simulator.Lost, On: simulator.OnLookup},
}

func harness(t *testing.T, b simulator.Behaviour, change ...func(*httpjson.Config, *httpjson.Operation)) providertest.Harness {
	sim, err := simulator.Start(t.Context(), simulator.Options{Services: map[string]simulator.Behaviour{simulator.Charges: b}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	notAnObject := charge(1)
	notAnObject.Payload = json.RawMessage(`[]`)
	return providertest.Harness{
		New:         func() providers.Provider { return newProvider(t, config(sim.HTTPURL(), change...)) },
		Unreachable: func() providers.Provider { return newProvider(t, config("http://"+closedPort(t), change...)) },
		Intent:      charge,
		Other: func(in providers.Intent) providers.Intent {
			in.Payload = json.RawMessage(`{"amount":99999,"currency":"eur"}`)
			return in
		},
		Invalid: []providers.Intent{notAnObject},
		Inject: func(f providertest.Fault, reference string) bool {
			fault, known := faults[f]
			fault.Service, fault.Reference = simulator.Charges, reference
			if known {
				if err := sim.Script(fault); err != nil {
					t.Fatal(err)
				}
			}
			return known
		},
		Effects:  func(reference string) int { return sim.Count(simulator.Charges, reference) },
		Requests: func(reference string) int { return sim.Requests(simulator.Charges, reference) },
		Await: func(ctx context.Context, reference string, requests, effects int) error {
			return sim.Await(ctx, func(s simulator.Snapshot) bool {
				return s.Requests(simulator.Charges, reference) >= requests && s.Count(simulator.Charges, reference) >= effects
			})
		},
		ProviderID: func(reference string) string {
			for _, e := range sim.Effects(simulator.Charges) {
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
