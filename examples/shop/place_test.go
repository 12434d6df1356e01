package shop_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/examples/shop"
)

func TestOrderAndIntentCommitTogether(t *testing.T) {
	b := setup(t)
	a := b.post(order())
	if a.Status != http.StatusCreated || a.Charge.State != "accepted" || a.Total != "40.00 EUR" || a.Repeated {
		t.Fatalf("got %+v", a)
	}
	b.wantRows(map[string]int{"shop.orders": 1, "shop.order_lines": 2, "outbox.intents": 1, "outbox.outbox": 1})
	if got := one[string](b, "SELECT charge FROM shop.orders"); got != a.Charge.Reference {
		t.Errorf("the order keeps %s, the answer says %s", got, a.Charge.Reference)
	}
	var payload map[string]any
	if err := json.Unmarshal([]byte(one[string](b, "SELECT payload::text FROM outbox.intents WHERE reference = $1", a.Charge.Reference)), &payload); err != nil {
		t.Fatal(err)
	}
	if payload["amount"] != 4000.0 || payload["capture"] != true {
		t.Errorf("the intent is to charge %v, capture %v", payload["amount"], payload["capture"])
	}
}

// A failure anywhere in the transaction leaves neither an order nor an intent; the
// trigger stands for whatever can go wrong there.
func TestNothingIsLeftOfAFailure(t *testing.T) {
	for _, tt := range []struct{ name, trigger string }{
		{"in the enqueue", "CREATE TRIGGER f BEFORE INSERT ON outbox.outbox FOR EACH ROW EXECUTE FUNCTION fail()"},
		{"in the order, after the enqueue", "CREATE TRIGGER f BEFORE INSERT ON shop.orders FOR EACH ROW EXECUTE FUNCTION fail()"},
		{"in the lines, after the order", "CREATE TRIGGER f AFTER INSERT ON shop.order_lines FOR EACH ROW EXECUTE FUNCTION fail()"},
		{"in the commit, after all of it", "CREATE CONSTRAINT TRIGGER f AFTER INSERT ON shop.orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail()"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := setup(t)
			b.exec(`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'out of luck'; END $$`)
			b.exec(tt.trigger)
			if a := b.post(order()); a.Status != http.StatusServiceUnavailable || a.Error.Code != "try_again" || a.Header.Get("Retry-After") == "" {
				t.Errorf("got %+v", a)
			}
			b.wantRows(map[string]int{"shop.orders": 0, "shop.order_lines": 0, "outbox.intents": 0, "outbox.outbox": 0})

			b.exec("DROP FUNCTION fail() CASCADE")
			if a := b.post(order()); a.Status != http.StatusCreated {
				t.Errorf("the same order afterwards: %+v", a)
			}
		})
	}
}

func TestARepeatGetsTheFirstResult(t *testing.T) {
	b := setup(t)
	first := b.post(order())
	second := b.post(order())
	if second.Status != http.StatusOK || !second.Repeated || second.Charge.Reference != first.Charge.Reference {
		t.Errorf("got %+v", second)
	}
	b.settle(first.Charge.Reference, "succeeded", "ch_1")
	third := b.post(order())
	if third.Status != http.StatusOK || third.Charge.State != "succeeded" || third.Charge.ChargeID != "ch_1" {
		t.Errorf("after the charge: %+v", third)
	}
	b.wantRows(map[string]int{"shop.orders": 1, "shop.order_lines": 2, "outbox.intents": 1, "outbox.repeats": 2})
}

// Browsers send members in any order and numbers of any spelling that means the same.
func TestARepeatMayBeSpelledDifferently(t *testing.T) {
	b := setup(t)
	b.post(order(digitalOnly))
	a := b.do(http.MethodPost, "/orders", []byte(`{"lines":[{"digital":true,"unit_price":1500,"title":"Typ\u0065face","sku":"FONT-SERIF","quantity":1}],
		"shipping": 0, "gift_note": "", "address": null, "description":"Two notebooks and a font", "amount":1500, "currency":"EUR",
		"email":"zoe@example.com", "name":"Zo\u00eb d\u2019A\u00ff", "customer":"c_71", "order_id":"1042", "storefront":"meridian"}`))
	if a.Status != http.StatusOK || !a.Repeated {
		t.Errorf("got %+v", a)
	}
	b.wantRows(map[string]int{"shop.orders": 1, "outbox.intents": 1})
}

func TestOfManyAtOnceOneIsPlaced(t *testing.T) {
	b := setup(t)
	var mu sync.Mutex
	statuses, references := map[int]int{}, map[string]int{}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			a := b.post(order())
			mu.Lock()
			defer mu.Unlock()
			statuses[a.Status]++
			references[a.Charge.Reference]++
		})
	}
	wg.Wait()
	if want := map[int]int{http.StatusCreated: 1, http.StatusOK: 19}; !reflect.DeepEqual(statuses, want) || len(references) != 1 {
		t.Errorf("got %v under %v, want %v under one reference", statuses, references, want)
	}
	b.wantRows(map[string]int{"shop.orders": 1, "shop.order_lines": 2, "outbox.intents": 1})
}

