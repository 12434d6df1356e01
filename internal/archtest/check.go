package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// Package is the part of go list's description of a package that matters here.
type Package struct {
	ImportPath   string
	Standard     bool
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// Check returns one line for each import that the rules forbid. packages are those of the
// module and everything that they depend on.
func Check(rules []Rule, testOnly []string, packages []Package) []string {
	g := graph{}
	for _, p := range packages {
		g[p.ImportPath] = p
	}
	var found []string
	for _, p := range packages {
		name, ours := relative(p.ImportPath)
		if !ours {
			continue
		}
		i := slices.IndexFunc(rules, func(r Rule) bool { return matches(r.Package, name) })
		if i < 0 {
			found = append(found, fmt.Sprintf("%s: no rule names it: give it one in internal/archtest/rules.go", name))
			continue
		}
		found = append(found, g.check(rules[i], name, p)...)
		for _, imported := range p.Imports {
			if other, ours := relative(imported); ours && slices.Contains(testOnly, other) && !slices.Contains(testOnly, name) {
				found = append(found, fmt.Sprintf("%s imports %s: that is for tests only", name, other))
			}
		}
		for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
			if other, ours := relative(imported); ours && strings.HasPrefix(other, "cmd/") && other != name {
				found = append(found, fmt.Sprintf("a test of %s imports %s: nothing imports cmd", name, other))
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

type graph map[string]Package

func (g graph) check(r Rule, name string, p Package) (found []string) {
	for _, imported := range p.Imports {
		other, ours := relative(imported)
		switch {
		case ours && !matches(r.Package, other) && !matchesAny(r.MayImport, other):
			found = append(found, fmt.Sprintf("%s imports %s: %s", name, other, r.Why))
		case !ours && r.StandardLibraryOnly && !g[imported].Standard:
			found = append(found, fmt.Sprintf("%s imports %s: %s", name, imported, r.Why))
		}
	}
	for _, never := range r.Never {
		if steps := g.way(p.ImportPath, never); steps != nil {
			found = append(found, fmt.Sprintf("%s depends on %s (%s): %s", name, steps[len(steps)-1], strings.Join(steps, " → "), r.Why))
		}
	}
	return found
}

// way returns the shortest chain of imports from a package to one that the pattern
// matches, or nil.
func (g graph) way(from, pattern string) []string {
	cameFrom := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at != from && matches(pattern, at) {
			var steps []string
			for ; at != ""; at = cameFrom[at] {
				name, _ := relative(at)
				steps = append(steps, name)
			}
			slices.Reverse(steps)
			return steps
		}
		for _, next := range g[at].Imports {
			if _, seen := cameFrom[next]; !seen {
				cameFrom[next] = at
				queue = append(queue, next)
			}
		}
	}
	return nil
}

// relative strips the module's path, or tells that the package is not ours.
func relative(importPath string) (name string, ours bool) {
	if importPath == Module {
		return ".", true
	}
	name, ours = strings.CutPrefix(importPath, Module+"/")
	return name, ours
}

func matches(pattern, name string) bool {
	if root, all := strings.CutSuffix(pattern, "/..."); all {
		return name == root || strings.HasPrefix(name, root+"/")
	}
	return name == pattern
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, name) })
}
