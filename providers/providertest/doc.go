// Package providertest proves an adapter against a real server.
//
// An adapter that says "not sent" of a request that left causes a second charge, and no
// other test will notice: a duplicate also returns a receipt. So every claim here is
// checked against what the server counted, and after every Send, whatever the claim is
// about, the same invariants are: "not sent" and "refused" mean that nothing happened,
// "accepted" that it happened once, and one Send is at most one request.
//
// An adapter's test is a [Harness] and one line:
//
//	func TestConformance(t *testing.T) { providertest.Run(t, newHarness) }
//
// The harness brings a server that counts effects and can be told to misbehave: a sandbox
// in front of which faults are injected, or a simulation of the provider. What a protocol
// cannot do (a mail server has no lookup) is skipped, and says so.
//
// The suite is tested itself: against adapters that lie.
package providertest
