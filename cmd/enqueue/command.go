package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outbox-worker/outbox-worker/internal/cli"
)

// options are what the flags say beside the intent itself.
type options struct {
	payloadFile string
	file        string // of NDJSON
	status      string // a reference to ask for
	batch       int
	noCheck     bool
	wait        bool
	timeout     time.Duration
	intent      record
}

func newApp(env cli.Env) *cli.App {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "enqueue",
		Short: "Record intents: each takes effect once, however often it is asked for",
		Long: `enqueue records one intent from flags, or thousands from a file with one JSON object per
line, and prints the ledger's answer: accepted, or what became of the same intent when it
was asked for before. Asking again is always safe: run the same command or the same file
again whenever you do not know whether it went through.

A line of --ndjson has the names of the flags, with underscores:
  {"tenant":"acme","operation":"charge_card.v1","payload":{"order_id":"1042","amount":24000}}
It may also have operation_id, subject, principal (a list), task, parent, supersedes,
compensates, not_before, deadline, priority and trace. --tenant and the other flags fill in
what a line does not say. Lines are recorded in transactions of --batch lines each; a bad
line is reported with its number and holds up no other. After an interrupt it says which
line was the last.

The payload is checked against the operation's schema first, if this user may read the
catalog. Times are RFC 3339, or a duration from now, such as 15m.` +
			cli.ExitHelp(cli.OK, cli.Failure, cli.Usage, cli.Refused, cli.Conflict, cli.Busy, cli.Unsettled, cli.NotFound, cli.NotDone, cli.Interrupted) + `
For a file it is the first of 3, 4, 8 and 6 that any line has.`,
		Example: `  enqueue --tenant acme --operation charge_card.v1 --payload '{"order_id":"1042","amount":24000}'
  enqueue --tenant acme --operation send_mail.v1 --operation-id 0198f3c2-… --payload-file mail.json --wait
  enqueue --ndjson charges.ndjson --output json >answers.ndjson
  enqueue --tenant acme --status 7k2f9c0q4t1hd3vbm8p6r5s0u2a1e9gl --wait --timeout 1m`,
		Args: cobra.NoArgs,
	}
	app := cli.New(env, cmd, "database.url")
	o.addFlags(cmd.Flags())
	cmd.MarkFlagsMutuallyExclusive("payload", "payload-file", "ndjson", "status")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.run(cmd, app) }
	return app
}

func (o *options) addFlags(f *pflag.FlagSet) {
	in := &o.intent
	f.StringVar(&in.Tenant, "tenant", "", "on whose behalf")
	f.StringVar(&in.Operation, "operation", "", "what to do, with its version: charge_card.v1")
	f.StringVar(&in.payloadText, "payload", "", "a `JSON` object; amounts as integers of minor units")
	f.StringVar(&o.payloadFile, "payload-file", "", "read the payload from a `FILE`, - for standard input")
	f.StringVar(&in.OperationID, "operation-id", "", "names the intent where the catalog says so; create and store it before the first attempt")
	f.StringVar(&in.Subject, "subject", "", "whom the effect concerns")
	f.StringArrayVar(&in.Principal, "principal", nil, "`NAME` of who asks; repeat it for the agent and host in between")
	f.StringVar(&in.Task, "task", "", "identifier of the surrounding work, for people")
	f.StringVar(&in.Parent, "parent", "", "`REFERENCE` of the intent that led to this one")
	f.StringVar(&in.Supersedes, "supersedes", "", "`REFERENCE` of the intent under the same key that is proven not to have happened")
	f.StringVar(&in.Compensates, "compensates", "", "`REFERENCE` of the intent that this one undoes")
	f.StringVar(&in.NotBefore, "not-before", "", "send no earlier: a `TIME`, or a duration from now")
	f.StringVar(&in.Deadline, "deadline", "", "never send later: a `TIME`, or a duration from now")
	f.IntVar(&in.Priority, "priority", 0, "from -100 to 100 among the tenant's own; higher goes sooner")
	f.StringVar(&in.Trace, "trace", "", "W3C traceparent")
	f.BoolVar(&in.noWait, "nowait", false, "answer busy at once where another transaction holds the key")

	f.StringVar(&o.file, "ndjson", "", "record every line of a `FILE`, - for standard input")
	f.IntVar(&o.batch, "batch", 500, "lines per transaction with --ndjson")
	f.BoolVar(&o.noCheck, "no-check", false, "do not check payloads against the operation's schema first")
	f.StringVar(&o.status, "status", "", "record nothing; tell what became of a `REFERENCE` of --tenant")
	f.BoolVar(&o.wait, "wait", false, "wait until it is settled")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long --wait waits")
}

func (o *options) run(cmd *cobra.Command, app *cli.App) error {
	if err := o.check(cmd); err != nil {
		return err
	}
	pool, err := app.Connect(cmd)
	if err != nil {
		return err
	}
	defer pool.Close()
	r, err := newRecorder(cmd.Context(), pool, o, app)
	if err != nil {
		return err
	}
	switch {
	case o.status != "":
		return r.tell(cmd.Context(), o.intent.Tenant, o.status)
	case o.file != "":
		return r.file(cmd.Context(), o.file)
	default:
		return r.one(cmd.Context(), o.intent)
	}
}

// check refuses calls that could only be mistakes, before anything is read or written.
func (o *options) check(cmd *cobra.Command) error {
	set := cmd.Flags().Changed
	switch {
	case o.batch < 1 || o.batch > 10_000:
		return cli.Fail(cli.Usage, "from 1 to 10000", "--batch %d", o.batch)
	case o.timeout < 0:
		return cli.Fail(cli.Usage, "give a duration such as 30s", "--timeout %s", o.timeout)
	case set("timeout") && !o.wait:
		return cli.Fail(cli.Usage, "add --wait", "--timeout without --wait")
	case set("batch") && o.file == "":
		return cli.Fail(cli.Usage, "it is for --ndjson", "--batch without a file")
	case o.file != "" && o.intent.noWait:
		return cli.Fail(cli.Usage, "leave --nowait out", "--nowait is for one intent; lines of a file wait their turn")
	case o.file != "" && (set("operation-id") || set("supersedes") || set("compensates")):
		return cli.Fail(cli.Usage, "say it in the line", "--operation-id, --supersedes and --compensates are for one intent, not for every line of a file")
	case o.file != "":
		return nil
	case o.intent.Tenant == "":
		return cli.Fail(cli.Usage, "see enqueue --help", "no --tenant")
	case o.status != "":
		return nil
	case o.intent.Operation == "":
		return cli.Fail(cli.Usage, "as in charge_card.v1; outbox-worker catalog show lists them", "no --operation")
	case !set("payload") && !set("payload-file"):
		return cli.Fail(cli.Usage, "give a JSON object with --payload or --payload-file", "no payload")
	}
	return nil
}

// waitContext bounds a wait that begins now.
func (o *options) waitContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, o.timeout)
}
