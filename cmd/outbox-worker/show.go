package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/outbox"
)

func newShow(app *cli.App) *cobra.Command {
	var payload bool
	cmd := &cobra.Command{
		Use:     "show REF",
		GroupID: groupOperate,
		Short:   "Show everything about one intent",
		Long: `Shows what is known of an intent: its state and what happens next, its key and digest,
the account it was pinned to, its history from the commit on, who asked again, and the
intents around it: its parent, its follow-ons, what it supersedes or compensates. REF is
the reference, or its beginning: at least 6 characters, if no other intent begins so.

The payload and what was kept of the provider's answer may hold personal data, so they
are shown with --payload only.` + cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.NotFound),
		Example: `  outbox-worker show 7k2f9c
  outbox-worker show 7k2f9c --payload --output json | jq .history`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkRef(args[0]); err != nil {
				return err
			}
			pool, err := app.Connect(cmd)
			if err != nil {
				return err
			}
			defer pool.Close()
			s, err := readShown(cmd.Context(), pool, args[0])
			if err != nil {
				return err
			}
			if !payload {
				s.Payload, s.Result = nil, nil
			}
			if out := app.Output(); out.JSON {
				return out.Encode(s)
			}
			return s.print(app.Output())
		},
	}
	cmd.Flags().BoolVar(&payload, "payload", false, "show the payload and the provider's answer, too")
	return cmd
}

var prefixForm = regexp.MustCompile(`^[0-9a-v]{6,32}$`)

// shown is all that show tells; one JSON object.
type shown struct {
	listed
	Generation    int             `json:"generation"`
	Key           string          `json:"key"`
	Digest        string          `json:"digest"`
	DigestVersion int             `json:"digest_version"`
	Revision      int             `json:"catalog_revision"`
	Provider      string          `json:"provider"`
	Priority      int             `json:"priority,omitempty"`
	Subject       string          `json:"subject,omitempty"`
	Principal     []string        `json:"principal,omitempty"`
	Task          string          `json:"task,omitempty"`
	Trace         string          `json:"trace,omitempty"`
	NotBefore     *time.Time      `json:"not_before,omitempty"`
	Deadline      *time.Time      `json:"deadline,omitempty"`
	Sends         *int            `json:"sends,omitempty"`
	Probes        *int            `json:"probes,omitempty"`
	FirstSentAt   *time.Time      `json:"first_sent_at,omitempty"`
	UnknownSince  *time.Time      `json:"unknown_since,omitempty"`
	UnknownTry    *int            `json:"unknown_attempt,omitempty"`
	ReviewSince   *time.Time      `json:"review_since,omitempty"`
	ReviewOwner   string          `json:"review_owner,omitempty"`
	ReviewReason  string          `json:"review_reason,omitempty"`
	Account       string          `json:"account,omitempty"`
	Preset        string          `json:"preset,omitempty"`
	ProviderID    string          `json:"provider_id,omitempty"`
	Reason        string          `json:"reason,omitempty"`
	Forgotten     bool            `json:"forgotten,omitempty"` // retention has taken the payload
	Payload       json.RawMessage `json:"payload,omitempty"`
	Result        json.RawMessage `json:"result,omitempty"`

	History   []entry    `json:"history"`
	Repeats   []repeat   `json:"repeats"`
	Approvals []approval `json:"approvals,omitempty"`
	Related   []relation `json:"related"`

	id, parent, supersedes, compensates *int64
	keyScope                            string // operation's part of the reference
}

// entry is one line of the history; the first is the commit.
type entry struct {
	At       time.Time       `json:"at"`
	Attempt  int             `json:"attempt"`
	From     string          `json:"from,omitempty"`
	To       string          `json:"to"`
	Event    string          `json:"event"`
	Actor    string          `json:"actor"`
	Reason   string          `json:"reason,omitempty"`
	Evidence json.RawMessage `json:"evidence,omitempty"`
}

type repeat struct {
	At        time.Time `json:"at"`
	Answer    string    `json:"answer"`
	Principal []string  `json:"principal,omitempty"`
}

type approval struct {
	At       time.Time `json:"at"`
	Approved bool      `json:"approved"`
	Actor    string    `json:"actor"`
	Reason   string    `json:"reason"`
	Digest   string    `json:"digest"`
}