func TestAChangedOrderIsAConflict(t *testing.T) {
	b := setup(t)
	first := b.post(order())
	changed := b.post(order(pennyMore))
	if changed.Status != http.StatusConflict || changed.Error.Code != "order_differs" {
		t.Fatalf("got %+v", changed)
	}
	if want := []string{"/amount", "/lines/1/unit_price"}; !slices.Equal(changed.Error.Differs, want) {
		t.Errorf("differs in %v, want %v", changed.Error.Differs, want)
	}
	b.wantRows(map[string]int{"shop.orders": 1, "shop.order_lines": 2, "outbox.intents": 1})
	if got := one[int64](b, "SELECT amount FROM shop.orders"); got != 4000 {
		t.Errorf("the order costs %d now", got)
	}
	if got := one[string](b, "SELECT answer FROM outbox.repeats"); got != "conflict" {
		t.Errorf("the ledger noted %q", got)
	}
	if a := b.post(order()); a.Status != http.StatusOK || a.Charge.Reference != first.Charge.Reference {
		t.Errorf("the first order again: %+v", a)
	}
}

func TestStorefrontsCountForThemselves(t *testing.T) {
	b := setup(t)
	meridian := b.post(order())
	fjord := b.post(order(func(o *shop.Order) { o.Storefront = "fjord" }))
	if fjord.Status != http.StatusCreated || fjord.Charge.Reference == meridian.Charge.Reference {
		t.Errorf("got %+v", fjord)
	}
	b.wantRows(map[string]int{"shop.orders": 2, "outbox.intents": 2})
	if a := b.do(http.MethodGet, "/orders/1042?storefront=souk", nil); a.Status != http.StatusNotFound {
		t.Errorf("a third storefront sees %+v", a)
	}
}

// An order may outlive what the ledger knows of it: then there is no proof that it has
// not been charged, and it is not.
func TestAnOrderUnknownToTheLedgerIsNotChargedAnew(t *testing.T) {
	b := setup(t)
	b.post(order())
	b.exec("ALTER TABLE outbox.intents DISABLE TRIGGER USER")
	b.exec("DELETE FROM outbox.outbox")
	b.exec("DELETE FROM outbox.intents")
	a := b.post(order())
	if a.Status != http.StatusConflict || a.Error.Code != "order_exists" {
		t.Errorf("got %+v", a)
	}
	b.wantRows(map[string]int{"shop.orders": 1, "outbox.intents": 0})
	if a := b.do(http.MethodGet, "/orders/1042?storefront=meridian", nil); a.Status != http.StatusOK || a.Charge.State != "not_found" {
		t.Errorf("the order shows %+v", a)
	}
}

// The ledger remembers a key after the shop has deleted the order.
func TestADeletedOrderIsNotChargedAnew(t *testing.T) {
	b := setup(t)
	first := b.post(order())
	b.exec("DELETE FROM shop.order_lines")
	b.exec("DELETE FROM shop.orders")
	if a := b.post(order(pennyMore)); a.Status != http.StatusConflict {
		t.Errorf("a changed one: %+v", a)
	}
	b.wantRows(map[string]int{"shop.orders": 0})
	if a := b.post(order()); a.Status != http.StatusOK || a.Charge.Reference != first.Charge.Reference {
		t.Errorf("the same one: %+v", a)
	}
	b.wantRows(map[string]int{"shop.orders": 1, "shop.order_lines": 2, "outbox.intents": 1})
}

// The shop has the rights of outbox_app and on its own tables, and no others.
func TestTheShopNeedsFewRights(t *testing.T) {
	b := setup(t)
	b.exec("GRANT USAGE ON SCHEMA shop TO outbox_app")
	b.exec("GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA shop TO outbox_app")
	config := b.db.Config()
	config.ConnConfig.RuntimeParams["role"] = "outbox_app"
	app, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	if err := shop.Ready(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	for _, repeated := range []bool{false, true} {
		placed, err := shop.Place(t.Context(), app, order(), "")
		if err != nil || placed.Repeated != repeated {
			t.Fatalf("placed %+v: %v", placed, err)
		}
	}
	if _, charge, found, err := shop.Find(t.Context(), app, "meridian", "1042"); err != nil || !found || charge.State != "accepted" {
		t.Errorf("found %v, charge %+v: %v", found, charge, err)
	}
	if _, err := app.Exec(t.Context(), "SELECT * FROM outbox.intents"); err == nil {
		t.Error("the shop may read the ledger's tables")
	}
}

func TestManyInstancesStartAtOnce(t *testing.T) {
	b := setup(t)
	b.exec("DROP SCHEMA shop CASCADE")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := shop.Setup(t.Context(), b.db); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if a := b.post(order()); a.Status != http.StatusCreated {
		t.Errorf("got %+v", a)
	}
}

// settle stands for the worker.
func (b *testBundle) settle(reference, state, providerID string) {
	b.t.Helper()
	b.exec(`WITH gone AS (DELETE FROM outbox.outbox o USING outbox.intents i WHERE i.id = o.intent_id AND i.reference = $1 RETURNING o.intent_id)
		INSERT INTO outbox.outcomes (intent_id, attempt, state, provider_id, code)
		SELECT intent_id, 1, $2::outbox.state, nullif($3, ''), CASE WHEN $2 = 'failed_final' THEN 'card_declined' END FROM gone`, reference, state, providerID)
}
