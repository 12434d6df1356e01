package chaos

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// evidence is everything that the verdict is made from.
type evidence struct {
	told       []told
	rolledBack []string
	lostCommit int

	orders  []string // what the application committed beside its intents
	intents []standing
	effects []simulator.Effect
	fired   map[simulator.Kind]int
	jobs    map[string]int // River's, by state
	crashes []string       // workers that ended by themselves
	// timeline tells the history of an intent in words.
	timeline func(reference string) []string
}

// standing is one intent at the end, as the ledger has it.
type standing struct {
	reference, operation string
	order                string // "" for follow-ons
	state                outbox.State
	phase                string // "" when settled
	reason               string
	providerID           string
	expired              bool // a lease of it ran out once
	overdue              bool // it executes under a lease that is over
	owed                 int  // follow-ons that should exist
	children             int
}

const standingsSQL = `
SELECT i.reference, c.name, coalesce(i.payload ->> 'order_id', split_part(i.payload ->> 'to', '@', 1)), i.parent_id IS NOT NULL,
	coalesce(e.state, o.state)::text, coalesce(o.phase::text, ''), coalesce(o.review_reason, e.reason, h.reason, ''), coalesce(e.provider_id, ''),
	EXISTS (SELECT FROM outbox.history WHERE intent_id = i.id AND event = 'lease_expired'),
	o.state = 'executing' AND o.next_at < clock_timestamp(),
	coalesce(c.name = 'charge' AND e.state = 'succeeded' AND i.payload ->> 'receipt' = 'true', false)::int,
	(SELECT count(*)::int FROM outbox.intents f WHERE f.parent_id = i.id)
FROM outbox.intents i
JOIN outbox.catalog c ON c.id = i.catalog_id
LEFT JOIN outbox.outcomes e ON e.intent_id = i.id
LEFT JOIN outbox.outbox o ON o.intent_id = i.id
LEFT JOIN LATERAL (SELECT reason FROM outbox.history WHERE intent_id = i.id AND reason IS NOT NULL ORDER BY at DESC LIMIT 1) h ON true
ORDER BY i.id`

// gather reads all ledgers. It goes past the proxies.
func (r *run) gather(ctx context.Context, b *book) (e evidence, err error) {
	e.told, e.rolledBack, e.lostCommit = b.told, b.rolledBack, b.lostCommit
	fail := func(err error) (evidence, error) { return e, fmt.Errorf("read the ledgers: %w", err) }
	if e.effects, err = r.sim.Effects(ctx, "", ""); err != nil {
		return fail(err)
	}
	summary, err := r.sim.Summary(ctx)
	if err != nil {
		return fail(err)
	}
	e.fired = summary.FaultsFired
	rows, err := r.pool.Query(ctx, standingsSQL)
	if err != nil {
		return fail(err)
	}
	if e.intents, err = pgx.CollectRows(rows, scanStanding); err != nil {
		return fail(err)
	}
	if rows, err = r.pool.Query(ctx, `SELECT name FROM chaos.orders`); err != nil {
		return fail(err)
	}
	if e.orders, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return fail(err)
	}
	e.jobs = map[string]int{}
	if rows, err = r.pool.Query(ctx, `SELECT state::text, count(*)::int FROM outbox.river_job GROUP BY 1`); err != nil {
		return fail(err)
	}
	var state string
	var n int
	if _, err = pgx.ForEachRow(rows, []any{&state, &n}, func() error { e.jobs[state] = n; return nil }); err != nil {
		return fail(err)
	}
	for _, s := range r.slots {
		s.mu.Lock()
		e.crashes = append(e.crashes, s.crashes...)
		s.mu.Unlock()
	}
	e.timeline = func(reference string) []string { return r.timeline(ctx, reference) }
	return e, nil
}

func scanStanding(row pgx.CollectableRow) (s standing, _ error) {
	var follow bool
	var overdue *bool
	err := row.Scan(&s.reference, &s.operation, &s.order, &follow, &s.state, &s.phase, &s.reason, &s.providerID,
		&s.expired, &overdue, &s.owed, &s.children)
	s.overdue = overdue != nil && *overdue
	if follow {
		s.order = ""
	}
	return s, err
}

// timeline is for people who look for the cause; what cannot be read says so.
func (r *run) timeline(ctx context.Context, reference string) []string {
	rows, err := r.pool.Query(ctx, `SELECT concat_ws(' ', to_char(t.at AT TIME ZONE 'UTC', 'HH24:MI:SS.US'), t.attempt, t.actor, t.from_state, t.event, t.to_state, t.reason)
		FROM outbox.timeline t JOIN outbox.intents i ON i.id = t.intent_id WHERE i.reference = $1 ORDER BY t.at`, reference)
	if err != nil {
		return []string{err.Error()}
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return []string{err.Error()}
	}
	return lines
}
