package archtest_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/outbox-worker/outbox-worker/internal/archtest"
)

// list asks go list for the packages of the module and all they depend on.
func list(t *testing.T) []archtest.Package {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-deps", "-json=ImportPath,Standard,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = "../.."
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, stderr.String())
	}
	var packages []archtest.Package
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p archtest.Package
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

func TestImportsOfThisModule(t *testing.T) {
	t.Parallel()
	packages := list(t)
	ours := func(p archtest.Package) bool { return strings.HasPrefix(p.ImportPath, archtest.Module+"/") }
	if !slices.ContainsFunc(packages, ours) {
		t.Fatal("go list found no package of the module")
	}
	for _, violation := range archtest.Check(archtest.Rules, archtest.TestOnly, packages) {
		t.Error(violation)
	}
}

// pkg describes a package of ours; imports of ours begin with a slash.
func pkg(name string, imports ...string) archtest.Package {
	return archtest.Package{ImportPath: archtest.Module + "/" + name, Imports: paths(imports)}
}

func paths(imports []string) []string {
	all := slices.Clone(imports)
	for i, name := range all {
		if strings.HasPrefix(name, "/") {
			all[i] = archtest.Module + name
		}
	}
	return all
}

func TestForbiddenImportsAreFound(t *testing.T) {
	t.Parallel()
	const river = "github.com/riverqueue/river"
	tests := map[string]struct {
		packages []archtest.Package
		want     string // part of the only violation; "" for none
	}{
		"the arrows": {[]archtest.Package{
			pkg("cmd/outbox-worker", "/dispatch", "/examples/shop", "/internal/cli", "/providers/smtp"),
			pkg("dispatch", "/outbox", "/outbox/catalog", "/providers", "/migrations", river),
			pkg("outbox", "/outbox/canonical", "github.com/jackc/pgx/v5"),
			pkg("examples/shop", "/outbox"),
			pkg("providers", "context"),
			{ImportPath: "context", Standard: true},
		}, ""},
		"application code that imports the worker":  {[]archtest.Package{pkg("outbox", "/dispatch")}, "outbox imports dispatch: "},
		"application code that imports an adapter":  {[]archtest.Package{pkg("outbox/catalog", "/providers/smtp")}, "outbox/catalog imports providers/smtp: "},
		"application code that imports the queue":   {[]archtest.Package{pkg("outbox", river)}, "outbox depends on " + river},
		"the queue behind somebody else":            {[]archtest.Package{pkg("outbox", "example.com/a"), {ImportPath: "example.com/a", Imports: []string{river}}}, "(outbox → example.com/a → " + river + ")"},
		"the worker that knows an adapter":          {[]archtest.Package{pkg("dispatch", "/providers/httpjson")}, "dispatch imports providers/httpjson: "},
		"the worker that knows its command":         {[]archtest.Package{pkg("dispatch", "/cmd/outbox-worker")}, "dispatch imports cmd/outbox-worker: "},
		"an adapter that knows the ledger":          {[]archtest.Package{pkg("providers/stripe", "/outbox")}, "providers/stripe imports outbox: "},
		"an adapter that knows the schedule":        {[]archtest.Package{pkg("providers/stripe", "/dispatch")}, "providers/stripe imports dispatch: "},
		"an adapter that builds on another":         {[]archtest.Package{pkg("providers/stripe", "/providers/httpjson")}, ""},
		"the contract with a dependency":            {[]archtest.Package{pkg("providers", "github.com/google/uuid")}, "providers imports github.com/google/uuid: "},
		"the contract with a package of ours":       {[]archtest.Package{pkg("providers", "/outbox")}, "providers imports outbox: "},
		"the suite that needs the simulator":        {[]archtest.Package{pkg("providers/providertest", "/internal/simulator")}, "providers/providertest imports internal/simulator: "},
		"the schema that needs its users":           {[]archtest.Package{pkg("migrations", "/outbox")}, "migrations imports outbox: "},
		"the witness that shares code":              {[]archtest.Package{pkg("internal/simulator", "/outbox/canonical")}, "internal/simulator imports outbox/canonical: "},
		"a package that imports a command":          {[]archtest.Package{pkg("internal/demo", "/cmd/enqueue")}, "internal/demo imports cmd/enqueue: "},
		"a test that imports a command":             {[]archtest.Package{{ImportPath: archtest.Module + "/e2e", XTestImports: paths([]string{"/cmd/enqueue"})}}, "a test of e2e imports cmd/enqueue: "},
		"a command's own external test":             {[]archtest.Package{{ImportPath: archtest.Module + "/cmd/enqueue", XTestImports: paths([]string{"/cmd/enqueue"})}}, ""},
		"an example that uses the worker":           {[]archtest.Package{pkg("examples/shop", "/dispatch")}, "examples/shop imports dispatch: "},
		"a test that uses the simulator":            {[]archtest.Package{{ImportPath: archtest.Module + "/providers/providertest", TestImports: paths([]string{"/internal/simulator"})}}, ""},
		"a program that uses a test's database":     {[]archtest.Package{pkg("internal/demo", "/internal/pgtest")}, "internal/demo imports internal/pgtest: that is for tests only"},
		"the enqueuing command that brings a queue": {[]archtest.Package{pkg("cmd/enqueue", "/dispatch")}, "cmd/enqueue imports dispatch: "},
		"a new folder":                  {[]archtest.Package{pkg("console")}, "console: no rule names it"},
		"a name that only begins alike": {[]archtest.Package{pkg("outboxes")}, "outboxes: no rule names it"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := archtest.Check(archtest.Rules, archtest.TestOnly, tt.packages)
			switch {
			case tt.want == "" && len(got) > 0:
				t.Errorf("found %q, want nothing", got)
			case tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)):
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}
