package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/outbox"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
)

// recorder records intents and tells the answers.
type recorder struct {
	*options
	app    *cli.App
	pool   *pgxpool.Pool
	waiter *outbox.Waiter
	// schemas has the revision in force per operation; nil when this user may not read
	// the catalog.
	schemas map[string]*catalog.Revision
	now     func() time.Time
}

func newRecorder(ctx context.Context, pool *pgxpool.Pool, o *options, app *cli.App) (*recorder, error) {
	r := &recorder{options: o, app: app, pool: pool, waiter: outbox.NewWaiter(pool)}
	var clock time.Time
	if err := pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&clock); err != nil {
		return nil, fmt.Errorf("ask the database for the time: %w", err)
	}
	started := time.Now()
	r.now = func() time.Time { return clock.Add(time.Since(started)) }
	return r, r.loadSchemas(ctx)
}

func (r *recorder) loadSchemas(ctx context.Context) error {
	if r.noCheck || r.status != "" {
		return nil
	}
	all, err := catalog.Load(ctx, r.pool)
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		// Applications may not read the catalog; a missing schema is the door's to report.
		return nil
	}
	if _, newer := errors.AsType[*catalog.UnusableError](err); err != nil && !newer {
		return err // what a newer version applied is not checked here
	}
	r.schemas = map[string]*catalog.Revision{}
	for _, rev := range all {
		r.schemas[rev.Operation] = rev // by revision, so the last one is in force
	}
	return nil
}

// checkInput refuses what the worker would refuse later.
func (r *recorder) checkInput(in outbox.Intent) *outbox.Answer {
	rev := r.schemas[in.Operation]
	payload, ok := in.Payload.(json.RawMessage)
	if rev == nil || !ok {
		return nil
	}
	invalid, ok := errors.AsType[*catalog.InputError](rev.CheckInput(payload))
	if !ok {
		return nil
	}
	return &outbox.Answer{Kind: outbox.AnswerRefused, Code: "input_invalid", Path: invalid.Path, Hint: sentence(invalid.Reason)}
}

func sentence(s string) string {
	return strings.ToUpper(s[:min(1, len(s))]) + s[min(1, len(s)):] + "."
}

// one records one intent in a transaction of its own.
func (r *recorder) one(ctx context.Context, rec record) error {
	text, err := r.payload()
	if err != nil {
		return err
	}
	rec.Payload = text
	in, err := rec.intent(r.now)
	if err != nil {
		return cli.Fail(cli.Usage, "", "%w", err)
	}
	answer, err := r.enqueue(ctx, in)
	if err != nil {
		return uncertain(ctx, err)
	}
	if r.wait && open(answer) {
		return r.await(ctx, in.Tenant, answer)
	}
	return r.report(answer)
}

func (r *recorder) enqueue(ctx context.Context, in outbox.Intent) (outbox.Answer, error) {
	if refusal := r.checkInput(in); refusal != nil {
		return r.unlessKnown(ctx, in, *refusal)
	}
	return outbox.Enqueue(ctx, r.pool, in)
}

// unlessKnown refuses an intent whose payload breaks the schema, unless the ledger has
// an answer for it already: schemas change, answers do not.
func (r *recorder) unlessKnown(ctx context.Context, in outbox.Intent, refusal outbox.Answer) (outbox.Answer, error) {
	tx, err := r.pool.Begin(ctx)
	if err != nil {
		return outbox.Answer{}, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit it does nothing
	answer, err := outbox.Enqueue(ctx, tx, in)
	if err != nil || answer.Kind == outbox.AnswerAccepted {
		return refusal, err
	}
	return answer, tx.Commit(ctx)
}

// payload reads --payload or --payload-file.
func (r *recorder) payload() ([]byte, error) {
	switch r.payloadFile {
	case "":
		return []byte(r.intent.payloadText), nil
	case "-":
		return readAll(r.app.Env.Stdin, "standard input")
	default:
		f, err := os.Open(r.payloadFile)
		if err != nil {
			return nil, cli.Fail(cli.Usage, "check --payload-file", "%w", err)
		}
		defer func() { _ = f.Close() }() // read only
		return readAll(f, r.payloadFile)
	}
}

// maxText is more than any operation may allow.
const maxText = 16 << 20

func readAll(from io.Reader, name string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, maxText+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case len(text) > maxText:
		return nil, cli.Fail(cli.Refused, "store the document and send its address", "%s has more than %d bytes", name, maxText)
	}
	return text, nil
}

// tell says what became of a reference.
func (r *recorder) tell(ctx context.Context, tenant, reference string) error {
	answer, err := outbox.Get(ctx, r.pool, tenant, reference)
	if err != nil {
		return err
	}
	if r.wait && open(answer) {
		return r.await(ctx, tenant, answer)
	}
	return r.report(answer)
}

// await waits for the outcome of an answer and reports it.
func (r *recorder) await(ctx context.Context, tenant string, answer outbox.Answer) error {
	waiting, cancel := r.waitContext(ctx)
	defer cancel()
	final, err := r.waiter.Wait(waiting, tenant, answer.Reference)
	if final.Kind == "" { // not even one poll
		final = answer
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return errors.Join(r.print(final), cli.Fail(cli.Interrupted, "enqueue --status tells what becomes of it",
			"interrupted while waiting for %s; it is recorded", answer.Reference))
	case err != nil:
		return errors.Join(r.print(final), cli.Fail(cli.Unsettled, "it is safe in the ledger: ask with --status, do not resubmit under another key",
			"%s is %s, not settled in %s", answer.Reference, final.State, r.timeout))
	}
	return r.report(final)
}

// open reports whether there is something to wait for.
func open(a outbox.Answer) bool {
	return a.Kind == outbox.AnswerAccepted || a.Kind == outbox.AnswerInFlight
}

// uncertain adds what to do when it is not known whether the intent was recorded.
func uncertain(ctx context.Context, err error) error {
	const hint = "whether it was recorded is not known: run the same command again"
	var pg *pgconn.PgError
	switch {
	case ctx.Err() != nil:
		return cli.Fail(cli.Interrupted, hint, "interrupted: %w", err)
	case errors.As(err, &pg):
		return err // the server said no
	default:
		return &cli.Error{Code: cli.Failure, Err: err, Hint: hint}
	}
}
