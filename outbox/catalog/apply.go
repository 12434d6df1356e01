package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/outbox/canonical"
)

// DB begins transactions; a pool, a connection or a transaction of pgx.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// What happens to a lane or an operation.
type What string

// What an application of a catalog does.
const (
	Added     What = "added"
	Revised   What = "revised"   // a new revision; a lane's limits are changed in place
	Unchanged What = "unchanged" // the same already
	Kept      What = "kept"      // in force in the database though the file does not mention it
)

// Change says what happens to one lane or one operation.
type Change struct {
	What      What   `json:"what"`
	Lane      string `json:"lane,omitempty"`      // of a lane: its name
	Operation string `json:"operation,omitempty"` // of an operation: charge_card.v1
	// Revision is the operation's revision in force afterwards.
	Revision int `json:"revision,omitempty"`
	// Differs are JSON Pointers to what a revision changes, sixteen at most.
	Differs []string `json:"differs,omitempty"`
}

// Plan says what Apply would do and changes nothing. Its errors are Apply's.
func Plan(ctx context.Context, db DB, c *Catalog) ([]Change, error) {
	return run(ctx, db, c, func(tx pgx.Tx, changes []Change) error { return nil })
}

// Apply puts the catalog into the database in one transaction: lanes are created or get
// their new limits, and operations that differ from their newest revision get another.
// Nothing is removed; retire an operation to stop it. actor is recorded with each new
// revision.
//
// Applying the same catalog again changes nothing, and of two at once the second waits
// for the first. The error is an [*Error] if the catalog is wrong, by itself or together
// with what the database has; nothing has been changed then, or with any other error
// but that of the commit, after which a repeat is safe and tells.
func Apply(ctx context.Context, db DB, c *Catalog, actor string) ([]Change, error) {
	if actor == "" {
		return nil, errors.New("catalog: apply: the actor is empty")
	}
	return run(ctx, db, c, func(tx pgx.Tx, changes []Change) error {
		if err := c.write(ctx, tx, changes, actor); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
}

// run plans under the lock that all appliers take and then does the rest.
func run(ctx context.Context, db DB, c *Catalog, finish func(pgx.Tx, []Change) error) ([]Change, error) {
	if problems := c.check(nil); len(problems) > 0 {
		return nil, &Error{problems}
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("catalog: apply: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit it does nothing
	const lock = `-- name: catalog_lock
SELECT pg_advisory_xact_lock(hashtextextended('outbox.catalog', 0))`
	if _, err := tx.Exec(ctx, lock); err != nil {
		return nil, fmt.Errorf("catalog: apply: wait for another apply: %w", err)
	}
	now, err := readState(ctx, tx)
	if err != nil {
		return nil, fmt.Errorf("catalog: apply: %w", err)
	}
	problems, err := c.checkAgainst(ctx, tx, now)
	if err != nil {
		return nil, fmt.Errorf("catalog: apply: %w", err)
	}
	if len(problems) > 0 {
		return nil, &Error{problems}
	}
	changes, err := c.changes(now)
	if err == nil {
		err = finish(tx, changes)
	}
	if err != nil {
		return nil, fmt.Errorf("catalog: apply: %w", err)
	}
	return changes, nil
}

// write does what the changes say.
func (c *Catalog) write(ctx context.Context, tx pgx.Tx, changes []Change, actor string) error {
	for i := range changes {
		change := &changes[i]
		if change.What != Added && change.What != Revised {
			continue
		}
		if change.Lane != "" {
			if err := applyLane(ctx, tx, c.lane(change.Lane)); err != nil {
				return fmt.Errorf("lane %s: %w", change.Lane, err)
			}
			continue
		}
		if err := applyOperation(ctx, tx, c.operation(change.Operation), actor, change); err != nil {
			return fmt.Errorf("operation %s: %w", change.Operation, err)
		}
	}
	return nil
}

func applyLane(ctx context.Context, tx pgx.Tx, l Lane) error {
	var rate *float64
	if l.Rate > 0 {
		rate = &l.Rate
	}
	const sql = `-- name: catalog_apply_lane
SELECT outbox.apply_lane($1, $2, $3, $4, $5)`
	_, err := tx.Exec(ctx, sql, l.Name, l.Provider, l.Concurrency, rate, l.Burst)
	return err
}

func applyOperation(ctx context.Context, tx pgx.Tx, o Operation, actor string, change *Change) error {
	s, err := newSchema(o.Input)
	if err != nil {
		return err
	}
	defaults, faults := s.defaults()
	if len(faults) > 0 {
		return errors.New(faults[0].problem)
	}
	spec, err := o.spec()
	if err != nil {
		return err
	}
	digest := sha256.Sum256(spec)
	var window any
	if o.Key.Window.Duration > 0 {
		window = o.Key.Window.Duration
	}
	var defaultsText *string
	if defaults != nil {
		defaultsText = new(string(defaults))
	}
	const sql = `-- name: catalog_apply_operation
SELECT outbox.apply_operation($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14::text::jsonb, $15)`
	var revision int
	err = tx.QueryRow(ctx, sql, o.Name, o.Version, o.Lane, string(o.Key.Rule), keyLiterals(o.Key), o.Key.PerSubject, o.Key.PerVersion,
		window, o.MaxPayload, defaultsText, o.Approval.Required, o.Retired, digest[:], string(spec), actor).Scan(&revision)
	if err == nil && revision == 0 {
		// Somebody used the function without our lock; it was the same.
		change.What, change.Differs = Unchanged, nil
	} else if err == nil {
		change.Revision = revision
	}
	return err
}

// spec is the operation in canonical JSON. Its digest tells revisions apart, so that
// formatting, comments and written-out defaults make none.
func (o Operation) spec() ([]byte, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return admit(text)
}

var plainElement = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// keyLiterals are the key's fields as text-array literals, one for each pointer: what
// outbox.key_of casts to text[]. Nil unless the key is a business key.
func keyLiterals(k Key) (literals []string) {
	for _, field := range k.Fields {
		names, _ := parsePointer(field) // checked before
		for i, name := range names {
			if !plainElement.MatchString(name) || strings.EqualFold(name, "null") {
				names[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
			}
		}
		literals = append(literals, "{"+strings.Join(names, ",")+"}")
	}
	return literals
}

// canonicalValue spells any JSON value.
func canonicalValue(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	text, err = canonical.Transform(nil, text)
	return string(text), err
}
