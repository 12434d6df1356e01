package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"text/tabwriter"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/internal/pgtemp"
	"github.com/outbox-worker/outbox-worker/migrations"
)

// readLimit is how many rows a step of a plan may read for a batch of jobSize or a
// release of releaseLimit; more means that it reads a backlog to find its batch.
const readLimit = 5 * releaseLimit

// backlog is a content of the outbox, and what Postgres believes of it.
type backlog struct {
	name       string
	rows       int
	tenants    int
	nextAt     string // an SQL expression
	catalog    int    // 1 is served, others are not
	due        int    // rows that a release must find some of
	deadline   string // an SQL expression
	statistics string // fresh: analyzed as it is; none: never analyzed; empty: analyzed before it filled
}

func backlogs(most int) (all []backlog) {
	add := func(name string, rows, tenants int, nextAt string, catalog, due int) {
		for _, statistics := range []string{"fresh", "none", "empty"} {
			all = append(all, backlog{name, rows, tenants, nextAt, catalog, due, "now() + interval '30 days'", statistics})
		}
	}
	add("nothing open", 0, 1, "now()", 1, 0)
	for n := 10_000; n <= most; n *= 10 {
		add("one tenant", n, 1, "now()", 1, n)
		add("1,000 tenants", n, 1000, "now()", 1, n)
	}
	add("next week, one tenant", most, 1, "now() + interval '7 days'", 1, 0)
	add("next week, 1,000 tenants", most, 1000, "now() + interval '7 days'", 1, 0)
	add("one due behind 1,000 tenants", most, 1000, "now() + CASE WHEN n % 1000 = 999 THEN interval '0' ELSE interval '7 days' END", 1, most/1000)
	add("not served by this worker", most, 1, "now()", 2, 0)
	return all
}

// finding is one statement under one backlog.
type finding struct {
	Backlog    string  `json:"backlog"`
	Rows       int     `json:"rows"`
	Statistics string  `json:"statistics"`
	Plan       string  `json:"plan"` // custom or generic
	Statement  string  `json:"statement"`
	Ms         float64 `json:"ms"`
	PlanMs     float64 `json:"plan_ms"`
	Buffers    int     `json:"buffers"`
	WAL        int     `json:"wal_bytes"`
	MostRead   int     `json:"most_rows_read_by_a_step"`
	Step       string  `json:"step"`
	JIT        bool    `json:"jit"`
	Nothing    bool    `json:"released_nothing"`
	Unserved   bool    `json:"unserved"` // what another version of the worker serves is read past, so that it hides nobody
}

func (f finding) bad() bool { return f.MostRead > readLimit && !f.Unserved || f.JIT || f.Nothing }

