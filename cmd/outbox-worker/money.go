package main

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
)

// purse sums up what intents are about, by currency. Amounts are as the payloads have
// them: minor units or decimals, by the operation; the catalog's currency keeps them
// apart.
type purse struct {
	sums    map[string]*pile
	without int // intents whose catalog names no amount, or whose payload has none
}

type pile struct {
	sum     big.Rat
	decimal int
	intents int
}

// add adds an amount in decimal; "" is none.
func (p *purse) add(amount, currency string) {
	var r big.Rat
	if _, ok := r.SetString(amount); !ok {
		p.without++
		return
	}
	if p.sums == nil {
		p.sums = map[string]*pile{}
	}
	s := p.sums[currency]
	if s == nil {
		s = &pile{}
		p.sums[currency] = s
	}
	s.sum.Add(&s.sum, &r)
	s.intents++
	_, fraction, _ := strings.Cut(amount, ".")
	s.decimal = max(s.decimal, len(fraction))
}

// money is the sum in one currency.
type money struct {
	Currency string `json:"currency"`
	Amount   string `json:"amount"`
	Intents  int    `json:"intents"`
}

func (p *purse) list() []money {
	all := []money{}
	for _, currency := range slices.Sorted(maps.Keys(p.sums)) {
		s := p.sums[currency]
		all = append(all, money{currency, s.sum.FloatString(s.decimal), s.intents})
	}
	return all
}

// text is short enough for a cell: 2400 EUR, 30 USD.
func (p *purse) text() string {
	var parts []string
	for _, m := range p.list() {
		parts = append(parts, strings.TrimSpace(m.Amount+" "+m.Currency))
	}
	return strings.Join(parts, ", ")
}

// sentence says how many intents the sums are of.
func (p *purse) sentence() string {
	var parts []string
	for _, m := range p.list() {
		parts = append(parts, fmt.Sprintf("%s in %s", strings.TrimSpace(m.Amount+" "+m.Currency), count(m.Intents, "intent")))
	}
	if p.without > 0 {
		parts = append(parts, fmt.Sprintf("no amount in %s", count(p.without, "intent")))
	}
	return strings.Join(parts, ", ")
}
