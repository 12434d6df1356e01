package simulator

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// scripted is a fault with what it has done.
type scripted struct {
	Fault Fault `json:"fault"`
	Fired int   `json:"fired"`
}

// moment is what a fault is matched against.
type moment struct {
	target     target
	on         string
	nth        int
	recipients []string
	atRcpt     bool
}

// choose walks the script in order: modifiers add up, the first other that fits
// decides. Call with the lock held.
func (l *ledger) choose(p *plan, m moment) {
	for i, s := range l.script {
		f := s.Fault
		if f.Count > 0 && s.Fired >= f.Count || !f.fits(m) || !f.strikes(p.verdict, m) {
			continue
		}
		if f.Probability > 0 && chance(cmp.Or(f.Seed, l.seed), i, m) >= f.Probability {
			continue
		}
		s.Fired++
		l.fired[f.Kind]++
		switch f.Kind {
		case Delay:
			p.delay += f.Duration
		case SlowBody:
			p.slow += f.Duration
		default:
			p.fault = &f
			return
		}
	}
}

// fits compares everything that a fault may name.
func (f Fault) fits(m moment) bool {
	t := traits[f.Kind]
	known := t.http
	if m.target.service == Mail {
		known = t.mail
	}
	return known &&
		(f.Service == "" || f.Service == m.target.service) &&
		(f.Reference == "" || f.Reference == m.target.reference) &&
		(f.Nth == 0 || f.Nth == m.nth) &&
		(f.Recipient == "" || slices.Contains(m.recipients, foldAddress(f.Recipient))) &&
		cmp.Or(f.On, OnCreate) == m.on &&
		(f.stage() == rcpt) == m.atRcpt
}

// strikes tells whether the request gets as far as the fault's stage.
func (f Fault) strikes(v verdict, m moment) bool {
	switch {
	case m.on == OnLookup, m.atRcpt:
		return true
	case f.stage() == execute:
		return v == keyFresh
	case f.stage() == after:
		return v == keyFresh || v == keySaved
	}
	return true
}

// chance is a number in [0,1) that depends on what is asked, not on when.
func chance(seed uint64, line int, m moment) float64 {
	h := sha256.New()
	fmt.Fprintf(h, "%d %d %s %q %d %t %q", seed, line, m.on, m.target, m.nth, m.atRcpt, m.recipients)
	return float64(binary.BigEndian.Uint64(h.Sum(nil))>>11) / (1 << 53)
}

// arriveRcpt counts a RCPT command and chooses its fault.
func (l *ledger) arriveRcpt(address string) *Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.touch()
	l.recipients[address]++
	p := plan{}
	l.choose(&p, moment{
		target: target{service: Mail}, on: OnCreate, nth: l.recipients[address],
		recipients: []string{address}, atRcpt: true,
	})
	return p.fault
}
