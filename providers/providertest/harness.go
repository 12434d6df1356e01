package providertest

import (
	"context"
	"errors"

	"github.com/outbox-worker/outbox-worker/providers"
)

// Fault is something that goes wrong between an adapter and its server.
type Fault string

const (
	// CutShort: the connection dies while the request arrives. No effect.
	CutShort Fault = "cut_short"
	// LoseBefore: the connection dies when the whole request has arrived. No effect.
	LoseBefore Fault = "lose_before"
	// LoseAfter: the effect happens, then the connection dies without an answer.
	LoseAfter Fault = "lose_after"
	// Silence: the effect happens, and no answer comes until the client leaves.
	Silence Fault = "silence"
	// LateEffect: the effect happens about half a second after the request has arrived,
	// whether or not the client still waits.
	LateEffect Fault = "late_effect"
	// ErrorAfter: the effect happens, then the provider answers with an internal error.
	ErrorAfter Fault = "error_after"
	// Garbage: the effect happens, then the answer is success in form and unreadable.
	Garbage Fault = "garbage"
	// Redirect: the answer sends the client elsewhere, to something that looks like
	// success. No effect.
	Redirect Fault = "redirect"
	// Refuse: the provider refuses for good, in its own words. No effect.
	Refuse Fault = "refuse"
	// Defer: the provider refuses for now. No effect.
	Defer Fault = "defer"
	// Throttle: the provider asks the account to slow down and says how long, in the way
	// that its documentation calls proof that nothing was begun. No effect.
	Throttle Fault = "throttle"
	// Unauthorized: the provider refuses our credentials. No effect.
	Unauthorized Fault = "unauthorized"
	// InProgress: the provider says that a request with this key is running. No effect of
	// this request.
	InProgress Fault = "in_progress"
	// LookupError: lookups are answered with an error, or garbage, or not at all.
	LookupError Fault = "lookup_error"
	// LookupSilence: lookups are not answered until the client leaves.
	LookupSilence Fault = "lookup_silence"
)

// Harness is an adapter, its server, and what the suite has to know about both. Run asks
// for a fresh one per claim. All functions are safe for concurrent use.
type Harness struct {
	// New makes a provider for the server. Each call is like a restarted worker: the same
	// settings, no memory. Required.
	New func() providers.Provider
	// Unreachable makes a provider with the same settings but for the server's address, at
	// which nothing accepts connections. Required.
	Unreachable func() providers.Provider
	// Intent makes the n-th valid intent, alike on every call, no two with one reference.
	// Required.
	Intent func(n int) providers.Intent
	// Other changes what an intent asks for and keeps its reference: another amount. Without
	// it nothing is tested about conflicts.
	Other func(in providers.Intent) providers.Intent
	// Invalid are intents that Prepare has to refuse. At least one.
	Invalid []providers.Intent
	// Inject makes the server do f to every request for a reference from now on. It
	// reports false where the protocol has no such fault. Required.
	Inject func(f Fault, reference string) bool
	// Effects is how often what a reference asks for has happened; with reference "", how
	// often anything has. It must be counted at the server, before it answers. Required.
	Effects func(reference string) int
	// Requests is how many requests that could cause it have reached the server; with
	// reference "", how many that could cause anything. Required.
	Requests func(reference string) int
	// Await blocks until the server has counted so many requests and effects, or ctx ends.
	// Required.
	Await func(ctx context.Context, reference string, requests, effects int) error
	// ProviderID is the server's name for the effect; "" compares nothing. Optional.
	ProviderID func(reference string) string
}

func (h *Harness) validate() error {
	switch {
	case h.New == nil || h.Unreachable == nil || h.Intent == nil:
		return errors.New("harness: New, Unreachable and Intent are required")
	case h.Inject == nil || h.Effects == nil || h.Requests == nil || h.Await == nil:
		return errors.New("harness: Inject, Effects, Requests and Await are required")
	case len(h.Invalid) == 0:
		return errors.New("harness: give at least one Invalid intent")
	}
	return nil
}
