package canonical_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-worker/outbox-worker/outbox/canonical"
)

// vectors are the published texts of RFC 8785, by name.
var vectors = []string{"arrays", "french", "structures", "unicode", "values", "weird"}

func vector(t testing.TB, name string) (input, output []byte) {
	t.Helper()
	return readFile(t, "input", name), readFile(t, "output", name)
}

func readFile(t testing.TB, dir, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "rfc8785", dir, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestTransformOfPublishedVectors(t *testing.T) {
	for _, name := range vectors {
		t.Run(name, func(t *testing.T) {
			input, want := vector(t, name)
			got, err := canonical.Transform(nil, input)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("Transform = %s, %v; want %s", got, err, want)
			}
			again, err := canonical.Transform(nil, got)
			if err != nil || !bytes.Equal(again, want) {
				t.Errorf("Transform again = %s, %v; want no change", again, err)
			}
		})
	}
}

func TestTransformAppends(t *testing.T) {
	got, err := canonical.Transform([]byte("kept "), []byte("[ 1 ]"))
	if string(got) != "kept [1]" || err != nil {
		t.Errorf("Transform = %q, %v", got, err)
	}
	got, err = canonical.Transform([]byte("kept"), []byte(`{"a":1,"a":1}`))
	if string(got) != "kept" || err == nil {
		t.Errorf("Transform of a refused text = %q, %v; want dst as it was", got, err)
	}
}

// transforms are values that RFC 8785 expresses, most of which admission refuses.
var transforms = []struct{ claim, src, want string }{
	{"a number stands alone", " 1 ", "1"},
	{"a string stands alone", "\t\"a\"\n", `"a"`},
	{"words stand alone", "null", "null"},
	{"an integer rounds to a double", "9007199254740993", "9007199254740992"},
	{"a fraction rounds to a double", "0.1000000000000000055511151231257827", "0.1"},
	{"half the smallest double is zero", "2.470328229206232720e-324", "0"},
	{"more than half the smallest double is the smallest", "2.4703282292062328e-324", "5e-324"},
	{"any smaller number is zero", "-1e-999999999999", "0"},
	{"half a step above the largest double, nearly", "1.797693134862315807e308", "1.7976931348623157e+308"},
	{"a surrogate pair is one character", `"\ud83d\ude02"`, `"😂"`},
	{"a backslash before u is no escape", `"\\ud800 \\u0000"`, `"\\ud800 \\u0000"`},
	{"controls are escaped the short way or in lower case", `"\u0008\u0009\u000A\u000c\u000D\u001F\u007f"`, `"\b\t\n\f\r\u001f` + "\x7f\""},
	{"a solidus needs no escape", `"\/"`, `"/"`},
	{"names sort by UTF-16", `{"\ue000":1,"\ud800\udc00":2,"\uffff":3,"\udbff\udfff":4,"\udbff\udffe":5}`, "{\"\U00010000\":2,\"\U0010fffe\":5,\"\U0010ffff\":4,\"\ue000\":1,\"\uffff\":3}"},
	{"a longer name comes after its beginning", `{"aa":1,"a":2,"":3}`, `{"":3,"a":2,"aa":1}`},
}

func TestTransform(t *testing.T) {
	for _, tt := range transforms {
		t.Run(tt.claim, func(t *testing.T) {
			got, err := canonical.Transform(nil, []byte(tt.src))
			if string(got) != tt.want || err != nil {
				t.Errorf("Transform(%s) = %s, %v; want %s", tt.src, got, err, tt.want)
			}
		})
	}
}

func TestTransformKeepsU0000(t *testing.T) {
	got, err := canonical.Transform(nil, []byte(`{"\u0001":1,"\u0000":"\u0000"}`))
	if want := `{"\u0000":"\u0000","\u0001":1}`; string(got) != want || err != nil {
		t.Errorf("Transform = %s, %v; want %s", got, err, want)
	}
}

// untransformables are what RFC 8785 cannot express.
var untransformables = []refusal{
	{"infinity", `[1e400]`, canonical.NumberNotExact, "/0"},
	{"half a step above the largest double", `-1.797693134862315808e308`, canonical.NumberNotExact, ""},
	{"a name twice, at any place", `[[{"a":[{"b":1,"c":2,"\u0062":3}]}]]`, canonical.DuplicateMember, "/0/0/a/0/b"},
	{"a lone surrogate", `"\udead"`, canonical.LoneSurrogate, ""},
	{"no JSON", `nul`, canonical.InvalidJSON, ""},
}

