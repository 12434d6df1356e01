package catalog

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Limits that stop a schema which contains itself.
const (
	maxDefaultDepth  = 32
	maxDefaultVisits = 20_000
)

// defaulter collects the defaults of a schema into the object that is filled into every
// payload. Filling is unconditional (see canonical.Fill), so a default is refused where
// it could not be filled in, or would create an object that the caller did not send.
type defaulter struct {
	schema  *schema
	faults  []fault
	reached map[string]bool // schemas whose default was taken or overruled
	visits  int
}

// defaults returns the canonical object of all defaults, nil if there are none.
func (s *schema) defaults() ([]byte, []fault) {
	d := &defaulter{schema: s, reached: map[string]bool{}}
	all := d.members(s.root(), 0)
	understood := len(d.faults) == 0
	walk(s.doc, "", func(at string, sub map[string]any) {
		if _, ok := sub["default"]; ok && !d.reached[at] && understood {
			d.refuse(at+"/default", "this default would never be filled in", "defaults work for properties of objects, not inside items, anyOf and the like")
		}
	})
	if len(d.faults) > 0 || len(all) == 0 {
		return nil, d.faults
	}
	text, err := canonicalJSON(all)
	if err != nil {
		return nil, []fault{{"", "the defaults cannot be a payload: " + err.Error(), ""}}
	}
	return text, nil
}

func (d *defaulter) refuse(at, problem, hint string) {
	d.faults = append(d.faults, fault{at, problem, hint})
}

// members collects the defaults of the members of what chain describes.
func (d *defaulter) members(chain []located, depth int) map[string]any {
	all := map[string]any{}
	for _, name := range propertyNames(chain) {
		property := d.schema.property(chain, name)
		if d.visits++; d.visits == maxDefaultVisits {
			d.faults = append(d.faults, fault{"", "the schema has too many properties, or contains itself in too many ways", ""})
		}
		if d.visits >= maxDefaultVisits || depth > maxDefaultDepth {
			return all
		}
		if len(property) == 0 {
			continue
		}
		own, has := d.own(property)
		nested := d.members(property, depth+1)
		switch {
		case depth == maxDefaultDepth && (has || len(nested) > 0):
			d.refuse(property[0].at, "a schema that contains itself cannot have defaults", "leave them out, or write the levels out")
			return all
		case !has && len(nested) == 0:
			continue
		case has && len(nested) > 0:
			object, ok := own.(map[string]any)
			if !ok {
				d.refuse(property[0].at+"/default", "the default is no object, but its members have defaults", "keep one or the other")
				continue
			}
			own = filled(object, nested)
		case !has:
			if !requires(chain, name) {
				d.refuse(property[0].at, fmt.Sprintf("the defaults inside would create the optional object %q", name),
					"make the object required, give it a default, or leave the defaults out")
				continue
			}
			own = nested
		}
		all[name] = own
		if has {
			d.validate(property[0].at, own)
		}
	}
	return all
}

// own is the default that counts: the first of the chain. Those behind it are overruled.
func (d *defaulter) own(chain []located) (value any, has bool) {
	for _, l := range chain {
		v, ok := l.s["default"]
		if !ok {
			continue
		}
		d.reached[l.at] = true
		if !has {
			value, has = v, true
		}
	}
	return value, has
}

func (d *defaulter) validate(at string, value any) {
	part, err := d.schema.at(at)
	if err == nil {
		err = part.Validate(value)
	}
	if err != nil {
		why := inputError(err)
		d.refuse(at+"/default", fmt.Sprintf("the default does not satisfy its own schema: %s", why.Reason), "")
	}
}

// filled is object with what it lacks of nested; canonical.Fill in values.
func filled(object, nested map[string]any) map[string]any {
	all := maps.Clone(object)
	for name, v := range nested {
		mine, has := all[name]
		inner, isObject := mine.(map[string]any)
		deeper, both := v.(map[string]any)
		switch {
		case !has:
			all[name] = v
		case isObject && both:
			all[name] = filled(inner, deeper)
		}
	}
	return all
}

func propertyNames(chain []located) (names []string) {
	for _, l := range chain {
		members, _ := l.s["properties"].(map[string]any)
		names = append(names, sortedKeys(members)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func canonicalJSON(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return admit(text)
}
