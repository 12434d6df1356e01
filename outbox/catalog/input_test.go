package catalog_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

const forms = `
lanes: {l: {provider: p}}
operations:
  - name: form
    version: 1
    class: read_only
    lane: l
    key: {rule: operation_id}
    input:
      type: object
      required: [id]
      additionalProperties: false
      propertyNames: {pattern: "^[a-z_]+$|^UPPER$"}
      dependentRequired: {amount: [currency]}
      $defs: {money: {type: integer, minimum: 1, maximum: 9007199254740991}}
      properties:
        id: {type: string, minLength: 2, maxLength: 12, pattern: "^[a-z0-9]*$"}
        amount: {$ref: "#/$defs/money"}
        currency: {enum: [eur, usd]}
        kind: {const: card, default: card}
        email: {type: string, format: email}
        at: {type: string, format: date-time}
        share: {type: number, multipleOf: 0.01, exclusiveMaximum: 1, exclusiveMinimum: 0}
        tags: {type: array, items: {type: string}, minItems: 1, maxItems: 2, uniqueItems: true}
        either: {oneOf: [{type: string}, {type: integer}]}
        any: {anyOf: [{type: string}, {type: integer}]}
        both: {allOf: [{type: string}, {minLength: 3}]}
        not_null: {not: {type: "null"}}
        never: false
        a: {type: object, required: [b], minProperties: 1, maxProperties: 1, properties: {b: {type: object, properties: {"c/d~e": {type: boolean}}}}}
`

func TestCheckInput(t *testing.T) {
	t.Parallel()
	r := compiled(t, forms, "form.v1")
	for _, test := range []struct{ payload, want string }{
		{`{"id":"o1"}`, ""},
		{`{"id":"o1","kind":"card"}`, ""},
		{`{"id":"o1","amount":9007199254740991,"currency":"eur"}`, ""},
		{`{"id":"o1","share":0.29}`, ""}, // 0.29/0.01 is no integer in doubles
		{`{"id":"o1","either":1e3}`, ""},
		{`{}`, "payload/id: it is required"},
		{`{"id":7}`, "payload/id: want string, not number"},
		{`{"id":"x"}`, "payload/id: it has 1 characters, fewer than 2"},
		{`{"id":"s3cret1234567"}`, "payload/id: it has 13 characters, more than 12"},
		{`{"id":"S3CRET"}`, "payload/id: it does not match ^[a-z0-9]*$"},
		{`{"id":"o1","amount":0,"currency":"eur"}`, "payload/amount: it is less than 1"},
		{`{"id":"o1","amount":9007199254740992,"currency":"eur"}`, "payload/amount: it is more than 9007199254740991"},
		{`{"id":"o1","amount":1.5,"currency":"eur"}`, "payload/amount: want integer, not number"},
		{`{"id":"o1","amount":1}`, "payload/currency: it is required together with amount"},
		{`{"id":"o1","currency":"s3cret"}`, `payload/currency: it is none of "eur", "usd"`},
		{`{"id":"o1","kind":"s3cret"}`, `payload/kind: it is not "card"`},
		{`{"id":"o1","email":"s3cret"}`, "payload/email: it is not a valid email"},
		{`{"id":"o1","at":"2024-02-30T00:00:00Z"}`, "payload/at: it is not a valid date-time"},
		{`{"id":"o1","share":0.123}`, "payload/share: it is not a multiple of 0.01"},
		{`{"id":"o1","share":1}`, "payload/share: it is not less than 1"},
		{`{"id":"o1","share":0}`, "payload/share: it is not more than 0"},
		{`{"id":"o1","tags":[]}`, "payload/tags: it has 0 items, fewer than 1"},
		{`{"id":"o1","tags":["a","b","c"]}`, "payload/tags: it has 3 items, more than 2"},
		{`{"id":"o1","tags":["s3cret","s3cret"]}`, "payload/tags: items 0 and 1 are the same"},
		{`{"id":"o1","tags":["a",7]}`, "payload/tags/1: want string, not number"},
		{`{"id":"o1","either":null}`, "payload/either: it does not satisfy exactly one of the alternatives (oneOf)"},
		{`{"id":"o1","any":null}`, "payload/any: it satisfies none of the alternatives (anyOf)"},
		{`{"id":"o1","both":"ab"}`, "payload/both: it has 2 characters, fewer than 3"},
		{`{"id":"o1","not_null":null}`, "payload/not_null: it is what the schema excludes (not)"},
		{`{"id":"o1","never":1}`, "payload/never: nothing is allowed here"},
		{`{"id":"o1","a":{}}`, "payload/a: it has 0 fields, fewer than 1"},
		{`{"id":"o1","a":{"b":{"c/d~e":"s3cret"}}}`, "payload/a/b/c~1d~0e: want boolean, not string"},
		{`{"id":"o1","zip":1,"other":1}`, "payload/other: the operation has no such field"},
		{`{"id":"o1","UPPER":1}`, "payload/UPPER: the operation has no such field"},
		{`{"id":"o1","Zip":1}`, `payload: the field name "Zip" is not allowed`},
		{`{"zip":1}`, "payload/id: it is required"},
		{`[]`, "payload: canonical: not_an_object: send an object, and other values as a member of it"},
		{`{"id":"o1"`, "payload: canonical: invalid_json: not JSON from byte 10 on; send one JSON value as RFC 8259 defines it"},
	} {
		err := r.CheckInput([]byte(test.payload))
		var e *catalog.InputError
		switch {
		case test.want == "" && err == nil:
		case !errors.As(err, &e) || err.Error() != test.want:
			t.Errorf("%s\n got: %v\nwant: %s", test.payload, err, test.want)
		case strings.Contains(strings.ToLower(err.Error()), "s3cret"):
			t.Errorf("%s: the value is told: %v", test.payload, err)
		}
	}
}

// Members come out of Go's maps in any order; the answer must not.
func TestCheckInputAlwaysAnswersTheSame(t *testing.T) {
	t.Parallel()
	r := compiled(t, forms, "form.v1")
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 200 {
				err := r.CheckInput([]byte(`{"id":7,"amount":"x","currency":1,"email":"x","tags":{},"z":1,"y":1,"a":[]}`))
				if err == nil || err.Error() != "payload/a: want object, not array" {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
}
