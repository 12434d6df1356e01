package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Parse reads a catalog file and checks it. name is what errors call the file. The
// error is an [*Error] with everything that is wrong, as far as it can be told at once.
//
// A follow-on may name an operation that is not in the file: [Apply] looks for it in
// the database.
func Parse(name string, text []byte) (*Catalog, error) {
	d := &decoder{reader{source: source{file: name}}}
	c := d.catalog(d.read(text))
	c.source = d.source
	problems := append(d.problems, c.check(d.problems)...)
	if len(problems) > 0 {
		slices.SortStableFunc(problems, func(a, b Problem) int { return a.Line - b.Line })
		return nil, &Error{problems}
	}
	for i := range c.Operations {
		// Admitted by check; its spelling in the file means nothing.
		c.Operations[i].Input, _ = admit(c.Operations[i].Input)
	}
	return c, nil
}

// decoder reads the file's values into a Catalog with its defaults.
type decoder struct{ reader }

// fields are the members that an object may have and how each is read.
type fields map[string]func(value)

// object reads the members of v and returns which were given. Members that are unknown,
// and required ones that are missing, are problems.
func (d *decoder) object(v value, known fields, required ...string) map[string]bool {
	given := map[string]bool{}
	if !d.is(v, objectKind, "") {
		return given
	}
	for _, m := range v.members {
		given[m.name] = true
		if read := known[m.name]; read != nil {
			read(m.value)
		} else {
			d.refuse(m.value.path, fmt.Sprintf("unknown field %q", m.name), suggest(m.name, slices.Sorted(maps.Keys(known))))
		}
	}
	for _, name := range required {
		if !given[name] {
			d.refuse(v.path, name+" is missing", "")
		}
	}
	return given
}

// is tells whether v is of the kind and refuses it if not.
func (d *decoder) is(v value, want valueKind, hint string) bool {
	if v.kind != want && v.kind != brokenKind {
		d.refuse(v.path, fmt.Sprintf("want %s, not %s", want, v.kind), hint)
	}
	return v.kind == want
}

func (d *decoder) catalog(v value) *Catalog {
	c := &Catalog{}
	d.object(v, fields{
		"lanes": func(v value) {
			if d.is(v, objectKind, "as in lanes: {payments: {provider: payments}}") {
				for _, m := range v.members {
					c.Lanes = append(c.Lanes, d.lane(m.name, m.value))
				}
			}
		},
		"operations": func(v value) {
			if d.is(v, arrayKind, "as in operations: [{name: charge_card, …}]") {
				for _, item := range v.items {
					c.Operations = append(c.Operations, d.operation(item))
				}
			}
		},
	}, "lanes", "operations")
	return c
}

func (d *decoder) lane(name string, v value) Lane {
	l := Lane{Name: name, Concurrency: 20, Burst: 1}
	given := d.object(v, fields{
		"provider":    d.text(&l.Provider),
		"concurrency": d.integer(&l.Concurrency),
		"rate":        d.positive(&l.Rate, "leave it out for no limit"),
		"burst":       d.integer(&l.Burst),
	}, "provider")
	if given["burst"] && !given["rate"] {
		d.refuse(v.path+"/burst", "a burst has no meaning without a rate", "give a rate or leave the burst out")
	}
	if !given["burst"] {
		l.Burst = int(min(max(1, math.Ceil(l.Rate)), math.MaxInt32))
	}
	return l
}

