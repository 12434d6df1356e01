package main

import (
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

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/outbox"
)

func newReview(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "review",
		GroupID: groupOperate,
		Short:   "The queue of what only people can decide",
		Long: `The queue of intents that neither a lookup nor a safe replay could decide, of
contradictions, and of follow-ons that could not be created. Each belongs to the owner
that the catalog names; who works on it claims it. resolve decides it.`,
		Example: `  outbox-worker review list --owner payments-oncall
  outbox-worker review claim 7k2f9c --reason 'mine'
  outbox-worker review show 7k2f9c`,
	}
	cmd.AddCommand(newReviewList(app), newReviewShow(app), newReviewClaim(app), newReviewRelease(app), newReviewClose(app))
	return cli.Group(cmd)
}

func newReviewList(app *cli.App) *cobra.Command {
	var f reviewFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what waits for a decision, the oldest first",
		Long: `Lists the reviews: whose they are, who has claimed them, since when, how often the intent
was sent and asked about, why nobody could tell, and how much money is at stake where the
catalog names the field; the sum per currency comes last. With --output json, each review
is one object, with the evidence so far.` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage),
		Example: `  outbox-worker review list
  outbox-worker review list --owner payments-oncall --unclaimed`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pool, err := app.Connect(cmd)
			if err != nil {
				return err
			}
			defer pool.Close()
			return listReviews(cmd.Context(), app.Output(), pool, f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.owner, "owner", "", "only those of this owner")
	flags.StringVar(&f.claimedBy, "claimed-by", "", "only those that this person has claimed")
	flags.BoolVar(&f.unclaimed, "unclaimed", false, "only those that nobody has claimed")
	flags.StringVar(&f.operation, "operation", "", "only this operation, with or without its version")
	flags.StringVar(&f.tenant, "tenant", "", "only this tenant")
	return cmd
}

func newReviewShow(app *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "show REF",
		Short: "Show one review: what was tried, the evidence, what can be done",
		Long: `Shows a review with everything that was learnt so far, and what can be done about it.
outbox-worker show tells the rest about the intent.` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.Refused, cli.NotFound),
		Example: "  outbox-worker review show 7k2f9c",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkRef(args[0]); err != nil {
				return err
			}
			pool, err := app.Connect(cmd)
			if err != nil {
				return err
			}
			defer pool.Close()
			reference, err := wholeRef(cmd.Context(), pool, args[0])
			if err != nil {
				return err
			}
			found, err := readReviews(cmd.Context(), pool, reviewFilter{reference: reference})
			if err != nil {
				return err
			}
			if len(found) == 0 {
				return cli.Fail(cli.Refused, "outbox-worker show tells its state, review list what is in review", "%s is not in review", reference)
			}
			if out := app.Output(); out.JSON {
				return out.Encode(found[0])
			}
			return found[0].print(app.Output())
		},
	}
}

func newReviewClaim(app *cli.App) *cobra.Command {
	var who by
	cmd := &cobra.Command{
		Use:   "claim REF",
		Short: "Say that you look into it",
		Long: `Records who looks into a review, so that two people do not. What somebody else has claimed
is refused: ask them, or release it first.` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.Refused, cli.NotFound),
		Example: "  outbox-worker review claim 7k2f9c --reason 'on call'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return act(cmd, app, &who, args[0], "-- name: review_claim\nSELECT "+operatedColumns+" FROM outbox.review_claim($1, $2, $3) a")
		},
	}
	who.flags(cmd)
	return cmd
}

func newReviewRelease(app *cli.App) *cobra.Command {
	var who by
	cmd := &cobra.Command{
		Use:   "release REF",
		Short: "Give a review back",
		Long: `Ends a claim: your own, or that of somebody who is not there. The answer and the history
say whose it was.` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.Refused, cli.NotFound),
		Example: "  outbox-worker review release 7k2f9c --reason 'end of my shift'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return act(cmd, app, &who, args[0], "-- name: review_release\nSELECT "+operatedColumns+" FROM outbox.review_release($1, $2, $3) a")
		},
	}
	who.flags(cmd)
	return cmd
}

