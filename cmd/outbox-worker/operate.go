package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// operated is the database's answer to an operator: the type outbox.operated.
type operated struct {
	Answer    string       `json:"answer"` // done, refused, busy, not_found
	Reference string       `json:"reference"`
	Operation string       `json:"operation,omitempty"`
	Was       outbox.State `json:"was,omitempty"`
	State     outbox.State `json:"state,omitempty"`
	Attempt   int          `json:"attempt"`
	Did       string       `json:"did,omitempty"`
	Code      string       `json:"code,omitempty"`
	Reason    string       `json:"reason,omitempty"`
	Hint      string       `json:"hint,omitempty"`
	ClaimedBy string       `json:"claimed_by,omitempty"`
}

const operatedColumns = `a.answer, coalesce(a.reference, ''), coalesce(a.operation, ''), coalesce(a.was::text, ''), coalesce(a.state::text, ''), coalesce(a.attempt, 0),
	coalesce(a.did, ''), coalesce(a.code, ''), coalesce(a.reason, ''), coalesce(a.hint, ''), coalesce(a.claimed_by, '')`

// operate asks the database for one action.
func operate(ctx context.Context, pool *pgxpool.Pool, query string, args ...any) (operated, error) {
	rows, err := pool.Query(ctx, query, args...)
	if err != nil {
		return operated{}, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[operated])
}

// by are the flags of everything that an operator does: who, and why.
type by struct{ actor, reason string }

func (b *by) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&b.reason, "reason", "", "why, for the history; required")
	actorFlag(cmd.Flags(), &b.actor)
}

// complete makes sure that there is a reason, and fills in the actor.
func (b *by) complete(ctx context.Context, app *cli.App, pool *pgxpool.Pool) (err error) {
	if strings.TrimSpace(b.reason) == "" {
		return cli.Fail(cli.Usage, "say why, for whoever reads the history", "--reason is required")
	}
	b.actor, err = actorOf(ctx, app.Env, b.actor, pool)
	return err
}

// act runs one action on the intent that ref names, and prints the answer. query takes
// the reference, the reason and the actor first, then args.
func act(cmd *cobra.Command, app *cli.App, who *by, ref, query string, args ...any) error {
	if err := checkRef(ref); err != nil {
		return err
	}
	pool, err := app.Connect(cmd)
	if err != nil {
		return err
	}
	defer pool.Close()
	ctx := cmd.Context()
	if err := who.complete(ctx, app, pool); err != nil {
		return err
	}
	reference, err := wholeRef(ctx, pool, ref)
	if err != nil {
		return err
	}
	a, err := operate(ctx, pool, query, append([]any{reference, who.reason, who.actor}, args...)...)
	if err != nil {
		return fmt.Errorf("%s %s: %w", cmd.Name(), reference, err)
	}
	return a.report(app.Output())
}

// report prints an answer; a refusal is an error with its exit code, too.
func (a operated) report(out cli.Output) error {
	if out.JSON {
		if err := out.Encode(a); err != nil {
			return err
		}
	} else if a.Answer == "done" {
		err := out.Fields(
			"reference", a.Reference,
			"operation", a.Operation,
			"done", didText(a.Did),
			"was", map[bool]string{true: string(a.Was)}[a.Was != a.State],
			"state", string(a.State),
			"claimed by", a.ClaimedBy,
			"note", a.Hint,
		)
		if err != nil {
			return err
		}
	}
	return a.err()
}

// err is a refusal as an error.
func (a operated) err() error {
	code := map[string]cli.ExitCode{"refused": cli.Refused, "busy": cli.Busy, "not_found": cli.NotFound}[a.Answer]
	if a.Answer == "done" {
		return nil
	}
	claim := ""
	if a.ClaimedBy != "" && a.Code != "claimed" {
		claim = "; claimed by " + a.ClaimedBy
	}
	return &cli.Error{Code: code, Err: fmt.Errorf("%s: %s, %s%s", a.Reference, a.Code, a.Reason, claim), Hint: strings.TrimSuffix(a.Hint, ".")}
}

// didText words what was done.
func didText(did string) string {
	words := map[string]string{
		"attempts_anew":    "to be sent again, with all its attempts",
		"due_now":          "due now",
		"asked_now":        "to be asked about now",
		"follow_ons_again": "its follow-ons are to be created again",
	}
	if text, ok := words[did]; ok {
		return text
	}
	return strings.ReplaceAll(did, "_", " ")
}

func checkRef(ref string) error {
	if !prefixForm.MatchString(ref) {
		return cli.Fail(cli.Usage, "give 6 to 32 characters of 0-9 and a-v", "reference %q", ref)
	}
	return nil
}

// wholeRef is the reference that begins with prefix, if there is just one.
func wholeRef(ctx context.Context, pool *pgxpool.Pool, prefix string) (string, error) {
	rows, err := pool.Query(ctx, `-- name: whole_reference
SELECT i.reference FROM outbox.intents i WHERE i.reference >= @prefix AND i.reference < @prefix || 'w' ORDER BY i.reference LIMIT 2`,
		pgx.NamedArgs{"prefix": prefix})
	if err != nil {
		return "", err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return "", err
	}
	return oneRef(prefix, found)
}

// oneRef is the only reference found.
func oneRef(prefix string, found []string) (string, error) {
	switch len(found) {
	case 0:
		return "", cli.Fail(cli.NotFound, "outbox-worker list shows what there is", "no intent begins with %s", prefix)
	case 1:
		return found[0], nil
	default:
		return "", cli.Fail(cli.Usage, "give more of it", "%s begins more than one reference: %s, %s", prefix, found[0], found[1])
	}
}
