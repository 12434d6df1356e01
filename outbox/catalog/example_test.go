package catalog_test

import (
	"context"
	"fmt"
	"log"

	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

func ExampleParse() {
	_, err := catalog.Parse("catalog.yaml", []byte(`
lanes:
  payments: {provider: payments}
operations:
  - name: charge_card
    version: 1
    class: key_protected
    lane: paymets
    key: {rule: business, fields: [/order_id]}
    input: {type: object, properties: {order_id: {type: string}}}
    review: {owner: payments-oncall}
`))
	fmt.Println(err)
	// Output:
	// catalog.yaml:8: /operations/0/lane: there is no lane "paymets" (did you mean payments?)
	// catalog.yaml:9: /operations/0/key/fields/0: the schema does not require /order_id (list it in required: a key must always be there)
}

func ExampleRevision_FollowOns() {
	c, err := catalog.Parse("catalog.yaml", []byte(shop))
	if err != nil {
		log.Fatal(err)
	}
	charge, err := c.Operations[0].Compile() // a worker has it from Load
	if err != nil {
		log.Fatal(err)
	}
	followOns, err := charge.FollowOns(context.Background(), catalog.Parent{
		Intent:  catalog.ParentIntent{Payload: []byte(`{"amount":24000,"email":"a@example.com"}`)},
		Outcome: catalog.ParentOutcome{ProviderID: "ch_1"},
	})
	for _, f := range followOns {
		fmt.Printf("%s: %s %s\n", f.Name, f.Operation, f.Payload)
	}
	fmt.Println(err)
	// Output:
	// receipt: send_receipt.v1 {"amount":24000,"charge":"ch_1","to":"a@example.com"}
	// <nil>
}

func ExampleRevision_CheckInput() {
	c, err := catalog.Parse("catalog.yaml", []byte(shop))
	if err != nil {
		log.Fatal(err)
	}
	charge, err := c.Operations[0].Compile() // a worker has it from Load
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(charge.CheckInput([]byte(`{"order_id":"1042","amount":24000}`)))
	fmt.Println(charge.CheckInput([]byte(`{"order_id":"1042","amount":-1}`)))
	// Output:
	// <nil>
	// payload/amount: it is less than 1
}
