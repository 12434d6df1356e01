package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/outbox/canonical"
)

// Revision is one immutable revision of an operation, ready for concurrent use.
type Revision struct {
	ID        int32  // outbox.catalog.id, which intents carry
	Operation string // with its version: charge_card.v1
	Revision  int    // from 1; the highest of an operation is in force
	Lane      string
	LaneID    int32
	Spec      Operation
	// Defaults is the canonical object that is filled into payloads; nil when there are
	// none.
	Defaults []byte

	schema    *schema
	followOns []*followOn
}

// Querier reads; a pool, a connection or a transaction of pgx.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

const revisionSQL = `
SELECT c.id, c.operation, c.revision, l.name, c.lane, c.spec::text, c.defaults
FROM   outbox.catalog c JOIN outbox.lanes l ON l.id = c.lane `

// UnusableError names a revision that this version of the program cannot use: one that
// was applied by a newer version and says something that this one does not know.
type UnusableError struct {
	Operation string // with its version: charge_card.v1
	Revision  int
	Err       error
}

// Error has the operation, the revision and the reason.
func (e *UnusableError) Error() string {
	return fmt.Sprintf("%s, revision %d, is not for this version of the program: %v", e.Operation, e.Revision, e.Err)
}

func (e *UnusableError) Unwrap() error { return e.Err }

// Load reads all revisions of all operations, by operation and revision: open intents
// may be of old ones. If this version of the program cannot use some, the others are
// returned together with an error that joins an [*UnusableError] for each; any other
// error is the database's.
func Load(ctx context.Context, q Querier) ([]*Revision, error) {
	return load(ctx, q, `-- name: catalog_load`+revisionSQL+`ORDER BY c.operation, c.revision`)
}

// LoadOne reads the revision with this id. The error is pgx.ErrNoRows if there is none,
// and otherwise as from [Load].
func LoadOne(ctx context.Context, q Querier, id int32) (*Revision, error) {
	found, err := load(ctx, q, `-- name: catalog_load_one`+revisionSQL+`WHERE c.id = $1`, id)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("catalog: revision with id %d: %w", id, pgx.ErrNoRows)
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

func load(ctx context.Context, q Querier, sql string, args ...any) ([]*Revision, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("catalog: load: %w", err)
	}
	var unusable []error
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Revision, error) {
		var r Revision
		var spec string
		var defaults *string
		if err := row.Scan(&r.ID, &r.Operation, &r.Revision, &r.Lane, &r.LaneID, &spec, &defaults); err != nil {
			return nil, err
		}
		if defaults != nil {
			r.Defaults = []byte(*defaults)
		}
		if err := r.compile([]byte(spec)); err != nil {
			unusable = append(unusable, &UnusableError{r.Operation, r.Revision, err})
			return nil, nil
		}
		return &r, nil
	})
	if err != nil {
		return nil, fmt.Errorf("catalog: load: %w", err)
	}
	all = slices.DeleteFunc(all, func(r *Revision) bool { return r == nil })
	return all, errors.Join(unusable...)
}

// Compile makes the operation ready for use without a database: a Revision without
// ids. The error names what cannot be compiled; an operation from [Parse] can.
func (o Operation) Compile() (*Revision, error) {
	r := &Revision{Operation: o.ID(), Lane: o.Lane, Spec: o}
	if err := r.ready(); err != nil {
		return nil, fmt.Errorf("catalog: %s: %w", r.Operation, err)
	}
	var faults []fault
	if r.Defaults, faults = r.schema.defaults(); len(faults) > 0 {
		return nil, fmt.Errorf("catalog: %s: input%s: %s", r.Operation, faults[0].path, faults[0].problem)
	}
	return r, nil
}

// compile makes a stored spec ready.
func (r *Revision) compile(spec []byte) error {
	d := json.NewDecoder(bytes.NewReader(spec))
	d.DisallowUnknownFields() // a rule that is ignored is a rule that is broken
	err := d.Decode(&r.Spec)
	if err == nil {
		// jsonb has its own spelling of numbers and order of members.
		r.Spec.Input, err = canonical.Transform(nil, r.Spec.Input)
	}
	if err == nil {
		err = r.ready()
	}
	return err
}

// ready compiles the schema and the follow-ons. It checks no more than it needs: a
// revision that was good when it was applied must stay usable.
func (r *Revision) ready() (err error) {
	if r.schema, err = newSchema(r.Spec.Input); err != nil {
		return err
	}
	for _, rule := range r.Spec.FollowOns {
		f, err := compileFollowOn(rule)
		if err != nil {
			return err
		}
		r.followOns = append(r.followOns, f)
	}
	return nil
}
