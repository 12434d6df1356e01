package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/dispatch"
	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/outbox/catalog"
	"github.com/outbox-worker/outbox-worker/providers"
)

// catalog checks that everything that may be enqueued can be performed with this
// configuration.
func (d *doctor) catalog(ctx context.Context) (bool, error) {
	all, err := catalog.Load(ctx, d.pool)
	if newer, ok := errors.AsType[*catalog.UnusableError](err); ok {
		d.warn("catalog", "finish the roll-out of the newer version", "%v", newer)
	} else if err != nil {
		return true, err
	}
	inForce := map[string]*catalog.Revision{}
	var order []string
	for _, r := range all {
		if inForce[r.Operation] == nil {
			order = append(order, r.Operation)
		}
		inForce[r.Operation] = r // by revision
	}
	if len(all) == 0 {
		d.fail("catalog", "run outbox-worker catalog apply FILE", "the catalog is empty, so nothing can be enqueued")
		return true, nil
	}
	d.ok("catalog", "%s", count(len(order), "operation"))
	built, known := d.providers()
	if !known {
		return true, nil
	}
	lanes, err := d.laneProviders(ctx)
	if err != nil {
		return true, err
	}
	served := 0
	for _, operation := range order {
		if r := inForce[operation]; !r.Spec.Retired && d.serves(r, lanes[r.Lane], built) {
			served++
		}
	}
	if served > 0 {
		d.ok("providers", "%s can be performed", count(served, "operation"))
	}
	return true, nil
}

// retentionSlack is how far behind retention may be before it is worth a word.
const retentionSlack = time.Hour

// retention checks that what is past its retention is forgotten.
func (d *doctor) retention(ctx context.Context) (bool, error) {
	all, err := readRetained(ctx, d.pool)
	if err != nil {
		return true, err
	}
	behind := 0
	for _, r := range all {
		if r.Oldest != nil && time.Since(*r.Oldest) > r.keep+retentionSlack {
			behind++
			d.warn("retention", "run a worker whose login has outbox_retention, or outbox-worker retention run",
				"%s: %s of %s should be forgotten, the oldest settled at %s", r.Operation, r.Class, count(r.Due, "intent"), r.Oldest.UTC().Format(time.RFC3339))
		}
	}
	if behind == 0 {
		d.ok("retention", "nothing is past its retention for long")
	}
	return true, nil
}

// providers builds what is configured; known is false when nothing more can be said.
func (d *doctor) providers() (built map[string]providers.Provider, known bool) {
	if len(d.cfg.Providers) == 0 {
		d.warn("providers", "run doctor with the worker's configuration (--config) to check them", "this configuration names no providers")
		return nil, false
	}
	built = map[string]providers.Provider{}
	for _, name := range d.cfg.ProviderNames() {
		p, err := openProvider(d.cfg, name)
		if err != nil {
			hint := "correct the configuration"
			if wrong, ok := err.(*cli.Error); ok {
				err = wrong.Err
			}
			d.fail("providers", hint, "%v", err)
		}
		built[name] = p // nil is configured, but not usable
	}
	return built, true
}

func (d *doctor) laneProviders(ctx context.Context) (map[string]string, error) {
	rows, err := d.pool.Query(ctx, "-- name: doctor_lane_providers\nSELECT name, provider FROM outbox.lanes")
	if err != nil {
		return nil, err
	}
	lanes := map[string]string{}
	var lane, provider string
	_, err = pgx.ForEachRow(rows, []any{&lane, &provider}, func() error {
		lanes[lane] = provider
		return nil
	})
	return lanes, err
}

// serves checks one operation as the worker would.
func (d *doctor) serves(r *catalog.Revision, provider string, built map[string]providers.Provider) bool {
	p, configured := built[provider]
	switch {
	case !configured:
		d.fail("providers", fmt.Sprintf("configure providers.%s, unless another deployment serves the lane %s", provider, r.Lane),
			"%s goes to the provider %s, which this configuration does not have", r.Operation, provider)
		return false
	case p == nil:
		return false // said already
	}
	if _, ok := p.Serves(r.Spec.Name, r.Spec.Version); !ok {
		d.fail("providers", fmt.Sprintf("add %s to providers.%s.operations, or give the operation another lane", r.Spec.Name, provider),
			"the provider %s does not perform %s", provider, r.Operation)
		return false
	}
	if err := dispatch.Servable(r, p); err != nil {
		d.fail("providers", "the worker refuses to start with it", "%v", err)
		return false
	}
	return true
}

