package shop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
)

// Totals are the effects that a file of orders must have, whatever goes wrong on the
// way.
type Totals struct {
	Orders    int `json:"orders"`    // lines of the file
	Intents   int `json:"intents"`   // charges, shipments and receipts
	Charges   int `json:"charges"`   // one per order number of a storefront
	Shipments int `json:"shipments"` // one per charge, unless all is digital
	Receipts  int `json:"receipts"`  // one per charge
	Repeats   int `json:"repeats"`   // lines that say the same again
	Conflicts int `json:"conflicts"` // lines that say something else under the same number
}

// Expected are the totals of Orders.
func Expected() Totals {
	t, err := ExpectedOf(bytes.NewReader(Orders))
	if err != nil {
		panic(err) // the file is embedded and tested
	}
	return t
}

// ExpectedOf counts what must come of orders that are all valid and posted once. It
// reads them as plain JSON and shares no code with the shop or the worker, so that no
// mistake can be on both sides of a comparison.
func ExpectedOf(orders io.Reader) (t Totals, _ error) {
	type number struct{ storefront, id any }
	first := map[number]any{}
	lines := bufio.NewScanner(orders)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var order map[string]any
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.UseNumber()
		if err := d.Decode(&order); err != nil {
			return t, fmt.Errorf("shop: order %d: %w", t.Orders+1, err)
		}
		t.Orders++
		n := number{order["storefront"], order["order_id"]}
		switch before, known := first[n]; {
		case !known:
			first[n] = order
			t.Charges++
			t.Receipts++
			if hasParcel(order) {
				t.Shipments++
			}
		case reflect.DeepEqual(before, any(order)):
			t.Repeats++
		default:
			t.Conflicts++
		}
	}
	t.Intents = t.Charges + t.Shipments + t.Receipts
	if err := lines.Err(); err != nil {
		return t, fmt.Errorf("shop: read orders: %w", err)
	}
	return t, nil
}

func hasParcel(order map[string]any) bool {
	lines, _ := order["lines"].([]any)
	for _, l := range lines {
		if line, _ := l.(map[string]any); line["digital"] != true {
			return true
		}
	}
	return false
}