func TestTransformRefuses(t *testing.T) {
	for _, tt := range untransformables {
		t.Run(tt.claim, func(t *testing.T) {
			_, err := canonical.Transform(nil, []byte(tt.src))
			tt.check(t, err)
		})
	}
}

func TestTransformIsBounded(t *testing.T) {
	const levels = 1_000_000
	_, err := canonical.Transform(nil, []byte(strings.Repeat("[", levels)+strings.Repeat("]", levels)))
	wantCode(t, err, canonical.TooDeep)
	_, err = canonical.Transform(nil, []byte(strings.Repeat("[", levels)))
	wantCode(t, err, canonical.InvalidJSON)
}

// admissions are payloads and their canonical form.
var admissions = []struct{ claim, src, want string }{
	{"the order of members does not count", `{"b":2.0,"a":1}`, `{"a":1,"b":2}`},
	{"nor does white space", "\r\n{ \"a\" :\t1 , \"b\":[ ] }\n", `{"a":1,"b":[]}`},
	{"nor does it inside", `{"x":{"b":[{"d":1,"c":2}],"a":{}},"w":[[],[{}]]}`, `{"w":[[],[{}]],"x":{"a":{},"b":[{"c":2,"d":1}]}}`},
	{"nor do escapes", `{"\u0061":"\u00e9\/"}`, `{"a":"é/"}`},
	{"accents stay as they are sent", `{"a":"e\u0301"}`, "{\"a\":\"e\u0301\"}"},
	{"the empty object is an object", `{}`, `{}`},
	{"an empty name is a name", `{"":1}`, `{"":1}`},
	{"null is a value", `{"a":null,"b":true,"c":false}`, `{"a":null,"b":true,"c":false}`},
	{"one integer, however written", `{"a":2,"b":2.0,"c":20e-1,"d":0.2E+1,"e":0.02e2,"f":2e0}`, `{"a":2,"b":2,"c":2,"d":2,"e":2,"f":2}`},
	{"one zero, however written", `{"a":0,"b":-0,"c":0.000,"d":-0e999999999999,"e":0E-5}`, `{"a":0,"b":0,"c":0,"d":0,"e":0}`},
	{"the largest integers", `{"a":9007199254740991,"b":-9007199254740991.0,"c":900719925474099100e-2}`, `{"a":9007199254740991,"b":-9007199254740991,"c":9007199254740991}`},
	{"fifteen digits of a fraction", `{"a":0.123456789012345,"b":1234567.89012345,"c":-12345678901234.5}`, `{"a":0.123456789012345,"b":1234567.89012345,"c":-12345678901234.5}`},
	{"zeros at the ends are no digits", `{"a":1.230000000000000000000,"b":0.000000000000000000000123}`, `{"a":1.23,"b":1.23e-22}`},
	{"fractions turn to exponents below 1e-6", `{"a":0.000001,"b":0.0000001,"c":-1.5e-7}`, `{"a":0.000001,"b":1e-7,"c":-1.5e-7}`},
	{"just above the smallest normal double", `{"a":2.22507385850721e-308}`, `{"a":2.22507385850721e-308}`},
	{"sixty-four levels", nested(64), nested(64)},
	{"what only looks like U+0000 or a surrogate", `{"a":"\\u0000\\ud800"}`, `{"a":"\\u0000\\ud800"}`},
	{"an escaped backslash before a pair", `{"a":"\\\ud83d\ude02"}`, `{"a":"\\😂"}`},
}

// nested returns an object that encloses levels-1 arrays.
func nested(levels int) string {
	return `{"a":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`
}

func TestAdmit(t *testing.T) {
	for _, tt := range admissions {
		t.Run(tt.claim, func(t *testing.T) {
			got, err := canonical.Admit([]byte(tt.src), 0)
			if string(got) != tt.want || err != nil {
				t.Errorf("Admit(%s) = %s, %v; want %s", tt.src, got, err, tt.want)
			}
		})
	}
}

// refusal is an input, and why and where it is refused.
type refusal struct {
	claim, src string
	code       canonical.Code
	path       string
}

func (r refusal) check(t *testing.T, err error) {
	t.Helper()
	var refused *canonical.Error
	if !errors.As(err, &refused) || refused.Code != r.code || refused.Path != r.path {
		t.Errorf("refused %.200s with %v; want %s at %q", r.src, err, r.code, r.path)
	}
	if refused != nil && refused.Hint == "" {
		t.Error("the refusal has no hint")
	}
}

func wantCode(t *testing.T, err error, code canonical.Code) {
	t.Helper()
	var refused *canonical.Error
	if !errors.As(err, &refused) || refused.Code != code {
		t.Errorf("got %v; want %s", err, code)
	}
}

