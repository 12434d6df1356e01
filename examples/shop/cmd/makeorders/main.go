// Command makeorders writes the example shop's orders to standard output. It is
// deterministic: the same source gives the same bytes, on every machine and with every
// Go. To change the orders, change it and run
//
//	go run ./examples/shop/cmd/makeorders > orders.tmp && mv orders.tmp examples/shop/orders.ndjson
package main

import (
	"fmt"
	"os"
)

func main() {
	if _, err := os.Stdout.Write(orders()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
