package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/outbox-worker/outbox-worker/examples/shop"
)

// again is an order that is posted a second time.
type again struct {
	of    int // which of the distinct ones
	after int // follows this one; the same one is a double click
	how   func(shop.Order) []byte
}

// agains are in the order in which they are posted. Order 40 comes back with another
// amount and then as it was: the first amount counts.
var agains = []again{
	{3, 3, spell},
	{10, 10, spell},
	{40, 41, with(pennyMore)},
	{40, 60, spell},
	{17, 99, respelled},
	{88, 120, with(twice)},
	{88, 121, spell},
	{131, 132, escaped},
	{101, 180, spell},
	{150, 200, with(moved)},
	{33, 260, respelled},
	{251, 270, with(pennyMore)},
	{6, 287, spell},
}

// withAgain puts what comes again between the lines.
func withAgain(list []shop.Order, lines [][]byte) [][]byte {
	var all [][]byte
	for i, l := range lines {
		all = append(all, l)
		for _, a := range agains {
			if a.after == i {
				all = append(all, a.how(list[a.of]))
			}
		}
	}
	return all
}

func with(change func(*shop.Order)) func(shop.Order) []byte {
	return func(o shop.Order) []byte {
		o.Lines = slices.Clone(o.Lines)
		change(&o)
		price(&o)
		return spell(o)
	}
}

func pennyMore(o *shop.Order) { o.Lines[0].UnitPrice++ }

func twice(o *shop.Order) { o.Lines[0].Quantity *= 2 }

// moved has the amount as it was, and another address.
func moved(o *shop.Order) {
	a := *o.Address
	a.Lines = append([]string{"c/o Neighbour"}, a.Lines...)
	o.Address = &a
}

// respelled says the same with members in another order and other white space.
func respelled(o shop.Order) []byte {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(spell(o), &members); err != nil {
		panic(err)
	}
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	slices.Reverse(names)
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%q :\t%s", name, members[name])
	}
	return []byte("{ " + strings.Join(parts, ",  ") + " }\n")
}

// escaped says the same in ASCII, as old clients do: characters beyond it as \u pairs.
func escaped(o shop.Order) []byte {
	var b bytes.Buffer
	for _, r := range string(spell(o)) {
		switch {
		case r < 0x80:
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04X\u%04X`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		}
	}
	return b.Bytes()
}
