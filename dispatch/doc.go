// Package dispatch is the worker: it releases due intents into River jobs, claims them,
// calls the provider with the intent's reference as its key, and records what the
// provider said.
//
// The ledger is authoritative, never River: a job only carries the ids of intents that
// were released together, and returns nil once it has dealt with them. A job that is
// lost, rescued, run twice or run late changes nothing, because every step is a
// compare-and-set on the intent's state and attempt:
//
//	release   due ──► released      a lease: not claimed in time, released again
//	claim     released ──► leased   attempt+1, committed before any byte leaves
//	call      the provider, with no transaction open
//	settle    leased ──► gone       fenced on the attempt: who lost the lease overwrites nothing
//	sweep     a lease that ran out ──► outcome_unknown
//	follow    succeeded ──► its follow-ons, in one transaction
//
// What a crash does at each point: before the claim commits, nothing was sent and the
// release lease brings the intent back. After it, the lease runs out and the outcome is
// unknown, whether or not anything was sent. After the settlement, River runs the job
// again and it finds nothing to do. Between success and follow-ons, the outbox row says
// "follow-ons to create" and any worker creates them.
//
// The package knows outbox, the catalog and the provider contract; applications do not
// import it. All times that decide are the database's clock.
package dispatch
