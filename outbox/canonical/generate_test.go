package canonical_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// generator writes JSON texts that are likely to be near the edge of a rule: most are
// payloads in unusual spelling, some break one rule, some several.
type generator struct {
	*rand.Rand
	out []byte
}

// document returns a text that Postgres can store: valid UTF-8 without NUL.
func (g *generator) document() string {
	g.out = g.out[:0]
	switch {
	case g.oneIn(50):
		g.value(0)
	case g.oneIn(50):
		g.deep(60 + g.IntN(10))
	case g.oneIn(20_000):
		g.deep(10_000 + g.IntN(20_000)) // exhausts the stack of Postgres' parser
	default:
		g.object(0)
	}
	g.space()
	if g.oneIn(4) {
		for range 1 + g.IntN(3) {
			g.mutate()
		}
	}
	return strings.ReplaceAll(strings.ToValidUTF8(string(g.out), "\ufffd"), "\x00", "")
}

func (g *generator) oneIn(n int) bool { return g.IntN(n) == 0 }

func (g *generator) write(parts ...string) {
	for _, part := range parts {
		g.out = append(g.out, part...)
	}
}

func (g *generator) pick(texts ...string) string { return texts[g.IntN(len(texts))] }

func (g *generator) space() {
	for g.oneIn(8) {
		g.write(g.pick(" ", "\t", "\n", "\r"))
	}
}

func (g *generator) value(depth int) {
	g.space()
	switch kind := g.IntN(10); {
	case kind < 2 && depth < 6:
		g.object(depth + 1)
	case kind < 3 && depth < 6:
		g.array(depth + 1)
	case kind < 6:
		g.number()
	case kind < 7:
		g.write(g.pick("true", "false", "null"))
	default:
		g.text(g.IntN(8))
	}
	g.space()
}

func (g *generator) object(depth int) {
	g.list("{", "}", func() {
		g.space()
		g.name()
		g.space()
		g.write(":")
		g.value(depth)
	})
}

func (g *generator) array(depth int) {
	g.list("[", "]", func() { g.value(depth) })
}

func (g *generator) list(open, closing string, item func()) {
	g.write(open)
	for i := range g.IntN(6) {
		if i > 0 {
			g.write(",")
		}
		item()
	}
	g.space()
	g.write(closing)
}

// deep encloses a value in the given number of objects and arrays.
func (g *generator) deep(levels int) {
	var closing []byte
	for range levels {
		if len(closing) == 0 || g.oneIn(3) {
			g.write(`{"a":`)
			closing = append(closing, '}')
		} else {
			g.write(`[`)
			closing = append(closing, ']')
		}
	}
	g.number()
	slices.Reverse(closing)
	g.out = append(g.out, closing...)
}

// name writes one of few short names, so that repetitions occur, or an odd one.
func (g *generator) name() {
	if g.oneIn(3) {
		g.text(g.IntN(4))
		return
	}
	g.write(g.pick(`"a"`, `"b"`, `"c"`, `"d"`, `"e"`, `"aa"`, `"/"`, `"~"`, `""`, `"\u0061"`, `"é"`, `"\u00e9"`,
		"\"\ue000\"", "\"\uffff\"", "\"\U00010000\"", `"\ud83d\ude02"`, `"1"`, `"10"`))
}

// oddRunes are at the edges of what escapes, UTF-8 and UTF-16 treat alike.
var oddRunes = []rune("\b\t\n\f\r\x01\x1f\"\\/ ~09azAZ<>&'\x7f\u0080\u00e9\u0301\u07ff\u0800\u20ac\u2028\ud7ff\ue000\ufb33\ufeff\ufffd\ufffe\uffff\U00010000\U0001f602\U0010fffe\U0010ffff")

func (g *generator) text(length int) {
	g.write(`"`)
	for range length {
		switch {
		case g.oneIn(150):
			g.write(g.pick(`\ud800`, `\uDbFf`, `\udc00`, `\uDFFF`))
		case g.oneIn(150):
			g.write(`\u0000`)
		case g.oneIn(30):
			g.write(g.pick(`\\`, `\/`, `\\u0000`, `\\ud800`, `\"`))
		default:
			g.rune(oddRunes[g.IntN(len(oddRunes))])
		}
	}
	g.write(`"`)
}