var refusals = []refusal{
	{"an empty text", ``, canonical.InvalidJSON, ""},
	{"white space alone", " \n", canonical.InvalidJSON, ""},
	{"two values", `{} {}`, canonical.InvalidJSON, ""},
	{"a truncated object", `{"a":1`, canonical.InvalidJSON, ""},
	{"a truncated string", `{"a":"b`, canonical.InvalidJSON, ""},
	{"a comma at the end", `{"a":1,}`, canonical.InvalidJSON, ""},
	{"a comma at the beginning", `{,"a":1}`, canonical.InvalidJSON, ""},
	{"a comma at the end of an array", `{"a":[1,]}`, canonical.InvalidJSON, ""},
	{"no comma", `{"a":1 "b":2}`, canonical.InvalidJSON, ""},
	{"no colon", `{"a" 1}`, canonical.InvalidJSON, ""},
	{"no value", `{"a":}`, canonical.InvalidJSON, ""},
	{"a bare name", `{a:1}`, canonical.InvalidJSON, ""},
	{"a name that is no string", `{1:1}`, canonical.InvalidJSON, ""},
	{"the wrong bracket", `{"a":[1}`, canonical.InvalidJSON, ""},
	{"a bracket too many", `{"a":1}}`, canonical.InvalidJSON, ""},
	{"a hexadecimal number", `{"a":0x1p4}`, canonical.InvalidJSON, ""},
	{"a leading zero", `{"a":01}`, canonical.InvalidJSON, ""},
	{"a leading plus", `{"a":+1}`, canonical.InvalidJSON, ""},
	{"a point without digits", `{"a":1.}`, canonical.InvalidJSON, ""},
	{"an exponent without digits", `{"a":1e}`, canonical.InvalidJSON, ""},
	{"NaN", `{"a":NaN}`, canonical.InvalidJSON, ""},
	{"a word in upper case", `{"a":True}`, canonical.InvalidJSON, ""},
	{"a word cut off", `{"a":tru}`, canonical.InvalidJSON, ""},
	{"a raw line break in a string", "{\"a\":\"\n\"}", canonical.InvalidJSON, ""},
	{"an unknown escape", `{"a":"\x41"}`, canonical.InvalidJSON, ""},
	{"an escape cut off", `{"a":"\u00e"}`, canonical.InvalidJSON, ""},
	{"a byte order mark", "\ufeff{}", canonical.InvalidJSON, ""},
	{"a space that is none to JSON", "{\"a\":\u00a01}", canonical.InvalidJSON, ""},

	{"an array", `[]`, canonical.NotAnObject, ""},
	{"a string", `"a"`, canonical.NotAnObject, ""},
	{"a word", `null`, canonical.NotAnObject, ""},
	{"a number, exact or not", `1e400`, canonical.NotAnObject, ""},

	{"a name twice", `{"a":1,"b":2,"a":3}`, canonical.DuplicateMember, "/a"},
	{"a name twice, with the same value", `{"a":1,"a":1}`, canonical.DuplicateMember, "/a"},
	{"a name twice, in another spelling", `{"a":1,"\u0061":2}`, canonical.DuplicateMember, "/a"},
	{"a name twice, inside", `{"x":[0,{"y":{"a/b~c":1,"a/b~c":2}}]}`, canonical.DuplicateMember, "/x/1/y/a~1b~0c"},
	{"an empty name twice", `{"":1,"":2}`, canonical.DuplicateMember, "/"},
	{"several names twice, of which the first repetition counts", `{"a":1,"b":2,"b":3,"a":4}`, canonical.DuplicateMember, "/b"},

	{"a high surrogate", `{"a":"\ud800"}`, canonical.LoneSurrogate, "/a"},
	{"a low surrogate", `{"a":["\uDC00"]}`, canonical.LoneSurrogate, "/a/0"},
	{"a pair in the wrong order", `{"a":"\ude02\ud83d"}`, canonical.LoneSurrogate, "/a"},
	{"a pair pulled apart", `{"a":"\ud83d \ude02"}`, canonical.LoneSurrogate, "/a"},
	{"a pair with a backslash between", `{"a":"\ud83d\\\ude02"}`, canonical.LoneSurrogate, "/a"},
	{"a high surrogate before what only looks like a low one", `{"a":"\ud83d--de02"}`, canonical.LoneSurrogate, "/a"},
	{"a high surrogate before an escaped backslash", `{"a":"\ud83d\\de02"}`, canonical.LoneSurrogate, "/a"},
	{"two high surrogates and a low one", `{"a":"\ud83d\ud83d\ude02"}`, canonical.LoneSurrogate, "/a"},
	{"a surrogate in a name, at the object", `{"b":{"\ud800":1}}`, canonical.LoneSurrogate, "/b"},

	{"U+0000", `{"a":"x\u0000"}`, canonical.NulCharacter, "/a"},
	{"U+0000 in a name, at the object", `{"\u0000":1}`, canonical.NulCharacter, ""},
	{"U+0000 behind a backslash", `{"a":"\\\u0000"}`, canonical.NulCharacter, "/a"},

	{"an integer beyond 2^53-1", `{"a":9007199254740992}`, canonical.NumberNotExact, "/a"},
	{"an integer beyond -(2^53-1)", `{"a":[0,-9007199254740992]}`, canonical.NumberNotExact, "/a/1"},
	{"an integer that would lose a unit", `{"a":9007199254740993}`, canonical.NumberNotExact, "/a"},
	{"a large integer, though a double holds it", `{"a":1e16}`, canonical.NumberNotExact, "/a"},
	{"a number beyond any double", `{"a":1e400}`, canonical.NumberNotExact, "/a"},
	{"sixteen digits of a fraction", `{"a":0.1234567890123456}`, canonical.NumberNotExact, "/a"},
	{"sixteen digits with a point inside", `{"a":123456789012345.6}`, canonical.NumberNotExact, "/a"},
	{"a fraction near 2^53", `{"a":9007199254740990.5}`, canonical.NumberNotExact, "/a"},
	{"a fraction below the normal doubles", `{"a":2.22507385850720e-308}`, canonical.NumberNotExact, "/a"},
	{"a fraction that would become zero", `{"a":1e-400}`, canonical.NumberNotExact, "/a"},
	{"an exponent beyond an int", `{"a":1e-99999999999999999999}`, canonical.NumberNotExact, "/a"},

	{"sixty-five levels", nested(65), canonical.TooDeep, "/a" + strings.Repeat("/0", 63)},
	{"sixty-five levels of objects", strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65), canonical.TooDeep, strings.Repeat("/a", 64)},
	{"nesting that exhausts a parser's stack", nested(30_000), canonical.TooDeep, "/a" + strings.Repeat("/0", 63)},
	{"such nesting in an array", strings.Repeat("[", 30_000) + strings.Repeat("]", 30_000), canonical.NotAnObject, ""},
	{"such nesting, broken", `{"a":` + strings.Repeat("[", 60_000), canonical.InvalidJSON, ""},
	{"such nesting, broken at the end", nested(30_000) + "1", canonical.InvalidJSON, ""},

	{"no JSON, before any other fault", `{"a":1,"a":"\ud800\u0000","b":1e400,}`, canonical.InvalidJSON, ""},
	{"no object, before what is inside", `["\ud800",1e400]`, canonical.NotAnObject, ""},
	{"a number before a repeated name", `{"a":1e400,"a":1}`, canonical.NumberNotExact, "/a"},
	{"a repeated name before its value", `{"a":1,"a":1e400}`, canonical.DuplicateMember, "/a"},
	{"a repeated name before what is inside its value", `{"a":1,"a":{"b":"\ud800","b":1}}`, canonical.DuplicateMember, "/a"},
	{"what is inside before a later repetition", `{"a":{"b":1,"b":2},"a":1}`, canonical.DuplicateMember, "/a/b"},
	{"a repeated name before too deep a value", `{"b":1,"b":` + nested(64) + `}`, canonical.DuplicateMember, "/b"},
	{"too deep before a later number", `{"b":` + nested(64) + `,"c":1e400}`, canonical.TooDeep, "/b/a" + strings.Repeat("/0", 62)},
	{"a surrogate in a name before its value", `{"a":{"\udead":1e400}}`, canonical.LoneSurrogate, "/a"},
	{"a surrogate before U+0000", `{"a":"\udead\u0000"}`, canonical.LoneSurrogate, "/a"},
	{"U+0000 before a surrogate", `{"a":"\u0000\udead"}`, canonical.NulCharacter, "/a"},
}

