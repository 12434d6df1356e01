package catalog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// state is what the database has in force.
type state struct {
	lanes      map[string]Lane
	operations map[string]inForce
}

type inForce struct {
	revision int
	digest   []byte
	text     string // of the spec
	spec     Operation
}

func readState(ctx context.Context, tx pgx.Tx) (state, error) {
	now := state{map[string]Lane{}, map[string]inForce{}}
	const lanes = `-- name: catalog_lanes
SELECT name, provider, concurrency, coalesce(rate, 0), burst FROM outbox.lanes`
	rows, err := tx.Query(ctx, lanes)
	if err != nil {
		return now, err
	}
	var l Lane
	if _, err = pgx.ForEachRow(rows, []any{&l.Name, &l.Provider, &l.Concurrency, &l.Rate, &l.Burst}, func() error {
		now.lanes[l.Name] = l
		return nil
	}); err != nil {
		return now, err
	}
	const operations = `-- name: catalog_in_force
SELECT DISTINCT ON (operation) operation, revision, digest, spec::text FROM outbox.catalog ORDER BY operation, revision DESC`
	if rows, err = tx.Query(ctx, operations); err != nil {
		return now, err
	}
	found, err := pgx.CollectRows(rows, scanInForce)
	for _, o := range found {
		now.operations[o.spec.ID()] = o
	}
	return now, err
}

func scanInForce(row pgx.CollectableRow) (o inForce, err error) {
	var id string
	if err = row.Scan(&id, &o.revision, &o.digest, &o.text); err != nil {
		return o, err
	}
	if err = json.Unmarshal([]byte(o.text), &o.spec); err != nil {
		err = fmt.Errorf("%s, revision %d: %w", id, o.revision, err)
	}
	return o, err
}

// checkAgainst finds what is wrong with the catalog only together with the database.
func (c *Catalog) checkAgainst(ctx context.Context, tx pgx.Tx, now state) ([]Problem, error) {
	var problems []Problem
	all := slices.Clone(c.Operations)
	for _, id := range c.keptOperations(now) {
		all = append(all, now.operations[id].spec)
	}
	for i, o := range c.Operations {
		for j, f := range o.FollowOns {
			if !slices.ContainsFunc(all, func(other Operation) bool { return other.ID() == f.Operation }) {
				problems = append(problems, c.source.problem("/operations"+step(i)+"/follow_ons"+step(j)+"/operation",
					fmt.Sprintf("there is no operation %s, neither in the file nor in the database", f.Operation), suggest(f.Operation, ids(all))))
			}
		}
		old, ok := now.operations[o.ID()]
		if !ok || (sameKeys(old.spec.Key, o.Key) && slices.Equal(old.spec.Key.Fields, o.Key.Fields) && old.spec.Key.PerVersion == o.Key.PerVersion) {
			continue
		}
		used, err := isUsed(ctx, tx, o.ID())
		if err != nil {
			return nil, err
		}
		if used {
			problems = append(problems, c.source.problem("/operations"+step(i)+"/key",
				fmt.Sprintf("%s has intents, so its key cannot change: a repeat of one would be a new effect", o.ID()),
				"make it a new version with per_version: true, or another operation"))
		}
	}
	return append(problems, c.together(all)...), nil
}

func isUsed(ctx context.Context, tx pgx.Tx, operation string) (used bool, err error) {
	const sql = `-- name: catalog_operation_used
SELECT EXISTS (SELECT FROM outbox.intents i JOIN outbox.catalog c ON c.id = i.catalog_id WHERE c.operation = $1)`
	err = tx.QueryRow(ctx, sql, operation).Scan(&used)
	return used, err
}

// changes compares the catalog with the database: lanes, then operations, in the order
// of the file, then what only the database has.
func (c *Catalog) changes(now state) ([]Change, error) {
	var all []Change
	for _, l := range c.Lanes {
		change := Change{What: Added, Lane: l.Name}
		if old, ok := now.lanes[l.Name]; ok {
			change.What = Unchanged
			if old != l {
				change.What = Revised
				change.Differs = differences(asJSON(old), asJSON(l), "")
			}
		}
		all = append(all, change)
	}
	for _, o := range c.Operations {
		spec, err := o.spec()
		if err != nil {
			return nil, err
		}
		digest := sha256.Sum256(spec)
		old, ok := now.operations[o.ID()]
		change := Change{What: Added, Operation: o.ID(), Revision: old.revision + 1}
		switch {
		case ok && bytes.Equal(old.digest, digest[:]):
			change.What, change.Revision = Unchanged, old.revision
		case ok:
			change.What = Revised
			change.Differs = differences(parsed([]byte(old.text)), parsed(spec), "")
		}
		all = append(all, change)
	}
	for _, id := range c.keptOperations(now) {
		if old := now.operations[id]; !old.spec.Retired {
			all = append(all, Change{What: Kept, Operation: id, Revision: old.revision})
		}
	}
	return all, nil
}

// keptOperations are those that only the database has.
func (c *Catalog) keptOperations(now state) (kept []string) {
	mine := ids(c.Operations)
	for _, id := range sortedKeys(now.operations) {
		if !slices.Contains(mine, id) {
			kept = append(kept, id)
		}
	}
	return kept
}

func ids(operations []Operation) []string {
	all := make([]string, len(operations))
	for i, o := range operations {
		all[i] = o.ID()
	}
	return all
}

func (c *Catalog) lane(name string) Lane {
	return c.Lanes[slices.IndexFunc(c.Lanes, func(l Lane) bool { return l.Name == name })]
}

func (c *Catalog) operation(id string) Operation {
	return c.Operations[slices.IndexFunc(c.Operations, func(o Operation) bool { return o.ID() == id })]
}

func asJSON(v any) any {
	text, _ := json.Marshal(v) // our own plain structs cannot fail
	return parsed(text)
}

func parsed(text []byte) any {
	v, _ := decodeJSON(text) // canonical or from jsonb
	return v
}

const maxDifferences = 16

// differences are JSON Pointers to where two JSON values differ.
func differences(a, b any, at string) (found []string) {
	old, isOld := a.(map[string]any)
	now, isNow := b.(map[string]any)
	oldList, isOldList := a.([]any)
	nowList, isNowList := b.([]any)
	switch {
	case isOld && isNow:
		names := slices.Compact(slices.Sorted(slices.Values(append(sortedKeys(old), sortedKeys(now)...))))
		for _, name := range names {
			x, inOld := old[name]
			y, inNow := now[name]
			if inOld != inNow {
				found = append(found, at+step(name))
			} else {
				found = append(found, differences(x, y, at+step(name))...)
			}
		}
	case isOldList && isNowList && len(oldList) == len(nowList):
		for i := range oldList {
			found = append(found, differences(oldList[i], nowList[i], at+step(i))...)
		}
	default:
		x, errX := canonicalValue(a)
		y, errY := canonicalValue(b)
		if x != y || errX != nil || errY != nil {
			found = append(found, at)
		}
	}
	return found[:min(len(found), maxDifferences)]
}
