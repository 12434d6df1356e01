package catalog

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// inputAndKey checks the schema, and then what points into it.
func (c *operationChecker) inputAndKey() {
	c.keyRule()
	s := c.input()
	if s == nil {
		return
	}
	defaults, faults := s.defaults()
	for _, f := range faults {
		c.refuse("/input"+f.path, f.problem, f.hint)
	}
	if len(defaults) > c.o.MaxPayload {
		c.refuse("/input", "the defaults alone are larger than max_payload", "")
	}
	if c.o.Key.Rule == KeyBusiness {
		c.keyFields(s, defaults)
	}
	c.money(s)
}

// input returns the schema, nil when it cannot be used.
func (c *operationChecker) input() *schema {
	text, err := admit(c.o.Input)
	if err != nil {
		f := notKept(err)
		c.refuse("/input"+f.path, f.problem, f.hint)
		return nil
	}
	doc, err := decodeJSON(text)
	if err != nil {
		c.refuse("/input", err.Error(), "")
		return nil
	}
	faults := lintSchema(doc)
	if len(faults) == 0 {
		var s *schema
		if s, err = newSchema(text); err == nil {
			if !slices.Equal(typesOf(s.root()), []string{"object"}) {
				c.refuse("/input", "the schema does not say type: object", "a payload is always an object")
			}
			return s
		}
		faults = schemaFaults(err)
	}
	for _, f := range faults {
		c.refuse("/input"+f.path, f.problem, f.hint)
	}
	return nil
}

// schemaFaults places a compiler's error in the schema.
func schemaFaults(err error) (faults []fault) {
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		for _, e := range inputErrors(invalid.Err) {
			hint := ""
			if strings.HasSuffix(e.Path, "/type") {
				hint = "types are array, boolean, integer, null, number, object and string"
			}
			faults = append(faults, fault{e.Path, "not JSON Schema: " + e.Reason, hint})
		}
		return faults
	}
	return []fault{{"", "not JSON Schema: " + err.Error(), ""}}
}

func (c *operationChecker) keyRule() {
	k := c.o.Key
	if k.Rule == KeyBusiness && len(k.Fields) == 0 {
		c.refuse("/key", "a business key needs fields", "as in fields: [/order_id]")
	}
	if k.Rule != KeyBusiness && len(k.Fields) > 0 {
		c.refuse("/key/fields", fmt.Sprintf("the rule %s uses no fields", k.Rule), "leave them out, or use the rule business")
	}
	if len(k.Fields) > maxFields {
		c.refuse("/key/fields", fmt.Sprintf("there are more than %d", maxFields), "")
	}
	switch {
	case k.Rule != KeyArguments && k.Window.Duration != 0:
		c.refuse("/key/window", fmt.Sprintf("the rule %s has no window: its keys are for ever", k.Rule), "leave it out, or use the rule arguments")
	case k.Rule == KeyArguments:
		c.within("/key/window", k.Window, maxWindow)
	}
}

// keyFields refuses fields that might be missing or ambiguous when the key is decided.
func (c *operationChecker) keyFields(s *schema, defaults []byte) {
	seen := map[string]bool{}
	for i, text := range c.o.Key.Fields {
		at := "/key/fields" + step(i)
		names, err := parsePointer(text)
		if err != nil {
			c.refuse(at, err.Error(), "as in /order_id or /order/id")
			continue
		}
		if seen[text] {
			c.refuse(at, text+" is given twice", "")
		}
		seen[text] = true
		if problem, hint := s.keyField(names); problem != "" {
			c.refuse(at, problem, hint)
		} else if hasDefault(defaults, names) {
			c.refuse(at, text+" has a default", "everybody who leaves it out would share one key: drop the default")
		}
	}
}

var integerForm = regexp.MustCompile(`^-?[0-9]+$`)

// keyField says why the member cannot form a key; empty when it can. Every payload that
// satisfies the schema must have it, as a string or an integer.
func (s *schema) keyField(names []string) (problem, hint string) {
	chain := s.root()
	for i, name := range names {
		so := pointer(names[:i+1])
		switch {
		case name == "" || strings.ContainsAny(name, "/~"):
			return fmt.Sprintf("%s is empty or has a / or ~", quote(name)), "a key field's name must be plain, so that answers can name it"
		case integerForm.MatchString(name):
			return so + " looks like a place in a list", "a place in a list is no identity: use a named field"
		case !slices.Equal(typesOf(chain), []string{"object"}):
			return fmt.Sprintf("the schema does not say that %s is an object", orPayload(pointer(names[:i]))), "give it type: object"
		case !requires(chain, name):
			return fmt.Sprintf("the schema does not require %s", so), "list it in required: a key must always be there"
		}
		if chain = s.property(chain, name); len(chain) == 0 {
			return fmt.Sprintf("the schema does not describe %s", so), "list it in properties, with its type"
		}
	}
	if !only(typesOf(chain), "string", "integer") {
		return fmt.Sprintf("the schema does not say that %s is a string or an integer", pointer(names)), "give it type: string or type: integer"
	}
	return "", ""
}

func orPayload(pointer string) string {
	if pointer == "" {
		return "the payload"
	}
	return pointer
}

func hasDefault(defaults []byte, names []string) bool {
	if defaults == nil {
		return false
	}
	v, err := decodeJSON(defaults)
	for _, name := range names {
		members, _ := v.(map[string]any)
		var ok bool
		if v, ok = members[name]; !ok {
			return false
		}
	}
	return err == nil
}

func (c *operationChecker) money(s *schema) {
	if m := c.o.Money; m != (Money{}) {
		c.moneyField(s, "/money/amount", m.Amount, "integer", "number", "string")
		if m.Currency != "" {
			c.moneyField(s, "/money/currency", m.Currency, "string")
		}
	}
}

// moneyField refuses a pointer that the schema rules out. What the schema leaves open
// may be missing from a payload; then the amount is shown as unknown.
func (c *operationChecker) moneyField(s *schema, at, text string, types ...string) {
	names, err := parsePointer(text)
	if err != nil {
		c.refuse(at, err.Error(), "as in /amount")
		return
	}
	chain := s.root()
	for i, name := range names {
		so := pointer(names[:i+1])
		if t := typesOf(chain); t != nil && !slices.Contains(t, "object") {
			c.refuse(at, fmt.Sprintf("in the schema, %s is no object", orPayload(pointer(names[:i]))), "point to a named field")
			return
		}
		next := s.property(chain, name)
		if len(next) == 0 {
			if len(propertyNames(chain)) > 0 {
				c.refuse(at, fmt.Sprintf("the schema does not describe %s", so), suggest(name, propertyNames(chain)))
			}
			return
		}
		chain = next
	}
	if t := typesOf(chain); t != nil && !only(t, append(types, "null")...) {
		c.refuse(at, fmt.Sprintf("in the schema, %s is %s", text, strings.Join(t, " or ")), "point to "+strings.Join(types, " or "))
	}
}
