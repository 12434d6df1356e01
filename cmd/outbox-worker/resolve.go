package main

import (
	"encoding/json"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbox-worker/outbox-worker/internal/cli"
)

// outcomes are what a review can be resolved as, and what the database calls them.
var outcomes = map[string]string{"succeeded": "succeeded", "failed": "failed", "not-executed": "not_executed"}

func newResolve(app *cli.App) *cobra.Command {
	var who by
	var as, evidence, providerID, result string
	var attempt int
	cmd := &cobra.Command{
		Use:     "resolve REF --as succeeded|failed|not-executed",
		GroupID: groupOperate,
		Short:   "Decide what became of an intent in review, with evidence",
		Long: `Decides an intent that is in review, where neither a lookup nor a safe replay could:

  succeeded     the provider has it. --provider-id and --result are what callers and
                follow-ons get, as if the answer had not been lost.
  failed        it has not happened and must not: failed for good. An intent that
                supersedes it may take its place.
  not-executed  it has not happened and still should: it is sent again under its key.
                Only say so when the provider shows that it has not happened.

--evidence says what you saw at the provider and where; it is kept in the history. With @
before it, it is the name of a file (@- is standard input) that holds JSON or text. A
review that somebody else has claimed can be resolved all the same; the answer says whose
it was. With --attempt the answer is refused if the intent has moved on since you looked.` +
			cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.Refused, cli.NotFound),
		Example: `  outbox-worker resolve 7k2f9c --as succeeded --provider-id ch_812 \
      --evidence 'dashboard, search by reference: ch_812, captured 09:14' --reason 'answer was lost'
  outbox-worker resolve 7k2f9c --as not-executed --evidence @journal.json --reason 'not in the journal of the day'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			outcome, ok := outcomes[as]
			if !ok {
				return cli.Fail(cli.Usage, "one of succeeded, failed, not-executed", "--as %q", as)
			}
			proof, err := readEvidence(app.Env, evidence)
			if err != nil {
				return err
			}
			answer, err := readResult(app.Env, result)
			if err != nil {
				return err
			}
			return act(cmd, app, &who, args[0], "-- name: resolve\nSELECT "+operatedColumns+
				" FROM outbox.resolve($1, $4, $5::text::jsonb, $2, $3, nullif($6, ''), $7::text::json, nullif($8::int, 0)) a",
				outcome, proof, providerID, answer, attempt)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&as, "as", "", "what became of it: succeeded, failed or not-executed; required")
	flags.StringVar(&evidence, "evidence", "", "what you saw at the provider: a `TEXT`, or @FILE; required")
	flags.StringVar(&providerID, "provider-id", "", "the provider's id of the effect, for succeeded")
	flags.StringVar(&result, "result", "", "the provider's answer, for succeeded: `JSON`, or @FILE")
	flags.IntVar(&attempt, "attempt", 0, "only if the intent is at this attempt still")
	who.flags(cmd)
	_ = cmd.RegisterFlagCompletionFunc("as", cobra.FixedCompletions([]string{"succeeded", "failed", "not-executed"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// readEvidence is evidence as a JSON document: that of a file, or a text.
func readEvidence(env cli.Env, given string) (string, error) {
	text, file, err := fromFile(env, "evidence", given)
	switch {
	case err != nil:
		return "", err
	case strings.TrimSpace(text) == "":
		return "", cli.Fail(cli.Usage, "say what you saw at the provider, and where", "--evidence is required")
	case file && json.Valid([]byte(text)):
		return text, nil
	}
	doc, err := json.Marshal(strings.TrimSpace(text))
	return string(doc), err
}

// readResult is a JSON document, or nil for none.
func readResult(env cli.Env, given string) (*string, error) {
	text, _, err := fromFile(env, "result", given)
	if err != nil || text == "" {
		return nil, err
	}
	if !json.Valid([]byte(text)) {
		return nil, cli.Fail(cli.Usage, "give a JSON document, or @FILE with one", "--result is not JSON")
	}
	return &text, nil
}

// fromFile is what a flag says, or what stands in the file that it names after @.
func fromFile(env cli.Env, flag, given string) (text string, file bool, _ error) {
	name, file := strings.CutPrefix(given, "@")
	if !file {
		return given, false, nil
	}
	var content []byte
	var err error
	if name == "-" {
		content, err = io.ReadAll(env.Stdin)
	} else {
		content, err = os.ReadFile(name)
	}
	if err != nil {
		return "", true, cli.Fail(cli.Usage, "give a file that can be read, or - for standard input", "--%s: %w", flag, err)
	}
	return string(content), true, nil
}
