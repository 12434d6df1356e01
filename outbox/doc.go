// Package outbox is what applications import: it records an intent ("charge this card")
// in the application's own Postgres transaction, and tells what became of it.
//
// If and only if that transaction commits, the effect happens at the provider once, and
// everybody who asks again gets the first answer. [Enqueue] is one round trip to the
// SQL function outbox.enqueue, which is the one door for every language; this package
// canonicalises the payload on its side, so that the database need not.
//
// The ledger, in the schema outbox, is authoritative: this package holds no state, a
// crash of the application loses nothing that was committed, and a commit whose answer
// was lost is found out by enqueuing the same intent again.
//
//	–  ──► awaiting_approval ──► accepted ──► executing ──► succeeded
//	                                 ▲            │  │ └───► failed_final
//	                       due again │            │  ▼
//	                           failed_retryable ◄─┤ outcome_unknown ──► needs_review
//	                                 │            │   (asked about, never resent blindly)
//	                                 ▼
//	                             exhausted
//
// The worker that causes the effects is package dispatch. This package knows neither
// River nor any provider.
package outbox
