package archtest

// Module is the import path that all of ours begin with.
const Module = "github.com/outbox-worker/outbox-worker"

// Rule says what packages may import. Names of ours are relative to [Module]; a name that
// ends in /... stands for the package and all below it.
type Rule struct {
	// Package names the packages that the rule is about. The first rule that fits a
	// package is its only one.
	Package string

	// MayImport lists what of ours it may import; a package may always import what is
	// named by the same rule. Tests are free to import more.
	MayImport []string

	// Never lists import paths of others that it may not depend on, through any number of
	// steps. Tests are free here, too.
	Never []string

	// StandardLibraryOnly forbids everything of others.
	StandardLibraryOnly bool

	// Why is printed with a violation.
	Why string
}

const (
	river = "github.com/riverqueue/..."
	goose = "github.com/pressly/goose/..."
	cobra = "github.com/spf13/..."
	koanf = "github.com/knadh/..."
)

// Rules are the arrows of the module: cmd → dispatch → outbox, dispatch → providers. A
// package that no rule names is a violation, so that a new folder gets a place here.
var Rules = []Rule{
	{
		Package: "outbox/...",
		Never:   []string{river, goose, cobra, koanf},
		Why:     "applications import it, so it brings neither the worker nor what the worker needs",
	},
	{
		Package:             "providers",
		StandardLibraryOnly: true,
		Why:                 "it is the contract: whoever writes an adapter gets no dependency by it",
	},
	{
		Package:   "providers/providertest",
		MayImport: []string{"providers"},
		Never:     []string{river, goose, cobra, koanf},
		Why:       "adapters outside this module are tested by it, too, so it must not need our simulator",
	},
	{
		Package:   "providers/local",
		MayImport: []string{"providers"},
		Never:     []string{river, goose, cobra, koanf},
		Why:       "its effects live in the ledger's database, so it is handed a transaction; it knows no table of ours",
	},
	{
		Package:   "providers/...",
		MayImport: []string{"providers"},
		Never:     []string{river, goose, cobra, koanf, "github.com/jackc/..."},
		Why:       "adapters report facts; they know neither the ledger nor the schedule",
	},
	{
		Package: "migrations",
		Why:     "the schema is applied without any of the code that uses it",
	},
	{
		Package:   "dispatch/...",
		MayImport: []string{"outbox/...", "providers", "migrations"},
		Never:     []string{cobra, koanf},
		Why:       "the worker knows the contract and no adapter, and is embedded as well as run by cmd",
	},
	{
		Package:   "examples/rooms/...",
		MayImport: []string{"outbox/...", "dispatch", "providers", "providers/local", "providers/smtp"},
		Never:     []string{cobra, koanf},
		Why:       "it embeds the worker as any application can: what it needs must be public",
	},
	{
		Package:   "examples/...",
		MayImport: []string{"outbox", "outbox/catalog"},
		Never:     []string{river, goose, cobra, koanf},
		Why:       "examples can do what any application can: what they need must be public",
	},
	{
		Package: "internal/simulator/...",
		Never:   []string{river, "github.com/jackc/..."},
		Why:     "it is the witness: no bug of ours may be on both sides of a test",
	},
	{
		Package: "internal/archtest",
		Why:     "it judges the others",
	},
	{
		Package: "internal/pgtemp/...",
		Why:     "it starts Postgres, whatever is done with it",
	},
	{
		Package:   "internal/pgtest",
		MayImport: []string{"internal/pgtemp", "migrations"},
		Why:       "every package's tests use it, so what it imports they cannot test with it",
	},
	{
		Package:   "internal/cli",
		MayImport: []string{"outbox/...", "migrations"},
		Never:     []string{river},
		Why:       "both commands start in it; what only the worker needs would be in enqueue as well",
	},
	{
		Package:   "internal/...",
		MayImport: []string{"internal/...", "outbox/...", "providers/...", "migrations", "dispatch/...", "examples/shop"},
		Why:       "nothing imports cmd: what two commands share is a package of its own",
	},
	{
		Package:   "cmd/enqueue",
		MayImport: []string{"outbox/...", "internal/cli"},
		Never:     []string{river, goose},
		Why:       "it does what applications do, and is installed where no worker is",
	},
	{
		Package:   "cmd/...",
		MayImport: []string{"internal/...", "outbox/...", "providers/...", "migrations", "dispatch/...", "examples/shop"},
		Why:       "the worker's command puts everything together, the demo's shop included",
	},
	{
		Package: "docs/model",
		Why:     "the model is checked by itself, against no code",
	},
	{
		Package:   "e2e/...",
		MayImport: []string{"internal/...", "outbox/...", "providers/...", "migrations", "dispatch/...", "examples/..."},
		Why:       "end-to-end tests may use anything but the inside of a command, which they run",
	},
}

// TestOnly names packages that nothing but tests may import.
var TestOnly = []string{"internal/pgtest", "internal/clitest", "providers/providertest"}
