package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-worker/outbox-worker/providers"
)

// Local is a provider whose effect lives in the ledger's own database, as a room booking
// does. It commits in the transaction that settles the intent, so it is exactly once
// without anybody's help: there is no moment in which one is there without the other,
// and no outcome can be unknown. See package providers/local.
type Local interface {
	providers.Provider

	// Perform has the effect through tx, and nothing outside of it. Accepted keeps what
	// it did; after any other answer it is undone, so NotSent and Refused are true by
	// themselves, and an Unknown counts as NotSent. It must end with ctx.
	Perform(ctx context.Context, tx pgx.Tx, r providers.Request) providers.Answer
}

// startLocal performs local effects, each in a transaction of its own, and returns the
// candidates that are not local. It holds the slots of those it performs.
func (w *Worker) startLocal(ctx context.Context, l *lane, ready []*candidate, calls *sync.WaitGroup) (others []*candidate) {
	for _, c := range ready {
		p, ok := c.provider.(Local)
		if !ok {
			others = append(others, c)
			continue
		}
		calls.Go(func() {
			defer w.freeSlots(l, 1)
			w.performLocal(ctx, l, c, p)
		})
	}
	return others
}

// performLocal claims, performs and settles in one transaction. If that fails, nothing
// has happened and the release lease brings the intent back; if its COMMIT has no answer,
// the intent's state says whether it has.
func (w *Worker) performLocal(ctx context.Context, l *lane, c *candidate, p Local) {
	began := time.Now()
	var s settlement
	mine := false
	err := inTx(context.WithoutCancel(ctx), w.cfg.Pool, func(ctx context.Context, tx pgx.Tx) error {
		won, err := w.claim(ctx, tx, []*candidate{c})
		if err != nil || !won[0] {
			return err
		}
		mine = true
		w.cfg.Hooks.call(w.cfg.Hooks.AfterClaim, c.intent.Reference)
		answer, err := w.inSavepoint(ctx, tx, c, p)
		if err != nil {
			return err
		}
		s = settlement{
			ticket: ticket{ID: c.ID, Attempt: c.Attempt + 1}, verdict: decide(answer, c.sends+1, c.revision.Spec.Retry),
			answer: answer, follow: len(c.revision.Spec.FollowOns) > 0,
		}
		w.cfg.Hooks.call(w.cfg.Hooks.BeforeSettle, c.intent.Reference)
		_, err = w.settle(ctx, tx, []settlement{s})
		return err
	})
	w.cfg.Hooks.call(w.cfg.Hooks.AfterSettle, c.intent.Reference)
	switch {
	case err != nil:
		w.log.ErrorContext(ctx, "local effect not performed; it is tried again", "reference", c.intent.Reference, "error", err)
	case mine:
		w.afterSettlement(ctx, l, s, true)
		w.logAttempt(ctx, l, c, s, time.Since(began), true, nil)
	}
}

// errUndo takes back what an effect wrote before it said no.
var errUndo = errors.New("undo")

func (w *Worker) inSavepoint(ctx context.Context, tx pgx.Tx, c *candidate, p Local) (answer providers.Answer, _ error) {
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) (err error) {
		defer func() {
			if v := recover(); v != nil {
				answer, err = providers.NotSent("provider_panic", fmt.Sprint(v), 0), errUndo
			}
		}()
		call, cancel := context.WithTimeout(ctx, c.revision.Spec.Timeouts.Call.Duration)
		defer cancel()
		if answer = p.Perform(call, tx, c.request); answer.Kind != providers.KindAccepted {
			return errUndo
		}
		return nil
	})
	if err != nil && !errors.Is(err, errUndo) {
		return answer, fmt.Errorf("perform: %w", err)
	}
	if answer.Kind != providers.KindAccepted && answer.Kind != providers.KindRefused {
		answer.Kind = providers.KindNotSent // undone
	}
	return answer, nil
}
