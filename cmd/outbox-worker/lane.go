package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/outbox-worker/outbox-worker/internal/cli"
)

func newLane(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "lane",
		GroupID: groupOperate,
		Short:   "Look at the lanes, pause and resume them",
		Long: `A lane is the path to one provider account. Paused, it sends nothing and asks nothing, on
all replicas; what is enqueued waits, and what workers have claimed is finished.`,
		Example: `  outbox-worker lane status
  outbox-worker lane pause payments --for 30m --reason 'the provider is in maintenance'
  outbox-worker lane resume payments --reason 'it is back'`,
	}
	cmd.AddCommand(newLaneStatus(app), newLanePause(app), newLaneResume(app))
	return cli.Group(cmd)
}

func newLaneStatus(app *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "status [NAME]",
		Short: "Show what each lane carries and whether it is paused",
		Long: `Shows the lanes: how many calls they may have open at once, how many intents have been
handed to workers (RELEASED), are being sent (IN FLIGHT), are due and wait for a place
(DUE, and the OLDEST of them), are to be sent later (LATER), have an unknown outcome
(UNKNOWN), and are in review.` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.NotFound),
		Example: "  outbox-worker lane status",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pool, err := app.Connect(cmd)
			if err != nil {
				return err
			}
			defer pool.Close()
			name := strings.Join(args, "")
			lanes, err := readLanes(cmd.Context(), pool, name)
			if err != nil {
				return err
			}
			if name != "" && len(lanes) == 0 {
				return cli.Fail(cli.NotFound, "outbox-worker lane status lists what there is", "no lane %s", name)
			}
			return printLanes(app.Output(), lanes)
		},
	}
}

// laneStatus is a lane and what it carries.
type laneStatus struct {
	Lane        string     `json:"lane"`
	Provider    string     `json:"provider"`
	Concurrency int        `json:"concurrency"`
	Rate        float64    `json:"rate,omitempty"` // calls per second; 0 is unlimited
	Released    int        `json:"released"`
	InFlight    int        `json:"in_flight"`
	Due         int        `json:"due"`
	OldestDue   float64    `json:"oldest_due_seconds"`
	Later       int        `json:"later"`
	Unknown     int        `json:"unknown"`
	Review      int        `json:"review"`
	Paused      bool       `json:"paused"`
	PausedUntil *time.Time `json:"paused_until,omitempty"` // none while paused: until it is resumed
	PausedBy    string     `json:"paused_by,omitempty"`
	PauseReason string     `json:"pause_reason,omitempty"`
	OpenedAt    *time.Time `json:"breaker_opened_at,omitempty"`
}

const lanesSQL = `-- name: lane_status
SELECT l.name, l.provider, l.concurrency, coalesce(l.rate, 0), coalesce(o.released, 0), coalesce(o.in_flight, 0), coalesce(o.due, 0),
	coalesce(extract(epoch FROM clock_timestamp() - o.oldest), 0)::float8, coalesce(o.later, 0), coalesce(o.unknown, 0), coalesce(o.review, 0),
	coalesce(l.paused_until > clock_timestamp(), false),
	CASE WHEN l.paused_until > clock_timestamp() AND isfinite(l.paused_until) THEN l.paused_until END,
	CASE WHEN l.paused_until > clock_timestamp() THEN l.paused_by ELSE '' END,
	CASE WHEN l.paused_until > clock_timestamp() THEN l.pause_reason ELSE '' END, l.opened_at
FROM outbox.lanes l
LEFT JOIN (
	SELECT lane, count(*) FILTER (WHERE phase = 'released') AS released, count(*) FILTER (WHERE phase = 'leased') AS in_flight,
		count(*) FILTER (WHERE phase = 'due' AND next_at <= now()) AS due, min(next_at) FILTER (WHERE phase = 'due' AND next_at <= now()) AS oldest,
		count(*) FILTER (WHERE phase = 'due' AND next_at > now()) AS later, count(*) FILTER (WHERE phase IN ('asking', 'probing')) AS unknown,
		count(*) FILTER (WHERE review_since IS NOT NULL) AS review
	FROM outbox.outbox GROUP BY lane
) o ON o.lane = l.id
WHERE $1 IN ('', l.name) ORDER BY l.name`

