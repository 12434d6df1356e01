package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/outbox"
)

func newList(app *cli.App) *cobra.Command {
	var f filter
	var summary bool
	cmd := &cobra.Command{
		Use:     "list",
		GroupID: groupOperate,
		Short:   "List intents, newest first, or count them by state",
		Long: `Lists intents with their state, newest first. NEXT says what happens next by itself and
when; it is empty for what is settled and for what waits for a person. It reads the
ledger and changes nothing.

--since and --until take a time (RFC 3339) or how long ago (2h, 36h30m). --operation takes
a name for all its versions, or one version.` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage),
		Example: `  outbox-worker list --state outcome_unknown,needs_review
  outbox-worker list --operation charge_card --tenant acme --since 2h
  outbox-worker list --summary
  outbox-worker list --limit 0 --output json | jq -r .reference`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.complete(time.Now()); err != nil {
				return err
			}
			pool, err := app.Connect(cmd)
			if err != nil {
				return err
			}
			defer pool.Close()
			if summary {
				return listSummary(cmd.Context(), app.Output(), pool, f)
			}
			return listIntents(cmd.Context(), app.Output(), pool, f)
		},
	}
	f.flags(cmd)
	cmd.Flags().IntVar(&f.limit, "limit", 50, "how many at most; 0 for all")
	cmd.Flags().BoolVar(&summary, "summary", false, "count by state instead")
	return cmd
}

// filter selects intents.
type filter struct {
	references              []string
	states                  []string
	operation, tenant, lane string
	sinceText, untilText    string // what was given for since and until
	since, until            time.Time
	limit                   int
}

func (f *filter) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.states, "state", nil, "only these `STATES`, separated by commas")
	flags.StringVar(&f.operation, "operation", "", "only this operation, with or without its version")
	flags.StringVar(&f.tenant, "tenant", "", "only this tenant")
	flags.StringVar(&f.lane, "lane", "", "only this lane")
	flags.StringVar(&f.sinceText, "since", "", "committed at or after this `TIME`, or this long ago")
	flags.StringVar(&f.untilText, "until", "", "committed before this `TIME`, or this long ago")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(stateNames(), cobra.ShellCompDirectiveNoFileComp))
}

// complete checks the filter and fills in its times.
func (f *filter) complete(now time.Time) (err error) {
	for _, s := range f.states {
		if !slices.Contains(stateNames(), s) {
			return cli.Fail(cli.Usage, "one of "+strings.Join(stateNames(), ", "), "--state %q", s)
		}
	}
	if f.limit < 0 {
		return cli.Fail(cli.Usage, "0 for all", "--limit %d", f.limit)
	}
	if f.since, err = ago("since", f.sinceText, now); err != nil {
		return err
	}
	f.until, err = ago("until", f.untilText, now)
	return err
}

// ago reads a time, or a duration before now.
func ago(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	return time.Time{}, cli.Fail(cli.Usage, "give a time such as 2026-01-31T09:00:00Z, or how long ago, such as 2h", "--%s %q", flag, text)
}

func stateNames() []string {
	states := []outbox.State{
		outbox.AwaitingApproval, outbox.Accepted, outbox.Executing, outbox.FailedRetryable, outbox.OutcomeUnknown,
		outbox.NeedsReview, outbox.Exhausted, outbox.Succeeded, outbox.FailedFinal, outbox.Cancelled,
	}
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = string(s)
	}
	return names
}

// where is the filter as SQL, with its arguments. The states that only open intents can
// have are asked of the outbox alone, which stays small however large the ledger grows.
func (f filter) where() (from, where string, args pgx.NamedArgs) {
	join, conditions, args := "LEFT JOIN", []string{"true"}, pgx.NamedArgs{}
	add := func(condition, name string, value any) {
		conditions = append(conditions, condition)
		args[name] = value
	}
	if len(f.references) > 0 {
		add("i.reference = ANY(@references)", "references", f.references)
	}
	if len(f.states) > 0 {
		add("coalesce(e.state, o.state)::text = ANY(@states)", "states", f.states)
		if !slices.ContainsFunc(f.states, settles) {
			join = "JOIN"
		}
	}
	if name, version, ok := strings.Cut(f.operation, ".v"); ok && version != "" {
		add("c.operation = @operation", "operation", f.operation)
	} else if f.operation != "" {
		add("c.name = @operation", "operation", name)
	}
	if f.tenant != "" {
		add("i.tenant = @tenant", "tenant", f.tenant)
	}
	if f.lane != "" {
		add("l.name = @lane", "lane", f.lane)
	}
	if !f.since.IsZero() {
		add("i.created_at >= @since", "since", f.since)
	}
	if !f.until.IsZero() {
		add("i.created_at < @until", "until", f.until)
	}
	from = `outbox.intents i
` + join + ` outbox.outbox o ON o.intent_id = i.id
LEFT JOIN outbox.outcomes e ON e.intent_id = i.id
JOIN outbox.catalog c ON c.id = i.catalog_id
JOIN outbox.lanes l ON l.id = coalesce(o.lane, c.lane)`
	return from, strings.Join(conditions, " AND "), args
}

