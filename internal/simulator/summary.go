package simulator

import (
	"cmp"
	"maps"
	"slices"
)

// Duplicate is a reference with more than one effect.
type Duplicate struct {
	Service   string `json:"service"`
	Reference string `json:"reference"`
	Effects   int    `json:"effects"`
}

// Totals are the counts of one service.
type Totals struct {
	// Effects that happened.
	Effects int `json:"effects"`
	// References with at least one effect.
	References int `json:"references"`
	// Duplicates are references with more than one.
	Duplicates int `json:"duplicates"`
	// Requests received to create something, whatever came of them.
	Requests int `json:"requests"`
	// Lookups received, by reference or id.
	Lookups int `json:"lookups"`
}

// Summary is what the simulator counted, for people and for other processes.
type Summary struct {
	Services   map[string]Totals `json:"services"`
	Duplicates []Duplicate       `json:"duplicates"`
	// FaultsFired counts by kind.
	FaultsFired map[Kind]int `json:"faults_fired"`
	// RedirectsFollowed counts requests for the default location of Redirect: clients
	// that took a redirect's target for an answer.
	RedirectsFollowed int `json:"redirects_followed"`
	// MailDown tells that the SMTP server refuses connections.
	MailDown bool `json:"mail_down"`
	// JournalError says why the journal is no longer written, if so.
	JournalError string `json:"journal_error,omitempty"`
}

func (l *ledger) summary() Summary {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Summary{
		Services: map[string]Totals{}, Duplicates: l.duplicates(),
		FaultsFired: maps.Clone(l.fired), RedirectsFollowed: l.decoys,
	}
	for name, t := range l.totals {
		s.Services[name] = *t
	}
	if l.journalErr != nil {
		s.JournalError = l.journalErr.Error()
	}
	return s
}

func (l *ledger) duplicates() []Duplicate {
	found := []Duplicate{}
	for t, n := range l.tallies {
		if len(n.effects) > 1 {
			found = append(found, Duplicate{t.service, t.reference, len(n.effects)})
		}
	}
	slices.SortFunc(found, func(a, b Duplicate) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Reference, b.Reference))
	})
	return found
}
