package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Querier is a pgx.Tx, *pgx.Conn or *pgxpool.Pool. Through a Tx the intent commits with
// the caller's work; through the others it commits by itself.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// SQLQuerier is a *sql.Tx, *sql.Conn or *sql.DB, of any Postgres driver.
type SQLQuerier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

const answerColumns = `a.answer, coalesce(a.reference, ''), coalesce(a.state::text, ''), coalesce(a.operation, ''),
	coalesce(a.attempt, 0), coalesce(a.code, ''), coalesce(a.path, ''), coalesce(a.hint, ''), array_to_json(a.differs)::text,
	coalesce(a.provider_id, ''), coalesce(a.reason, ''), a.result::text, a.created_at, a.settled_at`

const enqueueSQL = `-- name: enqueue
SELECT ` + answerColumns + `
FROM outbox.enqueue($1::text, $2::text, $3::text, $4::text, $5::text, $6::text::text[],
	$7::text, $8::text, $9::text, $10::text, $11::timestamptz, $12::timestamptz, $13::int, $14::text, $15::bytea, $16::boolean) a`

const enqueueManySQL = `-- name: enqueue_many
SELECT ` + answerColumns + ` FROM outbox.enqueue_many($1::text::json) a`

const statusSQL = `-- name: status
SELECT ` + answerColumns + ` FROM outbox.status($1::text, $2::text) a`

// Enqueue records the intent through db: its effect happens if and only if the
// transaction commits. A repeat, a conflict and refused input are answers, not errors,
// and leave the transaction usable (at READ COMMITTED). An error is the database's or
// the context's; if it came from the commit, whether the intent exists is not known:
// enqueue the same intent again and read the answer.
func Enqueue(ctx context.Context, db Querier, in Intent) (Answer, error) {
	p, err := in.prepare()
	if err != nil || p.refusal != nil {
		return refusalOf(p), err
	}
	rows, err := db.Query(ctx, enqueueSQL, in.arguments(p)...)
	return one(pgxRows{rows}, err, "enqueue "+in.Operation)
}

// EnqueueSQL is Enqueue for database/sql.
func EnqueueSQL(ctx context.Context, db SQLQuerier, in Intent) (Answer, error) {
	p, err := in.prepare()
	if err != nil || p.refusal != nil {
		return refusalOf(p), err
	}
	rows, err := db.QueryContext(ctx, enqueueSQL, in.arguments(p)...)
	return one(rows, err, "enqueue "+in.Operation)
}

// EnqueueMany records thousands of intents in one call and answers each, in the order
// given: one that is refused or in conflict does not hold up the others. Keys are taken
// in one order, so that two bulks cannot deadlock. NoWait is not heeded.
func EnqueueMany(ctx context.Context, db Querier, ins []Intent) ([]Answer, error) {
	return enqueueMany(ins, func(requests string) (rows, error) {
		r, err := db.Query(ctx, enqueueManySQL, requests)
		return pgxRows{r}, err
	})
}

// EnqueueManySQL is EnqueueMany for database/sql.
func EnqueueManySQL(ctx context.Context, db SQLQuerier, ins []Intent) ([]Answer, error) {
	return enqueueMany(ins, func(requests string) (rows, error) { return db.QueryContext(ctx, enqueueManySQL, requests) })
}

func enqueueMany(ins []Intent, query func(requests string) (rows, error)) ([]Answer, error) {
	answers := make([]Answer, len(ins))
	var requests []request
	var places []int
	for i, in := range ins {
		p, err := in.prepare()
		if err != nil {
			return nil, fmt.Errorf("intent %d: %w", i, err)
		}
		if p.refusal != nil {
			answers[i] = *p.refusal
			continue
		}
		requests = append(requests, in.request(p))
		places = append(places, i)
	}
	if len(requests) == 0 {
		return answers, nil
	}
	text, err := json.Marshal(requests)
	if err != nil {
		return nil, fmt.Errorf("outbox: enqueue many: %w", err)
	}
	r, err := query(string(text))
	got, err := scan(r, err, "enqueue many")
	if err != nil {
		return nil, err
	}
	if len(got) != len(places) {
		return nil, fmt.Errorf("outbox: enqueue many: %d answers to %d intents", len(got), len(places))
	}
	for i, a := range got {
		answers[places[i]] = a
	}
	return answers, nil
}

// Get tells what became of a reference of a tenant: AnswerInFlight, AnswerSettled,
// AnswerExpired or AnswerNotFound. Another tenant's reference is not found.
func Get(ctx context.Context, db Querier, tenant, reference string) (Answer, error) {
	if !storable(tenant) || !storable(reference) {
		return notFound(), nil
	}
	rows, err := db.Query(ctx, statusSQL, tenant, reference)
	return one(pgxRows{rows}, err, "status")
}

// GetSQL is Get for database/sql.
func GetSQL(ctx context.Context, db SQLQuerier, tenant, reference string) (Answer, error) {
	if !storable(tenant) || !storable(reference) {
		return notFound(), nil
	}
	rows, err := db.QueryContext(ctx, statusSQL, tenant, reference)
	return one(rows, err, "status")
}