func newReviewClose(app *cli.App) *cobra.Command {
	var who by
	var evidence string
	cmd := &cobra.Command{
		Use:   "close REF",
		Short: "End a review beside a settled intent",
		Long: `Ends a review of something that is settled: follow-ons that could not be created and are
not wanted any more, or a contradiction that has been dealt with (a second charge that was
refunded). The outcome stays as it is. What is not settled is refused: resolve it.` +
			cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.Refused, cli.NotFound),
		Example: "  outbox-worker review close 7k2f9c --evidence 'refund re_42 at the provider' --reason 'charged twice, refunded by hand'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			proof, err := readEvidence(app.Env, evidence)
			if err != nil {
				return err
			}
			return act(cmd, app, &who, args[0], "-- name: review_close\nSELECT "+operatedColumns+" FROM outbox.review_close($1, $4::text::jsonb, $2, $3) a", proof)
		},
	}
	cmd.Flags().StringVar(&evidence, "evidence", "", "what was done about it, and where that can be seen: a `TEXT`, or @FILE; required")
	who.flags(cmd)
	return cmd
}

// reviewFilter selects reviews.
type reviewFilter struct {
	reference, owner, claimedBy, operation, tenant string
	unclaimed                                      bool
}

// review is one review of the queue.
type review struct {
	Reference string       `json:"reference"`
	State     outbox.State `json:"state"`
	Operation string       `json:"operation"`
	Tenant    string       `json:"tenant"`
	Lane      string       `json:"lane"`
	Owner     string       `json:"owner"`
	ClaimedBy string       `json:"claimed_by,omitempty"`
	Since     time.Time    `json:"since"`
	Attempt   int          `json:"attempt"`
	Sends     int          `json:"sends"`
	Probes    int          `json:"probes"`
	Reason    string       `json:"reason,omitempty"`
	Amount    string       `json:"amount,omitempty"`
	Currency  string       `json:"currency,omitempty"`
	Settled   bool         `json:"settled"` // beside an outcome that stands
	Followed  bool         `json:"-"`       // it is about follow-ons
	Evidence  []entry      `json:"evidence"`
}

// reviewsSQL takes the owner from the revision in force: a queue that changes hands takes
// what is in it along.
const reviewsSQL = `-- name: reviews
SELECT i.reference, coalesce(e.state, o.state)::text, c.operation, i.tenant, l.name,
	coalesce((SELECT k.spec #>> '{review,owner}' FROM outbox.catalog k WHERE k.operation = c.operation ORDER BY k.revision DESC LIMIT 1), '') AS owner,
	coalesce(o.review_owner, ''), o.review_since, o.attempt, o.sends, o.probes, coalesce(o.review_reason, ''),
	coalesce(m.amount::text, ''), coalesce(m.currency, ''), e.intent_id IS NOT NULL,
	EXISTS (SELECT FROM outbox.history h WHERE h.intent_id = i.id AND h.event = 'follow_on_rejected') AND e.state = 'succeeded', learnt.entries
FROM outbox.outbox o
JOIN outbox.intents i ON i.id = o.intent_id
JOIN outbox.catalog c ON c.id = o.catalog_id
JOIN outbox.lanes l ON l.id = o.lane
LEFT JOIN outbox.outcomes e ON e.intent_id = o.intent_id
CROSS JOIN LATERAL outbox.money_of(i.payload, c.spec) m
CROSS JOIN LATERAL (
	SELECT coalesce(json_agg(json_build_object('at', h.at, 'attempt', h.attempt, 'from', h.from_state, 'to', h.to_state, 'event', h.event,
		'actor', h.actor, 'reason', coalesce(h.reason, ''), 'evidence', h.evidence) ORDER BY h.at), '[]') AS entries
	FROM (SELECT * FROM outbox.history h WHERE h.intent_id = i.id AND (h.reason IS NOT NULL OR h.evidence IS NOT NULL) ORDER BY h.at DESC LIMIT 20) h
) learnt
WHERE o.review_since IS NOT NULL AND (@reference = '' OR i.reference = @reference) AND (@claimed_by = '' OR o.review_owner = @claimed_by)
	AND (NOT @unclaimed OR o.review_owner IS NULL) AND (@operation IN ('', c.operation, c.name)) AND (@tenant IN ('', i.tenant))
	AND (@owner = '' OR @owner = (SELECT k.spec #>> '{review,owner}' FROM outbox.catalog k WHERE k.operation = c.operation ORDER BY k.revision DESC LIMIT 1))
ORDER BY o.review_since, i.id`

