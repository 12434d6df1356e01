// Package rooms is a hotel that takes bookings through the outbox: an example of an effect
// that lives in the ledger's own database, and of a worker embedded in an application.
//
//	Ask ──► rooms.requests: the operation id, before anything is attempted
//	Book ─► outbox.intents under that id         (again and again, if need be)
//	             │ the worker
//	             ▼
//	        book_room ── rooms.bookings and the outcome, one COMMIT
//	             └──► confirm_booking: a mail, once
//
// The booking and its outcome commit together (providers/local), so there is one without
// the other never, and no crash can leave it unknown. The mail is a call to somebody else:
// an intent of its own that follows the booking.
package rooms
