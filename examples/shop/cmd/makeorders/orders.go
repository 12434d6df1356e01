package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/outbox-worker/outbox-worker/examples/shop"
)

// distinct is how many different orders there are, before repeats and conflicts.
const distinct = 288

// orders are all lines of the file.
func orders() []byte {
	r := random(1042)
	numbers := map[string]int{}
	list := make([]shop.Order, 0, distinct)
	for i := range distinct {
		front := big
		if i%2 == 1 {
			front = small[i/2%len(small)]
		}
		numbers[front.name]++
		list = append(list, draw(&r, front, numbers[front.name]))
	}
	for i, odd := range oddities {
		// Spread over the file, over the big storefront's places, which are even.
		odd(&list[2+i*2*(distinct/2/len(oddities))])
	}
	lines := make([][]byte, len(list))
	for i := range list {
		price(&list[i])
		lines[i] = spell(list[i])
	}
	return bytes.Join(withAgain(list, lines), nil)
}

// draw makes an ordinary order, the nth of the storefront. Regions, people and
// currencies take turns, so that all of them occur.
func draw(r *random, front storefront, n int) shop.Order {
	from, turn := front.regions[n%len(front.regions)], n/len(front.regions)
	who := from.people[turn%len(from.people)]
	o := shop.Order{
		Storefront: front.name,
		ID:         strconv.Itoa(1000 + n),
		Customer:   fmt.Sprintf("c_%d", 1+r.below(900)),
		Name:       who.name,
		Email:      who.mailbox + "@" + pick(r, from.domains),
		Currency:   from.currencies[turn%len(from.currencies)],
	}
	shelf := goods
	if r.oneIn(4) {
		shelf = goods[firstDigital:]
	}
	money := currencies[o.Currency]
	for range 1 + r.below(4) {
		a := pick(r, shelf)
		if slices.ContainsFunc(o.Lines, func(l shop.Line) bool { return l.SKU == a.sku }) {
			continue
		}
		o.Lines = append(o.Lines, line(a, money, 1+int64(r.below(3))))
	}
	if total(o) == 0 { // nothing but a free sample
		o.Lines = append(o.Lines, line(goods[0], money, 1))
	}
	if parcel(o) {
		o.Shipping = money.price(int64(pick(r, []int{0, 450, 590, 1200})))
		o.Address = address(r, from)
		if r.oneIn(4) {
			o.GiftNote = pick(r, giftNotes)
		}
	}
	o.Description = fmt.Sprintf("Order at %s: %s", front.name, o.Lines[0].Title)
	if n := len(o.Lines) - 1; n > 0 {
		o.Description += fmt.Sprintf(" (and %d more)", n)
	}
	return o
}

func line(a article, money currency, quantity int64) shop.Line {
	return shop.Line{SKU: a.sku, Title: a.title, Quantity: quantity, UnitPrice: money.price(a.cents), Digital: a.digital}
}

func address(r *random, from region) *shop.Address {
	p := pick(r, from.places)
	a := shop.Address{City: p.city, Region: p.region, Postcode: p.postcode, Country: from.country}
	for _, l := range p.lines {
		a.Lines = append(a.Lines, strings.ReplaceAll(l, "#", strconv.Itoa(1+r.below(240))))
	}
	return &a
}

func total(o shop.Order) int64 {
	sum := o.Shipping
	for _, l := range o.Lines {
		sum += l.Quantity * l.UnitPrice
	}
	return sum
}

func price(o *shop.Order) { o.Amount = total(*o) }

func parcel(o shop.Order) bool {
	return slices.ContainsFunc(o.Lines, func(l shop.Line) bool { return !l.Digital })
}

// spell is the order on a line of its own, as a browser would send it.
func spell(o shop.Order) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(o); err != nil {
		panic(err) // strings and integers
	}
	return b.Bytes()
}