func TestAdmitRefuses(t *testing.T) {
	for _, tt := range refusals {
		t.Run(tt.claim, func(t *testing.T) {
			_, err := canonical.Admit([]byte(tt.src), 0)
			tt.check(t, err)
		})
	}
}

// The database cannot hold such text, so these cases are for Go alone.
func TestAdmitRefusesBytesThatAreNoText(t *testing.T) {
	for _, tt := range []refusal{
		{"a stray byte", "{\"a\":\"\xff\"}", canonical.InvalidUTF8, "/a"},
		{"a character cut off", "{\"a\":[\"\xe2\x82\"]}", canonical.InvalidUTF8, "/a/0"},
		{"a surrogate as bytes", "{\"a\":\"\xed\xa0\x80\"}", canonical.InvalidUTF8, "/a"},
		{"a stray byte in a name, at the object", "{\"x\":{\"\xff\":1}}", canonical.InvalidUTF8, "/x"},
		{"a stray byte among escapes", "{\"a\":\"\\n\xff\\ud800\"}", canonical.InvalidUTF8, "/a"},
		{"a surrogate before a stray byte", "{\"a\":\"\\ud800\xff\"}", canonical.LoneSurrogate, "/a"},
		{"a stray byte outside a string", "{\"a\":\xff}", canonical.InvalidJSON, ""},
		{"a raw NUL in a string", "{\"a\":\"\x00\"}", canonical.InvalidJSON, ""},
		{"a raw NUL at the end", "{}\x00", canonical.InvalidJSON, ""},
	} {
		t.Run(tt.claim, func(t *testing.T) {
			_, err := canonical.Admit([]byte(tt.src), 0)
			tt.check(t, err)
		})
	}
}

