package chaos

import (
	"time"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
)

// How often a request meets each fault of the providers, and a lookup.
const (
	rare       = 0.006
	rareLookup = 0.02
)

// misbehaviour is everything that the simulator knows, at random all through the run.
func misbehaviour() (script []simulator.Fault) {
	add := func(service, on string, probability float64, kinds ...simulator.Kind) {
		for _, kind := range kinds {
			f := simulator.Fault{Kind: kind, Service: service, On: on, Probability: probability}
			switch kind {
			case simulator.Delay:
				f.Duration = slowProvider // longer than a call: its client has gone when it happens
			case simulator.SlowBody:
				f.Duration = 300 * time.Millisecond
			}
			script = append(script, f)
		}
	}
	for _, service := range []string{simulator.Charges, simulator.Bookings} {
		add(service, simulator.OnCreate, rare,
			simulator.Delay, simulator.SlowBody,
			simulator.ResetBefore, simulator.ErrorBefore, simulator.InProgress, simulator.Throttle, simulator.Unauthorized, simulator.Redirect,
			simulator.Refuse, simulator.ResetAfter, simulator.ErrorAfter, simulator.Lost, simulator.Truncated, simulator.Garbage)
		add(service, simulator.OnLookup, rareLookup,
			simulator.SlowBody, simulator.ResetBefore, simulator.ErrorBefore, simulator.Throttle, simulator.Lost, simulator.Truncated, simulator.Garbage)
	}
	add(simulator.Mail, simulator.OnCreate, rare,
		simulator.Delay, simulator.RefuseRcpt, simulator.RefuseDot, simulator.Tempfail,
		simulator.DropBeforeDot, simulator.LostAfterDot, simulator.Lost)
	return script
}
