package dispatch

import (
	"context"
	"slices"
	"sync"
)

// batcher shares the cost of a statement between concurrent callers without making
// anybody wait on purpose: while one statement runs, whoever comes collects for the
// next. do gets the items of several callers, in their order, and returns one result an
// item. It must be closed after the last Submit has returned.
type batcher[T, R any] struct {
	do    func(context.Context, []T) ([]R, error)
	max   int
	calls chan batchCall[T, R]
	done  sync.WaitGroup
}

type batchCall[T, R any] struct {
	ctx   context.Context
	items []T
	reply chan batchReply[R]
}

type batchReply[R any] struct {
	results []R
	err     error
}

// newBatcher runs do on up to lines statements at once, of about max items each.
func newBatcher[T, R any](lines, max int, do func(context.Context, []T) ([]R, error)) *batcher[T, R] {
	b := &batcher[T, R]{do: do, max: max, calls: make(chan batchCall[T, R], 1024)}
	for range lines {
		b.done.Go(b.run)
	}
	return b
}

// Submit hands the items over and waits for their results. The statement runs under the
// context of the first caller it serves, without its cancellation: one caller's end
// must not undo the others' work, so do sets its own deadline.
func (b *batcher[T, R]) Submit(ctx context.Context, items ...T) ([]R, error) {
	call := batchCall[T, R]{ctx: ctx, items: items, reply: make(chan batchReply[R], 1)}
	b.calls <- call
	r := <-call.reply
	return r.results, r.err
}

func (b *batcher[T, R]) close() {
	close(b.calls)
	b.done.Wait()
}

func (b *batcher[T, R]) run() {
	for first := range b.calls {
		batch, items := []batchCall[T, R]{first}, slices.Clone(first.items)
	collect:
		for len(items) < b.max {
			select {
			case next, ok := <-b.calls:
				if !ok {
					break collect
				}
				batch, items = append(batch, next), append(items, next.items...)
			default:
				break collect
			}
		}
		results, err := b.do(context.WithoutCancel(first.ctx), items)
		for _, call := range batch {
			if err != nil {
				call.reply <- batchReply[R]{err: err}
				continue
			}
			n := len(call.items)
			call.reply <- batchReply[R]{results: results[:n:n]}
			results = results[n:]
		}
	}
}
