package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// result is the answer to one line.
type result struct {
	Line int `json:"line"`
	outbox.Answer

	tenant string
}

// item is a line on its way: an intent, or refused already.
type item struct {
	line    line
	intent  outbox.Intent
	refusal *outbox.Answer
}

// load is one run over a file.
type load struct {
	*recorder
	batch    []item
	done     int // the last line that is committed or refused
	counts   map[outbox.AnswerKind]int
	worst    cli.ExitCode
	shown    int      // refused lines told on standard error
	waiting  []result // with --wait: told when they are settled
	progress *progress
}

// file records every line of a file, in transactions of --batch lines.
func (r *recorder) file(ctx context.Context, name string) error {
	from, size, err := r.open(name)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // read only
	l := &load{recorder: r, counts: map[outbox.AnswerKind]int{}, progress: newProgress(r.app.Env, size)}
	err = l.run(ctx, from)
	l.progress.end()
	if err == nil && r.wait {
		err = l.awaitAll(ctx)
	}
	return l.finish(ctx, err)
}

// open opens the file and tells its size, or -1.
func (r *recorder) open(name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(r.app.Env.Stdin), -1, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, cli.Fail(cli.Usage, "check --ndjson", "%w", err)
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return f, -1, nil // a pipe has no size
	}
	return f, info.Size(), nil
}

// idle is how long a line waits for company: standard input may be a slow pipe.
const idle = 200 * time.Millisecond

// run reads and records. When ctx ends, what was read and not committed is left.
func (l *load) run(ctx context.Context, from io.Reader) error {
	lines, failed := readLines(ctx, from)
	tick := time.NewTicker(idle)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if err := l.flush(ctx); err != nil {
				return err
			}
		case next, ok := <-lines:
			if !ok {
				return errors.Join(l.flush(ctx), failed())
			}
			l.batch = append(l.batch, l.parse(next))
			if len(l.batch) < l.options.batch {
				continue
			}
			if err := l.flush(ctx); err != nil {
				return err
			}
			tick.Reset(idle)
		}
	}
}

// parse makes an intent of a line, or a refusal.
func (l *load) parse(text line) item {
	it := item{line: text}
	refuse := func(hint string) item {
		it.refusal = &outbox.Answer{Kind: outbox.AnswerRefused, Code: "line_invalid", Hint: hint}
		return it
	}
	switch {
	case text.tooLong:
		return refuse(fmt.Sprintf("it has more than %d bytes", maxText))
	case len(text.text) == 0:
		return it
	}
	rec, err := parseLine(text.text)
	if err != nil {
		return refuse(err.Error())
	}
	it.intent, err = rec.withDefaults(l.options.intent).intent(l.now)
	switch {
	case err != nil:
		return refuse(err.Error())
	case it.intent.Operation == "":
		return refuse("give the operation with its version, as in charge_card.v1")
	}
	return it
}

// flush records the batch. On an error nothing of it is recorded, unless the commit
// itself was in doubt; then the error says so.
func (l *load) flush(ctx context.Context) error {
	if len(l.batch) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	var intents []outbox.Intent
	for i := range l.batch {
		it := &l.batch[i]
		if it.refusal != nil || len(it.line.text) == 0 {
			continue
		}
		if refusal := l.checkInput(it.intent); refusal != nil {
			answer, err := l.unlessKnown(ctx, it.intent, *refusal)
			if err != nil {
				return l.stopped(err)
			}
			it.refusal = &answer
			continue
		}
		intents = append(intents, it.intent)
	}
	answers, err := l.record(ctx, intents)
	if err != nil {
		return l.stopped(err)
	}
	return l.settle(answers)
}

// settle pairs lines with their answers and tells them.
func (l *load) settle(answers []outbox.Answer) error {
	for _, it := range l.batch {
		res := result{Line: it.line.number, tenant: it.intent.Tenant}
		switch {
		case it.refusal != nil:
			res.Answer = *it.refusal
		case len(it.line.text) > 0:
			res.Answer, answers = answers[0], answers[1:]
		}
		l.done = it.line.number
		l.progress.add(it.line.size)
		if res.Kind == "" { // an empty line
			continue
		}
		if l.wait {
			l.waiting = append(l.waiting, res)
			continue
		}
		if err := l.tell(res); err != nil {
			return err
		}
	}
	l.batch = l.batch[:0]
	return nil
}

// record commits the intents in one transaction. If Postgres cannot store one of them,
// the others are recorded all the same: halves are tried until that one is alone.
func (l *load) record(ctx context.Context, intents []outbox.Intent) ([]outbox.Answer, error) {
	if len(intents) == 0 {
		return nil, nil
	}
	answers, err := l.commit(ctx, intents)
	var pg *pgconn.PgError
	if err == nil || !errors.As(err, &pg) || !unstorable(pg.Code) {
		return answers, err
	}
	if len(intents) == 1 {
		return []outbox.Answer{{Kind: outbox.AnswerRefused, Code: "sqlstate_" + pg.Code, Hint: pg.Message}}, nil
	}
	half := len(intents) / 2
	first, err := l.record(ctx, intents[:half])
	if err != nil {
		return nil, err
	}
	second, err := l.record(ctx, intents[half:])
	return append(first, second...), err
}

