package shop_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/outbox-worker/outbox-worker/examples/shop"
)

func TestRefusedOrdersSayWhere(t *testing.T) {
	b := setup(t)
	for _, tt := range []struct {
		name   string
		change func(*shop.Order)
		path   string
	}{
		{"a storefront that is not ours", func(o *shop.Order) { o.Storefront = "elsewhere" }, "/storefront"},
		{"no number", func(o *shop.Order) { o.ID = "" }, "/order_id"},
		{"a number with a space", func(o *shop.Order) { o.ID = "10 42" }, "/order_id"},
		{"a number of 65 characters", func(o *shop.Order) { o.ID = strings.Repeat("1", 65) }, "/order_id"},
		{"a blank name", func(o *shop.Order) { o.Name = " \u00a0" }, "/name"},
		{"a name of 201 characters", func(o *shop.Order) { o.Name = strings.Repeat("𠮷", 201) }, "/name"},
		{"a name with a line end", func(o *shop.Order) { o.Name = "Zoë\r\nBcc: all" }, "/name"},
		{"no address to mail to", func(o *shop.Order) { o.Email = "zoe" }, "/email"},
		{"a mail domain beyond ASCII", func(o *shop.Order) { o.Email = "zoe@bücher.example" }, "/email"},
		{"65 characters before the @", func(o *shop.Order) { o.Email = strings.Repeat("z", 65) + "@example.com" }, "/email"},
		{"a mail header in the address", func(o *shop.Order) { o.Email = "zoe@example.com\nBcc: x@example.com" }, "/email"},
		{"a currency that is none", func(o *shop.Order) { o.Currency = "EURO" }, "/currency"},
		{"a currency of no country", func(o *shop.Order) { o.Currency = "XXX" }, "/currency"},
		{"nothing to charge", func(o *shop.Order) { o.Amount = 0 }, "/amount"},
		{"a negative amount", func(o *shop.Order) { o.Amount = -4000 }, "/amount"},
		{"a sum that does not add up", func(o *shop.Order) { o.Amount++ }, "/amount"},
		{"more than an order can cost", func(o *shop.Order) { o.Amount = 1_000_000_000_000 }, "/amount"},
		{"negative shipping", func(o *shop.Order) { o.Shipping = -1 }, "/shipping"},
		{"a description of 501 characters", func(o *shop.Order) { o.Description = strings.Repeat("ö", 501) }, "/description"},
		{"no lines", func(o *shop.Order) { o.Lines = nil }, "/lines"},
		{"101 lines", func(o *shop.Order) { o.Lines = make([]shop.Line, 101) }, "/lines"},
		{"none of something", func(o *shop.Order) { o.Lines[1].Quantity = 0 }, "/lines/1/quantity"},
		{"a negative price", func(o *shop.Order) { o.Lines[0].UnitPrice = -1 }, "/lines/0/unit_price"},
		{"an article without a number", func(o *shop.Order) { o.Lines[0].SKU = "" }, "/lines/0/sku"},
		{"a parcel without an address", func(o *shop.Order) { o.Address = nil }, "/address"},
		{"an address without a parcel", func(o *shop.Order) { a := o.Address; digitalOnly(o); o.Address = a }, "/address"},
		{"a country's name", func(o *shop.Order) { o.Address.Country = "France" }, "/address/country"},
		{"an address of seven lines", func(o *shop.Order) { o.Address.Lines = make([]string, 7) }, "/address/lines"},
		{"a gift note with a bell", func(o *shop.Order) { o.GiftNote = "ding\a" }, "/gift_note"},
	} {
		a := b.post(order(tt.change))
		if a.Status != http.StatusUnprocessableEntity || a.Error.Path != tt.path || a.Error.Message == "" {
			t.Errorf("%s: %d, path %q (%s), want %q", tt.name, a.Status, a.Error.Path, a.Error.Message, tt.path)
		}
	}
	b.wantRows(map[string]int{"shop.orders": 0, "outbox.intents": 0})
}

