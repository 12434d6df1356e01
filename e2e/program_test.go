// Package e2e_test tests the project from the outside: what is deployed, as it is deployed.
package e2e_test

import (
	"context"
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

// binDir is where the programs under test are built.
var binDir string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if binDir, err = os.MkdirTemp("", "e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(binDir)
	return pgtest.Main(m)
}

var build = sync.OnceValue(func() error {
	out, err := exec.Command("go", "build", "-o", binDir, "../cmd/outbox-worker").CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
})

// program builds outbox-worker, once, and returns where it is.
func program(t *testing.T) string {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(binDir, "outbox-worker")
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
