package providertest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/httpjson"
	"github.com/outbox-worker/outbox-worker/providers/providertest"
)

var faults = map[providertest.Fault]simulator.Fault{
	providertest.LoseBefore:    {Kind: simulator.ResetBefore},
	providertest.LoseAfter:     {Kind: simulator.ResetAfter},
	providertest.Silence:       {Kind: simulator.Lost},
	providertest.LateEffect:    {Kind: simulator.Delay, Duration: 500 * time.Millisecond},
	providertest.ErrorAfter:    {Kind: simulator.ErrorAfter},
	providertest.Garbage:       {Kind: simulator.Garbage},
	providertest.Redirect:      {Kind: simulator.Redirect},
	providertest.Refuse:        {Kind: simulator.Refuse},
	providertest.Throttle:      {Kind: simulator.Throttle},
	providertest.Unauthorized:  {Kind: simulator.Unauthorized},
	providertest.InProgress:    {Kind: simulator.InProgress},
	providertest.LookupError:   {Kind: simulator.ErrorBefore, On: simulator.OnLookup},
	providertest.LookupSilence: {Kind: simulator.Lost, On: simulator.OnLookup},
}

// harness is an honest adapter on a fresh server. Every harness has an account of its own.
func harness(t *testing.T) providertest.Harness {
	sim, err := simulator.Start(t.Context(), simulator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	account := t.Name() + sim.HTTPURL()
	at := func(url string) func() providers.Provider {
		return func() providers.Provider {
			p, err := httpjson.New(httpjson.Config{
				Account: account, BaseURL: url,
				Operations: map[string]httpjson.Operation{"charge_card": {
					Path: "/v1/charges", KeyMemory: time.Hour, Replay: providers.ReplayAllAfterStart,
					Lookup: "/v1/charges", AbsenceIsProof: true, ThrottledIsNotSent: true,
				}},
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.Close() })
			return p
		}
	}
	return providertest.Harness{
		New:         at(sim.HTTPURL()),
		Unreachable: at("http://" + closedPort(t)),
		Intent:      func(n int) providers.Intent { return charge(n, 100+n) },
		Other: func(in providers.Intent) providers.Intent {
			in.Payload = charge(0, 99999).Payload
			return in
		},
		Invalid: []providers.Intent{{Reference: charge(1, 1).Reference, Operation: "charge_card", Version: 1, Payload: json.RawMessage(`"card"`)}},
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

func charge(n, amount int) providers.Intent {
	return providers.Intent{
		Reference: fmt.Sprintf("%032d", n), Operation: "charge_card", Version: 1,
		Payload: json.RawMessage(fmt.Sprintf(`{"amount":%d,"currency":"eur","customer":"Anna Kowalska"}`, amount)),
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
