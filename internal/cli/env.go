package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/mattn/go-isatty"
)

// Env is what a command knows of the world. Tests make their own.
type Env struct {
	Args    []string // without the program's name
	Environ []string // "NAME=value", as os.Environ gives it
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
}

// Process is the Env of this process, and a context that ends with the first SIGINT or
// SIGTERM. The second one ends the process as if nobody had listened.
func Process() (context.Context, Env) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, Env{Args: os.Args[1:], Environ: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
}

// Lookup returns the value of an environment variable, and whether it is set.
func (e Env) Lookup(name string) (string, bool) {
	for i := len(e.Environ) - 1; i >= 0; i-- { // the last one counts, as in os/exec
		if value, ok := strings.CutPrefix(e.Environ[i], name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// Terminal reports whether a stream of the Env is a terminal.
func Terminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// Color reports whether w may be written to in colour: a terminal, without NO_COLOR.
func (e Env) Color(w io.Writer) bool {
	no, _ := e.Lookup("NO_COLOR")
	term, _ := e.Lookup("TERM")
	return no == "" && term != "dumb" && Terminal(w)
}
