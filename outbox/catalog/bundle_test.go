package catalog_test

import (
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// shop is a catalog with two lanes and a follow-on.
const shop = `
lanes:
  payments: {provider: payments, rate: 50}
  mail: {provider: mail}
operations:
  - name: charge_card
    version: 1
    class: key_protected
    lane: payments
    key: {rule: business, fields: [/order_id]}
    input:
      type: object
      required: [order_id, amount, currency]
      additionalProperties: false
      properties:
        order_id: {type: string, minLength: 1}
        amount: {type: integer, minimum: 1}
        currency: {enum: [eur, usd], default: eur}
        email: {type: string, format: email}
    review: {owner: payments-oncall}
    money: {amount: /amount, currency: /currency}
    follow_ons:
      - name: receipt
        operation: send_receipt.v1
        when: .intent.payload.email != null
        payload: '{to: .intent.payload.email, charge: .outcome.provider_id, amount: .intent.payload.amount}'
  - name: send_receipt
    version: 1
    class: non_repeatable
    lane: mail
    key: {rule: operation_id}
    input: {type: object}
    unknown: at_most_once
    review: {owner: support}
`

func parse(t *testing.T, text string) *catalog.Catalog {
	t.Helper()
	c, err := catalog.Parse("catalog.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func apply(t *testing.T, db catalog.DB, text string) []catalog.Change {
	t.Helper()
	changes, err := catalog.Apply(t.Context(), db, parse(t, text), "ada")
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

// load returns the newest revision of an operation.
func load(t *testing.T, pool *pgxpool.Pool, operation string) *catalog.Revision {
	t.Helper()
	all, err := catalog.Load(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	var newest *catalog.Revision
	for _, r := range all {
		if r.Operation == operation {
			newest = r
		}
	}
	if newest == nil {
		t.Fatalf("%s is not in the database", operation)
	}
	return newest
}

// summary writes changes on one line: what, name and revision.
func summary(changes []catalog.Change) string {
	words := make([]string, len(changes))
	for i, c := range changes {
		words[i] = string(c.What) + " " + c.Lane + c.Operation
		if c.Revision > 0 {
			words[i] += "#" + string(rune('0'+c.Revision))
		}
		if len(c.Differs) > 0 {
			words[i] += "(" + strings.Join(c.Differs, " ") + ")"
		}
	}
	return strings.Join(words, ", ")
}

// compiled makes an operation of a catalog ready without a database.
func compiled(t *testing.T, text, operation string) *catalog.Revision {
	t.Helper()
	for _, o := range parse(t, text).Operations {
		if o.ID() == operation {
			r, err := o.Compile()
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
	}
	t.Fatalf("no %s in the catalog", operation)
	return nil
}
