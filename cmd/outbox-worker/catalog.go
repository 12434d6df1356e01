package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

func newCatalog(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "catalog",
		GroupID: groupSetUp,
		Short:   "Check, apply and show the operations and their rules",
		Long: `The catalog lists the operations that applications may enqueue and the rules of each:
how its key is decided, its lane, its limits, what follows its success. It is a file that
is applied to the database, where the revision in force counts.`,
		Example: `  outbox-worker catalog validate catalog.yaml
  outbox-worker catalog apply catalog.yaml --dry-run
  outbox-worker catalog show charge_card.v1`,
	}
	cmd.AddCommand(newCatalogValidate(app), newCatalogApply(app), newCatalogShow(app))
	return cli.Group(cmd)
}

func newCatalogValidate(app *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a catalog file without a database",
		Long: `Checks everything that can be known without a database, and lists all that is wrong
with file, line and what to do. FILE may be - for standard input. With --output json, each
problem is one object.` + cli.ExitHelp(cli.OK, cli.Usage, cli.Refused),
		Example: "  outbox-worker catalog validate catalog.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := readCatalog(app, args[0])
			if err != nil {
				return err
			}
			if out := app.Output(); !out.JSON {
				return out.Printf("%s: %d operations, %d lanes, no problem found.", args[0], len(c.Operations), len(c.Lanes))
			}
			return nil
		},
	}
}

func newCatalogApply(app *cli.App) *cobra.Command {
	var dryRun bool
	var actor string
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Put a catalog file into the database",
		Long: `Applies the file in one transaction: lanes are created or get their new limits, and an
operation that differs from its newest revision gets another. Nothing is removed: retire an
operation to stop it. Applying the same file again changes nothing. FILE may be - for
standard input.` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.Refused),
		Example: `  outbox-worker catalog apply catalog.yaml --dry-run
  outbox-worker catalog apply catalog.yaml --actor deploy-bot`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := readCatalog(app, args[0])
			if err != nil {
				return err
			}
			pool, err := app.Connect(cmd)
			if err != nil {
				return err
			}
			defer pool.Close()
			var changes []catalog.Change
			if dryRun {
				changes, err = catalog.Plan(cmd.Context(), pool, c)
			} else {
				who, whoErr := actorOf(cmd.Context(), app.Env, actor, pool)
				if whoErr != nil {
					return whoErr
				}
				changes, err = catalog.Apply(cmd.Context(), pool, c, who)
			}
			if err != nil {
				return catalogError(app, err)
			}
			return printChanges(app.Output(), changes, dryRun)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change, and change nothing")
	actorFlag(cmd.Flags(), &actor)
	return cmd
}

func readCatalog(app *cli.App, name string) (*catalog.Catalog, error) {
	var text []byte
	var err error
	if name == "-" {
		text, err = io.ReadAll(app.Env.Stdin)
	} else {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, cli.Fail(cli.Usage, "give a catalog file, or - for standard input", "%w", err)
	}
	c, err := catalog.Parse(name, text)
	if err != nil {
		return nil, catalogError(app, err)
	}
	return c, nil
}

// catalogError lists the problems of a catalog one by one: on standard output for
// programs, on standard error for people.
func catalogError(app *cli.App, err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42501" { // insufficient_privilege
		return cli.Fail(cli.Failure, "GRANT outbox_operator TO this user", "apply the catalog: %s", pg.Message)
	}
	wrong, ok := errors.AsType[*catalog.Error](err)
	if !ok {
		return err
	}
	for _, p := range wrong.Problems {
		var failed error
		if out := app.Output(); out.JSON {
			failed = out.Encode(p)
		} else {
			_, failed = fmt.Fprintln(app.Env.Stderr, cli.Printable(p.String()))
		}
		if failed != nil {
			return failed
		}
	}
	return cli.Fail(cli.Refused, "nothing was changed", "the catalog has %s", count(len(wrong.Problems), "problem"))
}

func printChanges(out cli.Output, changes []catalog.Change, dryRun bool) error {
	table := [][]string{{"CHANGE", "WHAT", "REVISION", "DIFFERS"}}
	for _, c := range changes {
		if out.JSON {
			if err := out.Encode(c); err != nil {
				return err
			}
			continue
		}
		what, revision := "lane "+c.Lane, ""
		if c.Operation != "" {
			what, revision = c.Operation, strconv.Itoa(c.Revision)
		}
		table = append(table, []string{string(c.What), what, revision, strings.Join(c.Differs, " ")})
	}
	if out.JSON {
		return nil
	}
	if err := out.Table(table); err != nil {
		return err
	}
	if dryRun {
		return out.Printf("Nothing was changed (--dry-run).")
	}
	return nil
}

// count words a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