// What one reader takes for one order and another for another is refused, before
// anybody has to decide.
func TestAmbiguousBodiesAreRefused(t *testing.T) {
	b := setup(t)
	body, err := json.Marshal(order())
	if err != nil {
		t.Fatal(err)
	}
	good := string(body)
	for _, tt := range []struct {
		name, from, to string
		status         int
		path           string
	}{
		{"two amounts", `"amount":4000`, `"amount":4000,"amount":1`, 422, "/amount"},
		{"a second spelling of amount", `"amount":4000`, `"Amount":4000,"amount":4000`, 422, "/Amount"},
		{"an unknown member", `"amount":4000`, `"amount":4000,"discount":10`, 422, "/discount"},
		{"the ledger's own member", `"amount":4000`, `"amount":4000,"capture":false`, 422, "/capture"},
		{"an amount as text", `"amount":4000`, `"amount":"4000"`, 422, "/amount"},
		{"an amount with a point", `"amount":4000`, `"amount":4000.5`, 422, "/amount"},
		{"an amount beyond any integer", `"amount":4000`, `"amount":9223372036854775808`, 422, "/amount"},
		{"a line that is no object", `"lines":[`, `"lines":[7,`, 422, "/lines/0"},
		{"bytes that are no text", "Zoë", "Zo\xff", 400, "/name"},
		{"half a character", "Zoë", `Zo\ud83d`, 400, "/name"},
		{"a NUL", "Zoë", `Zo\u0000`, 422, "/name"},
		{"a comment", `{"storefront"`, `/* hi */ {"storefront"`, 400, ""},
		{"two orders", "\x00end", good, 400, ""},
		{"an order cut short", good[len(good)/2:] + "\x00end", "", 400, "*"},
		{"no body", good, "", 400, ""},
		{"an order in a list", good, "[" + good + "]", 422, ""},
		{"an order of 64 KiB", "Zoë", strings.Repeat(" ", 64<<10), 413, ""},
	} {
		bad := strings.TrimSuffix(strings.Replace(good+"\x00end", tt.from, tt.to, 1), "\x00end")
		a := b.do(http.MethodPost, "/orders", []byte(bad))
		if a.Status != tt.status || tt.path != "*" && a.Error.Path != tt.path || a.Error.Message == "" {
			t.Errorf("%s: %d %+v, want %d at %q", tt.name, a.Status, a.Error, tt.status, tt.path)
		}
	}
	b.wantRows(map[string]int{"shop.orders": 0, "outbox.intents": 0})
}

// What the ledger refuses is refused with its path, and leaves no order. A catalog with
// a smaller limit than the shop's stands for all its reasons.
func TestTheLedgersRefusalIsPassedOn(t *testing.T) {
	b := setup(t)
	b.exec("ALTER TABLE outbox.catalog DISABLE TRIGGER USER")
	b.exec("UPDATE outbox.catalog SET key_fields = '{\"{invoice}\"}' WHERE name = 'charge_card'")
	a := b.post(order())
	if a.Status != http.StatusUnprocessableEntity || a.Error.Code != "key_field_missing" || a.Error.Path != "/invoice" {
		t.Errorf("got %+v", a)
	}
	b.wantRows(map[string]int{"shop.orders": 0, "outbox.intents": 0})
}

func TestAnOrderShowsItsCharge(t *testing.T) {
	b := setup(t)
	o := order(func(o *shop.Order) {
		o.ID, o.GiftNote = "2031/12/07-A.1_b", "Für Oma 👵🏽\n– von allen"
	})
	placed := b.post(o)
	path := placed.Header.Get("Location")
	if want := "/orders/" + url.PathEscape(o.ID) + "?storefront=meridian"; path != want {
		t.Fatalf("Location is %q, want %q", path, want)
	}
	a := b.do(http.MethodGet, path, nil)
	if a.Status != http.StatusOK || a.Charge.State != "accepted" || a.Charge.Reference != placed.Charge.Reference || a.Total != "40.00 EUR" {
		t.Errorf("got %+v", a)
	}
	if a.Order == nil || !reflect.DeepEqual(*a.Order, o) {
		t.Errorf("the order comes back as %+v", a.Order)
	}
	b.settle(placed.Charge.Reference, "failed_final", "")
	if a := b.do(http.MethodGet, path, nil); a.Charge.State != "failed_final" || a.Charge.Code != "card_declined" {
		t.Errorf("after a refusal: %+v", a)
	}
}

func TestADigitalOrderNeedsNoAddress(t *testing.T) {
	b := setup(t)
	if a := b.post(order(digitalOnly)); a.Status != http.StatusCreated || a.Total != "15.00 EUR" {
		t.Fatalf("got %+v", a)
	}
	a := b.do(http.MethodGet, "/orders/1042?storefront=meridian", nil)
	if a.Order == nil || a.Order.Address != nil {
		t.Errorf("the order comes back as %+v", a.Order)
	}
}

func TestEveryAnswerIsJSON(t *testing.T) {
	b := setup(t)
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/", 404},
		{"GET", "/orders", 405},
		{"DELETE", "/orders/1042", 405},
		{"GET", "/orders/1042", 422},
		{"GET", "/orders/1042?storefront=elsewhere", 422},
		{"GET", "/orders/1042?storefront=fjord", 404},
		{"GET", "/orders/1%00?storefront=fjord", 404},
		{"GET", "/healthz", 200},
	} {
		a := b.do(tt.method, tt.path, nil) // fails the test if it is not JSON
		if a.Status != tt.status || tt.status != 200 && a.Error.Code == "" || a.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %d %+v, want %d", tt.method, tt.path, a.Status, a.Error, tt.status)
		}
	}
	b.exec("DROP SCHEMA outbox CASCADE")
	if a := b.do("GET", "/healthz", nil); a.Status != http.StatusServiceUnavailable {
		t.Errorf("without a ledger: %+v", a)
	}
}

func TestATraceGoesWithTheCharge(t *testing.T) {
	b := setup(t)
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for id, header := range map[string]string{"1": trace, "2": "rubbish"} {
		body, err := json.Marshal(order(func(o *shop.Order) { o.ID = id }))
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/orders", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Traceparent", header)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	if got := one[string](b, "SELECT string_agg(key || coalesce(trace, ''), ' ' ORDER BY key) FROM outbox.intents"); got != `["1"]`+trace+` ["2"]` {
		t.Errorf("traces are %s", got)
	}
}
