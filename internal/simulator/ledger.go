package simulator

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"
)

// Effect is one thing that happened: one charge, one accepted mail. Treat what its
// maps and slices point to as read-only.
type Effect struct {
	// Seq counts effects of all services from 1, in the order in which they happened.
	Seq int `json:"seq"`
	// Service is one of Services().
	Service string `json:"service"`
	// Reference is the key, the body's reference, or the Message-ID's local part.
	Reference string `json:"reference"`
	// ProviderID is unique and starts with ch_, re_, sh_, bk_ or ma_.
	ProviderID string `json:"provider_id"`
	// At is when, on the simulator's clock.
	At time.Time `json:"at"`
	// Request tells which request for the reference caused it, from 1.
	Request int `json:"request"`
	// Fields is the body of an HTTP request; numbers are json.Number.
	Fields map[string]any `json:"fields,omitempty"`
	// Mail is the message, for the service Mail.
	Mail *Message `json:"mail,omitempty"`
}

// Message is an accepted mail.
type Message struct {
	From   string              `json:"from"`
	To     []string            `json:"to"`
	Header map[string][]string `json:"header"`
	// Body is exact in Go; in JSON, what is not UTF-8 is replaced.
	Body string `json:"body"`
}

// Field is a top-level member of the request as text, "" when there is none.
func (e Effect) Field(name string) string {
	if v, ok := e.Fields[name]; ok {
		return fmt.Sprint(v)
	}
	return ""
}

// target is what is counted.
type target struct{ service, reference string }

type tally struct {
	effects                 []int // where in ledger.effects
	requests, lookups, held int
}

// ledger is everything that the simulator knows, behind one lock.
type ledger struct {
	mu sync.Mutex
	// version moves with every change, and changed is closed and replaced.
	version uint64
	changed chan struct{}

	effects    []Effect
	tallies    map[target]*tally
	totals     map[string]*Totals
	recipients map[string]int // RCPT commands per address
	keys       map[target]*keyEntry
	decoys     int

	script     []*scripted
	fired      map[Kind]int
	holds      []*hold
	behaviours map[string]Behaviour

	seed       uint64
	offset     time.Duration // of the simulator's clock
	journal    *journal
	journalErr error
}

// keyEntry is what a service remembers of a key.
type keyEntry struct {
	digest  [sha256.Size]byte
	used    time.Time
	running bool
	answer  answer
}

func newLedger(seed uint64) *ledger {
	l := &ledger{changed: make(chan struct{}), seed: seed, behaviours: map[string]Behaviour{}}
	l.empty()
	return l
}

// empty forgets everything but the keys of requests that still run: their effects are
// yet to come, and belong to what follows.
func (l *ledger) empty() {
	running := map[target]*keyEntry{}
	for t, k := range l.keys {
		if k.running {
			running[t] = k
		}
	}
	held := map[target]*tally{}
	for t, n := range l.tallies {
		if n.held > 0 {
			held[t] = &tally{held: n.held}
		}
	}
	l.effects, l.script, l.decoys = nil, nil, 0
	l.tallies, l.keys = held, running
	l.totals, l.recipients, l.fired = map[string]*Totals{}, map[string]int{}, map[Kind]int{}
	for _, s := range Services() {
		l.totals[s] = &Totals{}
	}
}

// now is the simulator's time. Call with the lock held.
func (l *ledger) now() time.Time { return time.Now().Add(l.offset) }

// touch tells everybody who waits that something changed. Call with the lock held.
func (l *ledger) touch() {
	l.version++
	close(l.changed)
	l.changed = make(chan struct{})
}

// tally of t. Call with the lock held.
func (l *ledger) tally(t target) *tally {
	n := l.tallies[t]
	if n == nil {
		n = &tally{}
		l.tallies[t] = n
	}
	return n
}

// verdict is what the key says about a request.
type verdict int

const (
	keyFresh   verdict = iota // execute
	keySaved                  // answer what is saved
	keyRunning                // the first request is still at it
	keyChanged                // known, with another body
)

// plan is what will become of a request, decided when it arrives.
type plan struct {
	target  target
	request int // nth for the reference
	verdict verdict
	saved   answer    // for keySaved
	entry   *keyEntry // for keyFresh, where keys are honoured
	fault   *Fault    // the one that decides, if any
	delay   time.Duration
	slow    time.Duration
}

// kind of the fault that decides, "" if none.
func (p plan) kind() Kind {
	if p.fault == nil {
		return ""
	}
	return p.fault.Kind
}

// gated tells that the request does not get as far as its key.
func (p plan) gated() bool { return p.fault != nil && p.fault.stage() == gate }

