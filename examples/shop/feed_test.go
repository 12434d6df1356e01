package shop_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/outbox-worker/outbox-worker/examples/shop"
)

func TestTheWholeFile(t *testing.T) {
	b := setup(t)
	want := shop.Expected()
	sum, err := shop.Feed(t.Context(), b.url, bytes.NewReader(shop.Orders), 8)
	if err != nil {
		t.Fatal(err)
	}
	if got := (shop.Summary{Posted: want.Orders, Accepted: want.Charges, Repeated: want.Repeats, Conflict: want.Conflicts}); sum != got {
		t.Errorf("got %+v, want %+v", sum, got)
	}
	b.wantRows(map[string]int{
		"shop.orders": want.Charges, "outbox.intents": want.Charges, "outbox.outbox": want.Charges,
		"outbox.repeats": want.Repeats + want.Conflicts,
	})

	// What is to be charged is what was posted first, to the last minor unit.
	posted, charged := map[string]int64{}, map[string]int64{}
	for line := range bytes.Lines(shop.Orders) {
		var o shop.Order
		if err := json.Unmarshal(line, &o); err != nil {
			t.Fatal(err)
		}
		key := o.Storefront + " " + o.ID
		if _, again := posted[key]; !again {
			posted[key] = o.Amount
		}
	}
	rows, err := b.db.Query(t.Context(), "SELECT tenant || ' ' || (payload->>'order_id'), (payload->>'amount')::bigint FROM outbox.intents")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		var amount int64
		if err := rows.Scan(&key, &amount); err != nil {
			t.Fatal(err)
		}
		charged[key] = amount
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(posted, charged) {
		t.Error("the ledger's amounts are not the file's")
	}

	// Once more, all of it: nothing new.
	sum, err = shop.Feed(t.Context(), b.url, bytes.NewReader(shop.Orders), 8)
	if err != nil || sum.Accepted != 0 || sum.Repeated != want.Charges+want.Repeats || sum.Conflict != want.Conflicts {
		t.Errorf("fed again: %+v, %v", sum, err)
	}
	b.wantRows(map[string]int{"shop.orders": want.Charges, "outbox.intents": want.Charges})
}

// A customer whose answer is lost posts again: lines of one order stay in their order,
// and none is lost or given up.
func TestFeedAsksAgain(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	tries := map[string]int{}
	seen := map[string][]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var o struct {
			ID   string `json:"order_id"`
			Name string `json:"name"`
		}
		_ = json.Unmarshal(body, &o)
		mu.Lock()
		defer mu.Unlock()
		tries[string(body)]++
		switch tries[string(body)] {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			panic(http.ErrAbortHandler)
		default:
			seen[o.ID] = append(seen[o.ID], o.Name)
			w.WriteHeader(http.StatusCreated)
		}
	}))
	t.Cleanup(server.Close)

	var lines strings.Builder
	for i := range 40 {
		fmt.Fprintf(&lines, `{"storefront":"fjord","order_id":"%d","name":"%02d"}`+"\n", i%4, i)
	}
	sum, err := shop.Feed(t.Context(), server.URL, strings.NewReader(lines.String()+"\n"), 8)
	if want := (shop.Summary{Posted: 40, Accepted: 40, Retried: 80}); err != nil || sum != want {
		t.Fatalf("got %+v, %v; want %+v", sum, err, want)
	}
	for id, names := range seen {
		for i, name := range names {
			if i > 0 && names[i-1] >= name {
				t.Errorf("order %s came as %v", id, names)
			}
		}
	}
}

func TestFeedStopsAtWhatIsNoShop(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	if _, err := shop.Feed(t.Context(), server.URL, bytes.NewReader(shop.Orders), 4); err == nil {
		t.Error("404 counts as an answer")
	}
}

func ExampleExpected() {
	t := shop.Expected()
	fmt.Printf("%d orders: %d again, %d changed\n", t.Orders, t.Repeats, t.Conflicts)
	fmt.Printf("%d intents: %d charges, %d shipments, %d receipts\n", t.Intents, t.Charges, t.Shipments, t.Receipts)
	// Output:
	// 301 orders: 9 again, 4 changed
	// 770 intents: 288 charges, 194 shipments, 288 receipts
}
