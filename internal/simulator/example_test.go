package simulator_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
)

// The answer is lost, the caller asks again under the same key, and the ledger has the
// one effect.
func Example() {
	ctx := context.Background()
	sim, err := simulator.Start(ctx, simulator.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sim.Close()
	if err := sim.Script(simulator.Fault{Kind: simulator.ResetAfter, Service: simulator.Charges, Nth: 1}); err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range 2 {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, sim.HTTPURL()+"/v1/charges", strings.NewReader(`{"amount":24000}`))
		if err != nil {
			fmt.Println(err)
			return
		}
		req.Header.Set("Idempotency-Key", "order-1042")
		resp, err := client.Do(req)
		if err != nil {
			fmt.Println("no answer, effects:", sim.Count(simulator.Charges, "order-1042"))
			continue
		}
		_ = resp.Body.Close()
		fmt.Println("answer", resp.StatusCode, "effects:", sim.Count(simulator.Charges, "order-1042"))
	}
	// Output:
	// no answer, effects: 1
	// answer 201 effects: 1
}
