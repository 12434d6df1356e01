package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// guard is something that must not be taken away.
type guard struct {
	name string // in the words of the design
	file string // below the module's root
	old  string // found exactly once
	new  string // without the guard
	test string // package and test that goes red: ./dispatch TestASettlementIsFenced
}

func (g guard) pkg() string { pkg, _, _ := strings.Cut(g.test, " "); return pkg }
func (g guard) run() string { _, run, _ := strings.Cut(g.test, " "); return run }

// testTime bounds one test. A mutant may hang what it breaks: that is red, too.
const testTime = 30 * time.Second

// baselineTime bounds all the tests of a package.
const baselineTime = 3 * time.Minute

func main() {
	list := flag.Bool("list", false, "print the guards")
	every := flag.Int("every", 1, "take every so many of them, for a sample")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	chosen := slices.DeleteFunc(slices.Clone(guards), func(g guard) bool {
		return flag.NArg() > 0 && !slices.ContainsFunc(flag.Args(), func(word string) bool { return strings.Contains(g.name, word) })
	})
	sample := chosen[:0]
	for i, g := range chosen {
		if i%max(1, *every) == 0 {
			sample = append(sample, g)
		}
	}
	if *list {
		for _, g := range sample {
			fmt.Printf("%s\n    %s: %s\n    %s\n", g.name, g.file, g.test, strings.ReplaceAll(g.old, "\n", "\n    "))
		}
		return
	}
	if err := all(ctx, sample); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

// all runs the tests as they are, and then once for each guard that is taken away.
func all(ctx context.Context, chosen []guard) error {
	if len(chosen) == 0 {
		return errors.New("no guard has that in its name; see -list")
	}
	for _, g := range chosen {
		if _, err := g.mutate(); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	if err := baseline(ctx, chosen); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	began, survived := time.Now(), 0
	for _, g := range chosen {
		start := time.Now()
		killed, why, err := g.kill(ctx, dir)
		if err != nil {
			return errors.Join(w.Flush(), fmt.Errorf("%s: %w", g.name, err))
		}
		verdict := "killed by"
		if !killed {
			verdict = "SURVIVED"
			survived++
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%.0f s\t%s\n", g.name, verdict, g.run(), time.Since(start).Seconds(), why)
		if err := w.Flush(); err != nil {
			return err
		}
	}
	fmt.Printf("%d guards taken away, %d survived, in %.0f s\n", len(chosen), survived, time.Since(began).Seconds())
	if survived > 0 {
		return fmt.Errorf("%d mutants survived", survived)
	}
	return nil
}

// mutate is the file without the guard.
func (g guard) mutate() ([]byte, error) {
	text, err := os.ReadFile(g.file)
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(text, []byte(g.old)); n != 1 {
		return nil, fmt.Errorf("%s has %d times %q, want 1: bring guards.go up to date", g.file, n, g.old)
	}
	return bytes.Replace(text, []byte(g.old), []byte(g.new), 1), nil
}

// baseline sees that every test is there, and green while all guards are.
func baseline(ctx context.Context, chosen []guard) error {
	tests := map[string][]string{}
	for _, g := range chosen {
		if !slices.Contains(tests[g.pkg()], g.run()) {
			tests[g.pkg()] = append(tests[g.pkg()], g.run())
		}
	}
	for pkg, names := range tests {
		patterns := make([]string, len(names))
		for i, name := range names {
			top, _, _ := strings.Cut(name, "/")
			patterns[i] = top
		}
		slices.Sort(patterns)
		patterns = slices.Compact(patterns)
		out, err := goTest(ctx, pkg, "^("+strings.Join(patterns, "|")+")$", "", baselineTime)
		if err != nil {
			return fmt.Errorf("with all guards in place, %s: %w\n%s", pkg, err, out)
		}
		for _, name := range patterns {
			if !strings.Contains(out, "--- PASS: "+name+" ") {
				return fmt.Errorf("%s has no test %s", pkg, name)
			}
		}
	}
	return nil
}

// kill runs the guard's test without the guard. It must compile, and fail.
func (g guard) kill(ctx context.Context, dir string) (killed bool, why string, err error) {
	text, err := g.mutate()
	if err != nil {
		return false, "", err
	}
	changed, overlay := filepath.Join(dir, "mutant"+filepath.Ext(g.file)), filepath.Join(dir, "overlay.json")
	at, err := filepath.Abs(g.file)
	if err != nil {
		return false, "", err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{at: changed}})
	if err != nil {
		return false, "", err
	}
	if err := errors.Join(os.WriteFile(changed, text, 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		return false, "", err
	}
	out, err := goTest(ctx, g.pkg(), "^("+g.run()+")$", overlay, testTime)
	switch {
	case ctx.Err() != nil:
		return false, "", ctx.Err()
	case err == nil:
		return false, "", nil
	case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
		return false, "", fmt.Errorf("the mutant does not compile:\n%s", out)
	case strings.Contains(out, "--- FAIL: ") || strings.Contains(out, "panic: test timed out"):
		return true, firstFailure(out), nil
	}
	return false, "", fmt.Errorf("%s failed otherwise: %w\n%s", g.run(), err, out)
}

// firstFailure is what the test said first, shortened.
func firstFailure(out string) string {
	for line := range strings.Lines(out) {
		if _, said, ok := strings.Cut(line, "_test.go:"); ok {
			_, said, _ = strings.Cut(said, ": ")
			said = strings.TrimSpace(said)
			return said[:min(len(said), 90)]
		}
	}
	return ""
}

func goTest(ctx context.Context, pkg, run, overlay string, limit time.Duration) (string, error) {
	args := []string{"test", "-count=1", "-v", "-timeout=" + limit.String(), "-run=" + run}
	if overlay != "" {
		args = append(args, "-overlay="+overlay, "-vet=off")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
