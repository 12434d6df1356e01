package outbox

import "slices"

// State is where an intent is.
type State string

const (
	AwaitingApproval State = "awaiting_approval" // held until people approve it under its digest
	Accepted         State = "accepted"          // committed, never sent
	Executing        State = "executing"         // claimed under a lease; bytes may leave
	FailedRetryable  State = "failed_retryable"  // proven not executed; due again
	OutcomeUnknown   State = "outcome_unknown"   // it may have happened: asked about, never resent blindly
	NeedsReview      State = "needs_review"      // nobody could prove it; an owner decides with evidence
	Exhausted        State = "exhausted"         // proven not executed, attempts used up; may be replayed or superseded
	Succeeded        State = "succeeded"         // the effect happened, once
	FailedFinal      State = "failed_final"      // refused for good; the effect has not happened
	Cancelled        State = "cancelled"         // withdrawn before anything was sent
)

// Event is why a state changed. Events that change nothing are written to the history
// all the same: what was asked and what came too late is evidence.
type Event string

const (
	Approved           Event = "approved"
	Rejected           Event = "rejected"
	ApprovalExpired    Event = "approval_expired"
	Claimed            Event = "claimed"
	CancelRequested    Event = "cancelled"
	DeadlinePassed     Event = "deadline_passed"
	InputRejected      Event = "input_rejected"    // the payload breaks the schema or cannot be rendered
	PinsDiffer         Event = "pins_differ"       // account, preset or request changed since the first attempt
	ProviderAccepted   Event = "provider_accepted" // also a late answer of the attempt that is unknown
	ProviderRefused    Event = "provider_refused"
	NotSent            Event = "not_sent"      // proof that this attempt was not executed
	NoAnswer           Event = "no_answer"     // bytes left: look up before resending
	LeaseExpired       Event = "lease_expired" // its worker is gone or stuck
	AttemptsUsed       Event = "attempts_used"
	LookupFound        Event = "found"
	LookupFoundRefused Event = "found_refused"
	ProvenAbsent       Event = "proven_absent"
	NotProven          Event = "not_proven"
	Contradicted       Event = "contradicted"
	ResolvedSucceeded  Event = "resolved_succeeded"
	ResolvedFailed     Event = "resolved_failed"
	ResolvedNotRun     Event = "resolved_not_executed"
	Replayed           Event = "replayed"
	Superseded         Event = "superseded"
	LedgerMoved        Event = "ledger_moved" // to another timeline, which may have forgotten a claim

	LateAnswer       Event = "late_answer" // of an attempt that is no longer the one in question
	Probed           Event = "probed"      // asked the provider and learnt nothing that decides
	Resent           Event = "resent"      // the same request under the same key, to learn the outcome
	ReviewOpened     Event = "review_opened"
	ReviewClaimed    Event = "review_claimed"
	ReviewReleased   Event = "review_released"
	FollowOnsCreated Event = "follow_ons_created"
	FollowOnRejected Event = "follow_on_rejected"
	Noted            Event = "noted"
)

// next is the machine: everything that may happen to an intent, and nothing else. The
// database refuses any other entry of history (outbox.legal), and a test compares the
// two with docs/state-machine.md.
var next = map[State]map[Event]State{
	AwaitingApproval: {
		Approved:        Accepted,
		Rejected:        Cancelled,
		ApprovalExpired: Cancelled,
	},
	Accepted: {
		Claimed:         Executing, // committed before any byte leaves
		CancelRequested: Cancelled,
		DeadlinePassed:  FailedFinal,
		InputRejected:   FailedFinal,
		LedgerMoved:     OutcomeUnknown,
	},
	Executing: {
		ProviderAccepted: Succeeded,
		ProviderRefused:  FailedFinal,     // the same bytes will be refused again
		NotSent:          FailedRetryable, // the provider did not act on it
		NoAnswer:         OutcomeUnknown,  // bytes left: look up before resending
		LeaseExpired:     OutcomeUnknown,
	},
	FailedRetryable: {
		Claimed:         Executing,
		CancelRequested: Cancelled,
		DeadlinePassed:  FailedFinal,
		InputRejected:   FailedFinal,
		AttemptsUsed:    Exhausted,
		PinsDiffer:      NeedsReview,
		LedgerMoved:     OutcomeUnknown,
		Contradicted:    NeedsReview, // an older attempt turns out to have happened
	},
	OutcomeUnknown: {
		ProviderAccepted:   Succeeded,       // its own late answer
		ProviderRefused:    FailedFinal,     // its own late answer
		NotSent:            FailedRetryable, // its own late proof
		LookupFound:        Succeeded,
		LookupFoundRefused: FailedFinal,
		ProvenAbsent:       FailedRetryable,
		NotProven:          NeedsReview,
		Contradicted:       NeedsReview,
	},
	NeedsReview: {
		ProviderAccepted:  Succeeded, // the unknown attempt's own late answer
		ResolvedSucceeded: Succeeded,
		ResolvedFailed:    FailedFinal,
		ResolvedNotRun:    FailedRetryable,
	},
	Exhausted: {
		Replayed:     FailedRetryable,
		Superseded:   Exhausted, // closed: its outbox row goes, nobody can replay it
		Contradicted: NeedsReview,
	},
}

// recordedOnly are the events that leave the state as it is, whatever it is.
var recordedOnly = []Event{
	LateAnswer, Probed, Resent, ReviewOpened, ReviewClaimed, ReviewReleased, FollowOnsCreated, FollowOnRejected, Noted,
}

// Next returns the state that follows s on e, and false when e cannot happen in s. What
// is only recorded can happen in any state, and leaves it.
func (s State) Next(e Event) (State, bool) {
	if slices.Contains(recordedOnly, e) {
		return s, true
	}
	to, ok := next[s][e]
	return to, ok
}

// Terminal reports whether no event leaves s.
func (s State) Terminal() bool { return len(next[s]) == 0 }
