package catalog

import (
	"fmt"
	"slices"
	"strings"
)

func (c *operationChecker) followOns() {
	seen := map[string]bool{}
	for i, f := range c.o.FollowOns {
		at := "/follow_ons" + step(i)
		if !nameForm.MatchString(f.Name) {
			c.refuse(at+"/name", fmt.Sprintf("%q is not a name for a follow-on", f.Name), nameHint)
		}
		if seen[f.Name] {
			c.refuse(at+"/name", fmt.Sprintf("there are two follow-ons %q", f.Name), "the name forms the key: give each its own")
		}
		seen[f.Name] = true
		if !operationForm.MatchString(f.Operation) {
			c.refuse(at+"/operation", fmt.Sprintf("%q is not an operation with its version", f.Operation), "as in send_receipt.v1")
		}
		if f.When != "" {
			c.filter(at+"/when", f.When)
		}
		c.filter(at+"/payload", f.Payload)
	}
}

func (c *operationChecker) filter(at, text string) {
	if len(text) > maxFilter {
		c.refuse(at, fmt.Sprintf("the jq expression has more than %d bytes", maxFilter), "")
		return
	}
	if err := lintFilter(text); err != nil {
		c.refuse(at, "jq: "+err.Error(), "")
	} else if _, err := newFilter(text); err != nil {
		c.refuse(at, "jq: "+err.Error(), "")
	}
}

// together checks what operations say about each other. Apply asks it again with those
// that only the database knows; what is wrong with these has no line.
func (c *Catalog) together(all []Operation) []Problem {
	t := &togetherness{c: c, by: map[string]Operation{}}
	for _, o := range all {
		t.by[o.ID()] = o
	}
	t.retired(all)
	t.cycles(all)
	t.versions(all)
	return t.problems
}

type togetherness struct {
	c        *Catalog
	by       map[string]Operation
	problems []Problem
}

func (t *togetherness) refuse(o Operation, path, problem, hint string) {
	if slices.Contains(ids(t.c.Operations), o.ID()) {
		t.problems = append(t.problems, t.c.source.problem(t.c.pathOf(o)+path, problem, hint))
		return
	}
	t.problems = append(t.problems, Problem{File: t.c.source.file, Problem: o.ID() + " (in the database): " + problem, Hint: hint})
}

// retired refuses a follow-on to an operation that takes nothing new.
func (t *togetherness) retired(all []Operation) {
	for _, o := range all {
		for i, f := range o.FollowOns {
			if next, ok := t.by[f.Operation]; ok && next.Retired && !o.Retired {
				t.refuse(o, "/follow_ons"+step(i)+"/operation", fmt.Sprintf("%s is retired", f.Operation), "retire what follows no earlier than what it follows")
			}
		}
	}
}

// cycles refuses follow-ons that would go on for ever.
func (t *togetherness) cycles(all []Operation) {
	done := map[string]bool{}
	var way []string
	var visit func(id string)
	visit = func(id string) {
		if i := slices.Index(way, id); i >= 0 {
			round := append(slices.Clone(way[i:]), id)
			t.refuse(t.by[way[len(way)-1]], "/follow_ons", "the follow-ons go round in a circle: "+strings.Join(round, " → "), "an intent without end would follow")
			return
		}
		if done[id] {
			return
		}
		way = append(way, id)
		for _, f := range t.by[id].FollowOns {
			visit(f.Operation)
		}
		way = way[:len(way)-1]
		done[id] = true
	}
	for _, o := range all {
		visit(o.ID())
	}
}

// versions refuses versions that share keys but form them differently: the same order
// would have another key, and a second charge, after the deployment between them.
func (t *togetherness) versions(all []Operation) {
	first := map[string]Operation{}
	for _, o := range all {
		if o.Key.PerVersion || o.Key.Rule == "" {
			continue
		}
		other, ok := first[o.Name]
		if !ok {
			first[o.Name] = o
			continue
		}
		if o.Version != other.Version && !sameKeys(o.Key, other.Key) {
			t.refuse(o, "/key", fmt.Sprintf("%s and %s share their keys but form them differently", other.ID(), o.ID()),
				"use the same rule, number of fields and per_subject, or say per_version: true if both may happen")
		}
	}
}

func sameKeys(a, b Key) bool {
	return a.Rule == b.Rule && len(a.Fields) == len(b.Fields) && a.PerSubject == b.PerSubject
}
