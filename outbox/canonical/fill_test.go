package canonical_test

import (
	"testing"

	"github.com/outbox-worker/outbox-worker/outbox/canonical"
)

var fills = []struct{ claim, doc, defaults, want string }{
	{"what is missing is added in order", `{"b":1}`, `{"a":2,"c":3}`, `{"a":2,"b":1,"c":3}`},
	{"what is there stands", `{"a":1}`, `{"a":2}`, `{"a":1}`},
	{"null is there", `{"a":null}`, `{"a":2}`, `{"a":null}`},
	{"nothing is missing", `{"a":1,"b":2}`, `{}`, `{"a":1,"b":2}`},
	{"everything is missing", `{}`, `{"a":{"b":[1]}}`, `{"a":{"b":[1]}}`},
	{"nothing at all", `{}`, `{}`, `{}`},
	{"objects are filled inside", `{"x":{"y":{"b":1}}}`, `{"x":{"w":0,"y":{"a":2,"b":3}},"z":4}`, `{"x":{"w":0,"y":{"a":2,"b":1}},"z":4}`},
	{"arrays are not", `{"x":[{"a":1}]}`, `{"x":[{"a":2,"b":3}]}`, `{"x":[{"a":1}]}`},
	{"an object is not filled from an array", `{"x":{}}`, `{"x":[1]}`, `{"x":{}}`},
	{"an array is not filled from an object", `{"x":[]}`, `{"x":{"a":1}}`, `{"x":[]}`},
	{"a text is not an object", `{"x":"{}"}`, `{"x":{"a":1}}`, `{"x":"{}"}`},
	{"names are compared as text", `{"\"":1,"\\":{"\n":1}}`, `{"\"":2,"\\":{"\n":2,"a":3}}`, `{"\"":1,"\\":{"\n":1,"a":3}}`},
	{"names are in the order of UTF-16", `{"` + "\ue000" + `":1}`, `{"😂":2,"` + "\uffff" + `":3}`, `{"😂":2,"` + "\ue000" + `":1,"` + "\uffff" + `":3}`},
	{"brackets in texts are no brackets", `{"a":"}]","b":["{",{"c":"\"}"}]}`, `{"aa":"]"}`, `{"a":"}]","aa":"]","b":["{",{"c":"\"}"}]}`},
}

func TestFill(t *testing.T) {
	for _, tt := range fills {
		t.Run(tt.claim, func(t *testing.T) {
			got, err := canonical.Fill([]byte(tt.doc), []byte(tt.defaults))
			if string(got) != tt.want || err != nil {
				t.Errorf("Fill(%s, %s) = %s, %v; want %s", tt.doc, tt.defaults, got, err, tt.want)
			}
		})
	}
}

func TestFillMakesItsInputCanonical(t *testing.T) {
	got, err := canonical.Fill([]byte(`{"b": 1.0, "a": {}}`), []byte(` {"c":"\u0061", "a": {"x": 1e1}}`))
	if want := `{"a":{"x":10},"b":1,"c":"a"}`; string(got) != want || err != nil {
		t.Errorf("Fill = %s, %v; want %s", got, err, want)
	}
}

func TestFillRefuses(t *testing.T) {
	for _, tt := range []struct {
		claim, doc, defaults string
		code                 canonical.Code
	}{
		{"a document that is no object", `[]`, `{}`, canonical.NotAnObject},
		{"defaults that are no object", `{}`, `null`, canonical.NotAnObject},
		{"a document that is no JSON", `{`, `{}`, canonical.InvalidJSON},
		{"defaults with a name twice", `{}`, `{"a":1,"a":1}`, canonical.DuplicateMember},
	} {
		t.Run(tt.claim, func(t *testing.T) {
			_, err := canonical.Fill([]byte(tt.doc), []byte(tt.defaults))
			wantCode(t, err, tt.code)
		})
	}
}