// unstorable tells a fault of the data from one of the server: data exceptions,
// violated constraints, and limits of the program.
func unstorable(code string) bool {
	class := code[:min(2, len(code))]
	return class == "22" || class == "23" || class == "54"
}

// deadlocks is how often a transaction is tried that others' locks have ended.
const deadlocks = 5

// errInDoubt marks an error of COMMIT after which nobody knows.
var errInDoubt = errors.New("the commit was not confirmed")

func (l *load) commit(ctx context.Context, intents []outbox.Intent) (answers []outbox.Answer, err error) {
	for range deadlocks {
		answers, err = l.tryCommit(ctx, intents)
		var pg *pgconn.PgError
		if err == nil || !errors.As(err, &pg) || (pg.Code != "40P01" && pg.Code != "40001") {
			return answers, err
		}
	}
	return nil, err
}

func (l *load) tryCommit(ctx context.Context, intents []outbox.Intent) ([]outbox.Answer, error) {
	tx, err := l.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit it does nothing
	answers, err := outbox.EnqueueMany(ctx, tx, intents)
	if err != nil {
		return nil, err
	}
	// An interrupt must not leave the commit in doubt; a network that is gone must not
	// hang.
	sure, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if err := tx.Commit(sure); err != nil {
		var pg *pgconn.PgError
		if !errors.As(err, &pg) {
			err = fmt.Errorf("%w: %w", errInDoubt, err)
		}
		return nil, err
	}
	return answers, nil
}

// stopped says how far it got.
func (l *load) stopped(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("lines %d to %d: %w", l.batch[0].line.number, l.batch[len(l.batch)-1].line.number, err)
}

// mostTold bounds the lines on standard error; --output json has all.
const mostTold = 20

// tell counts an answer and prints it: every one for programs, those that need
// attention for people.
func (l *load) tell(res result) error {
	l.counts[res.Kind]++
	code := codeOf(res.Answer)
	l.note(code)
	if out := l.app.Output(); out.JSON {
		return out.Encode(res)
	}
	if code == cli.OK {
		return nil
	}
	l.shown++
	if l.shown > mostTold {
		return nil
	}
	l.progress.clear()
	hint := ""
	if res.Hint != "" {
		hint = " (" + res.Hint + ")"
	}
	_, err := fmt.Fprintln(l.app.Env.Stderr, cli.Printable(fmt.Sprintf("line %d: %s%s", res.Line, summary(res.Answer), hint)))
	return err
}

// note keeps the exit code of the whole.
func (l *load) note(code cli.ExitCode) {
	rank := map[cli.ExitCode]int{cli.Refused: 5, cli.Conflict: 4, cli.NotDone: 3, cli.Busy: 2, cli.Unsettled: 1}
	if rank[code] > rank[l.worst] {
		l.worst = code
	}
}

// finish prints the summary and decides the exit code.
func (l *load) finish(ctx context.Context, err error) error {
	if printErr := l.summarise(); printErr != nil {
		return errors.Join(err, printErr)
	}
	upTo := "nothing is recorded"
	if l.done > 0 {
		upTo = fmt.Sprintf("line %d was the last one committed", l.done)
	}
	const again = "run the same file again: what is recorded brings the same answer and has no second effect"
	switch {
	case ctx.Err() != nil:
		return cli.Fail(cli.Interrupted, again, "interrupted: %s", upTo)
	case errors.Is(err, errInDoubt):
		return cli.Fail(cli.Failure, again, "%s; whether the lines after it are recorded is not known: %w", upTo, err)
	case err != nil:
		err = cli.Explain(err)
		return cli.Fail(cli.Failure, again, "%s; stopped: %w", upTo, err)
	case l.worst == cli.Unsettled:
		return cli.Fail(l.worst, "they are safe in the ledger: run the same file again with --wait", "not all are settled in %s", l.timeout)
	case l.worst != cli.OK:
		return cli.Fail(l.worst, "correct them and "+again, "not every line was taken")
	}
	return nil
}

// summarise counts the answers: on standard output for people, on standard error beside
// the JSON lines.
func (l *load) summarise() error {
	total, table := 0, [][]string{{"ANSWER", "LINES"}}
	for _, kind := range []outbox.AnswerKind{
		outbox.AnswerAccepted, outbox.AnswerInFlight, outbox.AnswerSettled, outbox.AnswerExpired,
		outbox.AnswerConflict, outbox.AnswerBusy, outbox.AnswerRefused,
	} {
		if n := l.counts[kind]; n > 0 {
			total += n
			table = append(table, []string{string(kind), strconv.Itoa(n)})
		}
	}
	if out := l.app.Output(); !out.JSON {
		if l.shown > mostTold {
			if _, err := fmt.Fprintf(l.app.Env.Stderr, "and %d more lines; --output json tells each\n", l.shown-mostTold); err != nil {
				return err
			}
		}
		return out.Table(append(table, []string{"total", strconv.Itoa(total)}))
	}
	text := fmt.Sprintf("enqueue: %d intents", total)
	for _, row := range table[1:] {
		text += fmt.Sprintf(", %s %s", row[1], row[0])
	}
	_, err := fmt.Fprintln(l.app.Env.Stderr, text)
	return err
}