func (d *doctor) lanes(ctx context.Context) (bool, error) {
	rows, err := d.pool.Query(ctx, `-- name: doctor_lanes
SELECT name, CASE WHEN isfinite(paused_until) THEN paused_until END, paused_until > now(), coalesce(pause_reason, ''), coalesce(paused_by, ''), opened_at
FROM outbox.lanes WHERE paused_until > clock_timestamp() OR opened_at IS NOT NULL ORDER BY name`)
	if err != nil {
		return true, err
	}
	var name, reason, by string
	var until, opened *time.Time
	var paused *bool
	found := false
	_, err = pgx.ForEachRow(rows, []any{&name, &until, &paused, &reason, &by, &opened}, func() error {
		found = true
		if paused != nil && *paused {
			end := "until it is resumed"
			if until != nil {
				end = "until " + timeOf(until)
			}
			d.warn("lanes", "resume the lane when its cause is gone", "%s is paused %s%s%s", name, end, prefixed(" by ", by), prefixed(": ", reason))
		}
		if opened != nil {
			d.warn("lanes", "look at the provider; the breaker closes by itself when a call succeeds", "the breaker of %s is open since %s", name, timeOf(opened))
		}
		return nil
	})
	if err == nil && !found {
		d.ok("lanes", "none is paused")
	}
	return true, err
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// worker looks for River's leader, which renews its claim every few seconds.
func (d *doctor) worker(ctx context.Context) (bool, error) {
	runs, err := d.workerRuns(ctx)
	if err != nil {
		return true, err
	}
	if runs {
		d.ok("worker", "at least one runs")
	} else {
		d.warn("worker", "start outbox-worker run; what is committed waits in the outbox meanwhile", "none seems to run")
	}
	return true, nil
}

func (d *doctor) workerRuns(ctx context.Context) (runs bool, err error) {
	err = d.pool.QueryRow(ctx, "-- name: doctor_leader\nSELECT EXISTS (SELECT FROM outbox.river_leader WHERE expires_at > clock_timestamp())").Scan(&runs)
	return runs, err
}

// Times that are past for longer than this mean that nobody acts on them.
const (
	lateDue   = time.Minute
	lateLease = 30 * time.Second
)

const workSQL = `-- name: doctor_work
SELECT l.name, o.phase::text, count(*), extract(epoch FROM clock_timestamp() - min(o.next_at))::float8
FROM outbox.outbox o JOIN outbox.lanes l ON l.id = o.lane
WHERE o.next_at < clock_timestamp() - make_interval(secs => CASE WHEN o.phase IN ('due', 'following') THEN $1::float8 ELSE $2::float8 END)
	AND (o.phase <> 'due' OR (coalesce(l.paused_until, '-infinity') < clock_timestamp() AND l.opened_at IS NULL))
GROUP BY l.name, o.phase ORDER BY l.name, o.phase`

// work finds rows whose time has come and that nobody takes.
func (d *doctor) work(ctx context.Context) (bool, error) {
	runs, err := d.workerRuns(ctx)
	if err != nil {
		return true, err
	}
	rows, err := d.pool.Query(ctx, workSQL, lateDue.Seconds(), lateLease.Seconds())
	if err != nil {
		return true, err
	}
	what := map[string]string{
		"due": "due and not sent", "released": "handed over and not claimed", "leased": "past their lease: nobody knows whether they were sent",
		"asking": "to be asked about", "probing": "past the lease of a lookup", "following": "waiting for their follow-ons",
	}
	var lane, phase string
	var n int
	var seconds float64
	found := false
	_, err = pgx.ForEachRow(rows, []any{&lane, &phase, &n, &seconds}, func() error {
		found = true
		hint := "a worker runs: check that one serves the lane " + lane + " (providers, above), and its concurrency and rate"
		if !runs {
			hint = "no worker runs: start outbox-worker run"
		}
		report := d.fail
		if runs && phase == "due" {
			report = d.warn // behind, but not stuck
		}
		report("work", hint, "lane %s: %s %s, the oldest for %s", lane, count(n, "intent"), what[phase], since(seconds))
		return nil
	})
	if err == nil && !found {
		d.ok("work", "nothing is overdue")
	}
	return true, err
}

// attention counts what waits for a person, or may.
func (d *doctor) attention(ctx context.Context) (bool, error) {
	rows, err := d.pool.Query(ctx, `-- name: doctor_attention
SELECT CASE WHEN review_since IS NOT NULL THEN 'needs_review' ELSE state::text END AS state,
	CASE WHEN review_since IS NOT NULL THEN coalesce(c.spec #>> '{review,owner}', '') ELSE '' END AS owner, count(*),
	extract(epoch FROM clock_timestamp() - min(coalesce(review_since, unknown_since, i.created_at)))::float8
FROM outbox.outbox o JOIN outbox.intents i ON i.id = o.intent_id JOIN outbox.catalog c ON c.id = o.catalog_id
WHERE o.review_since IS NOT NULL OR o.state IN ('outcome_unknown', 'needs_review', 'exhausted', 'awaiting_approval')
GROUP BY 1, 2 ORDER BY 1, 2`)
	if err != nil {
		return true, err
	}
	hints := map[string]string{
		"outcome_unknown":   "they may have happened; the worker asks the providers. outbox-worker list --state outcome_unknown",
		"needs_review":      "decide with evidence. outbox-worker review list",
		"exhausted":         "proven not executed and out of attempts: replay or supersede them. outbox-worker replay --state exhausted shows what that would do",
		"awaiting_approval": "approve or reject them. outbox-worker list --state awaiting_approval",
	}
	var state, owner string
	var n int
	var seconds float64
	found := false
	_, err = pgx.ForEachRow(rows, []any{&state, &owner, &n, &seconds}, func() error {
		found = true
		d.warn("attention", hints[state], "%s %s%s, the oldest for %s", count(n, "intent"), state, prefixed(", owner ", owner), since(seconds))
		return nil
	})
	if err == nil && !found {
		d.ok("attention", "nothing is unknown or waits for a person")
	}
	return true, err
}
