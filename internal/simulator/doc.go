// Package simulator plays the providers: a real HTTP server with charges, refunds,
// shipments and bookings, a real SMTP server, and a ledger of what they did.
//
// # What it promises
//
// An effect is a charge made, a shipment bought, a mail accepted. Each is recorded
// under one lock, and written to the journal if there is one, before the first byte
// of any answer leaves. Nothing merges two effects afterwards: the only thing that
// makes a repeat harmless is the simulated provider's own memory of keys, and
// [Behaviour] can switch that off. So the count of effects per reference is the truth
// that tests and the demo compare everything else with.
//
// # What becomes of a request
//
//	arrive   counted; the key is looked up and the faults are chosen, in one step
//	gate     faults without effect: reset_before, throttle, ... ; leave no trace of the key
//	key      missing 400, other body 422, still running 409, known: the saved answer
//	execute  delay; hold; then refuse, or record the effect; the answer is saved
//	answer   hold; then reset_after, lost, garbage, ... or the answer itself
//
// A client that goes away stops nothing: a request that was delayed has its effect
// when the delay is over, as at a real provider.
//
// # Faults
//
// A [Fault] is data. A script is tried in order: delay and slow_body add up, and the
// first other fault that fits decides. A fault fires on every request it fits, first
// or repeated, until its Count is used up; Nth and Count say "only the first". Faults
// that lose or change the answer also fire when the answer is a saved one; refuse does
// not, because a provider does not execute a key that it has answered.
//
// # What a crash does
//
// With a journal, effects and answers saved under keys survive kill -9 and are there
// after the next start. Counts of requests, faults and holds begin anew.
//
// The package imports nothing of ours, so that no bug can be on both sides of a test.
package simulator
