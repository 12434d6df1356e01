package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Whoever changes a line that a guard is in brings the list up to date with it.
func TestEveryGuardIsInItsPlaceAndHasATest(t *testing.T) {
	t.Chdir("../..")
	names := map[string]bool{}
	for _, g := range guards {
		if names[g.name] {
			t.Errorf("two guards are named %q", g.name)
		}
		names[g.name] = true
		if _, err := g.mutate(); err != nil {
			t.Errorf("%s: %v", g.name, err)
		}
		if !hasTest(t, g.pkg(), g.run()) {
			t.Errorf("%s: %s has no %s", g.name, g.pkg(), g.run())
		}
	}
}

func hasTest(t *testing.T, pkg, name string) bool {
	t.Helper()
	top, _, _ := strings.Cut(name, "/")
	declared := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(top) + `\(`)
	entries, err := os.ReadDir(pkg)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		text, err := os.ReadFile(pkg + "/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if declared.Match(text) {
			return true
		}
	}
	return false
}
