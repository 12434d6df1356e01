package dispatch

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// errClone stops a worker on a copy of a ledger: the original may be sending the same.
var errClone = errors.New("this database is a copy of the one the ledger last ran on, so nothing is sent: if it is to be the original, run outbox-worker ledger adopt")

const recogniseSQL = `-- name: recognise
SELECT outbox.recognise($1)`

// recognise makes sure that the ledger is where it was. On another timeline, after a
// failover or a restore, what may have been sent and forgotten becomes unknown, in the
// same transaction that notes the move; so no worker can release it first.
func (w *Worker) recognise(ctx context.Context) error {
	got, err := collect(ctx, w.cfg.Pool, recogniseSQL, pgx.RowTo[string], w.cfg.Name)
	if err != nil {
		return fmt.Errorf("recognise the ledger: %w", err)
	}
	switch moved, found := strings.CutPrefix(got[0], "moved, "); {
	case found:
		w.log.WarnContext(ctx, "the server is on another timeline: what may have been sent is found out before anything is sent", "intents", moved)
	case got[0] == "clone":
		return errClone
	}
	return nil
}