// arrive counts a request and decides everything about it in one step, so that of two
// requests with one key exactly one is fresh. Mail has no keys.
func (l *ledger) arrive(t target, digest [sha256.Size]byte, recipients []string) plan {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.touch()

	n := l.tally(t)
	n.requests++
	l.totals[t.service].Requests++

	p := plan{target: t, request: n.requests}
	honour := t.service != Mail && l.behaviours[t.service].Keys != Ignore
	if honour {
		p.verdict, p.saved = l.lookKey(t, digest)
	}
	l.choose(&p, moment{target: t, on: OnCreate, nth: n.requests, recipients: recipients})
	if honour && p.verdict == keyFresh && !p.gated() {
		p.entry = &keyEntry{digest: digest, used: l.now(), running: true}
		l.keys[t] = p.entry
	}
	return p
}

func (l *ledger) lookKey(t target, digest [sha256.Size]byte) (verdict, answer) {
	k := l.keys[t]
	memory := l.behaviours[t.service].Memory
	switch {
	case k == nil, !k.running && memory > 0 && l.now().Sub(k.used) >= memory:
		return keyFresh, answer{}
	case k.digest != digest:
		return keyChanged, answer{}
	case k.running:
		return keyRunning, answer{}
	}
	return keySaved, k.answer
}

// countRejected counts a request that was too malformed to have a plan.
func (l *ledger) countRejected(t target) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally(t).requests++
	l.totals[t.service].Requests++
	l.touch()
}

// record has the effect: it is in the ledger and the journal, and its answer is saved
// under the key, before this returns. It never looks whether there is one already.
func (l *ledger) record(p plan, e Effect) (Effect, answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.touch()

	e.Seq, e.At, e.Request = len(l.effects)+1, l.now(), p.request
	e.Service, e.Reference = p.target.service, p.target.reference
	e.ProviderID = idPrefixes[e.Service] + rand.Text()
	l.count(e)

	a := successAnswer(e)
	if p.kind() == ErrorAfter && l.behaviours[e.Service].SaveErrors {
		a = p.fault.errorAfterAnswer()
	}
	l.save(p.entry, a)
	if l.journal != nil && l.journalErr == nil {
		l.journalErr = l.journal.append(e, p.entry)
	}
	return e, a
}

// count adds e to the ledger. Call with the lock held.
func (l *ledger) count(e Effect) {
	n, sum := l.tally(target{e.Service, e.Reference}), l.totals[e.Service]
	n.effects = append(n.effects, len(l.effects))
	l.effects = append(l.effects, e)
	sum.Effects++
	switch len(n.effects) {
	case 1:
		sum.References++
	case 2:
		sum.Duplicates++
	}
}

// refuse saves a final refusal under the key.
func (l *ledger) refuse(p plan, a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.touch()
	l.save(p.entry, a)
}

func (l *ledger) save(k *keyEntry, a answer) {
	if k != nil {
		k.answer, k.running = a, false
	}
}

// abandon forgets the key of a request that the server's end interrupted.
func (l *ledger) abandon(p plan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.entry != nil && l.keys[p.target] == p.entry {
		delete(l.keys, p.target)
	}
}

// lookup counts a lookup and returns what it may see: effects of the reference that are
// older than the lag.
func (l *ledger) lookup(t target) (plan, []Effect) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.touch()
	p := l.planLookup(t)
	until := l.now().Add(-l.behaviours[t.service].LookupLag)
	found := []Effect{}
	for _, i := range l.tally(t).effects {
		if e := l.effects[i]; !e.At.After(until) {
			found = append(found, e)
		}
	}
	return p, found
}

// lookupID is a lookup without lag.
func (l *ledger) lookupID(service, id string) (plan, []Effect) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.touch()
	found := l.selectEffects(func(e Effect) bool { return e.Service == service && e.ProviderID == id })
	t := target{service: service}
	if len(found) > 0 {
		t.reference = found[0].Reference
	}
	return l.planLookup(t), found
}

func (l *ledger) planLookup(t target) plan {
	n := l.tally(t)
	n.lookups++
	l.totals[t.service].Lookups++
	p := plan{target: t, request: n.lookups}
	l.choose(&p, moment{target: t, on: OnLookup, nth: n.lookups})
	return p
}

func (l *ledger) selectEffects(want func(Effect) bool) []Effect {
	found := []Effect{}
	for _, e := range l.effects {
		if want(e) {
			found = append(found, e)
		}
	}
	return found
}

var idPrefixes = map[string]string{Charges: "ch_", Refunds: "re_", Shipments: "sh_", Bookings: "bk_", Mail: "ma_"}

// resource is the effect as the provider shows it: the request, echoed, under the
// provider's own members.
func (e Effect) resource() map[string]any {
	r := map[string]any{}
	maps.Copy(r, e.Fields)
	r["id"] = e.ProviderID
	r["object"] = e.Service
	r["status"] = "succeeded"
	r["reference"] = e.Reference
	r["created"] = json.Number(fmt.Sprint(e.At.Unix()))
	return r
}
