package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schema is an operation's input schema.
type schema struct {
	doc      any // numbers as json.Number, so that none is rounded
	compiler *jsonschema.Compiler
	compiled *jsonschema.Schema // for concurrent use
}

const (
	schemaURL = "urn:outbox:input"
	draft     = "https://json-schema.org/draft/2020-12/schema"
)

// newSchema compiles a schema. It loads nothing: what a $ref names must be in the text.
// Formats are asserted: a payload with a malformed address should be refused here and
// not by the provider.
func newSchema(text []byte) (*schema, error) {
	doc, err := decodeJSON(text)
	if err != nil {
		return nil, err
	}
	s := &schema{doc: doc, compiler: jsonschema.NewCompiler()}
	s.compiler.DefaultDraft(jsonschema.Draft2020)
	s.compiler.AssertFormat()
	s.compiler.UseLoader(noLoader{})
	if err := s.compiler.AddResource(schemaURL, doc); err != nil {
		return nil, err
	}
	s.compiled, err = s.compiler.Compile(schemaURL)
	return s, err
}

// at compiles the part of the schema at a JSON Pointer.
func (s *schema) at(pointer string) (*jsonschema.Schema, error) {
	return s.compiler.Compile(schemaURL + "#" + (&url.URL{Fragment: pointer}).EscapedFragment())
}

type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is outside the schema", url)
}

// decodeJSON reads one JSON value and keeps numbers as they are spelled.
func decodeJSON(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}

// Where a keyword's value holds schemas. Keywords that only hold values are "".
var keywords = map[string]string{
	"additionalProperties": "one", "unevaluatedProperties": "one", "unevaluatedItems": "one", "items": "one",
	"contains": "one", "propertyNames": "one", "not": "one", "if": "one", "then": "one", "else": "one", "contentSchema": "one",
	"allOf": "list", "anyOf": "list", "oneOf": "list", "prefixItems": "list",
	"properties": "map", "patternProperties": "map", "dependentSchemas": "map", "$defs": "map",
	"$schema": "", "$ref": "", "$comment": "", "type": "", "enum": "", "const": "", "multipleOf": "", "maximum": "",
	"exclusiveMaximum": "", "minimum": "", "exclusiveMinimum": "", "maxLength": "", "minLength": "", "pattern": "",
	"maxItems": "", "minItems": "", "uniqueItems": "", "maxContains": "", "minContains": "", "maxProperties": "",
	"minProperties": "", "required": "", "dependentRequired": "", "title": "", "description": "", "default": "",
	"deprecated": "", "readOnly": "", "writeOnly": "", "examples": "", "format": "", "contentEncoding": "", "contentMediaType": "",
}

// unsupported keywords exist, and here is what to do instead.
var unsupported = map[string]string{
	"$id":            "leave it out: references stay inside the schema",
	"$anchor":        "use $ref with a JSON Pointer: #/$defs/name",
	"$dynamicRef":    "use $ref with a JSON Pointer: #/$defs/name",
	"$dynamicAnchor": "use $ref with a JSON Pointer: #/$defs/name",
	"$vocabulary":    "leave it out",
	"definitions":    "call it $defs",
	"dependencies":   "use dependentRequired or dependentSchemas",
	"nullable":       "use type: [string, \"null\"]",
}

// formats that are checked; any other would silently not be.
var formats = []string{
	"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "iri", "iri-reference", "json-pointer",
	"regex", "relative-json-pointer", "time", "uri", "uri-reference", "uri-template", "uuid",
}

// walk calls visit for every schema in doc that is an object, outermost first.
func walk(doc any, at string, visit func(at string, s map[string]any)) {
	s, ok := doc.(map[string]any)
	if !ok {
		return
	}
	visit(at, s)
	for _, keyword := range sortedKeys(s) {
		below := at + step(keyword)
		switch keywords[keyword] {
		case "one":
			walk(s[keyword], below, visit)
		case "list":
			list, _ := s[keyword].([]any)
			for i, item := range list {
				walk(item, below+step(i), visit)
			}
		case "map":
			members, _ := s[keyword].(map[string]any)
			for _, name := range sortedKeys(members) {
				walk(members[name], below+step(name), visit)
			}
		}
	}
}

