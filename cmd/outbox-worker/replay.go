package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/outbox"
)

func newReplay(app *cli.App) *cobra.Command {
	var who by
	var r replayer
	cmd := &cobra.Command{
		Use:     "replay [REF...]",
		GroupID: groupOperate,
		Short:   "Let what is proven not to have happened be tried again",
		Long: `Replays one intent, or many, named by their references or selected by a filter. What that
does depends on what is known:

  exhausted          is sent again, under the same key, with all its attempts
  failed_retryable,  are due now instead of later; not before the caller's not_before, and
  accepted           not while their lane is paused
  outcome_unknown    may have happened, so it is not sent: it is asked about now, as the
                     provider allows
  succeeded          has happened: refused, unless follow-ons of it could not be created;
                     then they are created again
  everything else    is refused, with what to do instead

One intent is replayed at once. Of more than one, it first says what would happen, grouped
by what failed, with the money at stake, and changes nothing; --yes does it, in batches.
--error selects by what the last failure says. Without --state, a filter looks at what is
exhausted, failed_retryable, outcome_unknown, needs_review or failed_final.` +
			cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.Refused, cli.NotFound, cli.Interrupted),
		Example: `  outbox-worker replay 7k2f9c --reason 'the provider has raised our limit'
  outbox-worker replay --operation charge_card --since 2h --error 'connection refused'
  outbox-worker replay --operation charge_card --since 2h --error 'connection refused' \
      --yes --reason 'the provider was down, incident 17'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.complete(args, time.Now()); err != nil {
				return err
			}
			if len(args) == 1 && !r.dryRun {
				return act(cmd, app, &who, args[0], "-- name: replay\nSELECT "+operatedColumns+" FROM outbox.replay($1, $2, $3) a")
			}
			pool, err := app.Connect(cmd)
			if err != nil {
				return err
			}
			defer pool.Close()
			return r.run(cmd.Context(), app, pool, &who)
		},
	}
	r.filter.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&r.failure, "error", "", "only those whose last failure has this `TEXT` in it")
	flags.IntVar(&r.filter.limit, "limit", 0, "how many at most, the oldest first; 0 for all")
	flags.BoolVar(&r.yes, "yes", false, "do it, even if it is more than one")
	flags.BoolVar(&r.dryRun, "dry-run", false, "say what would happen, and change nothing, even if it is one")
	cmd.MarkFlagsMutuallyExclusive("yes", "dry-run")
	who.flags(cmd)
	return cmd
}

// replayer replays many intents, or says what that would do.
type replayer struct {
	filter      filter
	failure     string
	yes, dryRun bool
}

func (r *replayer) complete(args []string, now time.Time) error {
	f := &r.filter
	filtered := len(f.states) > 0 || f.operation+f.tenant+f.lane+f.sinceText+f.untilText+r.failure != ""
	switch {
	case len(args) == 0 && !filtered:
		return cli.Fail(cli.Usage, "name intents by their references, or give a filter such as --operation", "nothing to replay is named")
	case len(args) > 0 && filtered:
		return cli.Fail(cli.Usage, "give one or the other", "references and a filter")
	}
	for _, ref := range args {
		if err := checkRef(ref); err != nil {
			return err
		}
	}
	f.references = args
	if len(args) == 0 && len(f.states) == 0 {
		for _, s := range []outbox.State{outbox.Exhausted, outbox.FailedRetryable, outbox.OutcomeUnknown, outbox.NeedsReview, outbox.FailedFinal} {
			f.states = append(f.states, string(s))
		}
	}
	return f.complete(now)
}

// run plans, and replays what the plan allows if it may.
func (r *replayer) run(ctx context.Context, app *cli.App, pool *pgxpool.Pool, who *by) error {
	for i, ref := range r.filter.references {
		whole, err := wholeRef(ctx, pool, ref)
		if err != nil {
			return err
		}
		r.filter.references[i] = whole
	}
	all, err := r.plan(ctx, pool)
	if err != nil {
		return err
	}
	dry := r.dryRun || !r.yes && len(all) > 1
	var failed error
	if !dry && len(all) > 0 {
		if err := who.complete(ctx, app, pool); err != nil {
			return err
		}
		failed = r.replay(ctx, pool, who, all)
	}
	s := summarise(all, dry)
	if err := s.report(app.Output()); err != nil || failed != nil {
		return errors.Join(failed, err)
	}
	if named := len(r.filter.references) > 0; s.Refused > 0 && !dry && (named || s.Refused == s.Matched) {
		return cli.Fail(cli.Refused, "see why above", "%s refused", count(s.Refused, "intent"))
	}
	return nil
}

// planned is an intent that is to be replayed: what that would do, and then what it did.
type planned struct {
	Reference string
	State     outbox.State
	Operation string
	Did       string // empty when it is refused
	Code      string
	Reason    string
	Hint      string
	Failure   string // the last one, as it was recorded
	Amount    string
	Currency  string
}

// failures are the events whose reasons tell what went wrong.
var failures = []outbox.Event{
	outbox.NotSent, outbox.NoAnswer, outbox.LeaseExpired, outbox.ProviderRefused, outbox.InputRejected, outbox.PinsDiffer, outbox.Probed,
	outbox.ProvenAbsent, outbox.NotProven, outbox.Contradicted, outbox.LookupFoundRefused, outbox.ReviewOpened, outbox.FollowOnRejected,
}

// plan asks the function that decides about a replay what it would decide.
func (r *replayer) plan(ctx context.Context, pool *pgxpool.Pool) ([]*planned, error) {
	from, where, args := r.filter.where()
	args["failures"], args["failure"] = failures, r.failure
	query := `-- name: replay_plan
SELECT i.reference, coalesce(e.state, o.state)::text, c.operation, coalesce(v.did, ''), coalesce(v.code, ''), coalesce(v.reason, ''), coalesce(v.hint, ''),
	coalesce(last.reason, nullif(concat_ws(': ', e.code, e.reason), ''), ''), coalesce(m.amount::text, ''), coalesce(m.currency, '')
FROM ` + from + `
CROSS JOIN LATERAL outbox.replay_verdict(o, e.state, i.not_before) v
CROSS JOIN LATERAL outbox.money_of(i.payload, c.spec) m
LEFT JOIN LATERAL (
	SELECT h.reason FROM outbox.history h
	WHERE h.intent_id = i.id AND h.reason IS NOT NULL AND h.event::text = ANY (@failures) ORDER BY h.at DESC LIMIT 1
) last ON true
WHERE ` + where + ` AND (@failure = '' OR strpos(lower(concat_ws(': ', last.reason, e.code, e.reason)), lower(@failure)) > 0)
ORDER BY i.id`
	if r.filter.limit > 0 {
		query += fmt.Sprintf(" LIMIT %d", r.filter.limit)
	}
	rows, err := pool.Query(ctx, query, args)
	if err != nil {
		return nil, fmt.Errorf("plan the replay: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[planned])
	if err != nil {
		return nil, fmt.Errorf("plan the replay: %w", err)
	}
	return all, nil
}

// replayBatch is how many intents one transaction replays.
const replayBatch = 500

// replay does what was planned, a batch at a time, and puts what came of it in the place
// of the plan. What was not reached has the code not_reached.
func (r *replayer) replay(ctx context.Context, pool *pgxpool.Pool, who *by, all []*planned) error {
	todo := map[string]*planned{}
	var references []string
	for _, p := range all {
		if p.Did != "" {
			todo[p.Reference] = p
			references = append(references, p.Reference)
			p.Did, p.Code, p.Reason, p.Hint = "", "not_reached", "the replay ended before", "Replay again."
		}
	}
	for batch := range slices.Chunk(references, replayBatch) {
		rows, err := pool.Query(ctx, "-- name: replay_many\nSELECT "+operatedColumns+" FROM outbox.replay_many($1, $2, $3) a", batch, who.reason, who.actor)
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		answers, err := pgx.CollectRows(rows, pgx.RowToStructByPos[operated])
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		for _, a := range answers {
			p := todo[a.Reference]
			p.Did, p.Code, p.Reason, p.Hint = a.Did, a.Code, a.Reason, a.Hint
		}
	}
	return nil
}