// settles reports whether a state may be that of an outcome.
func settles(state string) bool {
	s := outbox.State(state)
	return s.Terminal() || s == outbox.Exhausted // also after it was superseded
}

// listed is a row of list, and of what show finds around an intent.
type listed struct {
	Reference string       `json:"reference"`
	State     outbox.State `json:"state"`
	Operation string       `json:"operation"`
	Tenant    string       `json:"tenant"`
	Lane      string       `json:"lane"`
	Attempt   int          `json:"attempt"`
	CreatedAt time.Time    `json:"created_at"`
	Phase     string       `json:"phase,omitempty"`      // what NextAt means
	NextAt    *time.Time   `json:"next_at,omitempty"`    // when something happens by itself
	SettledAt *time.Time   `json:"settled_at,omitempty"` // when it ended
	Code      string       `json:"code,omitempty"`
}

const listedColumns = `i.reference, coalesce(e.state, o.state)::text AS state, c.operation, i.tenant, l.name AS lane,
	coalesce(e.attempt, o.attempt) AS attempt, i.created_at, coalesce(o.phase::text, '') AS phase, CASE WHEN isfinite(o.next_at) THEN o.next_at END AS next_at, e.settled_at,
	coalesce(e.code, '') AS code`

func listIntents(ctx context.Context, out cli.Output, pool *pgxpool.Pool, f filter) error {
	from, where, args := f.where()
	query := "-- name: list\nSELECT " + listedColumns + " FROM " + from + " WHERE " + where + " ORDER BY i.id DESC"
	if f.limit > 0 {
		query += " LIMIT " + strconv.Itoa(f.limit)
	}
	rows, err := pool.Query(ctx, query, args)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	table := [][]string{{"REFERENCE", "STATE", "OPERATION", "TENANT", "LANE", "ATTEMPT", "COMMITTED", "NEXT"}}
	var item listed
	_, err = pgx.ForEachRow(rows, item.scan(), func() error {
		if out.JSON {
			return out.Encode(item)
		}
		table = append(table, []string{
			item.Reference, string(item.State), item.Operation, item.Tenant, item.Lane,
			strconv.Itoa(item.Attempt), cli.Time(item.CreatedAt), next(item.Phase, item.NextAt),
		})
		return nil
	})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	if out.JSON {
		return nil
	}
	if len(table) == 1 {
		return out.Printf("No intents match.")
	}
	return out.Table(table)
}

// scan lists the destinations of listedColumns.
func (l *listed) scan() []any {
	return []any{&l.Reference, &l.State, &l.Operation, &l.Tenant, &l.Lane, &l.Attempt, &l.CreatedAt, &l.Phase, &l.NextAt, &l.SettledAt, &l.Code}
}

// next says what happens by itself, and when.
func next(phase string, at *time.Time) string {
	if at == nil {
		return ""
	}
	words := map[string]string{
		"due": "send", "released": "send", "leased": "lease until", "asking": "ask", "probing": "ask until", "following": "follow-ons",
	}
	return strings.TrimSpace(words[phase] + " " + cli.Time(*at))
}

func listSummary(ctx context.Context, out cli.Output, pool *pgxpool.Pool, f filter) error {
	from, where, args := f.where()
	rows, err := pool.Query(ctx, `-- name: list_summary
SELECT coalesce(e.state, o.state)::text AS state, count(*) AS count, min(i.created_at) AS oldest, max(i.created_at) AS newest
FROM `+from+` WHERE `+where+` GROUP BY coalesce(e.state, o.state) ORDER BY coalesce(e.state, o.state)`, args)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	type count struct {
		State  outbox.State `json:"state"`
		Count  int64        `json:"count"`
		Oldest time.Time    `json:"oldest"`
		Newest time.Time    `json:"newest"`
	}
	counts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[count])
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	table := [][]string{{"STATE", "COUNT", "OLDEST", "NEWEST"}}
	var total int64
	for _, c := range counts {
		if out.JSON {
			if err := out.Encode(c); err != nil {
				return err
			}
		}
		total += c.Count
		table = append(table, []string{string(c.State), strconv.FormatInt(c.Count, 10), cli.Time(c.Oldest), cli.Time(c.Newest)})
	}
	if out.JSON {
		return nil
	}
	return out.Table(append(table, []string{"total", strconv.FormatInt(total, 10)}))
}
