package shop

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Order is what a customer posts, and the payload of charge_card.v1.
//
// It is the payload as it is, with nothing added: a value that the shop derived from
// its own settings (a storefront's title, a formatted total) could change with the next
// deployment, and then the customer's second click would be a conflict with the first.
// What is derived is derived once, in the catalog's follow-ons.
type Order struct {
	Storefront  string   `json:"storefront"` // the tenant
	ID          string   `json:"order_id"`   // unique in its storefront; the key of the charge
	Customer    string   `json:"customer"`
	Name        string   `json:"name"`
	Email       string   `json:"email"`
	Currency    string   `json:"currency"`
	Amount      int64    `json:"amount"` // minor units: lines plus shipping
	Shipping    int64    `json:"shipping,omitempty"`
	Description string   `json:"description"`
	Lines       []Line   `json:"lines"`
	Address     *Address `json:"address,omitempty"` // present if and only if something is sent by post
	GiftNote    string   `json:"gift_note,omitempty"`
}

// Line is one article of an order.
type Line struct {
	SKU       string `json:"sku"`
	Title     string `json:"title"`
	Quantity  int64  `json:"quantity"`
	UnitPrice int64  `json:"unit_price"` // minor units; zero for samples
	Digital   bool   `json:"digital,omitempty"`
}

// Address is where a parcel goes. Many countries have no postcode, and some no region.
type Address struct {
	Lines    []string `json:"lines"`
	City     string   `json:"city"`
	Region   string   `json:"region,omitempty"`
	Postcode string   `json:"postcode,omitempty"`
	Country  string   `json:"country"` // ISO 3166-1 alpha-2
}

// Storefronts are the shop's faces, and its tenants in the ledger. A caller cannot make
// up a new one: the tenant is part of every key.
var Storefronts = []string{"meridian", "fjord", "souk", "hanami", "andes"}

// Limits of an order; the catalog's schema has the same.
const (
	maxAmount   = 999_999_999_999
	maxQuantity = 9_999
	maxLines    = 100
	maxText     = 500 // descriptions and gift notes
	maxName     = 200
)

var (
	orderIDForm  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,63}$`)
	customerForm = regexp.MustCompile(`^c_[0-9a-z]{1,32}$`)
	skuForm      = regexp.MustCompile(`^[A-Z0-9][A-Z0-9-]{0,31}$`)
	countryForm  = regexp.MustCompile(`^[A-Z]{2}$`)

	// emailForm is an address that every mail server takes: a dotted local part, not
	// quoted, and a domain of several labels, in punycode if need be.
	emailForm = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*" +
		`@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])$`)
)

const (
	maxEmail     = 254
	maxLocalPart = 64
)

// check returns the first thing that is wrong with the order, in its own order, or nil.
// Enqueue knows nothing of the schema, so what is not refused here is found out by the
// worker, when the customer is gone.
func (o *Order) check() *Problem {
	var c checker
	c.that(known(o.Storefront), "/storefront", "is not one of %s", strings.Join(Storefronts, ", "))
	c.form(orderIDForm, o.ID, "/order_id", "takes 1 to 64 letters, digits, dots, slashes, hyphens and underscores")
	c.form(customerForm, o.Customer, "/customer", "is a customer id such as c_71")
	c.line(o.Name, maxName, "/name")
	c.that(validEmail(o.Email), "/email", "is not an address that mail can be sent to; write a domain beyond ASCII in punycode")
	_, priced := minorUnits[o.Currency]
	c.that(priced, "/currency", "is not a currency of ISO 4217")
	c.between(o.Amount, 1, maxAmount, "/amount")
	c.between(o.Shipping, 0, maxAmount, "/shipping")
	c.line(o.Description, maxText, "/description")
	c.between(int64(len(o.Lines)), 1, maxLines, "/lines")
	o.checkLines(&c)
	o.checkAddress(&c)
	c.text(o.GiftNote, maxText, "/gift_note")
	return c.problem
}

func (o *Order) checkLines(c *checker) {
	if c.problem != nil {
		return // the sum below cannot overflow within the limits only
	}
	sum := o.Shipping
	for i, l := range o.Lines {
		at := "/lines/" + strconv.Itoa(i)
		c.form(skuForm, l.SKU, at+"/sku", "takes 1 to 32 capital letters, digits and hyphens")
		c.line(l.Title, maxName, at+"/title")
		c.between(l.Quantity, 1, maxQuantity, at+"/quantity")
		c.between(l.UnitPrice, 0, maxAmount, at+"/unit_price")
		if c.problem != nil {
			return
		}
		sum += l.Quantity * l.UnitPrice
	}
	c.that(sum == o.Amount, "/amount", "is not the sum of lines and shipping")
}

func (o *Order) checkAddress(c *checker) {
	a := o.Address
	if a == nil {
		c.that(!o.ships(), "/address", "is needed: not everything is digital")
		return
	}
	c.that(o.ships(), "/address", "is not needed: everything is digital")
	c.between(int64(len(a.Lines)), 1, 6, "/address/lines")
	for i, l := range a.Lines {
		c.line(l, maxName, "/address/lines/"+strconv.Itoa(i))
	}
	c.line(a.City, maxName, "/address/city")
	c.optional(a.Region, maxName, "/address/region")
	c.optional(a.Postcode, 16, "/address/postcode")
	c.form(countryForm, a.Country, "/address/country", "is a country of ISO 3166-1 in two capitals")
}

// ships reports whether anything goes by post.
func (o *Order) ships() bool {
	for _, l := range o.Lines {
		if !l.Digital {
			return true
		}
	}
	return false
}

func known(storefront string) bool {
	for _, s := range Storefronts {
		if s == storefront {
			return true
		}
	}
	return false
}

func validEmail(email string) bool {
	at := strings.LastIndexByte(email, '@')
	return len(email) <= maxEmail && at <= maxLocalPart && emailForm.MatchString(email)
}

// checker keeps the first problem.
type checker struct{ problem *Problem }

func (c *checker) that(ok bool, path, message string, args ...any) {
	if !ok && c.problem == nil {
		c.problem = invalid(path, message, args...)
	}
}

func (c *checker) form(form *regexp.Regexp, s, path, message string) {
	c.that(form.MatchString(s), path, "%s", message)
}

func (c *checker) between(n, low, high int64, path string) {
	c.that(low <= n && n <= high, path, "must be between %d and %d", low, high)
}

// line is text without control characters that is not blank.
func (c *checker) line(s string, most int, path string) {
	c.that(strings.TrimSpace(s) != "", path, "must not be blank")
	c.optional(s, most, path)
}

func (c *checker) optional(s string, most int, path string) {
	c.that(!strings.ContainsFunc(s, unicode.IsControl), path, "must be one line without control characters")
	c.text(s, most, path)
}

// text may have several lines. Lengths are code points, as in JSON Schema.
func (c *checker) text(s string, most int, path string) {
	c.that(utf8.RuneCountInString(s) <= most, path, "must have at most %d characters", most)
	c.that(!strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) && r != '\n' }), path, "must not hold control characters")
}