func (d *decoder) operation(v value) Operation {
	o := Operation{
		MaxPayload: 64 << 10,
		Timeouts:   Timeouts{Call: seconds(10), Reconcile: seconds(24 * 3600)},
		Retry:      Retry{MaxAttempts: 8, Initial: seconds(1), Max: seconds(300), Multiplier: 2, Jitter: 0.5},
		Retention:  Retention{Details: seconds(48 * 3600), Tombstone: seconds(9600 * 3600)},
		Approval:   Approval{People: 1, Expires: seconds(24 * 3600)},
	}
	given := d.object(v, fields{
		"name":        d.text(&o.Name),
		"version":     d.integer(&o.Version),
		"description": d.text(&o.Description),
		"class":       choice(d, &o.Class, ReadOnly, NaturallyIdempotent, KeyProtected, Compensatable, NonRepeatable),
		"lane":        d.text(&o.Lane),
		"key":         func(v value) { d.key(v, &o.Key) },
		"input":       d.document(&o.Input),
		"max_payload": d.integer(&o.MaxPayload),
		"timeouts":    func(v value) { d.timeouts(v, &o.Timeouts) },
		"retry":       func(v value) { d.retry(v, &o.Retry) },
		"retention": func(v value) {
			d.object(v, fields{"details": d.duration(&o.Retention.Details), "tombstone": d.duration(&o.Retention.Tombstone)})
		},
		"approval": func(v value) {
			d.object(v, fields{
				"required": d.boolean(&o.Approval.Required),
				"people":   d.integer(&o.Approval.People),
				"expires":  d.duration(&o.Approval.Expires),
			})
		},
		"unknown": choice(d, &o.Unknown, AtMostOnce, AtLeastOnce),
		"review":  func(v value) { d.object(v, fields{"owner": d.text(&o.Review.Owner)}, "owner") },
		"money": func(v value) {
			d.object(v, fields{"amount": d.text(&o.Money.Amount), "currency": d.text(&o.Money.Currency)}, "amount")
		},
		"retired":    d.boolean(&o.Retired),
		"follow_ons": func(v value) { o.FollowOns = d.followOns(v) },
	}, "name", "version", "class", "lane", "key", "input")
	if !given["timeouts"] {
		o.Timeouts.Lease.Duration = o.Timeouts.Call.Duration + seconds(10).Duration
	}
	if !given["review"] && (o.Class == ReadOnly || o.Class == NaturallyIdempotent) {
		o.Review.Owner = "unassigned"
	}
	return o
}

func (d *decoder) key(v value, k *Key) {
	given := d.object(v, fields{
		"rule":        choice(d, &k.Rule, KeyBusiness, KeyOperationID, KeyArguments),
		"fields":      d.texts(&k.Fields),
		"per_subject": d.boolean(&k.PerSubject),
		"per_version": d.boolean(&k.PerVersion),
		"window":      d.duration(&k.Window),
	}, "rule")
	if !given["window"] && k.Rule == KeyArguments {
		k.Window = seconds(15 * 60)
	}
}

func (d *decoder) timeouts(v value, t *Timeouts) {
	given := d.object(v, fields{
		"call": d.duration(&t.Call), "lease": d.duration(&t.Lease), "reconcile": d.duration(&t.Reconcile),
	})
	if !given["lease"] {
		t.Lease.Duration = t.Call.Duration + seconds(10).Duration
	}
}

func (d *decoder) retry(v value, r *Retry) {
	d.object(v, fields{
		"max_attempts": d.integer(&r.MaxAttempts),
		"initial":      d.duration(&r.Initial),
		"max":          d.duration(&r.Max),
		"multiplier":   d.number(&r.Multiplier),
		"jitter":       d.number(&r.Jitter),
	})
}

func (d *decoder) followOns(v value) (rules []FollowOnRule) {
	if !d.is(v, arrayKind, "as in follow_ons: [{name: receipt, …}]") {
		return nil
	}
	for _, item := range v.items {
		var f FollowOnRule
		d.object(item, fields{
			"name":      d.text(&f.Name),
			"operation": d.text(&f.Operation),
			"when":      d.text(&f.When),
			"payload":   d.text(&f.Payload),
		}, "name", "operation", "payload")
		rules = append(rules, f)
	}
	return rules
}

func (d *decoder) text(to *string) func(value) {
	return func(v value) {
		hint := ""
		if v.kind == numberKind || v.kind == booleanKind {
			hint = "put it in quotes"
		}
		switch {
		case !d.is(v, textKind, hint):
		case v.scalar == "":
			d.refuse(v.path, "it is empty", "give a value or leave the field out")
		default:
			*to = v.scalar
		}
	}
}

