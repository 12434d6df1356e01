package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/outbox-worker/outbox-worker/internal/cli"
)

// enough is a writer that calls done when it has got n lines.
type enough struct {
	n    int
	done func()
	text bytes.Buffer
}

func (e *enough) Write(p []byte) (int, error) {
	e.n -= bytes.Count(p, []byte("\n"))
	if e.n <= 0 {
		e.done()
	}
	return e.text.Write(p)
}

func TestWatchLooksAgainAndEndsWellWhenInterrupted(t *testing.T) {
	t.Parallel()
	b := operateSetup(t)
	b.in("unknown", "1")
	for _, args := range [][]string{{"watch", "--every", "100ms"}, {"watch", "--every", "100ms", "-o", "json"}} {
		ctx, cancel := context.WithCancel(b.ctx)
		lines := 3
		if len(args) == 3 {
			lines = 50 // three looks and more
		}
		out := &enough{n: lines, done: cancel}
		var stderr bytes.Buffer
		code := Main(ctx, cli.Env{Args: args, Environ: []string{"DATABASE_URL=" + b.url}, Stdout: out, Stderr: &stderr})
		if code != cli.OK || stderr.Len() > 0 {
			t.Errorf("%v: %d %s", args, code, &stderr)
		}
		if n := bytes.Count(out.text.Bytes(), []byte("outcome_unknown")); n < 2 {
			t.Errorf("%v: looked %d times:\n%s", args, n, &out.text)
		}
		if bytes.Contains(out.text.Bytes(), []byte("\x1b")) {
			t.Errorf("%v: moves the cursor of what is no terminal", args)
		}
	}
}
