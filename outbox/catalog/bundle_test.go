package catalog_test

import (
	"os"
	"testing"

	"github.com/outbox-worker/outbox-worker/internal/pgtest"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

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