// lintSchema finds what a JSON Schema compiler lets pass, and what we do not support.
// A misspelt keyword checks nothing, which is worse here than an error.
func lintSchema(doc any) (faults []fault) {
	refuse := func(path, problem, hint string) { faults = append(faults, fault{path, problem, hint}) }
	refusePattern := func(path, pattern string) {
		if _, err := regexp.Compile(pattern); err != nil {
			refuse(path, fmt.Sprintf("%s is not a regular expression that can be used", quote(pattern)), "RE2 syntax: no look-around and no back-references")
		}
	}
	walk(doc, "", func(at string, s map[string]any) {
		for _, keyword := range sortedKeys(s) {
			_, known := keywords[keyword]
			hint, exists := unsupported[keyword]
			switch {
			case exists:
				refuse(at+step(keyword), fmt.Sprintf("the keyword %s is not supported", keyword), hint)
			case !known && !strings.HasPrefix(keyword, "x-"):
				refuse(at+step(keyword), fmt.Sprintf("%q is no keyword of JSON Schema 2020-12", keyword),
					suggestKeyword(keyword)+"notes of your own begin with x-")
			}
		}
		if name, ok := s["format"].(string); ok && !slices.Contains(formats, name) {
			refuse(at+"/format", fmt.Sprintf("the format %q is not known and would not be checked", name), "one of "+strings.Join(formats, ", "))
		}
		if pattern, ok := s["pattern"].(string); ok {
			refusePattern(at+"/pattern", pattern)
		}
		patterns, _ := s["patternProperties"].(map[string]any)
		for _, pattern := range sortedKeys(patterns) {
			refusePattern(at+"/patternProperties"+step(pattern), pattern)
		}
		if uri, ok := s["$schema"].(string); ok && (at != "" || strings.TrimSuffix(uri, "#") != draft) {
			refuse(at+"/$schema", "only JSON Schema 2020-12 is supported, declared at the top", "leave $schema out, or give "+draft)
		}
		if ref, ok := s["$ref"].(string); ok {
			if _, err := resolve(doc, ref); err != nil {
				refuse(at+"/$ref", err.Error(), "define it below $defs and refer to #/$defs/name; nothing is fetched")
			} else if goesRound(doc, ref) {
				refuse(at+"/$ref", fmt.Sprintf("the reference %s comes back to itself", quote(ref)), "nothing could satisfy it")
			}
		}
	})
	return faults
}

func suggestKeyword(word string) string {
	if hint := suggest(word, sortedKeys(keywords)); strings.HasPrefix(hint, "did you mean") {
		return hint + " "
	}
	return ""
}

// located is a schema object and where it stands in its document.
type located struct {
	at string
	s  map[string]any
}

// resolve finds what a $ref names in doc.
func resolve(doc any, ref string) (located, error) {
	fragment, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return located{}, fmt.Errorf("the reference %s leaves the schema", quote(ref))
	}
	at, err := url.PathUnescape(fragment)
	if err != nil {
		return located{}, fmt.Errorf("the reference %s is not a URI fragment", quote(ref))
	}
	target := doc
	if at != "" {
		names, err := parsePointer(at)
		if err != nil {
			return located{}, fmt.Errorf("the reference %s is not a JSON Pointer", quote(ref))
		}
		for _, name := range names {
			members, _ := target.(map[string]any)
			if target, ok = members[name]; !ok {
				return located{}, fmt.Errorf("the reference %s names nothing in the schema", quote(ref))
			}
		}
	}
	s, ok := target.(map[string]any)
	if !ok {
		return located{}, fmt.Errorf("the reference %s does not name a schema object", quote(ref))
	}
	return located{at, s}, nil
}

// goesRound tells whether references alone lead from ref back to something passed.
func goesRound(doc any, ref string) bool {
	seen := map[string]bool{}
	for {
		next, err := resolve(doc, ref)
		if err != nil || seen[next.at] {
			return err == nil
		}
		seen[next.at] = true
		var more bool
		if ref, more = next.s["$ref"].(string); !more {
			return false
		}
	}
}

// chain is a schema with what it refers to: all of them apply to a value.
func (s *schema) chain(first located) []located {
	all := []located{first}
	for i := 0; i < len(all); i++ {
		ref, ok := all[i].s["$ref"].(string)
		if !ok {
			continue
		}
		next, err := resolve(s.doc, ref)
		if err == nil && !slices.ContainsFunc(all, func(l located) bool { return l.at == next.at }) {
			all = append(all, next)
		}
	}
	return all
}

func (s *schema) root() []located {
	doc, _ := s.doc.(map[string]any)
	return s.chain(located{"", doc})
}

// property is the chain of schemas for a member of what chain describes; nil if no
// properties names it.
func (s *schema) property(chain []located, name string) (all []located) {
	for _, l := range chain {
		members, _ := l.s["properties"].(map[string]any)
		if sub, ok := members[name].(map[string]any); ok {
			all = append(all, s.chain(located{l.at + "/properties" + step(name), sub})...)
		}
	}
	return all
}

func requires(chain []located, name string) bool {
	return slices.ContainsFunc(chain, func(l located) bool {
		list, _ := l.s["required"].([]any)
		return slices.Contains(list, any(name))
	})
}

// typesOf are the types that the first of the chain with a type allows; nil for any.
func typesOf(chain []located) (types []string) {
	for _, l := range chain {
		switch t := l.s["type"].(type) {
		case string:
			return []string{t}
		case []any:
			for _, item := range t {
				name, _ := item.(string)
				types = append(types, name)
			}
			return types
		}
	}
	return nil
}

// only tells whether every type is among the allowed; false when any type may be.
func only(types []string, allowed ...string) bool {
	for _, t := range types {
		if !slices.Contains(allowed, t) {
			return false
		}
	}
	return len(types) > 0
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
