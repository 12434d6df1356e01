package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/outbox"
)

func newWatch(app *cli.App) *cobra.Command {
	var once bool
	var every time.Duration
	cmd := &cobra.Command{
		Use:     "watch",
		GroupID: groupOperate,
		Short:   "Watch what is open, refreshed each second",
		Long: `Shows what is open, each second anew: how many intents are in each state, how long the
oldest unknown outcome has been unknown, the queue of reviews, what is due, and the lanes.
What is settled is not counted: see list --summary. With --output json, each look is one
line. It ends on an interrupt, and rides out a database that is away for a while.` +
			cli.ExitHelp(cli.OK, cli.Failure, cli.Usage),
		Example: `  outbox-worker watch
  outbox-worker watch --once --output json | jq .unknown`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < 100*time.Millisecond {
				return cli.Fail(cli.Usage, "give 100ms or more", "--every %s", every)
			}
			pool, err := app.Connect(cmd)
			if err != nil {
				return err
			}
			defer pool.Close()
			if once {
				s, err := lookAround(cmd.Context(), pool)
				if err != nil {
					return err
				}
				return s.print(app.Output())
			}
			return watch(cmd.Context(), app, pool, every)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "look once, and end")
	cmd.Flags().DurationVar(&every, "every", time.Second, "how often to look")
	return cmd
}

// clearScreen moves the cursor to the top left and empties the terminal.
const clearScreen = "\x1b[2J\x1b[H"

// watch looks until ctx ends, which is how it is meant to end.
func watch(ctx context.Context, app *cli.App, pool *pgxpool.Pool, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	out := app.Output()
	clears := !out.JSON && cli.Terminal(app.Env.Stdout)
	for {
		s, err := lookAround(ctx, pool)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if _, failed := fmt.Fprintln(app.Env.Stderr, cli.Printable("cannot look: "+err.Error())); failed != nil {
				return failed
			}
		default:
			if clears {
				if _, err := io.WriteString(app.Env.Stdout, clearScreen); err != nil {
					return err
				}
			}
			if err := s.print(out); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err == nil && !out.JSON && !clears {
			if err := out.Printf(""); err != nil {
				return err
			}
		}
	}
}

// look is what is open at one moment.
type look struct {
	At      time.Time            `json:"at"`
	States  map[outbox.State]int `json:"states"` // with none left out but the settled ones
	Unknown openCount            `json:"unknown"`
	Review  reviewCount          `json:"review"`
	Due     openCount            `json:"due"` // and not yet taken up
	Lanes   []laneStatus         `json:"lanes"`
}

// openCount is how many there are, and for how long the oldest has been.
type openCount struct {
	Count  int     `json:"count"`
	Oldest float64 `json:"oldest_seconds"`
}

type reviewCount struct {
	openCount
	Claimed int `json:"claimed"`
}

// openStates are those that are open, in the order of their life.
var openStates = []outbox.State{
	outbox.AwaitingApproval, outbox.Accepted, outbox.Executing, outbox.FailedRetryable, outbox.OutcomeUnknown, outbox.NeedsReview, outbox.Exhausted,
}

const lookSQL = `-- name: watch
SELECT now(), o.state::text, count(*), count(o.review_since), count(o.review_owner),
	coalesce(extract(epoch FROM now() - min(o.review_since)), 0)::float8,
	coalesce(extract(epoch FROM now() - min(o.unknown_since)), 0)::float8
FROM outbox.outbox o GROUP BY o.state`

// lookAround reads in one snapshot, so that the numbers agree.
func lookAround(ctx context.Context, pool *pgxpool.Pool) (*look, error) {
	s := &look{States: map[outbox.State]int{}}
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := s.readStates(ctx, tx); err != nil {
			return err
		}
		lanes, err := readLanes(ctx, tx, "")
		s.Lanes = lanes
		for _, l := range lanes {
			s.Due.Count += l.Due
			s.Due.Oldest = max(s.Due.Oldest, l.OldestDue)
		}
		return err
	})
	return s, err
}

func (s *look) readStates(ctx context.Context, tx pgx.Tx) error {
	for _, state := range openStates {
		s.States[state] = 0
	}
	if err := tx.QueryRow(ctx, "SELECT now()").Scan(&s.At); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, lookSQL)
	if err != nil {
		return err
	}
	var state outbox.State
	var n, reviews, claimed int
	var reviewAge, unknownAge float64
	_, err = pgx.ForEachRow(rows, []any{&s.At, &state, &n, &reviews, &claimed, &reviewAge, &unknownAge}, func() error {
		s.States[state] = n
		s.Review.Count += reviews
		s.Review.Claimed += claimed
		s.Review.Oldest = max(s.Review.Oldest, reviewAge)
		if state == outbox.OutcomeUnknown {
			s.Unknown = openCount{n, unknownAge}
		}
		return nil
	})
	return err
}

func (s *look) print(out cli.Output) error {
	if out.JSON {
		return out.Encode(s)
	}
	states := [][]string{{"STATE", "OPEN"}}
	for _, state := range openStates {
		states = append(states, []string{string(state), strconv.Itoa(s.States[state])})
	}
	if n := s.States[outbox.Succeeded]; n > 0 {
		states = append(states, []string{"succeeded, with follow-ons to create", strconv.Itoa(n)})
	}
	return errors.Join(
		out.Printf("%s", cli.Time(s.At)),
		out.Printf(""),
		out.Table(states),
		out.Printf(""),
		out.Fields(
			"unknown", s.Unknown.text(),
			"in review", s.Review.text()+map[bool]string{true: fmt.Sprintf(", %d claimed", s.Review.Claimed)}[s.Review.Count > 0],
			"due", s.Due.text(),
		),
		out.Printf(""),
		out.Table(lanesTable(s.Lanes)),
	)
}

func (c openCount) text() string {
	if c.Count == 0 {
		return "none"
	}
	return fmt.Sprintf("%d, the oldest for %s", c.Count, since(c.Oldest))
}
