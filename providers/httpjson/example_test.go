package httpjson_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/providers"
	"github.com/outbox-worker/outbox-worker/providers/httpjson"
)

// The answer is lost after the charge. The adapter says that it does not know; the same
// request under the same key brings the first answer, and the provider has one charge.
func Example() {
	ctx := context.Background()
	sim, err := simulator.Start(ctx, simulator.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sim.Close()
	if err := sim.Script(simulator.Fault{Kind: simulator.ResetAfter, Nth: 1}); err != nil {
		fmt.Println(err)
		return
	}

	p, err := httpjson.New(httpjson.Config{
		Account: "acct_live",
		BaseURL: sim.HTTPURL(),
		Headers: map[string]string{"Authorization": "Bearer secret"},
		Operations: map[string]httpjson.Operation{
			"charge_card": {Path: "/v1/charges", KeyMemory: 24 * time.Hour, Replay: providers.ReplayAllAfterStart},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	r, err := p.Prepare(providers.Intent{
		Reference: "0123456789abcdefghijklmnopqrstuv", Operation: "charge_card", Version: 1,
		Payload: json.RawMessage(`{"amount":24000,"currency":"eur"}`),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	leaseRuns := func(context.Context) error { return nil }
	for range 2 {
		a := p.Send(ctx, r, leaseRuns)
		fmt.Println(a.Kind, a.Code, "effects:", sim.Count(simulator.Charges, r.Intent.Reference))
	}
	// Output:
	// unknown connection_lost effects: 1
	// accepted  effects: 1
}
