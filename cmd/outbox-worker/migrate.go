package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/migrations"
)

func newMigrate(app *cli.App) *cobra.Command {
	var print, status, down, yes bool
	cmd := &cobra.Command{
		Use:     "migrate",
		GroupID: groupSetUp,
		Short:   "Create or update the schema outbox",
		Long: `Brings the schema outbox, with River's tables in it, to the version of this program.
Any number may run at once: they take turns. It needs a direct connection (not a pooler
in transaction mode) as a user who may create the schema and, the first time in a
cluster, the roles outbox_app, outbox_worker, outbox_operator and outbox_retention.` +
			cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.Refused),
		Example: `  outbox-worker migrate            # up
  outbox-worker migrate --status   # what is applied, what is pending
  outbox-worker migrate --print    # the SQL, for a tool of your own
  outbox-worker migrate --down --yes   # deletes every intent, outcome and history entry`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if print {
				return migrations.Print(app.Env.Stdout)
			}
			if down && !yes {
				return cli.Fail(cli.Refused, "add --yes to go on",
					"migrate --down deletes the schema outbox with every intent, outcome and history entry")
			}
			pool, err := app.Connect(cmd)
			if err != nil {
				return err
			}
			defer pool.Close()
			switch {
			case status:
				return migrateStatus(cmd.Context(), app.Output(), pool)
			case down:
				return migrateDown(cmd.Context(), app.Output(), pool)
			default:
				return migrateUp(cmd.Context(), app.Output(), pool)
			}
		},
	}
	cmd.Flags().BoolVar(&print, "print", false, "print the SQL instead of running it; needs no database")
	cmd.Flags().BoolVar(&status, "status", false, "list the migrations and whether they are applied")
	cmd.Flags().BoolVar(&down, "down", false, "remove the schema with everything in it")
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm --down")
	cmd.MarkFlagsMutuallyExclusive("print", "status", "down")
	return cmd
}

func migrateUp(ctx context.Context, out cli.Output, pool *pgxpool.Pool) error {
	before, err := migrations.Status(ctx, pool)
	if err != nil {
		return err
	}
	if err := migrations.Up(ctx, pool); err != nil {
		return explainMigrate(err)
	}
	pending := pendingOf(before)
	if out.JSON {
		return out.Encode(map[string]any{"applied": pending})
	}
	if len(pending) == 0 {
		return out.Printf("The schema outbox is up to date.")
	}
	for _, name := range pending {
		if err := out.Printf("applied %s", name); err != nil {
			return err
		}
	}
	return nil
}

func migrateDown(ctx context.Context, out cli.Output, pool *pgxpool.Pool) error {
	if err := migrations.Down(ctx, pool); err != nil {
		return explainMigrate(err)
	}
	if out.JSON {
		return out.Encode(map[string]any{"removed": migrations.Schema})
	}
	return out.Printf("The schema outbox is gone. Its roles stay, because another database may use them.")
}

func migrateStatus(ctx context.Context, out cli.Output, pool *pgxpool.Pool) error {
	steps, err := migrations.Status(ctx, pool)
	if err != nil {
		return err
	}
	rows := [][]string{{"MIGRATION", "APPLIED"}}
	for _, s := range steps {
		if out.JSON {
			if err := out.Encode(s); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{s.Name, appliedText(s)})
	}
	if out.JSON {
		return nil
	}
	return out.Table(rows)
}

func appliedText(s migrations.Step) string {
	switch {
	case !s.Applied:
		return "pending"
	case s.AppliedAt.IsZero():
		return "yes"
	default:
		return cli.Time(s.AppliedAt)
	}
}

func pendingOf(steps []migrations.Step) []string {
	pending := []string{}
	for _, s := range steps {
		if !s.Applied {
			pending = append(pending, s.Name)
		}
	}
	return pending
}

// explainMigrate knows what a missing right means here.
func explainMigrate(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42501" { // insufficient_privilege
		return &cli.Error{
			Code: cli.Failure, Err: fmt.Errorf("migrate: %w", err),
			Hint: "connect as a user who may CREATE in this database and create roles, or have outbox-worker migrate --print run for you",
		}
	}
	return err
}
