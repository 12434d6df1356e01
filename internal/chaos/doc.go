// Package chaos breaks a running system on purpose and then compares everything that was
// promised with everything that happened.
//
// Workers and providers are processes, Postgres is a real one, and the network between
// them is a proxy that can be slow, cut, or lose answers. What is done to them, and when,
// is drawn from a seed: the same seed gives the same schedule of faults by count of
// effects, though not the same interleaving of processes.
//
//	enqueuers ──┐                        ┌── charges   honours keys
//	            proxy ── Postgres        ├── bookings  ignores keys, can be looked up
//	workers ────┴─────────── proxy ──────┴── mail      neither: at most once
//
// The verdict joins four ledgers, none of which is believed alone: what the enqueuers were
// told, what the application committed beside its intents, ours, and what the providers
// counted. What waits for a person, with a reason, is an honest end; a wrong or a missing
// answer is not.
package chaos