// relation is an intent around the one shown.
type relation struct {
	Relation string `json:"relation"` // parent, follow_on, supersedes, superseded_by, compensates, compensated_by
	listed
	Generation int `json:"generation"`
}

const showSQL = `-- name: show
SELECT ` + listedColumns + `, i.generation, i.key, i.digest, i.digest_version, c.revision, l.provider, i.priority,
	coalesce(i.subject, ''), i.principal, coalesce(i.task, ''), coalesce(i.trace, ''),
	CASE WHEN isfinite(i.not_before) THEN i.not_before END, CASE WHEN isfinite(i.deadline) THEN i.deadline END,
	o.sends, o.probes, o.first_sent_at, o.unknown_since, o.unknown_attempt, o.review_since,
	coalesce(o.review_owner, ''), coalesce(o.review_reason, ''), coalesce(e.account, o.account, ''), coalesce(o.preset, ''),
	coalesce(e.provider_id, ''), coalesce(e.reason, ''), i.payload IS NULL, i.payload, e.result,
	i.id, i.parent_id, i.supersedes_id, i.compensates_id, CASE WHEN c.key_version THEN c.operation ELSE c.name END
FROM outbox.intents i
LEFT JOIN outbox.outbox o ON o.intent_id = i.id
LEFT JOIN outbox.outcomes e ON e.intent_id = i.id
JOIN outbox.catalog c ON c.id = i.catalog_id
JOIN outbox.lanes l ON l.id = coalesce(o.lane, c.lane)
WHERE i.reference >= @prefix AND i.reference < @prefix || 'w'
ORDER BY i.reference LIMIT 2`

// readShown reads in one snapshot, so that state and history agree.
func readShown(ctx context.Context, pool *pgxpool.Pool, prefix string) (*shown, error) {
	var s *shown
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
		s, err = findShown(ctx, tx, prefix)
		if err != nil {
			return err
		}
		for _, read := range []func(context.Context, pgx.Tx) error{s.readHistory, s.readRepeats, s.readApprovals, s.readRelated} {
			if err := read(ctx, tx); err != nil {
				return fmt.Errorf("show %s: %w", s.Reference, err)
			}
		}
		return nil
	})
	return s, err
}

func findShown(ctx context.Context, tx pgx.Tx, prefix string) (*shown, error) {
	rows, err := tx.Query(ctx, showSQL, pgx.NamedArgs{"prefix": prefix})
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*shown, error) {
		s := &shown{}
		var digest []byte
		err := row.Scan(append(s.scan(), &s.Generation, &s.Key, &digest, &s.DigestVersion, &s.Revision, &s.Provider, &s.Priority,
			&s.Subject, &s.Principal, &s.Task, &s.Trace, &s.NotBefore, &s.Deadline,
			&s.Sends, &s.Probes, &s.FirstSentAt, &s.UnknownSince, &s.UnknownTry, &s.ReviewSince,
			&s.ReviewOwner, &s.ReviewReason, &s.Account, &s.Preset, &s.ProviderID, &s.Reason, &s.Forgotten, &s.Payload, &s.Result,
			&s.id, &s.parent, &s.supersedes, &s.compensates, &s.keyScope)...)
		s.Digest = hex.EncodeToString(digest)
		return s, err
	})
	if err != nil {
		return nil, err
	}
	var references []string
	for _, s := range found {
		references = append(references, s.Reference)
	}
	if _, err := oneRef(prefix, references); err != nil {
		return nil, err
	}
	return found[0], nil
}

func (s *shown) readHistory(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `-- name: show_history
SELECT at, attempt, coalesce(from_state::text, ''), to_state::text, event, actor, coalesce(reason, ''), evidence
FROM outbox.timeline WHERE intent_id = $1 ORDER BY at, event <> 'committed'`, s.id)
	if err != nil {
		return err
	}
	s.History, err = pgx.CollectRows(rows, pgx.RowToStructByPos[entry])
	return err
}

// mostRepeats bounds what is shown of a caller in a loop.
const mostRepeats = 100