func (d *decoder) texts(to *[]string) func(value) {
	return func(v value) {
		if !d.is(v, arrayKind, "as in [/order_id]") {
			return
		}
		*to = make([]string, len(v.items))
		for i, item := range v.items {
			d.text(&(*to)[i])(item)
		}
	}
}

func (d *decoder) boolean(to *bool) func(value) {
	return func(v value) {
		if d.is(v, booleanKind, "") {
			*to = v.scalar == "true"
		}
	}
}

func (d *decoder) integer(to *int) func(value) {
	return func(v value) {
		if !d.is(v, numberKind, numberHint(v)) {
			return
		}
		n, err := strconv.ParseInt(v.scalar, 10, 32)
		if err != nil {
			d.refuse(v.path, v.scalar+" is not a whole number of at most 32 bits", "")
		}
		*to = int(n)
	}
}

func numberHint(v value) string {
	if v.kind == textKind && jsonNumber.MatchString(v.scalar) {
		return "write it without quotes"
	}
	return ""
}

func (d *decoder) number(to *float64) func(value) {
	return func(v value) {
		if !d.is(v, numberKind, numberHint(v)) {
			return
		}
		n, err := strconv.ParseFloat(v.scalar, 64)
		if err != nil {
			d.refuse(v.path, v.scalar+" is too large", "")
		}
		*to = n
	}
}

func (d *decoder) positive(to *float64, hint string) func(value) {
	read := d.number(to)
	return func(v value) {
		if read(v); v.kind == numberKind && *to <= 0 {
			d.refuse(v.path, "it must be above 0", hint)
		}
	}
}

func (d *decoder) duration(to *Duration) func(value) {
	return func(v value) {
		const hint = "write it with a unit: 500ms, 10s, 15m, 48h"
		if !d.is(v, textKind, hint) {
			return
		}
		var err error
		if *to, err = parseDuration(v.scalar); err != nil {
			d.refuse(v.path, err.Error(), hint)
		}
	}
}

func choice[T ~string](d *decoder, to *T, among ...T) func(value) {
	return func(v value) {
		words := make([]string, len(among))
		for i, word := range among {
			words[i] = string(word)
		}
		hint := "one of " + strings.Join(words, ", ")
		switch {
		case !d.is(v, textKind, hint):
		case !slices.Contains(words, v.scalar):
			d.refuse(v.path, fmt.Sprintf("%q is not known", v.scalar), hint)
		default:
			*to = T(v.scalar)
		}
	}
}

// document keeps an object as JSON text.
func (d *decoder) document(to *json.RawMessage) func(value) {
	return func(v value) {
		var b bytes.Buffer
		if d.is(v, objectKind, "a JSON Schema such as {type: object, …}") && v.writeJSON(&b) {
			*to = b.Bytes()
		}
	}
}

// writeJSON reports false where a part is broken.
func (v value) writeJSON(b *bytes.Buffer) bool {
	whole := true
	switch v.kind {
	case objectKind:
		b.WriteByte('{')
		for i, m := range v.members {
			b.WriteString(comma(i) + quote(m.name) + ":")
			whole = m.value.writeJSON(b) && whole
		}
		b.WriteByte('}')
	case arrayKind:
		b.WriteByte('[')
		for i, item := range v.items {
			b.WriteString(comma(i))
			whole = item.writeJSON(b) && whole
		}
		b.WriteByte(']')
	case textKind:
		b.WriteString(quote(v.scalar))
	case numberKind, booleanKind:
		b.WriteString(v.scalar)
	case nullKind:
		b.WriteString("null")
	default:
		return false
	}
	return whole
}

func comma(i int) string {
	if i == 0 {
		return ""
	}
	return ","
}

func quote(s string) string {
	text, _ := json.Marshal(s) // a string cannot fail
	return string(text)
}

// suggest names the word that was probably meant, or all of them.
func suggest(word string, among []string) string {
	best, bestDistance := "", 3
	for _, candidate := range among {
		if n := distance(word, candidate); n < bestDistance {
			best, bestDistance = candidate, n
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	return "known here: " + strings.Join(among, ", ")
}

// distance counts the letters to insert, delete or replace between two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
