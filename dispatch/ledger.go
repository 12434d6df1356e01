package dispatch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrClone stops a worker on a copy of a ledger: the original may be sending the same.
var ErrClone = errors.New("this database is a copy of the one the ledger last ran on, so nothing is sent: if it is to be the original, run outbox-worker ledger adopt")

const recogniseSQL = `-- name: recognise
SELECT outbox.recognise($1)`

// moveLimit bounds a move: it touches every intent that is due, however many there are.
const moveLimit = 10 * time.Minute

// recognise makes sure that the ledger is where it was. On another timeline, after a
// failover or a restore, what may have been sent and forgotten becomes unknown, in the
// same transaction that notes the move. Until that has committed releases and claims find
// the ledger not at home, and leave everything.
func (w *Worker) recognise(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, moveLimit)
	defer cancel()
	var got string
	if err := w.cfg.Pool.QueryRow(ctx, recogniseSQL, w.cfg.Name).Scan(&got); err != nil {
		return fmt.Errorf("recognise the ledger: %w", err)
	}
	switch moved, found := strings.CutPrefix(got, "moved, "); {
	case found:
		w.log.WarnContext(ctx, "the server is on another timeline: what may have been sent is found out before anything is sent", "intents", moved)
	case got == "clone":
		return ErrClone
	}
	return nil
}
