package canonical

import (
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// rules are what a writer refuses beyond what RFC 8785 cannot express.
type rules struct {
	depth     int  // of nested objects and arrays
	admission bool // refuse U+0000 and numbers that are not exact
}

// write appends the canonical form of src, which must have passed checkGrammar, to
// dst. If a rule is broken it returns dst as it was, and the first fault of src.
func write(dst, src []byte, r rules) ([]byte, error) {
	w := writer{src: src, out: dst, rules: r}
	if err := w.value(1); err != nil {
		return dst, err
	}
	return w.out, nil
}

// writer copies a valid text in canonical form. Because the text is valid, it steps
// over commas and colons as it does over white space.
type writer struct {
	src     []byte
	pos     int
	out     []byte
	rules   rules
	members []member // of the open objects, innermost last
	names   []byte   // the decoded names of those members
	scratch []byte
}

func (w *writer) value(depth int) *Error {
	switch c := w.peek(); c {
	case '{':
		return w.object(depth)
	case '[':
		return w.array(depth)
	case '"':
		return w.text()
	case 't', 'f', 'n':
		w.word()
		return nil
	default:
		return w.number()
	}
}

func (w *writer) object(depth int) *Error {
	if depth > w.rules.depth {
		return refuse(TooDeep)
	}
	members, names, start := len(w.members), len(w.names), len(w.out)
	err := w.fields(depth)
	own := w.members[members:]
	sorted := w.areSorted(own)
	if !sorted {
		w.sort(own)
	}
	switch repeated, found := w.firstRepeated(own); {
	case found:
		// All names were read before the place of err: a repeated one is the earlier fault.
		err = refuse(DuplicateMember).within(pointerStep(w.nameOf(repeated)))
	case err == nil && !sorted:
		w.arrange(own, start)
	}
	w.members, w.names = w.members[:members], w.names[:names]
	return err
}

// fields writes an object with its members in the order of src, and notes them.
func (w *writer) fields(depth int) *Error {
	w.pos++
	w.out = append(w.out, '{')
	for i := 0; w.peek() != '}'; i++ {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		if err := w.field(depth); err != nil {
			return err
		}
	}
	w.out = append(w.out, '}')
	w.pos++
	return nil
}

func (w *writer) field(depth int) *Error {
	m := member{order: len(w.members), name: len(w.names), text: len(w.out)}
	if err := w.name(); err != nil {
		return err
	}
	m.nameEnd = len(w.names)
	w.members = append(w.members, m)
	w.out = append(w.out, ':')
	w.peek()
	if err := w.value(depth + 1); err != nil {
		return err.within(pointerStep(w.nameOf(m)))
	}
	w.members[m.order].textEnd = len(w.out)
	return nil
}

func (w *writer) array(depth int) *Error {
	if depth > w.rules.depth {
		return refuse(TooDeep)
	}
	w.pos++
	w.out = append(w.out, '[')
	for i := 0; w.peek() != ']'; i++ {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		if err := w.value(depth + 1); err != nil {
			return err.within(strconv.Itoa(i))
		}
	}
	w.out = append(w.out, ']')
	w.pos++
	return nil
}

// name writes a member name and appends its decoded form to names.
func (w *writer) name() *Error {
	body, escaped := w.literal()
	if !escaped {
		w.names = append(w.names, body...)
		return w.plain(body)
	}
	from := len(w.names)
	var fault Code
	if w.names, fault = unescape(w.names, body, w.rules.admission); fault != "" {
		w.names = w.names[:from]
		return refuse(fault)
	}
	w.quote(w.names[from:])
	return nil
}

// text writes a string value.
func (w *writer) text() *Error {
	body, escaped := w.literal()
	if !escaped {
		return w.plain(body)
	}
	var fault Code
	if w.scratch, fault = unescape(w.scratch[:0], body, w.rules.admission); fault != "" {
		return refuse(fault)
	}
	w.quote(w.scratch)
	return nil
}

// literal reads a string and returns what is between its quotes.
func (w *writer) literal() (body []byte, escaped bool) {
	w.pos++
	from := w.pos
	for w.src[w.pos] != '"' {
		if w.src[w.pos] == '\\' {
			escaped = true
			w.pos++
		}
		w.pos++
	}
	w.pos++
	return w.src[from : w.pos-1], escaped
}

// plain writes a string that has no escapes and therefore needs none.
func (w *writer) plain(body []byte) *Error {
	if !utf8.Valid(body) {
		return refuse(InvalidUTF8)
	}
	w.out = append(w.out, '"')
	w.out = append(w.out, body...)
	w.out = append(w.out, '"')
	return nil
}

// quote writes decoded text, which is valid UTF-8, with the escapes it needs.
func (w *writer) quote(decoded []byte) {
	w.out, _ = jsontext.AppendQuote(w.out, decoded)
}

func (w *writer) word() {
	from := w.pos
	for w.pos < len(w.src) && 'a' <= w.src[w.pos] && w.src[w.pos] <= 'z' {
		w.pos++
	}
	w.out = append(w.out, w.src[from:w.pos]...)
}

func (w *writer) number() *Error {
	from := w.pos
	for w.pos < len(w.src) && isNumeric(w.src[w.pos]) {
		w.pos++
	}
	var ok bool
	if w.out, ok = appendNumber(w.out, w.src[from:w.pos], w.rules.admission); !ok {
		return refuse(NumberNotExact)
	}
	return nil
}

// peek returns the first byte of the next token.
func (w *writer) peek() byte {
	for isSpace(w.src[w.pos]) || w.src[w.pos] == ',' || w.src[w.pos] == ':' {
		w.pos++
	}
	return w.src[w.pos]
}