// plans explains every statement of the dispatch path under every backlog, with custom
// and with generic plans, and fails if one of them reads a backlog,
// is compiled, or finds nothing where something is due.
func plans(ctx context.Context, o options) (err error) {
	o.Settings["autovacuum"] = "off"
	server, err := start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	pool, err := newDatabase(ctx, server, "plans")
	if err != nil {
		return err
	}
	pool.Close()
	config, err := pgx.ParseConfig(server.URL())
	if err != nil {
		return err
	}
	// EXECUTE takes no parameters, so pgx writes them into the text.
	config.Database, config.DefaultQueryExecMode = "plans", pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	sql, err := dispatchStatements()
	if err != nil {
		return err
	}
	for name, text := range sections(outboxSQL) {
		sql[name] = text
	}
	e := &explainer{conn: conn, sql: sql, show: o.Statement}
	if err := e.setup(ctx, o.Open); err != nil {
		return err
	}
	var found []finding
	for _, b := range backlogs(o.Open) {
		if err := e.fill(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		for _, plan := range []string{"custom", "generic"} {
			got, err := e.explainAll(ctx, b, plan)
			if err != nil {
				return fmt.Errorf("%s, %d rows, statistics %s, %s plan: %w", b.name, b.rows, b.statistics, plan, err)
			}
			found = append(found, got...)
		}
	}
	return reportPlans(found, o)
}

func reportPlans(found []finding, o options) error {
	bad := 0
	if o.JSON {
		if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
			return err
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	if !o.JSON {
		fmt.Fprintln(w, "\tbacklog\topen\tstatistics\tplan\tstatement\tms\tplan ms\tbuffers\tWAL\tmost rows read\tby")
	}
	for _, f := range found {
		mark := ""
		if f.bad() {
			mark = "BAD"
			bad++
		}
		if f.JIT {
			f.Step += " (JIT)"
		}
		if f.Nothing {
			f.Step += " (found nothing to release)"
		}
		if !o.JSON {
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%.1f\t%.1f\t%d\t%d\t%d\t%s\n",
				mark, f.Backlog, f.Rows, f.Statistics, f.Plan, f.Statement, f.Ms, f.PlanMs, f.Buffers, f.WAL, f.MostRead, f.Step)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d plans read a backlog, were compiled or found nothing", bad, len(found))
	}
	return nil
}

type explainer struct {
	conn *pgx.Conn
	sql  statements
	show string
}

// setup makes intents for the outbox rows to belong to.
func (e *explainer) setup(ctx context.Context, n int) error {
	if _, err := e.conn.Exec(ctx, e.sql.get("ledger"), n, payload); err != nil {
		return err
	}
	for name, text := range e.sql {
		switch name {
		case "lock_lane", "release", "limit", "load", "claim", "settle", "give_back", "overdue", "expire_leases", "expire_releases", "expire_deadlines", "successes":
			if _, err := e.conn.Exec(ctx, "PREPARE s_"+name+" AS "+text); err != nil {
				return fmt.Errorf("prepare %s: %w", name, err)
			}
		}
	}
	// The ledger's outcomes would stand in the way of new ones.
	_, err := e.conn.Exec(ctx, `ALTER TABLE outbox.outcomes DISABLE TRIGGER ALL; TRUNCATE outbox.outcomes; ALTER TABLE outbox.outcomes ENABLE TRIGGER ALL;
		ANALYZE outbox.intents, outbox.history, outbox.lanes, outbox.catalog`)
	return err
}

func (e *explainer) fill(ctx context.Context, b backlog) error {
	if _, err := e.conn.Exec(ctx, "TRUNCATE outbox.outbox; DELETE FROM pg_statistic WHERE starelid = 'outbox.outbox'::regclass"); err != nil {
		return err
	}
	if b.statistics == "empty" {
		if _, err := e.conn.Exec(ctx, "ANALYZE outbox.outbox"); err != nil {
			return err
		}
	}
	_, err := e.conn.Exec(ctx, fmt.Sprintf(`INSERT INTO outbox.outbox (intent_id, next_at, deadline, lane, catalog_id, state, phase, tenant)
		SELECT n, %s, %s, 1, %d, 'accepted', 'due', 't' || lpad((n %% %d)::text, 4, '0') FROM generate_series(1, %d) n`, b.nextAt, b.deadline, b.catalog, b.tenants, b.rows))
	if err == nil && b.statistics == "fresh" {
		_, err = e.conn.Exec(ctx, "ANALYZE outbox.outbox")
	}
	return err
}

// explainAll goes through the life of a job, in a transaction that is rolled back.
func (e *explainer) explainAll(ctx context.Context, b backlog, plan string) (found []finding, err error) {
	tx, err := e.conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, "SET LOCAL plan_cache_mode = force_"+plan+"_plan"); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, e.sql.get("tune")); err != nil {
		return nil, err
	}
	step := func(name string, args ...any) ([]ticket, error) {
		f, got, err := e.explain(ctx, tx, name, args...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		f.Backlog, f.Rows, f.Statistics, f.Plan, f.Statement = b.name, b.rows, b.statistics, plan, name
		f.Unserved = b.due == 0 && b.catalog != 1
		found = append(found, f)
		return got, nil
	}
	// A walk goes on at the next release from where it was after 256 places.
	var released []ticket
	for places := 0; len(released) == 0 && places <= b.tenants; places += 256 {
		if released, err = step("release", 1, []int32{1}, 30.0, releaseLimit); err != nil {
			return nil, err
		}
	}
	found[0].Nothing = b.due > 0 && len(released) == 0
	job := released[:min(jobSize, len(released))]
	ids, attempts := columns(job)
	n := len(job)
	if ids == nil {
		ids, attempts = []int64{}, []int{}
	}
	for _, s := range []struct {
		name string
		args []any
	}{
		{"limit", []any{1, 0.01, ""}},
		{"load", []any{ids, attempts}},
		{"give_back", []any{ids[n/2:], attempts[n/2:], 0.0}},
		{"claim", []any{ids, attempts, fill(n, "acct"), fill(n, "stripe-2024.1"), fill(n, make([]byte, 32)), fill(n, 15.0), uuid.NewString(), "bench/1"}},
		{"overdue", nil},
		{"expire_leases", []any{500, "bench/1"}},
		{"expire_releases", []any{500}},
		{"expire_deadlines", []any{500, "bench/1"}},
		{"settle", succeeded(e.sql.get("settle"), ids, fill(n, 1))},
		{"successes", []any{100, []int32{1}}},
	} {
		if _, err := step(s.name, s.args...); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// explain runs the statement twice: once under EXPLAIN, undone, and once for real.
func (e *explainer) explain(ctx context.Context, tx pgx.Tx, name string, args ...any) (f finding, got []ticket, err error) {
	call := "EXECUTE s_" + name
	if len(args) > 0 {
		holders := make([]string, len(args))
		for i := range args {
			holders[i] = fmt.Sprintf("$%d", i+1)
		}
		call += "(" + strings.Join(holders, ", ") + ")"
	}
	undone, err := tx.Begin(ctx)
	if err != nil {
		return f, nil, err
	}
	var text string
	err = undone.QueryRow(ctx, "EXPLAIN (ANALYZE, BUFFERS, WAL, FORMAT JSON) "+call, args...).Scan(&text)
	if err != nil {
		return f, nil, err
	}
	if err := undone.Rollback(ctx); err != nil {
		return f, nil, err
	}
	if name == e.show {
		fmt.Fprintln(os.Stderr, text)
	}
	var answer []struct {
		Plan node
		JIT  map[string]any
		Exec float64 `json:"Execution Time"`
		Prep float64 `json:"Planning Time"`
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return f, nil, err
	}
	f.Ms, f.PlanMs, f.JIT = answer[0].Exec, answer[0].Prep, answer[0].JIT != nil
	f.Buffers, f.WAL = answer[0].Plan.Hit+answer[0].Plan.Read, answer[0].Plan.WAL
	answer[0].Plan.worst(&f)

	rows, err := tx.Query(ctx, call, args...)
	if err != nil {
		return f, nil, err
	}
	got, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t ticket, err error) {
		if name == "release" {
			err = row.Scan(&t.id, &t.attempt)
		}
		return t, err
	})
	return f, got, err
}

// node is what we look at of a plan's node.
type node struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Filtered float64 `json:"Rows Removed by Filter"`
	Joined   float64 `json:"Rows Removed by Join Filter"`
	Hit      int     `json:"Shared Hit Blocks"`
	Read     int     `json:"Shared Read Blocks"`
	WAL      int     `json:"WAL Bytes"`
	Plans    []node
}

