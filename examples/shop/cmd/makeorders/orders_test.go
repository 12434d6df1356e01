package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/outbox-worker/outbox-worker/examples/shop"
)

func TestTheFileIsMadeFromThisSource(t *testing.T) {
	t.Parallel()
	if !bytes.Equal(orders(), shop.Orders) {
		t.Error("orders.ndjson is not what this command writes; run it as its comment says")
	}
}

// The file is there to be varied. Whoever changes it should not lose what it is for.
func TestTheOrdersAreVaried(t *testing.T) {
	t.Parallel()
	storefronts, currencies, scripts, numbers := map[string]int{}, map[string]bool{}, map[string]bool{}, map[string]int{}
	var lines, longest, largest int
	for line := range bytes.Lines(shop.Orders) {
		if !utf8.Valid(line) {
			t.Fatalf("not UTF-8: %q", line)
		}
		lines++
		var o shop.Order
		if err := json.Unmarshal(line, &o); err != nil {
			t.Fatal(err)
		}
		storefronts[o.Storefront]++
		currencies[o.Currency] = true
		numbers[o.ID]++
		longest, largest = max(longest, len(o.Lines)), max(largest, len(line))
		for _, r := range o.Name {
			for name, table := range unicode.Scripts {
				if unicode.Is(table, r) {
					scripts[name] = true
				}
			}
		}
	}
	if share := 100 * storefronts["meridian"] / lines; share < 49 || share > 52 || len(storefronts) != len(shop.Storefronts) {
		t.Errorf("of %d orders, storefronts have %v", lines, storefronts)
	}
	if len(currencies) < 35 {
		t.Errorf("only %d currencies", len(currencies))
	}
	for _, script := range []string{"Arabic", "Cyrillic", "Devanagari", "Greek", "Han", "Hangul", "Hebrew", "Hiragana", "Katakana", "Latin", "Thai"} {
		if !scripts[script] {
			t.Errorf("no name in %s", script)
		}
	}
	if numbers["1001"] < len(shop.Storefronts) {
		t.Error("storefronts do not share order numbers")
	}
	if longest != 100 || largest > 64<<10 {
		t.Errorf("longest order has %d lines, largest %d bytes", longest, largest)
	}
	for _, text := range []string{"Nguy\u1ec5n", "Nguye\u0302\u0303n", "\u200f", "\u2067", "𠮷", "👩🏾‍🚀", `\u2028`, `\uD83`, "999999999999", strings.Repeat("x", 64) + "@"} {
		if !bytes.Contains(shop.Orders, []byte(text)) {
			t.Errorf("no order has %+q", text)
		}
	}
}
