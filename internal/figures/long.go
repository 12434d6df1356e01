package figures

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/outbox"
)

// size settles intents in an empty place and gives the bytes that stay of each, in tables
// and indexes, River's rows swept; and the bytes of the same in one row of one table.
func (r *run) size(ctx context.Context, _ *place) (pair, error) {
	const n = 50_000
	p, err := r.place(ctx, "size", nil)
	if err != nil {
		return pair{}, err
	}
	if _, err := p.drained(ctx, n, 0, noLimit); err != nil {
		return pair{}, err
	}
	if _, err := p.pool.Exec(ctx, `INSERT INTO outbox_bench.whole (settled_at, state, tenant, key, provider_id, payload, result)
		SELECT now(), 1, $2, format('ord_%s', lpad(g::text, 9, '0')), 'ch_3PqT2vLkdIwHu7ix', $3, $4 FROM generate_series(1, $1::int) g`,
		n, tenant, payloadOf(1), resultOf); err != nil {
		return pair{}, err
	}
	var got pair
	for _, m := range []struct {
		bytes  *float64
		tables []string
	}{
		{&got.Value, []string{"outbox.intents", "outbox.outcomes", "outbox.history", "outbox.repeats", "outbox.heads"}},
		{&got.Baseline, []string{"outbox_bench.whole"}},
	} {
		for _, t := range m.tables {
			if _, err := p.pool.Exec(ctx, "VACUUM "+t); err != nil {
				return pair{}, err
			}
		}
		err := p.pool.QueryRow(ctx, "SELECT sum(pg_total_relation_size(t::regclass))::float8 / $2 FROM unnest($1::text[]) t", m.tables, float64(n)).Scan(m.bytes)
		if err != nil {
			return pair{}, err
		}
	}
	return got, nil
}

// fill puts n settled intents into the ledger, as a worker would have left them that long
// ago, at 10,000 a second.
func (p *place) fill(ctx context.Context, n int, ago time.Duration) error {
	for _, step := range []struct {
		sql  string
		args []any
	}{
		{`INSERT INTO outbox.intents (created_at, catalog_id, generation, priority, digest_version, tenant, reference, digest, key, payload)
		 SELECT now() - make_interval(secs => $3) + g * interval '100 us', 1, 1, 0, 1, 'past', md5(g::text), sha256(int4send(g)), format('["ord_past_%s"]', g), $2
		 FROM generate_series(1, $1::int) g`, []any{n, payloadOf(1), ago.Seconds()}},
		{`INSERT INTO outbox.outcomes (intent_id, settled_at, attempt, state, provider_id, account, result)
		 SELECT id, created_at, 1, 'succeeded', 'ch_3PqT2vLkdIwHu7ix', 'acct_bench', $1 FROM outbox.intents WHERE tenant = 'past' ORDER BY id`, []any{resultOf}},
		{`INSERT INTO outbox.history (intent_id, at, claimed_at, attempt, from_state, to_state, event, actor)
		 SELECT id, created_at, created_at, 1, 'executing', 'succeeded', 'provider_accepted', 'worker-1/4711' FROM outbox.intents WHERE tenant = 'past' ORDER BY id`, nil},
		{
			`INSERT INTO outbox.retention (operation, class, through) SELECT $1, c, now() - make_interval(secs => $2) FROM unnest(enum_range(NULL::outbox.forgets)) c`,
			[]any{operation, ago.Seconds()},
		},
	} {
		if _, err := p.pool.Exec(ctx, step.sql, step.args...); err != nil {
			return fmt.Errorf("fill the ledger: %w", err)
		}
	}
	_, err := p.pool.Exec(ctx, "VACUUM ANALYZE")
	return err
}

// trimmed drains while the worker's retention has more to forget than it can, and gives
// the rates of both.
func (r *run) trimmed(ctx context.Context) (settled, trimmed float64, err error) {
	const past = 100 // the places' catalog keeps details for two days
	p, err := r.place(ctx, "past", func(ctx context.Context, p *place) error {
		return p.fill(ctx, past*r.o.Intents, 5*24*time.Hour)
	})
	if err != nil {
		return 0, 0, err
	}
	const forgotten = "SELECT count(*) FROM outbox.intents WHERE tenant = 'past' AND payload IS NULL"
	var before, after float64
	if err := p.pool.QueryRow(ctx, forgotten).Scan(&before); err != nil {
		return 0, 0, err
	}
	if settled, err = p.drained(ctx, r.o.Intents, 0, noLimit); err != nil {
		return 0, 0, err
	}
	if err := p.pool.QueryRow(ctx, forgotten).Scan(&after); err != nil {
		return 0, 0, err
	}
	if after == before || after == float64(past*r.o.Intents) {
		return 0, 0, fmt.Errorf("retention had forgotten %g of %d before and %g after", before, past*r.o.Intents, after)
	}
	return settled, (after - before) * settled / float64(r.o.Intents), nil
}

// whileTrimmed compares the drain with one that has nothing to forget.
func (r *run) whileTrimmed(ctx context.Context, p *place) (got pair, err error) {
	if got.Baseline, err = p.drained(ctx, r.o.Intents, 0, noLimit); err != nil {
		return pair{}, err
	}
	got.Value, _, err = r.trimmed(ctx)
	return got, err
}

// trimRate compares what is forgotten with what is settled meanwhile.
func (r *run) trimRate(ctx context.Context, _ *place) (got pair, err error) {
	got.Baseline, got.Value, err = r.trimmed(ctx)
	return got, err
}

// withSnapshot drains while another session holds a snapshot that is older than all of it.
func (r *run) withSnapshot(ctx context.Context, p *place) (got pair, err error) {
	if got.Baseline, err = p.drained(ctx, r.o.Intents, 0, noLimit); err != nil {
		return pair{}, err
	}
	err = p.session(ctx, func(c *pgx.Conn) error {
		tx, err := c.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		if _, err := tx.Exec(ctx, "SELECT FROM outbox.ledger"); err != nil {
			return err
		}
		got.Value, err = p.drained(ctx, r.o.Intents, 0, noLimit)
		return err
	})
	return got, err
}

// schedule commits n intents for next week.
func (p *place) schedule(ctx context.Context, n int) error {
	next := time.Now().Add(7 * 24 * time.Hour)
	return p.preload(ctx, n, func(in *outbox.Intent) { in.NotBefore = next })
}
