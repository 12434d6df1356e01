package catalog_test

// refusal is a catalog that Parse must refuse: base with edits, and the whole error.
type refusal struct {
	name  string
	edits [][2]string
	want  string
}

// refusals are all that Parse refuses.
func refusals() []refusal {
	return []refusal{
		// The file.
		{
			`not YAML`,
			[][2]string{{`lanes:`, `lanes: [`}},
			`catalog.yaml:2: not YAML: did not find expected ',' or ']'`,
		},
		{
			`a list`,
			[][2]string{{base, "- 1\n"}},
			`catalog.yaml:1: want an object, not a list`,
		},
		{
			`empty`,
			[][2]string{{base, ""}},
			`catalog.yaml:1: the file is empty (give lanes and operations)`,
		},
		{
			`only a comment`,
			[][2]string{{base, "# nothing\n"}},
			`catalog.yaml:1: the file is empty (give lanes and operations)`,
		},
		{
			`two documents`,
			[][2]string{{`operations:
`, `operations:
---
`}},
			`catalog.yaml:4: the file has a second document (put everything into one)`,
		},
		{
			`an unknown field, probably misspelt`,
			[][2]string{{`    version: 1`, `    verison: 1`}},
			`catalog.yaml:4: /operations/0: version is missing` + "\n" +
				`catalog.yaml:5: /operations/0/verison: unknown field "verison" (did you mean version?)`,
		},
		{
			`an unknown field`,
			[][2]string{{`    version: 1`, `    version: 1
    colour: red`}},
			`catalog.yaml:6: /operations/0/colour: unknown field "colour" (known here: approval, class, description, follow_ons, input, key, lane, max_payload, money, name, retention, retired, retry, review, timeouts, unknown, version)`,
		},
		{
			`a name given twice`,
			[][2]string{{`    version: 1`, `    version: 1
    version: 2`}},
			`catalog.yaml:6: /operations/0/version: given twice: here and on line 5 (keep one)`,
		},
		{
			`an operation that is text`,
			[][2]string{{`operations:
`, `operations:
  - charge
`}},
			`catalog.yaml:4: /operations/0: want an object, not text`,
		},
		{
			`a merge key`,
			[][2]string{{`    version: 1`, `    <<: {version: 1}`}},
			`catalog.yaml:4: /operations/0: version is missing` + "\n" +
				`catalog.yaml:5: /operations/0/<<: merge keys are not supported (write the members out, or use an alias for a whole value)`,
		},
		{
			`an alias that contains itself`,
			[][2]string{{`    input:
`, `    input: &self
      x-self: *self
`}},
			`catalog.yaml:10: /operations/0/input/x-self/x-self: the alias self contains itself`,
		},
		{
			`a name that is no text`,
			[][2]string{{`        order_id: {type: string}`, `        order_id: {type: string}
        1: {type: string}`}},
			`catalog.yaml:14: /operations/0/input/properties/1: a member name must be text (put it in quotes)`,
		},
		{
			`a tag`,
			[][2]string{{`    version: 1`, `    version: !!binary AQ==`}},
			`catalog.yaml:5: /operations/0/version: the tag !!binary is not supported`,
		},
		{
			`a number as no JSON parser reads it`,
			[][2]string{{`    version: 1`, `    version: 0x1`}},
			`catalog.yaml:5: /operations/0/version: 0x1 is not a number that JSON can spell (write it as in 1200 or 0.5, or in quotes if it is text)`,
		},
		{
			`a number with separators`,
			[][2]string{{`    version: 1`, `    version: 1_000`}},
			`catalog.yaml:5: /operations/0/version: 1_000 is not a number that JSON can spell (write it as in 1200 or 0.5, or in quotes if it is text)`,
		},
		{
			`infinity`,
			[][2]string{more(`retry: {multiplier: .inf}`)},
			`catalog.yaml:15: /operations/0/retry/multiplier: .inf is not a number that JSON can spell (write it as in 1200 or 0.5, or in quotes if it is text)`,
		},
		{
			`a fraction for a whole number`,
			[][2]string{{`    version: 1`, `    version: 1.5`}},
			`catalog.yaml:5: /operations/0/version: 1.5 is not a whole number of at most 32 bits`,
		},
		{
			`a number for text`,
			[][2]string{{`name: charge`, `name: 7`}},
			`catalog.yaml:4: /operations/0/name: want text, not a number (put it in quotes)`,
		},
		{
			`text for a number`,
			[][2]string{{`version: 1`, `version: "1"`}},
			`catalog.yaml:5: /operations/0/version: want a number, not text (write it without quotes)`,
		},
		{
			`a boolean that is none`,
			[][2]string{more(`retired: "yes"`)},
			`catalog.yaml:15: /operations/0/retired: want true or false, not text`,
		},
		{
			`empty text`,
			[][2]string{{`lane: payments`, `lane: ""`}},
			`catalog.yaml:7: /operations/0/lane: it is empty (give a value or leave the field out)`,
		},
		{
			`null`,
			[][2]string{{`lane: payments`, `lane:`}},
			`catalog.yaml:7: /operations/0/lane: want text, not null`,
		},
		{
			`several problems at once`,
			[][2]string{{`version: 1`, `version: x`}, {`lane: payments`, `lane: nowhere`}, {`provider: stripe`, `provider: Stripe`}, {`operations:
`, `operations:
  - {}
`}},
			`catalog.yaml:2: /lanes/payments/provider: "Stripe" is not a name for a provider (lower-case letters, digits, _ and -, beginning with a letter, 63 at most)` + "\n" +
				`catalog.yaml:4: /operations/0: name is missing` + "\n" +
				`catalog.yaml:4: /operations/0: version is missing` + "\n" +
				`catalog.yaml:4: /operations/0: class is missing` + "\n" +
				`catalog.yaml:4: /operations/0: lane is missing` + "\n" +
				`catalog.yaml:4: /operations/0: key is missing` + "\n" +
				`catalog.yaml:4: /operations/0: input is missing` + "\n" +
				`catalog.yaml:6: /operations/1/version: want a number, not text`,
		},
		// Lanes.
		{
			`no lanes`,
			[][2]string{{`lanes:
  payments: {provider: stripe}
`, ``}},
			`catalog.yaml:1: lanes is missing`,
		},
		{
			`lanes in a list`,
			[][2]string{{`  payments: {provider: stripe}`, `  - payments`}},
			`catalog.yaml:1: /lanes: want an object, not a list (as in lanes: {payments: {provider: payments}})`,
		},
		{
			`no provider`,
			[][2]string{{`{provider: stripe}`, `{}`}},
			`catalog.yaml:2: /lanes/payments: provider is missing`,
		},
		{
			`a lane name`,
			[][2]string{{`  payments:`, `  Payments:`}, {`lane: payments`, `lane: Payments`}},
			`catalog.yaml:2: /lanes/Payments: "Payments" is not a name for a lane (lower-case letters, digits, _ and -, beginning with a letter, 63 at most)`,
		},
		{
			`a provider name`,
			[][2]string{{`stripe`, `Stripe Inc`}},
			`catalog.yaml:2: /lanes/payments/provider: "Stripe Inc" is not a name for a provider (lower-case letters, digits, _ and -, beginning with a letter, 63 at most)`,
		},
		{
			`no concurrency`,
			[][2]string{{`stripe}`, `stripe, concurrency: 0}`}},
			`catalog.yaml:2: /lanes/payments/concurrency: it must be from 1 to 10000 (to stop a lane, pause it)`,
		},
		{
			`a rate of nothing`,
			[][2]string{{`stripe}`, `stripe, rate: 0}`}},
			`catalog.yaml:2: /lanes/payments/rate: it must be above 0 (leave it out for no limit)`,
		},
		{
			`a burst without a rate`,
			[][2]string{{`stripe}`, `stripe, burst: 5}`}},
			`catalog.yaml:2: /lanes/payments/burst: a burst has no meaning without a rate (give a rate or leave the burst out)`,
		},
		{
			`a burst of nothing`,
			[][2]string{{`stripe}`, `stripe, rate: 5, burst: 0}`}},
			`catalog.yaml:2: /lanes/payments/burst: it must be at least 1`,
		},
		// Names.
		{
			`a missing name`,
			[][2]string{{`  - name: charge
    version: 1`, `  - version: 1`}},
			`catalog.yaml:4: /operations/0: name is missing`,
		},
		{
			`an operation name with its version`,
			[][2]string{{`name: charge`, `name: charge.v1`}},
			`catalog.yaml:4: /operations/0/name: "charge.v1" is not a name for an operation (lower-case letters, digits and _, beginning with a letter, 63 at most; the version stands apart)`,
		},
		{
			`version zero`,
			[][2]string{{`version: 1`, `version: 0`}},
			`catalog.yaml:5: /operations/0/version: it must be from 1 to 999999999`,
		},
		{
			`an unknown class`,
			[][2]string{{`key_protected`, `idempotent`}},
			`catalog.yaml:6: /operations/0/class: "idempotent" is not known (one of read_only, naturally_idempotent, key_protected, compensatable, non_repeatable)`,
		},
		{
			`an unknown lane`,
			[][2]string{{`lane: payments`, `lane: payment`}},
			`catalog.yaml:7: /operations/0/lane: there is no lane "payment" (did you mean payments?)`,
		},
		{
			`one operation twice`,
			[][2]string{{`operations:
`, `operations:
  - {name: charge, version: 1, class: read_only, lane: payments, key: {rule: operation_id}, input: {type: object}}
`}},
			`catalog.yaml:5: /operations/1: charge.v1 is given twice: here and on line 4 (a change to its contract is a new version)`,
		},
		{
			`versions that share keys but form them differently`,
			[][2]string{{`operations:
`, `operations:
  - {name: charge, version: 2, class: read_only, lane: payments, key: {rule: operation_id}, input: {type: object}}
`}},
			`catalog.yaml:9: /operations/1/key: charge.v2 and charge.v1 share their keys but form them differently (use the same rule, number of fields and per_subject, or say per_version: true if both may happen)`,
		},
		{
			`text that the database cannot store`,
			[][2]string{more(`description: "a\0b"`)},
			`catalog.yaml:15: /operations/0/description: the text has the character U+0000`,
		},
		// Keys.
		{
			`no rule`,
			[][2]string{{`{rule: business, fields: [/order_id]}`, `{fields: [/order_id]}`}},
			`catalog.yaml:8: /operations/0/key: rule is missing`,
		},
		{
			`an unknown rule`,
			[][2]string{{`rule: business`, `rule: uuid`}},
			`catalog.yaml:8: /operations/0/key/rule: "uuid" is not known (one of business, operation_id, arguments)`,
		},
		{
			`a business key without fields`,
			[][2]string{{`, fields: [/order_id]`, ``}},
			`catalog.yaml:8: /operations/0/key: a business key needs fields (as in fields: [/order_id])`,
		},
		{
			`fields that the rule does not use`,
			[][2]string{{`rule: business`, `rule: operation_id`}},
			`catalog.yaml:8: /operations/0/key/fields: the rule operation_id uses no fields (leave them out, or use the rule business)`,
		},
		{
			`a window that the rule does not have`,
			[][2]string{{`rule: business`, `window: 15m, rule: business`}},
			`catalog.yaml:8: /operations/0/key/window: the rule business has no window: its keys are for ever (leave it out, or use the rule arguments)`,
		},
		{
			`a window of nothing`,
			[][2]string{{`{rule: business, fields: [/order_id]}`, `{rule: arguments, window: 0s}`}},
			`catalog.yaml:8: /operations/0/key/window: it must be longer than 0s and at most 720h, not 0s`,
		},
		{
			`a field that is no pointer`,
			[][2]string{{`[/order_id]`, `[order_id]`}},
			`catalog.yaml:8: /operations/0/key/fields/0: "order_id" is not a JSON Pointer (as in /order_id or /order/id)`,
		},
		{
			`a field that is a wrong pointer`,
			[][2]string{{`[/order_id]`, `["/order~id"]`}},
			`catalog.yaml:8: /operations/0/key/fields/0: "/order~id" is not a JSON Pointer: a ~ must be written ~0 (as in /order_id or /order/id)`,
		},
		{
			`a field given twice`,
			[][2]string{{`[/order_id]`, `[/order_id, /order_id]`}},
			`catalog.yaml:8: /operations/0/key/fields/1: /order_id is given twice`,
		},
		{
			`a field that the schema does not require`,
			[][2]string{{`required: [order_id]`, `required: []`}},
			`catalog.yaml:8: /operations/0/key/fields/0: the schema does not require /order_id (list it in required: a key must always be there)`,
		},
		{
			`a field that the schema does not describe`,
			[][2]string{{`required: [order_id]`, `required: [order_id, tax]`}, {`[/order_id]`, `[/tax]`}},
			`catalog.yaml:8: /operations/0/key/fields/0: the schema does not describe /tax (list it in properties, with its type)`,
		},
		{
			`a field of any type`,
			[][2]string{{`order_id: {type: string}`, `order_id: {}`}},
			`catalog.yaml:8: /operations/0/key/fields/0: the schema does not say that /order_id is a string or an integer (give it type: string or type: integer)`,
		},
		{
			`a field that may be null`,
			[][2]string{{`order_id: {type: string}`, `order_id: {type: [string, "null"]}`}},
			`catalog.yaml:8: /operations/0/key/fields/0: the schema does not say that /order_id is a string or an integer (give it type: string or type: integer)`,
		},
		{
			`a fraction as a field`,
			[][2]string{{`order_id: {type: string}`, `order_id: {type: number}`}},
			`catalog.yaml:8: /operations/0/key/fields/0: the schema does not say that /order_id is a string or an integer (give it type: string or type: integer)`,
		},
		{
			`a field inside what may be no object`,
			[][2]string{{`[/order_id]`, `[/order_id/number]`}},
			`catalog.yaml:8: /operations/0/key/fields/0: the schema does not say that /order_id is an object (give it type: object)`,
		},
		{
			`a field inside an optional object`,
			[][2]string{{`[/order_id]`, `[/order/id]`}, property(`order: {type: object, required: [id], properties: {id: {type: string}}}`)},
			`catalog.yaml:8: /operations/0/key/fields/0: the schema does not require /order (list it in required: a key must always be there)`,
		},
		{
			`a place in a list`,
			[][2]string{{`[/order_id]`, `[/0]`}},
			`catalog.yaml:8: /operations/0/key/fields/0: /0 looks like a place in a list (a place in a list is no identity: use a named field)`,
		},
		{
			`a field with a slash in its name`,
			[][2]string{{`[/order_id]`, `[/order~1id]`}},
			`catalog.yaml:8: /operations/0/key/fields/0: "order/id" is empty or has a / or ~ (a key field's name must be plain, so that answers can name it)`,
		},
		{
			`a field with a default`,
			[][2]string{{`order_id: {type: string}`, `order_id: {type: string, default: none}`}},
			`catalog.yaml:8: /operations/0/key/fields/0: /order_id has a default (everybody who leaves it out would share one key: drop the default)`,
		},
		{
			`a field whose object has a default`,
			[][2]string{{`[/order_id]`, `[/order/id]`}, {`required: [order_id]`, `required: [order]`}, property(`order: {type: object, required: [id], properties: {id: {type: string}}, default: {id: none}}`)},
			`catalog.yaml:8: /operations/0/key/fields/0: /order/id has a default (everybody who leaves it out would share one key: drop the default)`,
		},
		// Input.
		{
			`no input`,
			[][2]string{{`    input:
      type: object
      required: [order_id]
      properties:
        order_id: {type: string}
`, ``}},
			`catalog.yaml:4: /operations/0: input is missing`,
		},
		{
			`a payload that need not be an object`,
			[][2]string{{`      type: object
`, ``}},
			`catalog.yaml:8: /operations/0/key/fields/0: the schema does not say that the payload is an object (give it type: object)` + "\n" +
				`catalog.yaml:9: /operations/0/input: the schema does not say type: object (a payload is always an object)`,
		},
		{
			`not JSON Schema`,
			[][2]string{{`required: [order_id]`, `required: order_id`}, {`order_id: {type: string}`, `order_id: {type: text}`}},
			`catalog.yaml:11: /operations/0/input/required: not JSON Schema: want array, not string` + "\n" +
				`catalog.yaml:13: /operations/0/input/properties/order_id/type: not JSON Schema: it satisfies none of the alternatives (anyOf) (types are array, boolean, integer, null, number, object and string)`,
		},
		{
			`a misspelt keyword`,
			[][2]string{property(`email: {type: string, fromat: email}`)},
			`catalog.yaml:14: /operations/0/input/properties/email/fromat: "fromat" is no keyword of JSON Schema 2020-12 (did you mean format? notes of your own begin with x-)`,
		},
		{
			`an unknown keyword`,
			[][2]string{property(`email: {type: string, colour: red}`)},
			`catalog.yaml:14: /operations/0/input/properties/email/colour: "colour" is no keyword of JSON Schema 2020-12 (notes of your own begin with x-)`,
		},
		{
			`a keyword of an older draft`,
			[][2]string{property(`email: {type: string, nullable: true}`)},
			`catalog.yaml:14: /operations/0/input/properties/email/nullable: the keyword nullable is not supported (use type: [string, "null"])`,
		},
		{
			`an unknown format`,
			[][2]string{property(`email: {type: string, format: mail}`)},
			`catalog.yaml:14: /operations/0/input/properties/email/format: the format "mail" is not known and would not be checked (one of date, date-time, duration, email, hostname, ipv4, ipv6, iri, iri-reference, json-pointer, regex, relative-json-pointer, time, uri, uri-reference, uri-template, uuid)`,
		},
		{
			`another draft`,
			[][2]string{{`      type: object
`, `      type: object
      $schema: http://json-schema.org/draft-07/schema#
`}},
			`catalog.yaml:11: /operations/0/input/$schema: only JSON Schema 2020-12 is supported, declared at the top (leave $schema out, or give https://json-schema.org/draft/2020-12/schema)`,
		},
		{
			`a base for references`,
			[][2]string{{`      type: object
`, `      type: object
      $id: https://example.com/charge
`}},
			`catalog.yaml:11: /operations/0/input/$id: the keyword $id is not supported (leave it out: references stay inside the schema)`,
		},
		{
			`a reference to the network`,
			[][2]string{property(`card: {$ref: "https://example.com/card"}`)},
			`catalog.yaml:14: /operations/0/input/properties/card/$ref: the reference "https://example.com/card" leaves the schema (define it below $defs and refer to #/$defs/name; nothing is fetched)`,
		},
		{
			`a reference to a file`,
			[][2]string{property(`card: {$ref: card.json}`)},
			`catalog.yaml:14: /operations/0/input/properties/card/$ref: the reference "card.json" leaves the schema (define it below $defs and refer to #/$defs/name; nothing is fetched)`,
		},
		{
			`a reference to nothing`,
			[][2]string{property(`card: {$ref: "#/$defs/card"}`)},
			`catalog.yaml:14: /operations/0/input/properties/card/$ref: the reference "#/$defs/card" names nothing in the schema (define it below $defs and refer to #/$defs/name; nothing is fetched)`,
		},
		{
			`a reference to no schema`,
			[][2]string{property(`card: {$ref: "#/required"}`)},
			`catalog.yaml:14: /operations/0/input/properties/card/$ref: the reference "#/required" does not name a schema object (define it below $defs and refer to #/$defs/name; nothing is fetched)`,
		},
		{
			`references in a circle`,
			[][2]string{property(`card: {$ref: "#/$defs/a"}`), {`      type: object
`, `      type: object
      $defs: {a: {$ref: "#/$defs/b"}, b: {$ref: "#/$defs/a"}}
`}},
			`catalog.yaml:11: /operations/0/input/$defs/a/$ref: the reference "#/$defs/b" comes back to itself (nothing could satisfy it)` + "\n" +
				`catalog.yaml:11: /operations/0/input/$defs/b/$ref: the reference "#/$defs/a" comes back to itself (nothing could satisfy it)` + "\n" +
				`catalog.yaml:15: /operations/0/input/properties/card/$ref: the reference "#/$defs/a" comes back to itself (nothing could satisfy it)`,
		},
		{
			`a reference to the network without a network`,
			[][2]string{property(`card: {$ref: "//example.com/card"}`)},
			`catalog.yaml:14: /operations/0/input/properties/card/$ref: the reference "//example.com/card" leaves the schema (define it below $defs and refer to #/$defs/name; nothing is fetched)`,
		},
		{
			`a reference to another draft`,
			[][2]string{property(`card: {$ref: "https://json-schema.org/draft/2020-12/schema"}`)},
			`catalog.yaml:14: /operations/0/input/properties/card/$ref: the reference "https://json-schema.org/draft/2020-12/schema" leaves the schema (define it below $defs and refer to #/$defs/name; nothing is fetched)`,
		},
		{
			`a pattern with look-ahead`,
			[][2]string{property(`card: {type: string, pattern: "^(?=x)"}`)},
			`catalog.yaml:14: /operations/0/input/properties/card/pattern: "^(?=x)" is not a regular expression that can be used (RE2 syntax: no look-around and no back-references)`,
		},
		{
			`a name pattern with look-ahead`,
			[][2]string{property(`card: {type: object, patternProperties: {"^(?=x)": {}}}`)},
			`catalog.yaml:14: /operations/0/input/properties/card/patternProperties/^(?=x): "^(?=x)" is not a regular expression that can be used (RE2 syntax: no look-around and no back-references)`,
		},
		{
			`a limit that no payload can reach`,
			[][2]string{property(`tax: {type: integer, maximum: 9007199254740993}`)},
			`catalog.yaml:14: /operations/0/input/properties/tax/maximum: the number cannot be kept exactly (at most 15 significant digits, integers at most 9007199254740991)`,
		},
		{
			`a limit beyond the largest double`,
			[][2]string{property(`tax: {type: integer, maximum: 1e400}`)},
			`catalog.yaml:14: /operations/0/input/properties/tax/maximum: 1e400 is too large for a number (put it in quotes if it is text)`,
		},
		// Defaults.
		{
			`a default that breaks its own schema`,
			[][2]string{property(`tax: {type: integer, default: none}`)},
			`catalog.yaml:14: /operations/0/input/properties/tax/default: the default does not satisfy its own schema: want integer, not string`,
		},
		{
			`a default that fills no property`,
			[][2]string{property(`tags: {type: array, items: {type: string, default: x}}`)},
			`catalog.yaml:14: /operations/0/input/properties/tags/items/default: this default would never be filled in (defaults work for properties of objects, not inside items, anyOf and the like)`,
		},
		{
			`a default of the whole payload`,
			[][2]string{{`      type: object
`, `      type: object
      default: {}
`}},
			`catalog.yaml:11: /operations/0/input/default: this default would never be filled in (defaults work for properties of objects, not inside items, anyOf and the like)`,
		},
		{
			`a default in an alternative`,
			[][2]string{property(`tax: {anyOf: [{type: integer, default: 0}]}`)},
			`catalog.yaml:14: /operations/0/input/properties/tax/anyOf/0/default: this default would never be filled in (defaults work for properties of objects, not inside items, anyOf and the like)`,
		},
		{
			`defaults that would create an object`,
			[][2]string{property(`address: {type: object, required: [street], properties: {street: {type: string}, country: {default: se}}}`)},
			`catalog.yaml:14: /operations/0/input/properties/address: the defaults inside would create the optional object "address" (make the object required, give it a default, or leave the defaults out)`,
		},
		{
			`a default that hides those inside`,
			[][2]string{property(`address: {default: null, properties: {country: {default: se}}}`)},
			`catalog.yaml:14: /operations/0/input/properties/address/default: the default is no object, but its members have defaults (keep one or the other)`,
		},
		{
			`a default in a schema that contains itself`,
			[][2]string{property(`tree: {$ref: "#/$defs/tree"}`), {`      type: object
`, `      type: object
      $defs: {tree: {type: object, default: {}, properties: {left: {$ref: "#/$defs/tree"}}}}
`}},
			`catalog.yaml:11: /operations/0/input/$defs/tree/properties/left: a schema that contains itself cannot have defaults (leave them out, or write the levels out)`,
		},
		{
			`defaults larger than a payload may be`,
			[][2]string{property(`note: {type: string, default: xxxxxxxxxxxxxxxxxxxxxxxx}`), more(`max_payload: 20`)},
			`catalog.yaml:9: /operations/0/input: the defaults alone are larger than max_payload`,
		},
		// Limits.
		{
			`a payload of one byte`,
			[][2]string{more(`max_payload: 1`)},
			`catalog.yaml:15: /operations/0/max_payload: it must be from 2 to 1048576 bytes (store the document and send its address)`,
		},
		{
			`a payload beyond a mebibyte`,
			[][2]string{more(`max_payload: 1048577`)},
			`catalog.yaml:15: /operations/0/max_payload: it must be from 2 to 1048576 bytes (store the document and send its address)`,
		},
		{
			`a duration without a unit`,
			[][2]string{more(`timeouts: {call: 10}`)},
			`catalog.yaml:15: /operations/0/timeouts/call: want text, not a number (write it with a unit: 500ms, 10s, 15m, 48h)`,
		},
		{
			`a duration that is none`,
			[][2]string{more(`timeouts: {call: 10 seconds}`)},
			`catalog.yaml:15: /operations/0/timeouts/call: "10 seconds" is not a duration (write it with a unit: 500ms, 10s, 15m, 48h)`,
		},
		{
			`a negative duration`,
			[][2]string{more(`timeouts: {call: -1s}`)},
			`catalog.yaml:15: /operations/0/timeouts/call: -1s is negative (write it with a unit: 500ms, 10s, 15m, 48h)`,
		},
		{
			`a call of no time`,
			[][2]string{more(`timeouts: {call: 0s}`)},
			`catalog.yaml:15: /operations/0/timeouts/call: it must be longer than 0s and at most 1h, not 0s`,
		},
		{
			`a call of a day`,
			[][2]string{more(`timeouts: {call: 24h, lease: 24h}`)},
			`catalog.yaml:15: /operations/0/timeouts/call: it must be longer than 0s and at most 1h, not 24h` + "\n" +
				`catalog.yaml:15: /operations/0/timeouts/lease: the lease of 24h ends too early for a call of 24h (give it at least 24h0m5s, or a slow call would be declared unknown while it runs)`,
		},
		{
			`a lease that ends too early`,
			[][2]string{more(`timeouts: {call: 10s, lease: 14s}`)},
			`catalog.yaml:15: /operations/0/timeouts/lease: the lease of 14s ends too early for a call of 10s (give it at least 15s, or a slow call would be declared unknown while it runs)`,
		},
		{
			`no reconcile window`,
			[][2]string{more(`timeouts: {reconcile: 0s}`)},
			`catalog.yaml:15: /operations/0/timeouts/reconcile: it must be longer than 0s and at most 8760h, not 0s`,
		},
		{
			`no attempt`,
			[][2]string{more(`retry: {max_attempts: 0}`)},
			`catalog.yaml:15: /operations/0/retry/max_attempts: it must be from 1 to 100 (1 is no retry)`,
		},
		{
			`no first delay`,
			[][2]string{more(`retry: {initial: 0s}`)},
			`catalog.yaml:15: /operations/0/retry/initial: it must be longer than 0s and at most 168h, not 0s`,
		},
		{
			`a longest delay that is the shortest`,
			[][2]string{more(`retry: {initial: 10s, max: 5s}`)},
			`catalog.yaml:15: /operations/0/retry/max: the longest delay, 5s, is shorter than the first, 10s`,
		},
		{
			`delays that shrink`,
			[][2]string{more(`retry: {multiplier: 0.5}`)},
			`catalog.yaml:15: /operations/0/retry/multiplier: it must be from 1 to 100 (1 keeps the delay as it is)`,
		},
		{
			`too much jitter`,
			[][2]string{more(`retry: {jitter: 1.5}`)},
			`catalog.yaml:15: /operations/0/retry/jitter: it must be from 0 to 1 (0.5 spreads a delay of 10s over 5s to 15s)`,
		},
		{
			`a fraction that does not last`,
			[][2]string{more(`retry: {jitter: 0.3333333333333333}`)},
			`catalog.yaml:15: /operations/0/retry/jitter: the number cannot be kept exactly (at most 15 significant digits, integers at most 9007199254740991)`,
		},
		{
			`a tombstone that goes too early`,
			[][2]string{more(`retention: {details: 1h, tombstone: 24h}`)},
			`catalog.yaml:15: /operations/0/retention/tombstone: after 24h a late retry would be a new effect (give it at least 24h6m: reconcile, all retries and leases, and the window)`,
		},
		{
			`a tombstone shorter than the window`,
			[][2]string{{`{rule: business, fields: [/order_id]}`, `{rule: arguments, window: 720h}`}, more(`retention: {tombstone: 700h}`)},
			`catalog.yaml:15: /operations/0/retention/tombstone: after 700h a late retry would be a new effect (give it at least 744h6m: reconcile, all retries and leases, and the window)`,
		},
		{
			`details that outlast the tombstone`,
			[][2]string{more(`retention: {details: 9601h}`)},
			`catalog.yaml:15: /operations/0/retention/tombstone: the tombstone of 9600h would go before the details, after 9601h`,
		},
		// People.
		{
			`nobody for reviews`,
			[][2]string{{`    review: {owner: oncall}
`, ``}},
			`catalog.yaml:4: /operations/0/review: nobody owns the reviews of an operation that is key_protected (review: {owner: the rota that decides what nobody can look up})`,
		},
		{
			`nobody for reviews of what cannot be repeated`,
			[][2]string{{`    review: {owner: oncall}
`, ``}, {`key_protected`, `non_repeatable`}},
			`catalog.yaml:4: /operations/0/review: nobody owns the reviews of an operation that is non_repeatable (review: {owner: the rota that decides what nobody can look up})`,
		},
		{
			`two people for no approval`,
			[][2]string{more(`approval: {people: 2}`)},
			`catalog.yaml:15: /operations/0/approval/people: people are asked for, but no approval is required (say required: true)`,
		},
		{
			`approval by nobody`,
			[][2]string{more(`approval: {required: true, people: 0}`)},
			`catalog.yaml:15: /operations/0/approval/people: it must be from 1 to 10`,
		},
		{
			`an approval that has expired`,
			[][2]string{more(`approval: {required: true, expires: 0s}`)},
			`catalog.yaml:15: /operations/0/approval/expires: it must be longer than 0s and at most 8760h, not 0s`,
		},
		{
			`an unknown choice`,
			[][2]string{more(`unknown: exactly_once`)},
			`catalog.yaml:15: /operations/0/unknown: "exactly_once" is not known (one of at_most_once, at_least_once)`,
		},
		{
			`money without an amount`,
			[][2]string{more(`money: {currency: /currency}`)},
			`catalog.yaml:15: /operations/0/money: amount is missing`,
		},
		{
			`money that is not described`,
			[][2]string{more(`money: {amount: /amount}`)},
			`catalog.yaml:15: /operations/0/money/amount: the schema does not describe /amount (known here: order_id)`,
		},
		{
			`money that is no pointer`,
			[][2]string{more(`money: {amount: amount}`)},
			`catalog.yaml:15: /operations/0/money/amount: "amount" is not a JSON Pointer (as in /amount)`,
		},
		{
			`money inside of text`,
			[][2]string{more(`money: {amount: /order_id/amount}`)},
			`catalog.yaml:15: /operations/0/money/amount: in the schema, /order_id is no object (point to a named field)`,
		},
		{
			`money that is a list`,
			[][2]string{property(`amount: {type: array}`), more(`money: {amount: /amount}`)},
			`catalog.yaml:16: /operations/0/money/amount: in the schema, /amount is array (point to integer or number or string)`,
		},
		{
			`a currency that is a number`,
			[][2]string{property(`amount: {type: integer}`), more(`money: {amount: /amount, currency: /amount}`)},
			`catalog.yaml:16: /operations/0/money/currency: in the schema, /amount is integer (point to string)`,
		},
		// Follow-ons.
		{
			`no payload`,
			[][2]string{mail, more(`follow_ons: [{name: receipt, operation: mail.v1}]`)},
			`catalog.yaml:16: /operations/1/follow_ons/0: payload is missing`,
		},
		{
			`a follow-on name`,
			[][2]string{mail, more(`follow_ons: [{name: Receipt, operation: mail.v1, payload: "{}"}]`)},
			`catalog.yaml:16: /operations/1/follow_ons/0/name: "Receipt" is not a name for a follow-on (lower-case letters, digits and _, beginning with a letter, 63 at most)`,
		},
		{
			`two of a name`,
			[][2]string{mail, more(`follow_ons: [{name: a, operation: mail.v1, payload: "{}"}, {name: a, operation: mail.v1, payload: "{}"}]`)},
			`catalog.yaml:16: /operations/1/follow_ons/1/name: there are two follow-ons "a" (the name forms the key: give each its own)`,
		},
		{
			`an operation without its version`,
			[][2]string{mail, more(`follow_ons: [{name: receipt, operation: mail, payload: "{}"}]`)},
			`catalog.yaml:16: /operations/1/follow_ons/0/operation: "mail" is not an operation with its version (as in send_receipt.v1)`,
		},
		{
			`an operation that takes nothing new`,
			[][2]string{mail, more(`follow_ons: [{name: receipt, operation: mail.v1, payload: "{}"}]`), {`key: {rule: operation_id}`, `retired: true, key: {rule: operation_id}`}},
			`catalog.yaml:16: /operations/1/follow_ons/0/operation: mail.v1 is retired (retire what follows no earlier than what it follows)`,
		},
		{
			`a circle of one`,
			[][2]string{more(`follow_ons: [{name: receipt, operation: charge.v1, payload: "{}"}]`)},
			`catalog.yaml:15: /operations/0/follow_ons: the follow-ons go round in a circle: charge.v1 → charge.v1 (an intent without end would follow)`,
		},
		{
			`a circle of two`,
			[][2]string{mail, more(`follow_ons: [{name: receipt, operation: mail.v1, payload: "{}"}]`), {`key: {rule: operation_id}`, `follow_ons: [{name: again, operation: charge.v1, payload: "{}"}], key: {rule: operation_id}`}},
			`catalog.yaml:16: /operations/1/follow_ons: the follow-ons go round in a circle: mail.v1 → charge.v1 → mail.v1 (an intent without end would follow)`,
		},
		{
			`jq that does not parse`,
			[][2]string{mail, more(`follow_ons: [{name: receipt, operation: mail.v1, payload: "{a: }"}]`)},
			`catalog.yaml:16: /operations/1/follow_ons/0/payload: jq: unexpected token "}" at byte 5`,
		},
		{
			`jq that does not end`,
			[][2]string{mail, more(`follow_ons: [{name: receipt, operation: mail.v1, payload: "{a: 1"}]`)},
			`catalog.yaml:16: /operations/1/follow_ons/0/payload: jq: unexpected EOF at byte 5`,
		},
		{
			`jq that does not compile`,
			[][2]string{mail, more(`follow_ons: [{name: receipt, operation: mail.v1, payload: "{a: foo}"}]`)},
			`catalog.yaml:16: /operations/1/follow_ons/0/payload: jq: function not defined: foo/0`,
		},
		{
			`a variable that is not defined`,
			[][2]string{mail, more(`follow_ons: [{name: receipt, operation: mail.v1, payload: "{a: $x}"}]`)},
			`catalog.yaml:16: /operations/1/follow_ons/0/payload: jq: variable not defined: $x`,
		},
		{
			`jq that reads the environment`,
			[][2]string{mail, more(`follow_ons: [{name: receipt, operation: mail.v1, payload: "{a: env}"}]`)},
			`catalog.yaml:16: /operations/1/follow_ons/0/payload: jq: env may not be used: the result must depend on nothing but the intent and its outcome`,
		},
		{
			`jq that reads the environment by its variable`,
			[][2]string{mail, more(`follow_ons: [{name: receipt, operation: mail.v1, payload: "{a: $ENV.HOME}"}]`)},
			`catalog.yaml:16: /operations/1/follow_ons/0/payload: jq: $ENV may not be used: the result must depend on nothing but the intent and its outcome`,
		},
		{
			`jq that reads the clock`,
			[][2]string{mail, more(`follow_ons: [{name: receipt, operation: mail.v1, payload: "{}", when: now > 0}]`)},
			`catalog.yaml:16: /operations/1/follow_ons/0/when: jq: now may not be used: the result must depend on nothing but the intent and its outcome`,
		},
		{
			`jq that reads the local time, inside a function`,
			[][2]string{mail, more(`follow_ons: [{name: receipt, operation: mail.v1, payload: "def f: 0 | localtime; {a: [f]}"}]`)},
			`catalog.yaml:16: /operations/1/follow_ons/0/payload: jq: localtime may not be used: the result must depend on nothing but the intent and its outcome`,
		},
		{
			`jq that reads input`,
			[][2]string{mail, more(`follow_ons: [{name: receipt, operation: mail.v1, payload: "{a: input}"}]`)},
			`catalog.yaml:16: /operations/1/follow_ons/0/payload: jq: input may not be used: the result must depend on nothing but the intent and its outcome`,
		},
		{
			`jq that imports`,
			[][2]string{mail, more(`follow_ons: [{name: receipt, operation: mail.v1, payload: "import \"x\" as x; {}"}]`)},
			`catalog.yaml:16: /operations/1/follow_ons/0/payload: jq: modules cannot be imported`,
		},
		{
			`jq that includes`,
			[][2]string{mail, more(`follow_ons: [{name: receipt, operation: mail.v1, payload: "include \"x\"; {}"}]`)},
			`catalog.yaml:16: /operations/1/follow_ons/0/payload: jq: modules cannot be imported`,
		},
		{
			`jq that ends the evaluation`,
			[][2]string{mail, more(`follow_ons: [{name: receipt, operation: mail.v1, payload: "{a: halt}"}]`)},
			`catalog.yaml:16: /operations/1/follow_ons/0/payload: jq: halt may not be used: the result must depend on nothing but the intent and its outcome`,
		},
	}
}
