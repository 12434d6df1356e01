package canonical

import (
	"bytes"
	"cmp"
	"slices"
)

// member is one member of an object that a writer has written: where its decoded name
// is in names, and where `"name":value` is in out.
type member struct {
	order         int // of appearance
	name, nameEnd int
	text, textEnd int
}

// areSorted reports whether the names strictly ascend, as in a text that is canonical
// already.
func (w *writer) areSorted(members []member) bool {
	for i := 1; i < len(members); i++ {
		if compareUTF16(w.nameOf(members[i-1]), w.nameOf(members[i])) >= 0 {
			return false
		}
	}
	return true
}

// sort puts members in canonical order, and equal names in the order of src.
func (w *writer) sort(members []member) {
	slices.SortFunc(members, func(a, b member) int {
		return cmp.Or(compareUTF16(w.nameOf(a), w.nameOf(b)), cmp.Compare(a.order, b.order))
	})
}

// firstRepeated returns, of sorted members, the earliest in src that has the name of
// another before it.
func (w *writer) firstRepeated(sorted []member) (first member, found bool) {
	for i := 1; i < len(sorted); i++ {
		m := sorted[i]
		if bytes.Equal(w.nameOf(sorted[i-1]), w.nameOf(m)) && (!found || m.order < first.order) {
			first, found = m, true
		}
	}
	return first, found
}

// arrange rewrites the object that begins at start in out with its members in their
// new order. Its length stays the same.
func (w *writer) arrange(sorted []member, start int) {
	w.scratch = append(w.scratch[:0], w.out[start:]...)
	out := w.out[:start]
	for i, m := range sorted {
		separator := byte(',')
		if i == 0 {
			separator = '{'
		}
		out = append(out, separator)
		out = append(out, w.scratch[m.text-start:m.textEnd-start]...)
	}
	w.out = append(out, '}')
}

func (w *writer) nameOf(m member) []byte { return w.names[m.name:m.nameEnd] }

// compareUTF16 orders two texts by their UTF-16 code units, as RFC 8785 does. That is
// the order of their UTF-8 bytes with one exception: the surrogates of a character
// beyond U+FFFF come before U+E000, while its UTF-8 bytes come after U+FFFF.
func compareUTF16(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] == b[i] {
			continue
		}
		if a[i] >= leadE000 && b[i] >= leadE000 && (a[i] >= leadAstral) != (b[i] >= leadAstral) {
			return cmp.Compare(b[i], a[i])
		}
		return cmp.Compare(a[i], b[i])
	}
	return cmp.Compare(len(a), len(b))
}

// The least lead bytes in UTF-8 of the characters from U+E000 and from U+10000 on.
const (
	leadE000   = 0xEE
	leadAstral = 0xF0
)
