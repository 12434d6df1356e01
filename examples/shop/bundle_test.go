package shop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/examples/shop"
	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

type testBundle struct {
	t   *testing.T
	db  *pgxpool.Pool
	url string // of a running shop
}

// setup starts a shop on a database of its own. No worker runs: what is in the ledger
// stays there.
func setup(t *testing.T) *testBundle {
	t.Helper()
	t.Parallel()
	db := pgtest.DB(t)
	parsed, err := catalog.Parse("catalog.yaml", shop.Catalog)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := catalog.Apply(t.Context(), db, parsed, "test"); err != nil {
		t.Fatal(err)
	}
	if err := shop.Setup(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(shop.Handler(db, slog.New(slog.DiscardHandler)))
	t.Cleanup(server.Close)
	return &testBundle{t, db, server.URL}
}

// order is a valid one: two notebooks by post and a font, 40.00 EUR in all.
func order(change ...func(*shop.Order)) shop.Order {
	o := shop.Order{
		Storefront: "meridian", ID: "1042", Customer: "c_71", Name: "Zoë d’Aÿ", Email: "zoe@example.com",
		Currency: "EUR", Amount: 4000, Shipping: 500, Description: "Two notebooks and a font",
		Lines: []shop.Line{
			{SKU: "NB-A5-DOT", Title: "Notebook A5", Quantity: 2, UnitPrice: 1000},
			{SKU: "FONT-SERIF", Title: "Typeface", Quantity: 1, UnitPrice: 1500, Digital: true},
		},
		Address: &shop.Address{Lines: []string{"1 rue de l’Œuvre"}, City: "Lyon", Postcode: "69001", Country: "FR"},
	}
	for _, f := range change {
		f(&o)
	}
	return o
}

// digitalOnly leaves the font.
func digitalOnly(o *shop.Order) {
	o.Lines, o.Address, o.Shipping, o.Amount = o.Lines[1:], nil, 0, 1500
}

// pennyMore is the same order for a cent more.
func pennyMore(o *shop.Order) {
	o.Lines[1].UnitPrice++
	o.Amount++
}

// answer is what a client reads.
type answer struct {
	Status int         `json:"-"`
	Header http.Header `json:"-"`

	Total    string
	Repeated bool
	Order    *shop.Order
	Charge   struct {
		Reference, State, Code string
		ChargeID               string `json:"charge_id"`
	}
	Error struct {
		Code, Message, Path string
		Differs             []string
	}
}

func (b *testBundle) post(o shop.Order) answer {
	b.t.Helper()
	body, err := json.Marshal(o)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.do(http.MethodPost, "/orders", body)
}

func (b *testBundle) do(method, path string, body []byte) (a answer) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, bytes.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &a); err != nil {
		b.t.Fatalf("%s %s: %s: %v", method, path, text, err)
	}
	a.Status, a.Header = resp.StatusCode, resp.Header
	return a
}

func (b *testBundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.db.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

// wantRows compares the number of rows of tables.
func (b *testBundle) wantRows(want map[string]int) {
	b.t.Helper()
	for table, n := range want {
		if got := one[int](b, "SELECT count(*) FROM "+table); got != n {
			b.t.Errorf("%s has %d rows, want %d", table, got, n)
		}
	}
}

func one[T any](b *testBundle, sql string, args ...any) (v T) {
	b.t.Helper()
	if err := b.db.QueryRow(context.WithoutCancel(b.t.Context()), sql, args...).Scan(&v); err != nil {
		b.t.Fatal(err)
	}
	return v
}
