package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func (d *decoder) text(to *string) func(value) {
	return func(v value) {
		hint := ""
		if v.kind == numberKind || v.kind == booleanKind {
			hint = "put it in quotes"
		}
		switch {
		case !d.is(v, textKind, hint):
		case v.scalar == "":
			d.refuse(v.path, "it is empty", "give a value or leave the field out")
		default:
			*to = v.scalar
		}
	}
}

func (d *decoder) texts(to *[]string) func(value) {
	return func(v value) {
		if !d.is(v, arrayKind, "as in [/order_id]") {
			return
		}
		*to = make([]string, len(v.items))
		for i, item := range v.items {
			d.text(&(*to)[i])(item)
		}
	}
}

func (d *decoder) boolean(to *bool) func(value) {
	return func(v value) {
		if d.is(v, booleanKind, "") {
			*to = v.scalar == "true"
		}
	}
}

func (d *decoder) integer(to *int) func(value) {
	return func(v value) {
		if !d.is(v, numberKind, numberHint(v)) {
			return
		}
		n, err := strconv.ParseInt(v.scalar, 10, 32)
		if err != nil {
			d.refuse(v.path, v.scalar+" is not a whole number of at most 32 bits", "")
		}
		*to = int(n)
	}
}

func numberHint(v value) string {
	if v.kind == textKind && jsonNumber.MatchString(v.scalar) {
		return "write it without quotes"
	}
	return ""
}

func (d *decoder) number(to *float64) func(value) {
	return func(v value) {
		if !d.is(v, numberKind, numberHint(v)) {
			return
		}
		n, err := strconv.ParseFloat(v.scalar, 64)
		if err != nil {
			d.refuse(v.path, v.scalar+" is too large", "")
		}
		*to = n
	}
}

func (d *decoder) positive(to *float64, hint string) func(value) {
	read := d.number(to)
	return func(v value) {
		if read(v); v.kind == numberKind && *to <= 0 {
			d.refuse(v.path, "it must be above 0", hint)
		}
	}
}

func (d *decoder) duration(to *Duration) func(value) {
	return func(v value) {
		const hint = "write it with a unit: 500ms, 10s, 15m, 48h"
		if !d.is(v, textKind, hint) {
			return
		}
		var err error
		if *to, err = parseDuration(v.scalar); err != nil {
			d.refuse(v.path, err.Error(), hint)
		}
	}
}

func choice[T ~string](d *decoder, to *T, among ...T) func(value) {
	return func(v value) {
		words := make([]string, len(among))
		for i, word := range among {
			words[i] = string(word)
		}
		hint := "one of " + strings.Join(words, ", ")
		switch {
		case !d.is(v, textKind, hint):
		case !slices.Contains(words, v.scalar):
			d.refuse(v.path, fmt.Sprintf("%q is not known", v.scalar), hint)
		default:
			*to = T(v.scalar)
		}
	}
}

// document keeps an object as JSON text.
func (d *decoder) document(to *json.RawMessage) func(value) {
	return func(v value) {
		var b bytes.Buffer
		if d.is(v, objectKind, "a JSON Schema such as {type: object, …}") && v.writeJSON(&b) {
			*to = b.Bytes()
		}
	}
}

// writeJSON reports false where a part is broken.
func (v value) writeJSON(b *bytes.Buffer) bool {
	whole := true
	switch v.kind {
	case objectKind:
		b.WriteByte('{')
		for i, m := range v.members {
			b.WriteString(comma(i) + quote(m.name) + ":")
			whole = m.value.writeJSON(b) && whole
		}
		b.WriteByte('}')
	case arrayKind:
		b.WriteByte('[')
		for i, item := range v.items {
			b.WriteString(comma(i))
			whole = item.writeJSON(b) && whole
		}
		b.WriteByte(']')
	case textKind:
		b.WriteString(quote(v.scalar))
	case numberKind, booleanKind:
		b.WriteString(v.scalar)
	case nullKind:
		b.WriteString("null")
	default:
		return false
	}
	return whole
}

func comma(i int) string {
	if i == 0 {
		return ""
	}
	return ","
}

func quote(s string) string {
	text, _ := json.Marshal(s) // a string cannot fail
	return string(text)
}

// suggest names the word that was probably meant, or all of them.
func suggest(word string, among []string) string {
	best, bestDistance := "", 3
	for _, candidate := range among {
		if n := distance(word, candidate); n < bestDistance {
			best, bestDistance = candidate, n
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	return "known here: " + strings.Join(among, ", ")
}

// distance counts the letters to insert, delete or replace between two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
