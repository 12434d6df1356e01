package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

func newCatalogShow(app *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "show [OPERATION]",
		Short: "Show what is in force, or one operation in full",
		Long: `Lists lanes and operations as the database has them. With an operation (a name for all its
versions, or charge_card.v1) it shows its revisions, and the one in force as a catalog file
would say it, with every default made explicit.` +
			cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.NotFound),
		Example: `  outbox-worker catalog show
  outbox-worker catalog show charge_card.v1`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pool, err := app.Connect(cmd)
			if err != nil {
				return err
			}
			defer pool.Close()
			if len(args) == 1 {
				return showOperation(cmd.Context(), app.Output(), pool, args[0])
			}
			return showCatalog(cmd.Context(), app.Output(), pool)
		},
	}
}

// revision is one revision of an operation, and who applied it.
type revision struct {
	Operation string          `json:"operation"`
	Name      string          `json:"-"`
	Revision  int             `json:"revision"`
	InForce   bool            `json:"in_force"`
	Retired   bool            `json:"retired"`
	Lane      string          `json:"lane"`
	AppliedAt time.Time       `json:"applied_at"`
	AppliedBy string          `json:"applied_by"`
	Text      json.RawMessage `json:"spec"`
}

// revisions reads them by operation, the one in force first.
func revisions(ctx context.Context, pool *pgxpool.Pool) ([]revision, error) {
	rows, err := pool.Query(ctx, `-- name: catalog_show
SELECT c.operation, c.name, c.revision, c.revision = max(c.revision) OVER (PARTITION BY c.operation), c.retired, l.name,
	c.applied_at, c.applied_by, c.spec
FROM outbox.catalog c JOIN outbox.lanes l ON l.id = c.lane
ORDER BY c.name, c.version, c.revision DESC`)
	if err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[revision])
	if err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	return all, nil
}

func showCatalog(ctx context.Context, out cli.Output, pool *pgxpool.Pool) error {
	all, err := revisions(ctx, pool)
	if err != nil {
		return err
	}
	table := [][]string{{"OPERATION", "REVISION", "CLASS", "KEY", "LANE", "APPROVAL", "RETIRED", "APPLIED", "BY"}}
	for _, r := range all {
		if !r.InForce {
			continue
		}
		if out.JSON {
			if err := out.Encode(r); err != nil {
				return err
			}
			continue
		}
		var o catalog.Operation
		if err := json.Unmarshal(r.Text, &o); err != nil {
			return fmt.Errorf("%s, revision %d: %w", r.Operation, r.Revision, err)
		}
		table = append(table, []string{
			r.Operation, strconv.Itoa(r.Revision), string(o.Class), keyText(o.Key), r.Lane,
			approvalText(o.Approval), yes(r.Retired), cli.Time(r.AppliedAt), r.AppliedBy,
		})
	}
	if out.JSON {
		return nil
	}
	if len(table) == 1 {
		return out.Printf("The catalog is empty: outbox-worker catalog apply FILE.")
	}
	lanes, err := laneTable(ctx, pool)
	if err != nil {
		return err
	}
	return errors.Join(out.Table(table), out.Printf(""), out.Table(lanes))
}

func laneTable(ctx context.Context, pool *pgxpool.Pool) ([][]string, error) {
	rows, err := pool.Query(ctx, `-- name: catalog_show_lanes
SELECT name, provider, concurrency::text, coalesce(rate::text, 'unlimited'), burst::text,
	CASE WHEN paused_until > now() THEN 'paused' WHEN opened_at IS NOT NULL THEN 'breaker open' ELSE '' END
FROM outbox.lanes ORDER BY name`)
	if err != nil {
		return nil, fmt.Errorf("read the lanes: %w", err)
	}
	table := [][]string{{"LANE", "PROVIDER", "CONCURRENCY", "RATE", "BURST", "STATE"}}
	row := make([]string, 6)
	_, err = pgx.ForEachRow(rows, []any{&row[0], &row[1], &row[2], &row[3], &row[4], &row[5]}, func() error {
		table = append(table, append([]string(nil), row...))
		return nil
	})
	return table, err
}

func showOperation(ctx context.Context, out cli.Output, pool *pgxpool.Pool, name string) error {
	all, err := revisions(ctx, pool)
	if err != nil {
		return err
	}
	found := map[string][]revision{}
	var order []string
	for _, r := range all {
		if r.Operation != name && r.Name != name {
			continue
		}
		if found[r.Operation] == nil {
			order = append(order, r.Operation)
		}
		found[r.Operation] = append(found[r.Operation], r)
	}
	if len(order) == 0 {
		return cli.Fail(cli.NotFound, "outbox-worker catalog show lists what there is", "no operation %s", name)
	}
	for i, operation := range order {
		if i > 0 && !out.JSON {
			if err := out.Printf(""); err != nil {
				return err
			}
		}
		if err := printOperation(out, found[operation]); err != nil {
			return err
		}
	}
	return nil
}

func printOperation(out cli.Output, all []revision) error {
	table := [][]string{{"OPERATION", "REVISION", "IN FORCE", "APPLIED", "BY"}}
	for _, r := range all {
		if out.JSON {
			if err := out.Encode(r); err != nil {
				return err
			}
			continue
		}
		table = append(table, []string{r.Operation, strconv.Itoa(r.Revision), yes(r.InForce), cli.Time(r.AppliedAt), r.AppliedBy})
	}
	if out.JSON {
		return nil
	}
	text, err := asYAML(all[0].Text)
	if err != nil {
		return fmt.Errorf("%s, revision %d: %w", all[0].Operation, all[0].Revision, err)
	}
	if err := errors.Join(out.Table(table), out.Printf("")); err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		if err := out.Printf("%s", strings.TrimSuffix(line, "\n")); err != nil {
			return err
		}
	}
	return nil
}

// asYAML writes a spec as a catalog file has it. JSON is YAML, so that a node keeps the
// order of the fields.
func asYAML(spec json.RawMessage) (string, error) {
	var o catalog.Operation
	if err := json.Unmarshal(spec, &o); err != nil {
		return "", err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return "", err
	}
	blockStyle(&doc)
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(&doc), e.Close()); err != nil {
		return "", err
	}
	return b.String(), nil
}

// blockStyle undoes JSON's braces and the quotes that YAML does not need.
func blockStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		blockStyle(c)
	}
}

func keyText(k catalog.Key) string {
	text := string(k.Rule)
	if len(k.Fields) > 0 {
		text += " " + strings.Join(k.Fields, " ")
	}
	if k.Window.Duration > 0 {
		text += " within " + k.Window.String()
	}
	if k.PerSubject {
		text += ", per subject"
	}
	if k.PerVersion {
		text += ", per version"
	}
	return text
}

func approvalText(a catalog.Approval) string {
	if !a.Required {
		return ""
	}
	return count(a.People, "person")
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}
