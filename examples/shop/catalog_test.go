package shop_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/examples/shop"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

func (b *testBundle) revisions() map[string]*catalog.Revision {
	b.t.Helper()
	all, err := catalog.Load(b.t.Context(), b.db)
	if err != nil {
		b.t.Fatal(err)
	}
	byOperation := map[string]*catalog.Revision{}
	for _, r := range all {
		byOperation[r.Operation] = r
	}
	return byOperation
}

// followOns are what the worker would create after the charge, by name; each is checked
// against its operation's schema, as the worker checks it.
func (b *testBundle) followOns(revisions map[string]*catalog.Revision, o shop.Order) map[string]map[string]any {
	b.t.Helper()
	payload, err := json.Marshal(o)
	if err != nil {
		b.t.Fatal(err)
	}
	charge := revisions["charge_card.v1"]
	if err := charge.CheckInput(payload); err != nil {
		b.t.Fatalf("order %s %s: %v", o.Storefront, o.ID, err)
	}
	list, err := charge.FollowOns(b.t.Context(), catalog.Parent{
		Intent:  catalog.ParentIntent{Reference: "0123456789abcdefghijklmnopqrstuv", Tenant: o.Storefront, Subject: o.Customer, Payload: payload},
		Outcome: catalog.ParentOutcome{SettledAt: time.Unix(1_900_000_000, 0)},
	})
	if err != nil {
		b.t.Fatalf("order %s %s: %v", o.Storefront, o.ID, err)
	}
	byName := map[string]map[string]any{}
	for _, f := range list {
		if err := revisions[f.Operation].CheckInput(f.Payload); err != nil {
			b.t.Errorf("order %s %s: %s: %v", o.Storefront, o.ID, f.Name, err)
		}
		var members map[string]any
		if err := json.Unmarshal(f.Payload, &members); err != nil {
			b.t.Fatal(err)
		}
		byName[f.Name] = members
	}
	return byName
}

// Every order of the file, whether posted first or again, satisfies the catalog's
// schema, and so do its follow-ons. Together they are what Expected says.
func TestOrdersFitTheCatalog(t *testing.T) {
	b := setup(t)
	revisions := b.revisions()
	want := shop.Expected()
	seen := map[string]bool{}
	var shipments, receipts int
	for line := range bytes.Lines(shop.Orders) {
		var o shop.Order
		if err := json.Unmarshal(line, &o); err != nil {
			t.Fatal(err)
		}
		rendered := b.followOns(revisions, o)
		if seen[o.Storefront+" "+o.ID] {
			continue
		}
		seen[o.Storefront+" "+o.ID] = true
		if s := rendered["shipment"]; s != nil {
			shipments++
			if _, given := s["amount"]; given || s["address"] == nil {
				t.Errorf("order %s %s ships %v", o.Storefront, o.ID, s)
			}
		}
		if rendered["receipt"]["to"] == o.Email {
			receipts++
		}
	}
	if len(seen) != want.Charges || shipments != want.Shipments || receipts != want.Receipts {
		t.Errorf("%d charges, %d shipments, %d receipts; want %+v", len(seen), shipments, receipts, want)
	}
}

func TestAReceiptAndAShipmentFollow(t *testing.T) {
	b := setup(t)
	got := b.followOns(b.revisions(), order(func(o *shop.Order) { o.GiftNote = "🎁" }))
	receipt, shipment := got["receipt"], got["shipment"]
	const text = `Dear Zoë d’Aÿ,

thank you for your order. We have charged your card.

2 × Notebook A5: 20.00
1 × Typeface: 15.00
Shipping: 5.00
Total: 40.00 EUR

Reference: 0123456789abcdefghijklmnopqrstuv
`
	if receipt["text"] != text || receipt["subject"] != "Your order 1042" || receipt["reply_to"] != "orders@meridian.example" {
		t.Errorf("receipt: %v", receipt)
	}
	items, _ := json.Marshal(shipment["items"])
	if string(items) != `[{"quantity":2,"sku":"NB-A5-DOT","title":"Notebook A5"}]` || shipment["gift_note"] != "🎁" {
		t.Errorf("shipment: %v", shipment)
	}
}

func TestADigitalOrderHasNoShipment(t *testing.T) {
	b := setup(t)
	got := b.followOns(b.revisions(), order(digitalOnly))
	if got["shipment"] != nil || got["receipt"] == nil {
		t.Errorf("got %v", got)
	}
}

// The catalog has its own idea of titles and minor units; both must be the shop's.
func TestReceiptsShowMoneyAsTheShopDoes(t *testing.T) {
	b := setup(t)
	revisions := b.revisions()
	type sum struct {
		amount   int64
		currency string
	}
	want := map[sum]string{
		{1, "JPY"}: "1", {999_999_999_999, "VND"}: "999999999999", {600, "XAF"}: "600",
		{1, "EUR"}: "0.01", {10, "EUR"}: "0.10", {100, "USD"}: "1.00", {5_000, "HUF"}: "50.00",
		{9, "KWD"}: "0.009", {12_345, "BHD"}: "12.345",
		{1, "CLF"}: "0.0001", {123_456, "UYW"}: "12.3456",
	}
	for currency := range shop.MinorUnits {
		want[sum{7, currency}] = "" // whatever the shop says
	}
	for s, shown := range want {
		o := order(digitalOnly, func(o *shop.Order) { o.Currency, o.Amount, o.Lines[0].UnitPrice = s.currency, s.amount, s.amount })
		o.ID = fmt.Sprint(s.currency, s.amount)
		total := b.post(o).Total
		if shown != "" && total != shown+" "+s.currency {
			t.Errorf("%d %s: the shop says %q", s.amount, s.currency, total)
		}
		text, _ := b.followOns(revisions, o)["receipt"]["text"].(string)
		if line := "\nTotal: " + total + "\n"; !strings.Contains(text, line) {
			t.Errorf("%d %s: want %q in %q", s.amount, s.currency, line, text)
		}
	}
	for _, name := range shop.Storefronts {
		got := b.followOns(revisions, order(func(o *shop.Order) { o.Storefront = name }))["receipt"]["from_name"]
		if title, _ := got.(string); title == "" {
			t.Errorf("%s has no title in the catalog", name)
		}
	}
}

// The schema refuses what the shop refuses, for callers that enqueue without the shop.
func TestTheSchemaWantsAnAddressForAParcel(t *testing.T) {
	b := setup(t)
	payload, err := json.Marshal(order(func(o *shop.Order) { o.Address = nil }))
	if err != nil {
		t.Fatal(err)
	}
	err = b.revisions()["charge_card.v1"].CheckInput(payload)
	if refused, ok := errors.AsType[*catalog.InputError](err); !ok || refused.Path != "/address" {
		t.Errorf("got %v", err)
	}
}