// querier is a pool, or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// readLanes reads one lane, or all.
func readLanes(ctx context.Context, db querier, name string) ([]laneStatus, error) {
	rows, err := db.Query(ctx, lanesSQL, name)
	if err != nil {
		return nil, fmt.Errorf("read the lanes: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l laneStatus, err error) {
		var by, reason *string
		err = row.Scan(&l.Lane, &l.Provider, &l.Concurrency, &l.Rate, &l.Released, &l.InFlight, &l.Due, &l.OldestDue, &l.Later,
			&l.Unknown, &l.Review, &l.Paused, &l.PausedUntil, &by, &reason, &l.OpenedAt)
		l.PausedBy, l.PauseReason = textOf(by), textOf(reason)
		return l, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the lanes: %w", err)
	}
	return all, nil
}

func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func printLanes(out cli.Output, lanes []laneStatus) error {
	if out.JSON {
		for _, l := range lanes {
			if err := out.Encode(l); err != nil {
				return err
			}
		}
		return nil
	}
	if len(lanes) == 0 {
		return out.Printf("There are no lanes: outbox-worker catalog apply FILE.")
	}
	return out.Table(lanesTable(lanes))
}

func lanesTable(lanes []laneStatus) [][]string {
	table := [][]string{{"LANE", "PROVIDER", "CONCURRENCY", "RELEASED", "IN FLIGHT", "DUE", "OLDEST", "LATER", "UNKNOWN", "REVIEW", "STATE"}}
	for _, l := range lanes {
		oldest := ""
		if l.Due > 0 {
			oldest = since(l.OldestDue)
		}
		table = append(table, []string{
			l.Lane, l.Provider, strconv.Itoa(l.Concurrency), strconv.Itoa(l.Released), strconv.Itoa(l.InFlight), strconv.Itoa(l.Due), oldest,
			strconv.Itoa(l.Later), strconv.Itoa(l.Unknown), strconv.Itoa(l.Review), l.state(),
		})
	}
	return table
}

// state says whether the lane goes, and if not, why.
func (l laneStatus) state() string {
	switch {
	case l.Paused && l.PausedUntil == nil:
		return "paused until it is resumed" + prefixed(" by ", l.PausedBy) + prefixed(": ", l.PauseReason)
	case l.Paused:
		return "paused until " + timeOf(l.PausedUntil) + prefixed(" by ", l.PausedBy) + prefixed(": ", l.PauseReason)
	case l.OpenedAt != nil:
		return "breaker open since " + timeOf(l.OpenedAt)
	default:
		return ""
	}
}

func newLanePause(app *cli.App) *cobra.Command {
	var who by
	var until string
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "pause NAME",
		Short: "Stop a lane for everybody",
		Long: `Pauses a lane on all replicas, until a time or until it is resumed: nothing new is sent or
asked. What workers have claimed is finished. A pause that is there already is made longer
and never shorter: resume the lane first.` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.Refused, cli.NotFound),
		Example: `  outbox-worker lane pause payments --reason 'wrong amounts, see incident 17'
  outbox-worker lane pause payments --for 30m --reason 'the provider is in maintenance'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			end, err := pauseEnd(until, length)
			if err != nil {
				return err
			}
			// How long is added to the database's clock: it is the one that ends the pause.
			return actOnLane(cmd, app, &who, args[0], "-- name: pause_lane\nSELECT "+laneColumns+
				" FROM outbox.pause_lane($1, $2, $3, coalesce($4, clock_timestamp() + make_interval(secs => nullif($5::float8, 0)))) a", end, length.Seconds())
		},
	}
	cmd.Flags().StringVar(&until, "until", "", "resume by itself at this `TIME` (RFC 3339)")
	cmd.Flags().DurationVar(&length, "for", 0, "resume by itself after this long, such as 30m")
	cmd.MarkFlagsMutuallyExclusive("until", "for")
	who.flags(cmd)
	return cmd
}

// pauseEnd checks when a pause is to end by itself, and returns the time if one is given.
func pauseEnd(until string, length time.Duration) (*time.Time, error) {
	switch {
	case length < 0:
		return nil, cli.Fail(cli.Usage, "give a duration with its unit, such as 30m", "--for %s", length)
	case until == "":
		return nil, nil
	}
	end, err := time.Parse(time.RFC3339, until)
	if err != nil {
		return nil, cli.Fail(cli.Usage, "give a time such as 2026-01-31T09:00:00Z", "--until %q", until)
	}
	return &end, nil
}

func newLaneResume(app *cli.App) *cobra.Command {
	var who by
	cmd := &cobra.Command{
		Use:   "resume NAME",
		Short: "End a lane's pause",
		Long: `Ends a pause, whoever began it: an operator, or a worker because the provider asked to slow
down.` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.Refused, cli.NotFound),
		Example: "  outbox-worker lane resume payments --reason 'it is back'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return actOnLane(cmd, app, &who, args[0], "-- name: resume_lane\nSELECT "+laneColumns+" FROM outbox.resume_lane($1, $2, $3) a")
		},
	}
	who.flags(cmd)
	return cmd
}

// laneOperated is the database's answer about a lane: the type outbox.lane_operated.
type laneOperated struct {
	Answer      string     `json:"answer"`
	Lane        string     `json:"lane"`
	WasPaused   bool       `json:"was_paused"`
	WasUntil    *time.Time `json:"was_paused_until,omitempty"`
	Paused      bool       `json:"paused"`
	PausedUntil *time.Time `json:"paused_until,omitempty"`
	Code        string     `json:"code,omitempty"`
	Reason      string     `json:"reason,omitempty"`
	Hint        string     `json:"hint,omitempty"`
}

const laneColumns = `a.answer, a.lane, a.was_until IS NOT NULL, CASE WHEN isfinite(a.was_until) THEN a.was_until END, a.paused_until IS NOT NULL,
	CASE WHEN isfinite(a.paused_until) THEN a.paused_until END, coalesce(a.code, ''), coalesce(a.reason, ''), coalesce(a.hint, '')`

func actOnLane(cmd *cobra.Command, app *cli.App, who *by, lane, query string, args ...any) error {
	pool, err := app.Connect(cmd)
	if err != nil {
		return err
	}
	defer pool.Close()
	ctx := cmd.Context()
	if err := who.complete(ctx, app, pool); err != nil {
		return err
	}
	rows, err := pool.Query(ctx, query, append([]any{lane, who.reason, who.actor}, args...)...)
	if err != nil {
		return fmt.Errorf("%s %s: %w", cmd.Name(), lane, err)
	}
	a, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[laneOperated])
	if err != nil {
		return fmt.Errorf("%s %s: %w", cmd.Name(), lane, err)
	}
	return a.report(app.Output())
}

func (a laneOperated) report(out cli.Output) error {
	if out.JSON {
		if err := out.Encode(a); err != nil {
			return err
		}
	} else if a.Answer == "done" {
		if err := out.Fields("lane", a.Lane, "was", pausedText(a.WasPaused, a.WasUntil), "is", pausedText(a.Paused, a.PausedUntil), "note", a.Hint); err != nil {
			return err
		}
	}
	switch a.Answer {
	case "done":
		return nil
	case "not_found":
		return cli.Fail(cli.NotFound, "outbox-worker lane status lists what there is", "no lane %s", a.Lane)
	default:
		return cli.Fail(cli.Refused, strings.TrimSuffix(a.Hint, "."), "%s: %s, %s", a.Lane, a.Code, a.Reason)
	}
}

func pausedText(paused bool, until *time.Time) string {
	switch {
	case !paused:
		return "going"
	case until == nil:
		return "paused until it is resumed"
	default:
		return "paused until " + timeOf(until)
	}
}