func (s *shown) readRepeats(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `-- name: show_repeats
SELECT at, answer, principal FROM outbox.repeats WHERE intent_id = $1 ORDER BY at DESC LIMIT $2`, s.id, mostRepeats)
	if err != nil {
		return err
	}
	s.Repeats, err = pgx.CollectRows(rows, pgx.RowToStructByPos[repeat])
	return err
}

func (s *shown) readApprovals(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `-- name: show_approvals
SELECT at, approved, actor, reason, encode(digest, 'hex') FROM outbox.approvals WHERE intent_id = $1 ORDER BY at`, s.id)
	if err != nil {
		return err
	}
	s.Approvals, err = pgx.CollectRows(rows, pgx.RowToStructByPos[approval])
	return err
}

const relatedSQL = `-- name: show_related
SELECT ` + listedColumns + `, i.generation, i.id, i.supersedes_id
FROM outbox.intents i
LEFT JOIN outbox.outbox o ON o.intent_id = i.id
LEFT JOIN outbox.outcomes e ON e.intent_id = i.id
JOIN outbox.catalog c ON c.id = i.catalog_id
JOIN outbox.lanes l ON l.id = coalesce(o.lane, c.lane)
WHERE `

// mostRelated bounds how far a chain is followed, and how many follow-ons are shown.
const mostRelated = 100

func (s *shown) readRelated(ctx context.Context, tx pgx.Tx) error {
	s.Related = []relation{}
	for _, r := range []struct {
		relation, where string
		arg             *int64
	}{
		{"parent", "i.id = $1", s.parent},
		{"follow_on", "i.parent_id = $1", s.id},
		{"compensates", "i.id = $1", s.compensates},
		{"compensated_by", "i.compensates_id = $1", s.id},
	} {
		if r.arg == nil {
			continue
		}
		if _, err := s.relate(ctx, tx, r.relation, r.where+" ORDER BY i.id LIMIT "+strconv.Itoa(mostRelated), *r.arg); err != nil {
			return err
		}
	}
	return s.readGenerations(ctx, tx)
}

// readGenerations follows the chain of supersedes both ways. The way forward needs no
// index: what supersedes this intent is the next generation of its key, whose reference
// is known.
func (s *shown) readGenerations(ctx context.Context, tx pgx.Tx) error {
	for id, n := s.supersedes, 0; id != nil && n < mostRelated; n++ {
		at, err := s.relate(ctx, tx, "supersedes", "i.id = $1", *id)
		if err != nil {
			return err
		}
		id = at.supersedes
	}
	var ledger string
	if err := tx.QueryRow(ctx, "SELECT id::text FROM outbox.ledger").Scan(&ledger); err != nil {
		return err
	}
	id := s.id
	for n := 1; n <= mostRelated; n++ {
		reference := outbox.Reference(ledger, s.Tenant, s.keyScope, s.Key, s.Generation+n)
		at, err := s.relate(ctx, tx, "superseded_by", "i.reference = $1 AND i.supersedes_id = $2", reference, *id)
		if err != nil || at.id == nil {
			return err
		}
		id = at.id
	}
	return nil
}

// link is where a chain goes on.
type link struct{ id, supersedes *int64 }

// relate adds what it finds, and returns the last one's link.
func (s *shown) relate(ctx context.Context, tx pgx.Tx, name, where string, args ...any) (last link, _ error) {
	rows, err := tx.Query(ctx, relatedSQL+where, args...)
	if err != nil {
		return link{}, err
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (relation, error) {
		r := relation{Relation: name}
		last = link{}
		return r, row.Scan(append(r.scan(), &r.Generation, &last.id, &last.supersedes)...)
	})
	s.Related = append(s.Related, found...)
	return last, err
}