// worst finds the step that reads most rows, those it throws away included.
func (n node) worst(f *finding) {
	if read := int((n.Rows + n.Filtered + n.Joined) * n.Loops); read > f.MostRead {
		f.MostRead, f.Step = read, n.Type+" "+n.Relation+" "+n.Index
	}
	for _, child := range n.Plans {
		child.worst(f)
	}
}

//go:embed outbox.sql
var outboxSQL string

// Sizes of a step, as the worker takes them under load.
const (
	concurrency  = 2000
	releaseLimit = 1000
	jobSize      = 250
)

const payload = `{"amount":24000,"card":"c_71","currency":"EUR","order_id":"1042"}`

// newDatabase is a migrated database with one lane and one operation.
func newDatabase(ctx context.Context, server *pgtemp.Server, database string) (*pgxpool.Pool, error) {
	admin, err := pgx.Connect(ctx, server.URL())
	if err != nil {
		return nil, err
	}
	defer admin.Close(ctx)
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+database); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(server.URL())
	if err != nil {
		return nil, err
	}
	config.ConnConfig.Database, config.MaxConns = database, 4
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := migrations.Up(ctx, pool); err != nil {
		return nil, err
	}
	_, err = pool.Exec(ctx, `SELECT outbox.apply_lane('payments', 'payments', $1, NULL, 1),
		outbox.apply_operation('charge_card', 1, 'payments', 'business', ARRAY['{order_id}'], false, false, NULL, 65536, NULL, false, false, 'x', '{}', 'bench')`, concurrency)
	return pool, err
}

// ticket is an intent at an attempt.
type ticket struct {
	id      int64
	attempt int
}

var columnList = regexp.MustCompile(`AS s\(([a-z_, ]+)\)`)

// succeeded are the parameters of a settle statement for calls that all succeeded: a
// list for each of the columns that it unnests, then who acts.
func succeeded(settle string, ids []int64, attempts []int) []any {
	n := len(ids)
	known := map[string]any{
		"id": ids, "attempt": attempts, "event": fill(n, "provider_accepted"), "to_state": fill(n, "succeeded"),
		"provider_id": fill(n, "ch_3MmlLrLkdIwHu7ix0snN0B15"), "retry_in": make([]float64, n), "send_before": make([]float64, n),
		"follow": make([]bool, n), "probe": make([]bool, n), "reported": make([]bool, n),
	}
	var args []any
	for name := range strings.SplitSeq(columnList.FindStringSubmatch(settle)[1], ", ") {
		value, ok := known[name]
		if name == "n" { // WITH ORDINALITY
			continue
		}
		if !ok {
			value = make([]*string, n)
		}
		args = append(args, value)
	}
	return append(args, "bench/1")
}

func columns(tickets []ticket) (ids []int64, attempts []int) {
	for _, t := range tickets {
		ids, attempts = append(ids, t.id), append(attempts, t.attempt)
	}
	return ids, attempts
}

func fill[T any](n int, value T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = value
	}
	return all
}
