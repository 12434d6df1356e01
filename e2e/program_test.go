// Package e2e_test tests the project from the outside: what is deployed, as it is
// deployed, and real processes on a real Postgres with a provider that counts. What those
// assert in the end is the number of effects at the provider, and that the ledger says
// neither more nor less.
//
// Most workers are the program that is deployed. Some are this test's own binary, run
// again as a worker that stops at a named point and says so, so that it can be killed
// exactly there.
package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/outbox-worker/outbox-worker/internal/pgtest"
)

// atOnce is how many tests run at once, whatever the number of cores: most of the time
// they wait for leases to run out.
const atOnce = "8"

// binDir is where the programs under test are built.
var binDir string

func TestMain(m *testing.M) {
	if os.Getenv(pointEnv) != "" {
		os.Exit(hookedMain())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	var err error
	if !given {
		err = flag.Set("test.parallel", atOnce)
	}
	if err == nil {
		binDir, err = os.MkdirTemp("", "e2e-")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(binDir)
	code := pgtest.Main(m)
	if n := running.Load(); n != 0 {
		fmt.Fprintf(os.Stderr, "%d processes were left behind\n", n)
		code = 1
	}
	return code
}

var build = sync.OnceValue(func() error {
	out, err := exec.Command("go", "build", "-o", binDir, "../cmd/outbox-worker", "../cmd/enqueue").CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
})

// program builds outbox-worker, once, and returns where it is.
func program(t testing.TB) string {
	t.Helper()
	return command(t, "outbox-worker")
}

// command is program for any of ours.
func command(t testing.TB, name string) string {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(binDir, name)
}

// cleanEnv is the environment without what would configure our programs.
func cleanEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "OUTBOX_") || strings.HasPrefix(e, "DATABASE_URL=") || strings.HasPrefix(e, "PG")
	})
}

// checkCommand asks the program itself whether it knows the command and its flags.
func checkCommand(t *testing.T, bin, where string, args []string) {
	t.Helper()
	name := []string{"outbox-worker"}
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") || strings.ContainsAny(arg, "./") {
			break
		}
		name = append(name, arg)
	}
	help, err := exec.CommandContext(context.WithoutCancel(t.Context()), bin, append(name[1:], "--help")...).CombinedOutput()
	if err != nil || !strings.Contains(string(help), "\n  "+strings.Join(name, " ")) {
		t.Errorf("%s: %q is not a command: %v\n%s", where, name, err, help)
	}
	for _, arg := range args {
		flag, _, _ := strings.Cut(arg, "=")
		if strings.HasPrefix(flag, "--") && !strings.Contains(string(help), " "+flag+" ") {
			t.Errorf("%s: %q has no flag %s", where, name, flag)
		}
	}
}