func readReviews(ctx context.Context, pool *pgxpool.Pool, f reviewFilter) ([]review, error) {
	rows, err := pool.Query(ctx, reviewsSQL, pgx.NamedArgs{
		"reference": f.reference, "owner": f.owner, "claimed_by": f.claimedBy, "unclaimed": f.unclaimed, "operation": f.operation, "tenant": f.tenant,
	})
	if err != nil {
		return nil, fmt.Errorf("read the reviews: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r review, err error) {
		var entries []byte
		if err := row.Scan(&r.Reference, &r.State, &r.Operation, &r.Tenant, &r.Lane, &r.Owner, &r.ClaimedBy, &r.Since, &r.Attempt, &r.Sends,
			&r.Probes, &r.Reason, &r.Amount, &r.Currency, &r.Settled, &r.Followed, &entries); err != nil {
			return r, err
		}
		err = json.Unmarshal(entries, &r.Evidence)
		for i := range r.Evidence {
			if string(r.Evidence[i].Evidence) == "null" {
				r.Evidence[i].Evidence = nil
			}
		}
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the reviews: %w", err)
	}
	return all, nil
}

func listReviews(ctx context.Context, out cli.Output, pool *pgxpool.Pool, f reviewFilter) error {
	all, err := readReviews(ctx, pool, f)
	if err != nil {
		return err
	}
	table := [][]string{{"REFERENCE", "STATE", "OPERATION", "TENANT", "OWNER", "CLAIMED BY", "SINCE", "SENT", "ASKED", "MONEY", "WHY"}}
	var stake purse
	for _, r := range all {
		if out.JSON {
			if err := out.Encode(r); err != nil {
				return err
			}
			continue
		}
		stake.add(r.Amount, r.Currency)
		table = append(table, []string{
			r.Reference, string(r.State), r.Operation, r.Tenant, r.Owner, r.ClaimedBy, cli.Time(r.Since),
			strconv.Itoa(r.Sends), strconv.Itoa(r.Probes), r.money(), r.Reason,
		})
	}
	switch {
	case out.JSON:
		return nil
	case len(all) == 0:
		return out.Printf("Nothing waits for a decision.")
	default:
		return errors.Join(out.Table(table), out.Printf(""), out.Printf("At stake: %s.", stake.sentence()))
	}
}

func (r review) money() string { return strings.TrimSpace(r.Amount + " " + r.Currency) }

func (r review) print(out cli.Output) error {
	table := [][]string{{"AT", "ATTEMPT", "EVENT", "BY", "WHAT WAS LEARNT"}}
	for _, e := range r.Evidence {
		learnt := e.Reason
		if len(e.Evidence) > 0 {
			learnt = strings.TrimSpace(learnt + " " + string(e.Evidence))
		}
		table = append(table, []string{cli.Time(e.At), strconv.Itoa(e.Attempt), e.Event, e.Actor, learnt})
	}
	return errors.Join(
		out.Fields("reference", r.Reference, "state", string(r.State), "operation", r.Operation, "tenant", r.Tenant, "lane", r.Lane,
			"owner", r.Owner, "claimed by", r.ClaimedBy, "since", cli.Time(r.Since), "why", r.Reason, "money", r.money(),
			"attempt", strconv.Itoa(r.Attempt), "sent", count(r.Sends, "time"), "asked", count(r.Probes, "time")),
		section(out, "Evidence", table),
		section(out, "What can be done", r.choices()),
	)
}

// choices are the decisions that a review leaves, by what was found at the provider.
func (r review) choices() [][]string {
	heading := []string{"IF", "THEN"}
	command := "outbox-worker %s " + r.Reference + "%s"
	switch {
	case !r.Settled:
		return [][]string{
			heading,
			{"the provider has it", fmt.Sprintf(command, "resolve", " --as succeeded --provider-id … --evidence … --reason …")},
			{"it has not, and it still should happen", fmt.Sprintf(command, "resolve", " --as not-executed --evidence … --reason …")},
			{"it has not, and it must not happen", fmt.Sprintf(command, "resolve", " --as failed --evidence … --reason …")},
		}
	case r.Followed:
		return [][]string{
			heading,
			{"the cause is corrected", fmt.Sprintf(command, "replay", " --reason …") + " creates the missing follow-ons"},
			{"they are not wanted any more", fmt.Sprintf(command, "review close", " --evidence … --reason …")},
		}
	default:
		return [][]string{
			heading,
			{"the provider's effect must be undone", "enqueue an intent that does, or do it at the provider; then close the review"},
			{"it has been dealt with, or is right as it is", fmt.Sprintf(command, "review close", " --evidence … --reason …")},
		}
	}
}
