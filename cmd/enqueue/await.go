package main

import (
	"context"
	"sync"

	"github.com/outbox-worker/outbox-worker/internal/cli"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// waitersAtOnce bounds how many references one poll asks for.
const waitersAtOnce = 1000

// awaitAll waits for every line that is open, within one --timeout, and tells the
// answers in the order of the lines.
func (l *load) awaitAll(ctx context.Context) error {
	waiting, cancel := l.waitContext(ctx)
	defer cancel()
	slots := make(chan struct{}, waitersAtOnce)
	late := make([]bool, len(l.waiting))
	var all sync.WaitGroup
	for i := range l.waiting {
		if !open(l.waiting[i].Answer) {
			continue
		}
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			late[i] = !l.awaitOne(waiting, &l.waiting[i])
		})
	}
	all.Wait()
	for i, res := range l.waiting {
		if late[i] {
			l.note(cli.Unsettled)
		}
		if err := l.tell(res); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// awaitOne reports whether the intent was settled in time.
func (l *load) awaitOne(ctx context.Context, res *result) bool {
	final, err := l.waiter.Wait(ctx, res.tenant, res.Reference)
	if final.Kind != "" && final.Kind != outbox.AnswerNotFound {
		res.Answer = final
	}
	return err == nil
}
