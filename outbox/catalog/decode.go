package catalog

import (
	"fmt"
	"maps"
	"math"
	"slices"
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