func (s *shown) print(out cli.Output) error {
	steps := []func() error{
		func() error { return s.printFields(out) },
		func() error { return s.printHistory(out) },
		func() error { return s.printApprovals(out) },
		func() error { return s.printRepeats(out) },
		func() error { return s.printRelated(out) },
		func() error { return printJSON(out, "Payload", s.Payload) },
		func() error { return printJSON(out, "Provider's answer", s.Result) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (s *shown) printFields(out cli.Output) error {
	return out.Fields(
		"reference", s.Reference,
		"state", string(s.State),
		"next", next(s.Phase, s.NextAt),
		"operation", fmt.Sprintf("%s (catalog revision %d)", s.Operation, s.Revision),
		"tenant", s.Tenant,
		"lane", fmt.Sprintf("%s (provider %s)", s.Lane, s.Provider),
		"account", s.Account,
		"preset", s.Preset,
		"key", s.Key,
		"generation", strconv.Itoa(s.Generation),
		"digest", s.Digest,
		"subject", s.Subject,
		"principal", strings.Join(s.Principal, " via "),
		"task", s.Task,
		"trace", s.Trace,
		"priority", nonZero(&s.Priority),
		"committed", cli.Time(s.CreatedAt),
		"not before", timeOf(s.NotBefore),
		"deadline", timeOf(s.Deadline),
		"attempt", strconv.Itoa(s.Attempt),
		"sends", nonZero(s.Sends),
		"probes", nonZero(s.Probes),
		"first sent", timeOf(s.FirstSentAt),
		"unknown since", timeOf(s.UnknownSince),
		"unknown attempt", nonZero(s.UnknownTry),
		"review since", timeOf(s.ReviewSince),
		"review claimed", prefixed("by ", s.ReviewOwner),
		"review reason", s.ReviewReason,
		"settled", timeOf(s.SettledAt),
		"provider id", s.ProviderID,
		"code", s.Code,
		"reason", s.Reason,
		"forgotten", map[bool]string{true: "payload and details are past their retention"}[s.Forgotten],
	)
}

func (s *shown) printHistory(out cli.Output) error {
	table := [][]string{{"AT", "ATTEMPT", "EVENT", "STATE", "BY", "REASON"}}
	for _, e := range s.History {
		reason := e.Reason
		if len(e.Evidence) > 0 {
			reason = strings.TrimSpace(reason + " " + string(e.Evidence))
		}
		table = append(table, []string{cli.Time(e.At), strconv.Itoa(e.Attempt), e.Event, e.To, e.Actor, reason})
	}
	return section(out, "History", table)
}

func (s *shown) printRepeats(out cli.Output) error {
	table := [][]string{{"AT", "ANSWER", "PRINCIPAL"}}
	for _, r := range s.Repeats {
		table = append(table, []string{cli.Time(r.At), r.Answer, strings.Join(r.Principal, " via ")})
	}
	title := "Asked again"
	if len(s.Repeats) == mostRepeats {
		title = fmt.Sprintf("Asked again (the latest %d)", mostRepeats)
	}
	return section(out, title, table)
}

func (s *shown) printApprovals(out cli.Output) error {
	table := [][]string{{"AT", "DECISION", "BY", "REASON"}}
	for _, a := range s.Approvals {
		decision := map[bool]string{true: "approved", false: "rejected"}[a.Approved]
		if a.Digest != s.Digest {
			decision += " for another digest"
		}
		table = append(table, []string{cli.Time(a.At), decision, a.Actor, a.Reason})
	}
	return section(out, "Approvals", table)
}

func (s *shown) printRelated(out cli.Output) error {
	table := [][]string{{"RELATION", "REFERENCE", "STATE", "OPERATION", "GENERATION", "COMMITTED"}}
	for _, r := range s.Related {
		table = append(table, []string{
			strings.ReplaceAll(r.Relation, "_", " "), r.Reference, string(r.State), r.Operation,
			strconv.Itoa(r.Generation), cli.Time(r.CreatedAt),
		})
	}
	return section(out, "Related", table)
}

// section prints a table under a title, unless it has only its heading.
func section(out cli.Output, title string, table [][]string) error {
	if len(table) == 1 {
		return nil
	}
	return errors.Join(out.Printf(""), out.Printf("%s", title), out.Table(table))
}

func printJSON(out cli.Output, title string, text json.RawMessage) error {
	if text == nil {
		return nil
	}
	return errors.Join(out.Printf(""), out.Printf("%s", title), out.Printf("%s", text))
}

func timeOf(t *time.Time) string {
	if t == nil {
		return ""
	}
	return cli.Time(*t)
}

func nonZero(n *int) string {
	if n == nil || *n == 0 {
		return ""
	}
	return strconv.Itoa(*n)
}
