package canonical_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/outbox-worker/outbox-worker/outbox/canonical"
)

// FuzzAdmit holds Admit against two other readers of JSON.
func FuzzAdmit(f *testing.F) {
	for _, tt := range admissions {
		f.Add([]byte(tt.src))
	}
	for _, tt := range refusals {
		if len(tt.src) < 1000 {
			f.Add([]byte(tt.src))
		}
	}
	for _, name := range vectors {
		input, _ := vector(f, name)
		f.Add(input)
	}
	f.Fuzz(checkAdmit)
}

// TestAdmitOfGeneratedTexts is the part of FuzzAdmit that every run of the tests does.
func TestAdmitOfGeneratedTexts(t *testing.T) {
	g := generator{Rand: rand.New(rand.NewPCG(3, 4))}
	for range 50_000 {
		checkAdmit(t, []byte(g.document()))
	}
}

func checkAdmit(t *testing.T, src []byte) {
	before := bytes.Clone(src)
	out, err := canonical.Admit(src, 0)
	if !bytes.Equal(src, before) {
		t.Fatal("Admit changed its input")
	}
	if err != nil {
		checkRefused(t, src, err)
	} else {
		checkAdmitted(t, src, out)
	}
}

var codes = []canonical.Code{
	canonical.TooLarge, canonical.InvalidJSON, canonical.NotAnObject, canonical.TooDeep, canonical.DuplicateMember,
	canonical.InvalidUTF8, canonical.LoneSurrogate, canonical.NulCharacter, canonical.NumberNotExact,
}

func checkRefused(t *testing.T, src []byte, err error) {
	var refused *canonical.Error
	if !errors.As(err, &refused) || !slices.Contains(codes, refused.Code) || refused.Hint == "" {
		t.Fatalf("Admit(%q): %#v", src, err)
	}
	if refused.Code == canonical.InvalidJSON && json.Valid(src) {
		t.Fatalf("Admit(%q): %v; but it is JSON", src, err)
	}
}

func checkAdmitted(t *testing.T, src, out []byte) {
	again, err := canonical.Admit(out, 1<<30)
	if err != nil || !bytes.Equal(again, out) {
		t.Fatalf("Admit(%q) = %q, but again %q, %v", src, out, again, err)
	}
	transformed, err := canonical.Transform(nil, src)
	if err != nil || !bytes.Equal(transformed, out) {
		t.Fatalf("Admit(%q) = %q, but Transform %q, %v", src, out, transformed, err)
	}
	reference := jsontext.Value(bytes.Clone(src))
	if err := reference.Canonicalize(); err != nil || !bytes.Equal(reference, out) {
		t.Fatalf("Admit(%q) = %q, but jsontext %q, %v", src, out, reference, err)
	}
	var want, got any
	if json.Unmarshal(src, &want) != nil || json.Unmarshal(out, &got) != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("Admit(%q) = %q, which is another value: %v, %v", src, out, want, got)
	}
}
