package catalog_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

// base is a small catalog that the tests below break, each in one place.
const base = `lanes:
  payments: {provider: stripe}
operations:
  - name: charge
    version: 1
    class: key_protected
    lane: payments
    key: {rule: business, fields: [/order_id]}
    input:
      type: object
      required: [order_id]
      properties:
        order_id: {type: string}
    review: {owner: oncall}
`

// more appends to the operation of base.
func more(lines ...string) [2]string {
	const last = "    review: {owner: oncall}\n"
	return [2]string{last, last + "    " + strings.Join(lines, "\n    ") + "\n"}
}

// property adds members of properties to the operation's input.
func property(lines ...string) [2]string {
	const last = "        order_id: {type: string}\n"
	return [2]string{last, last + "        " + strings.Join(lines, "\n        ") + "\n"}
}

// mail adds an operation mail.v1 before that of base.
var mail = [2]string{"operations:\n", "operations:\n  - {name: mail, version: 1, class: read_only, lane: payments, key: {rule: operation_id}, input: {type: object}}\n"}

func edit(t testing.TB, edits ...[2]string) string {
	t.Helper()
	text := base
	for _, e := range edits {
		if !strings.Contains(text, e[0]) {
			t.Fatalf("%q is not in the catalog", e[0])
		}
		text = strings.Replace(text, e[0], e[1], 1)
	}
	return text
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range refusals() {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := catalog.Parse("catalog.yaml", []byte(edit(t, test.edits...)))
			var e *catalog.Error
			if !errors.As(err, &e) {
				t.Fatalf("accepted, or another error: %v", err)
			}
			if got := err.Error(); got != test.want {
				t.Errorf("\n got: %s\nwant: %s", got, test.want)
			}
		})
	}
}

func TestParseBase(t *testing.T) {
	t.Parallel()
	parse(t, edit(t))
}
