package canonical_test

import (
	"errors"
	"fmt"

	"github.com/outbox-worker/outbox-worker/outbox/canonical"
)

func ExampleAdmit() {
	one, _ := canonical.Admit([]byte(`{"a":1,"b":2.0}`), 0)
	other, _ := canonical.Admit([]byte(`{ "b": 2, "a": 1 }`), 0)
	fmt.Printf("%s\n%t\n", one, canonical.Digest(one) == canonical.Digest(other))
	// Output:
	// {"a":1,"b":2}
	// true
}

func ExampleError() {
	_, err := canonical.Admit([]byte(`{"lines":[{"amount":12345678901234567.89}]}`), 0)
	var refused *canonical.Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Code)
		fmt.Println(refused.Path)
		fmt.Println(refused.Hint)
	}
	// Output:
	// number_not_exact
	// /lines/0/amount
	// send amounts as integers of minor units, and longer numbers as strings
}

func ExampleFill() {
	filled, _ := canonical.Fill([]byte(`{"amount":1999,"note":null}`), []byte(`{"currency":"eur","note":"none"}`))
	fmt.Printf("%s\n", filled)
	// Output:
	// {"amount":1999,"currency":"eur","note":null}
}
