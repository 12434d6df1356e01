package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/outbox-worker/outbox-worker/dispatch"
	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

func newRetention(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "retention",
		GroupID: groupOperate,
		Short:   "Look at what is past its retention, and forget it now",
		Long: `What is settled is forgotten in two steps, by the catalog's retention of its operation:
details (payload, result, history) first, and much later the tombstone (key, digest,
outcome), with which a late repeat is recognised. Nothing is forgotten while anything about
it is open. Workers do it by themselves, unless worker.keep_all is set.`,
		Example: `  outbox-worker retention plan
  outbox-worker retention run`,
	}
	cmd.AddCommand(newRetentionPlan(app), newRetentionRun(app))
	return cli.Group(cmd)
}

// retained is what one class of an operation stands at.
type retained struct {
	Operation string         `json:"operation"`
	Class     dispatch.Class `json:"class"`
	Keep      string         `json:"keep"`
	Floor     string         `json:"floor,omitempty"` // below which the catalog refuses it
	Due       int            `json:"due"`             // settled longer ago than Keep
	Oldest    *time.Time     `json:"oldest,omitempty"`
	Kept      int            `json:"kept"` // passed over, because something about them was open

	keep time.Duration
}

func newRetentionPlan(app *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "plan",
		Short: "Show what is past its retention, and change nothing",
		Long: `Shows for each operation how long details and tombstones are kept, the least that the
catalog takes for a tombstone (FLOOR), how many intents are past that (DUE, and when the
OLDEST of them was settled), and how many were passed over because something about them is
open, such as a review (KEPT).` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage),
		Example: "  outbox-worker retention plan --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pool, err := app.Connect(cmd)
			if err != nil {
				return err
			}
			defer pool.Close()
			all, err := readRetained(cmd.Context(), pool)
			if err != nil {
				return err
			}
			out := app.Output()
			if out.JSON {
				return out.Encode(all)
			}
			table := [][]string{{"OPERATION", "CLASS", "KEEP", "FLOOR", "DUE", "OLDEST", "KEPT"}}
			for _, r := range all {
				oldest := ""
				if r.Oldest != nil {
					oldest = r.Oldest.UTC().Format(time.RFC3339)
				}
				table = append(table, []string{r.Operation, string(r.Class), r.Keep, r.Floor, strconv.Itoa(r.Due), oldest, strconv.Itoa(r.Kept)})
			}
			return out.Table(table)
		},
	}
}

func newRetentionRun(app *cli.App) *cobra.Command {
	batch := dispatch.TrimBatch
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Forget now what is past its retention",
		Long: `Does what workers do by themselves: forgets what plan shows as due, in transactions of
--batch intents, while workers and applications go on. It can be interrupted and run again.
It needs the role outbox_retention. What another process is at just now is left to it.` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.Interrupted),
		Example: "  outbox-worker retention run",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if batch < 1 {
				return cli.Fail(cli.Usage, "give a positive number", "--batch %d", batch)
			}
			pool, err := app.Connect(cmd)
			if err != nil {
				return err
			}
			defer pool.Close()
			return forget(cmd.Context(), app.Output(), pool, batch)
		},
	}
	cmd.Flags().IntVar(&batch, "batch", batch, "how many intents one transaction forgets")
	return cmd
}

// forgotten is what a run has done.
type forgotten struct {
	Operation string         `json:"operation"`
	Class     dispatch.Class `json:"class"`
	Intents   int            `json:"intents"`
}

func forget(ctx context.Context, out cli.Output, pool *pgxpool.Pool, batch int) error {
	all, err := readRetained(ctx, pool)
	if err != nil {
		return err
	}
	did := []forgotten{}
	for _, r := range all {
		f := forgotten{Operation: r.Operation, Class: r.Class}
		for more := true; more; {
			var n int
			n, more, err = dispatch.Trim(ctx, pool, r.Operation, r.Class, r.keep, batch)
			if errors.Is(err, dispatch.ErrMayNotTrim) {
				return cli.Fail(cli.Failure, "GRANT outbox_retention to the login that you use", "%w", err)
			}
			if err != nil {
				return err
			}
			f.Intents += n
		}
		did = append(did, f)
	}
	if out.JSON {
		return out.Encode(did)
	}
	for _, f := range did {
		if f.Intents > 0 {
			if err := out.Printf("%s of %d intents of %s forgotten", f.Class, f.Intents, f.Operation); err != nil {
				return err
			}
		}
	}
	if !slices.ContainsFunc(did, func(f forgotten) bool { return f.Intents > 0 }) {
		return out.Printf("nothing is past its retention")
	}
	return nil
}

const retainedSQL = `-- name: retained
SELECT count(e.intent_id)::int, min(e.settled_at), (SELECT count(*)::int FROM outbox.retention_kept k WHERE k.operation = $1 AND k.class = $2::outbox.forgets)
FROM outbox.outcomes e JOIN outbox.intents i ON i.id = e.intent_id
WHERE i.catalog_id IN (SELECT c.id FROM outbox.catalog c WHERE c.operation = $1)
	AND e.settled_at > coalesce((SELECT r.through FROM outbox.retention r WHERE r.operation = $1 AND r.class = $2::outbox.forgets), '-infinity')
	AND e.settled_at <= clock_timestamp() - make_interval(secs => $3)`

func readRetained(ctx context.Context, pool *pgxpool.Pool) ([]retained, error) {
	revisions, err := catalog.Load(ctx, pool)
	var newer *catalog.UnusableError
	if err != nil && !errors.As(err, &newer) {
		return nil, err
	}
	newest := map[string]*catalog.Revision{}
	for _, r := range revisions {
		if have := newest[r.Operation]; have == nil || have.Revision < r.Revision {
			newest[r.Operation] = r
		}
	}
	all := []retained{}
	for _, r := range newest {
		for _, class := range []dispatch.Class{dispatch.Details, dispatch.Tombstones} {
			one := retained{Operation: r.Operation, Class: class, keep: class.Keep(r.Spec)}
			one.Keep = one.keep.String()
			if class == dispatch.Tombstones {
				one.Floor = r.Spec.TombstoneFloor().String()
			}
			if err := pool.QueryRow(ctx, retainedSQL, r.Operation, class, one.keep.Seconds()).Scan(&one.Due, &one.Oldest, &one.Kept); err != nil {
				return nil, fmt.Errorf("read what is past its retention: %w", err)
			}
			all = append(all, one)
		}
	}
	slices.SortStableFunc(all, func(a, b retained) int { return strings.Compare(a.Operation, b.Operation) })
	return all, nil
}
