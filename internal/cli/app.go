package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
)

// App is what the commands of one run share. Make a new one for every run.
type App struct {
	Env  Env
	Root *cobra.Command

	output string
	config func() (Config, error)
}

// New makes an App around the root command of a program, with the flags that every
// command has: --config, --output, and one for each of the keys of Config.
func New(e Env, root *cobra.Command, keys ...string) *App {
	a := &App{Env: e, Root: root}
	flags := root.PersistentFlags()
	AddConfigFlag(flags)
	AddFlags(flags, keys...)
	flags.StringVarP(&a.output, "output", "o", OutputText, "text for people, json for programs")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.DisableDefaultCmd = root.Name() != "outbox-worker"
	root.SetArgs(e.Args)
	root.SetIn(e.Stdin)
	root.SetOut(e.Stdout)
	root.SetErr(e.Stderr)
	return a
}

// Config loads the configuration under the flags of cmd, once.
func (a *App) Config(cmd *cobra.Command) (Config, error) {
	if a.config == nil {
		a.config = sync.OnceValues(func() (Config, error) { return Load(a.Env, cmd.Flags()) })
	}
	return a.config()
}

// Logger logs to standard error as configured.
func (a *App) Logger(cfg Config) *slog.Logger { return a.Env.Logger(a.Env.Stderr, cfg.Log) }

// Output writes to standard output as --output says.
func (a *App) Output() Output { return Output{JSON: a.output == OutputJSON, w: a.Env.Stdout} }

// Connect loads the configuration and opens the database. The caller closes the pool.
func (a *App) Connect(cmd *cobra.Command) (*pgxpool.Pool, error) {
	cfg, err := a.Config(cmd)
	if err != nil {
		return nil, err
	}
	return Connect(cmd.Context(), cfg.Database, a.Root.Name()+" "+cmd.Name())
}

// Run executes the command that the arguments name and returns the code to exit with.
// An error on the way to a command's own code is a bad call.
func (a *App) Run(ctx context.Context) ExitCode {
	started := false
	walk(a.Root, func(c *cobra.Command) {
		if run := c.RunE; run != nil {
			c.RunE = func(c *cobra.Command, args []string) error {
				started = true
				if a.output != OutputText && a.output != OutputJSON {
					return Fail(Usage, "give text or json", "--output %q", a.output)
				}
				return Explain(run(c, args))
			}
		}
	})
	err := a.Root.ExecuteContext(ctx)
	var known *Error
	if err != nil && !started && !errors.As(err, &known) {
		// cobra adds its suggestions on lines of their own.
		text, suggestions, _ := strings.Cut(err.Error(), "\n\nDid you mean this?\n")
		if names := strings.Fields(suggestions); len(names) > 0 {
			text += ", did you mean " + strings.Join(names, " or ") + "?"
		}
		err = Fail(Usage, fmt.Sprintf("see %s --help", a.Root.Name()), "%s", text)
	}
	return Exit(ctx, a.Env.Stderr, a.Root.Name(), err)
}

func walk(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, sub := range c.Commands() {
		walk(sub, f)
	}
}

// Group makes a command that only carries others: without one of them it shows help,
// with an unknown one it fails.
func Group(c *cobra.Command) *cobra.Command {
	c.Args = cobra.ArbitraryArgs
	c.SuggestionsMinimumDistance = 2
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		hint := fmt.Sprintf("see %s --help", c.CommandPath())
		if names := c.SuggestionsFor(args[0]); len(names) > 0 {
			hint = "did you mean " + strings.Join(names, " or ") + "?"
		}
		return Fail(Usage, hint, "unknown command %q for %s", args[0], c.CommandPath())
	}
	return c
}

// ExitHelp is the part of a command's help that lists exit codes.
func ExitHelp(codes ...ExitCode) string {
	var b strings.Builder
	b.WriteString("\n\nExit codes: ")
	for i, code := range codes {
		for _, m := range ExitCodes() {
			if m.Code == code {
				if i > 0 {
					b.WriteString(", ")
				}
				fmt.Fprintf(&b, "%d %s", m.Code, m.Name)
			}
		}
	}
	return b.String() + "."
}