// rune writes r as itself, if that is allowed, or as an escape.
func (g *generator) rune(r rune) {
	if r >= ' ' && r != '"' && r != '\\' && !g.oneIn(3) {
		g.out = utf8.AppendRune(g.out, r)
		return
	}
	if i := strings.IndexRune("\b\t\n\f\r\"\\/", r); i >= 0 && g.oneIn(2) {
		g.write(`\`, `btnfr"\/`[i:i+1])
		return
	}
	for _, unit := range utf16.Encode([]rune{r}) {
		g.write(fmt.Sprintf(g.pick(`\u%04x`, `\u%04X`), unit))
	}
}

// number writes a literal, often one at the edge of what is exact.
func (g *generator) number() {
	if g.oneIn(2) {
		g.write(g.pick("", "-"))
	}
	switch g.IntN(12) {
	case 0, 1, 2:
		g.write(strconv.Itoa(g.IntN(1000)))
	case 3:
		g.write(strconv.FormatUint(1<<53-3+g.Uint64N(6), 10))
		g.write(g.pick("", "", ".0", ".5", "e0", "0e-1", "e1"))
	case 4, 5, 6:
		g.write(strconv.Itoa(g.IntN(100_000)), ".", g.digits(1+g.IntN(13)))
	case 7, 8:
		g.write(strconv.Itoa(g.IntN(10)), ".", g.digits(1+g.IntN(16)), g.pick("e", "E"), g.exponent())
	case 9:
		g.write("0.", strings.Repeat("0", g.IntN(30)), g.digits(1+g.IntN(16)), strings.Repeat("0", g.IntN(20)))
	case 10:
		g.write(g.digits(1), g.digits(12+g.IntN(12)), g.pick("", "", "."+g.digits(1+g.IntN(4))), g.pick("", "", "e"+g.exponent()))
	default:
		g.write(g.pick("0", "0.0", "0e400", "0E-400", "1e400", "1e-400", "2.2250738585072014e-308", "2.22507385850721e-308",
			"2.22507385850720e-308", "22.250738585072e-309", "1.7976931348623157e308", "1.797693134862315807e308",
			"1.797693134862315808e308", "5e-324", "2.4703282292062327e-324", "2.4703282292062328e-324", "1e21", "1e20",
			"999999999999999999999", "1e-6", "1e-7", "1e99999999999", "1e-99999999999", "123e-99999999999999999999"))
	}
}

// digits writes so many digits; the first is not 0.
func (g *generator) digits(n int) string {
	digits := []byte{byte('1' + g.IntN(9))}
	for len(digits) < n {
		digits = append(digits, byte('0'+g.IntN(10)))
	}
	return string(digits)
}

func (g *generator) exponent() string {
	sign := g.pick("", "+", "-")
	switch g.IntN(4) {
	case 0:
		return sign + strconv.Itoa(295+g.IntN(35))
	case 1:
		return sign + "0" + strconv.Itoa(g.IntN(30))
	default:
		return sign + strconv.Itoa(g.IntN(25))
	}
}

// mutate breaks the text at one place, or merely changes it.
func (g *generator) mutate() {
	if len(g.out) == 0 {
		return
	}
	at := g.IntN(len(g.out))
	end := min(len(g.out), at+1+g.IntN(8))
	switch g.IntN(5) {
	case 0:
		g.out = g.out[:at]
	case 1:
		g.out = slices.Delete(g.out, at, at+1)
	case 2:
		g.out = slices.Insert(g.out, at, bytes.Clone(g.out[at:end])...)
	case 3:
		g.out = slices.Insert(g.out, at, g.fragment()...)
	default:
		g.out = slices.Replace(g.out, at, end, g.fragment()...)
	}
}

func (g *generator) fragment() []byte {
	return []byte(g.pick(`{`, `}`, `[`, `]`, `,`, `:`, `"`, `\`, `-`, `+`, `.`, `0`, `9`, `e`, `E5`, ` `, "\n", "\u00a0", "\x01",
		`\u`, `\ud800`, `\udc00`, `\u0000`, `null`, `tru`, `"a":1,`, `,"a":2`, `[]`, `{}`, `1e400`, `é`, "\ufeff", `//`, `NaN`))
}
