//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommandGetsServerAndItsCodeIsOurs(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	code, err := run([]string{"--", "sh", "-c", `echo "$` + envName + `" >"$0"; exit 7`, out})
	if code != 7 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
	if b, err := os.ReadFile(out); !strings.HasPrefix(string(b), "postgres://") {
		t.Errorf("the command got %q, %v", b, err)
	}
}

// noVersion is a version that no machine has and, without npm, none can get.
const noVersion = "1"

func withoutNpm(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "npm"), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
}

func TestMissingVersionIsAnError(t *testing.T) {
	withoutNpm(t)
	if code, err := run([]string{"-also", noVersion, "--", "true"}); code != 1 || err == nil {
		t.Errorf("code %d, %v", code, err)
	}
}

func TestLenientGoesOnWithoutMissingVersion(t *testing.T) {
	withoutNpm(t)
	script := `test -n "$` + envName + `" && test -z "$` + envName + "_" + noVersion + `" && exit 7`
	code, err := run([]string{"-lenient", "-version", noVersion, "-also", noVersion, "--", "sh", "-c", script})
	if code != 7 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
}

func TestSignalIsPassedOn(t *testing.T) {
	code, err := run([]string{"--", "sh", "-c", `trap "exit 9" TERM; kill -TERM $PPID; while :; do :; done`})
	if code != 9 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
}

func TestCodeOfCommandThatDoesNotEndByItself(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{"kill -KILL $$": 137, "exit 0": 0} {
		if code, err := command([]string{"sh", "-c", script}, nil, nil); code != want || err != nil {
			t.Errorf("%s: code %d, %v, want %d", script, code, err, want)
		}
	}
	if code, err := command([]string{"/no/such/command"}, nil, nil); code != 127 || err == nil {
		t.Errorf("code %d, %v", code, err)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	if code, err := run(nil); code != 2 || err == nil {
		t.Errorf("code %d, %v", code, err)
	}
}
