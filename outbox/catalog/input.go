package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/outbox-worker/outbox-worker/outbox/canonical"
)

// InputError says why a payload does not satisfy its operation's schema. It will not
// later either: refuse the intent for good. It names members, never their values, so
// that it may be logged.
type InputError struct {
	Path   string // JSON Pointer into the payload
	Reason string
}

// Error has the path and the reason.
func (e *InputError) Error() string { return fmt.Sprintf("payload%s: %s", e.Path, e.Reason) }

// CheckInput checks a payload against the operation's input schema, with defaults
// filled in, formats asserted and every number taken exactly. The error is an
// [*InputError] for the first fault in the order of the paths. It does no I/O and is
// safe for concurrent use.
func (r *Revision) CheckInput(payload []byte) error {
	if r.Defaults != nil {
		full, err := canonical.Fill(payload, r.Defaults)
		if err != nil {
			return &InputError{Reason: err.Error()}
		}
		payload = full
	}
	v, err := decodeJSON(payload)
	if err != nil {
		return &InputError{Reason: "it is not JSON"}
	}
	if err := r.schema.compiled.Validate(v); err != nil {
		return inputError(err)
	}
	return nil
}

// inputError picks one fault of a validation: the first by path, so that the same
// payload always gets the same answer.
func inputError(err error) *InputError {
	all := inputErrors(err)
	if len(all) == 0 {
		return &InputError{Reason: "it does not satisfy the schema"}
	}
	return all[0]
}

func inputErrors(err error) (all []*InputError) {
	invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return []*InputError{{Reason: err.Error()}}
	}
	collect(invalid, &all)
	slices.SortFunc(all, func(a, b *InputError) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Reason, b.Reason))
	})
	return all
}

// collect gathers the leaves. It does not look into alternatives: which of them the
// caller meant cannot be told, and the faults of the others would mislead.
func collect(e *jsonschema.ValidationError, all *[]*InputError) {
	at := pointer(e.InstanceLocation)
	add := func(path, reason string) { *all = append(*all, &InputError{path, reason}) }
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			add(at+step(name), "it is required")
		}
	case *kind.DependentRequired:
		for _, name := range k.Missing {
			add(at+step(name), "it is required together with "+k.Prop)
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			add(at+step(name), "the operation has no such field")
		}
	case *kind.PropertyNames:
		// The validator's location is that of another value by now.
		add("", fmt.Sprintf("the field name %q is not allowed", k.Property))
	case *kind.Schema, *kind.Group, *kind.Reference, *kind.AllOf:
		for _, cause := range e.Causes {
			collect(cause, all)
		}
	default:
		add(at, reason(k))
	}
}

// reason words a fault without the value that has it.
func reason(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return fmt.Sprintf("want %s, not %s", strings.Join(k.Want, " or "), k.Got)
	case *kind.Enum:
		return "it is none of " + listed(k.Want)
	case *kind.Const:
		return "it is not " + listed([]any{k.Want})
	case *kind.Format:
		return "it is not a valid " + k.Want
	case *kind.Pattern:
		return "it does not match " + k.Want
	case *kind.MinLength:
		return fmt.Sprintf("it has %d characters, fewer than %d", k.Got, k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("it has %d characters, more than %d", k.Got, k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("it has %d items, fewer than %d", k.Got, k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("it has %d items, more than %d", k.Got, k.Want)
	case *kind.MinProperties:
		return fmt.Sprintf("it has %d fields, fewer than %d", k.Got, k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("it has %d fields, more than %d", k.Got, k.Want)
	case *kind.Minimum:
		return "it is less than " + decimal(k.Want)
	case *kind.ExclusiveMinimum:
		return "it is not more than " + decimal(k.Want)
	case *kind.Maximum:
		return "it is more than " + decimal(k.Want)
	case *kind.ExclusiveMaximum:
		return "it is not less than " + decimal(k.Want)
	case *kind.MultipleOf:
		return "it is not a multiple of " + decimal(k.Want)
	case *kind.UniqueItems:
		return fmt.Sprintf("items %d and %d are the same", k.Duplicates[0], k.Duplicates[1])
	case *kind.Contains, *kind.MinContains, *kind.MaxContains:
		return "it does not contain the right number of certain items"
	case *kind.AnyOf:
		return "it satisfies none of the alternatives (anyOf)"
	case *kind.OneOf:
		return "it does not satisfy exactly one of the alternatives (oneOf)"
	case *kind.Not:
		return "it is what the schema excludes (not)"
	case *kind.FalseSchema:
		return "nothing is allowed here"
	default:
		return "it violates " + strings.Join(k.KeywordPath(), "/")
	}
}

// decimal spells a number of the schema.
func decimal(r *big.Rat) string {
	f, _ := r.Float64()
	text, err := canonicalValue(f)
	if err != nil {
		return r.String()
	}
	return text
}

// listed writes values of the schema, not too many.
func listed(values []any) string {
	const most = 8
	words := make([]string, 0, most+1)
	for i, v := range values {
		if i == most {
			words = append(words, "…")
			break
		}
		text, err := canonicalValue(v)
		if err != nil {
			text = "…"
		}
		words = append(words, text)
	}
	return strings.Join(words, ", ")
}