// sizes are texts at their limits. A size is that of the text as sent, in bytes.
var sizes = []struct {
	claim    string
	src      string
	maxBytes int
	code     canonical.Code
}{
	{"as long as the limit", `{"a":"é"}`, 10, ""},
	{"a byte longer", `{"a":"é"}`, 9, canonical.TooLarge},
	{"white space counts", `{} `, 2, canonical.TooLarge},
	{"size comes before grammar", `{{{`, 2, canonical.TooLarge},
	{"zero is the default limit", `{"a":"` + strings.Repeat("x", canonical.DefaultMaxBytes-8) + `"}`, 0, ""},
	{"and so is less", `{"a":"` + strings.Repeat("x", canonical.DefaultMaxBytes-7) + `"}`, -1, canonical.TooLarge},
	{"a larger limit serves", `{"a":"` + strings.Repeat("x", canonical.DefaultMaxBytes) + `"}`, 1 << 20, ""},
}

func TestAdmitLimitsTheSize(t *testing.T) {
	for _, tt := range sizes {
		t.Run(tt.claim, func(t *testing.T) {
			_, err := canonical.Admit([]byte(tt.src), tt.maxBytes)
			if tt.code != "" {
				refusal{src: tt.src, code: tt.code}.check(t, err)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAdmitTakesManyMembersInAnyOrder(t *testing.T) {
	var src, want bytes.Buffer
	for i := range 5000 {
		fmt.Fprintf(&src, `%c"%04d":0`, "{,"[min(i, 1)], 4999-i)
		fmt.Fprintf(&want, `%c"%04d":0`, "{,"[min(i, 1)], i)
	}
	got, err := canonical.Admit(append(src.Bytes(), '}'), 1<<20)
	if err != nil || string(got) != want.String()+"}" {
		t.Errorf("Admit = %.100s…, %v", got, err)
	}
	for _, name := range []string{"2500", "0001", "4998", "2499"} {
		_, err = canonical.Admit(append(src.Bytes(), fmt.Sprintf(`,"%s":1,"0000":1,"4999":1,"3000":1}`, name)...), 1<<20)
		refusal{code: canonical.DuplicateMember, path: "/" + name}.check(t, err)
	}
}

func TestDigest(t *testing.T) {
	for _, tt := range digests {
		if got := canonical.Digest([]byte(tt.canonical)); hex.EncodeToString(got[:]) != tt.want {
			t.Errorf("Digest(%s) = %x; want %s", tt.canonical, got, tt.want)
		}
	}
}

// digests were computed with sha256sum. They must never change while Version is 1.
var digests = []struct{ canonical, want string }{
	{`{}`, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},
	{`{"a":1,"b":"é"}`, "09ad9fd2fb648cb2f62141215828ea00a62c299db05d20aa9ade2f527a301cc6"},
}

func TestErrorTellsCodePathAndHint(t *testing.T) {
	_, err := canonical.Admit([]byte(`{"amount":12345678901234567890}`), 0)
	want := "canonical: number_not_exact at /amount: send amounts as integers of minor units, and longer numbers as strings"
	if err == nil || err.Error() != want {
		t.Errorf("error = %v; want %s", err, want)
	}
	_, err = canonical.Admit([]byte(`{} `), 2)
	if err == nil || !strings.HasPrefix(err.Error(), "canonical: too_large: 3 bytes are over the limit of 2;") {
		t.Errorf("error = %v", err)
	}
}