// notFound answers for what cannot be in any database.
func notFound() Answer {
	return Answer{Kind: AnswerNotFound, Hint: "No intent of this tenant has that reference."}
}

// request is an intent as outbox.enqueue_many reads it.
type request struct {
	Tenant      string   `json:"tenant"`
	Operation   string   `json:"operation"`
	Payload     string   `json:"payload"`
	OperationID *string  `json:"operation_id,omitempty"`
	Subject     *string  `json:"subject,omitempty"`
	Principal   []string `json:"principal,omitempty"`
	Task        *string  `json:"task,omitempty"`
	Parent      *string  `json:"parent,omitempty"`
	Supersedes  *string  `json:"supersedes,omitempty"`
	Compensates *string  `json:"compensates,omitempty"`
	NotBefore   *string  `json:"not_before,omitempty"`
	Deadline    *string  `json:"deadline,omitempty"`
	Priority    int      `json:"priority"`
	Trace       *string  `json:"trace,omitempty"`
	Digest      string   `json:"digest"`
}

func (in Intent) request(p prepared) request {
	return request{
		Tenant: in.Tenant, Operation: in.Operation, Payload: p.payload, OperationID: orNull(in.OperationID),
		Subject: orNull(in.Subject), Principal: in.Principal, Task: orNull(in.Task), Parent: orNull(in.Parent),
		Supersedes: orNull(in.Supersedes), Compensates: orNull(in.Compensates), NotBefore: timeOrNull(in.NotBefore),
		Deadline: timeOrNull(in.Deadline), Priority: in.Priority, Trace: orNull(in.Trace), Digest: fmt.Sprintf(`\x%x`, p.digest),
	}
}

// arguments are enqueueSQL's, as types that every Postgres driver knows.
func (in Intent) arguments(p prepared) []any {
	return []any{
		in.Tenant, in.Operation, p.payload, orNull(in.OperationID), orNull(in.Subject), arrayLiteral(in.Principal),
		orNull(in.Task), orNull(in.Parent), orNull(in.Supersedes), orNull(in.Compensates),
		timeOrNull(in.NotBefore), timeOrNull(in.Deadline), in.Priority, orNull(in.Trace), p.digest, in.NoWait,
	}
}

var quoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// arrayLiteral is a text[] as Postgres reads it; nil when there is nothing in it.
func arrayLiteral(list []string) *string {
	if len(list) == 0 {
		return nil
	}
	var b strings.Builder
	for i, s := range list {
		b.WriteString([]string{`{"`, `","`}[min(i, 1)])
		b.WriteString(quoted.Replace(s))
	}
	b.WriteString(`"}`)
	s := b.String()
	return &s
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func timeOrNull(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.UTC().Format(time.RFC3339Nano) // an offset of seconds could not be written
	return &s
}

func refusalOf(p prepared) Answer {
	if p.refusal == nil {
		return Answer{}
	}
	return *p.refusal
}

// rows is what pgx and database/sql have in common.
type rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close() error
}

type pgxRows struct{ pgx.Rows }

func (r pgxRows) Close() error { r.Rows.Close(); return nil }

func one(r rows, err error, doing string) (Answer, error) {
	answers, err := scan(r, err, doing)
	if err != nil {
		return Answer{}, err
	}
	if len(answers) != 1 {
		return Answer{}, fmt.Errorf("outbox: %s: %d answers", doing, len(answers))
	}
	return answers[0], nil
}

func scan(r rows, err error, doing string) (answers []Answer, _ error) {
	if err != nil {
		return nil, explain(err, doing)
	}
	defer func() { _ = r.Close() }() // an error of the rows is in Err
	for r.Next() {
		var a Answer
		var differs, result *string
		var created, settled *time.Time
		if err := r.Scan(&a.Kind, &a.Reference, &a.State, &a.Operation, &a.Attempt, &a.Code, &a.Path, &a.Hint, &differs,
			&a.ProviderID, &a.Reason, &result, &created, &settled); err != nil {
			return nil, explain(err, doing)
		}
		if differs != nil {
			if err := json.Unmarshal([]byte(*differs), &a.Differs); err != nil {
				return nil, explain(err, doing)
			}
		}
		if result != nil {
			a.Result = json.RawMessage(*result)
		}
		if created != nil {
			a.CreatedAt = *created
		}
		if settled != nil {
			a.SettledAt = *settled
		}
		answers = append(answers, a)
	}
	if err := r.Err(); err != nil {
		return nil, explain(err, doing)
	}
	return answers, nil
}

// explain wraps a database error, with what to do where the set-up is at fault.
func explain(err error, doing string) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "42883", "3F000": // undefined_function, invalid_schema_name
			return fmt.Errorf("outbox: %s: %w (the schema is missing or old: run outbox-worker migrate)", doing, err)
		case "42501": // insufficient_privilege
			return fmt.Errorf("outbox: %s: %w (GRANT outbox_app TO the application's role)", doing, err)
		}
	}
	return fmt.Errorf("outbox: %s: %w", doing, err)
}
