package dispatch

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

func TestCallersOfABatchGetTheirOwnResults(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	largest := 0
	b := newBatcher(3, 20, func(_ context.Context, items []int) ([]int, error) {
		mu.Lock()
		largest = max(largest, len(items))
		mu.Unlock()
		results := make([]int, len(items))
		for i, item := range items {
			results[i] = -item
		}
		return results, nil
	})
	var callers sync.WaitGroup
	for caller := range 300 {
		callers.Go(func() {
			var items, want []int
			for i := range caller % 8 { // some bring nothing
				items, want = append(items, caller*10+i), append(want, -(caller*10+i))
			}
			got, err := b.Submit(t.Context(), items...)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("caller %d got %v, %v", caller, got, err)
			}
		})
	}
	callers.Wait()
	b.close()
	if largest > 20+7 {
		t.Errorf("a batch of %d, where 20 and one caller more are the most", largest)
	}
}

// A gate holds the one line of a batcher, so that what comes meanwhile is one batch.
func gated(do func([]int) ([]int, error)) (b *batcher[int, int], open func()) {
	gate := make(chan struct{})
	b = newBatcher(1, 3, func(_ context.Context, items []int) ([]int, error) {
		if items[0] == 0 {
			<-gate
		}
		return do(items)
	})
	return b, func() { close(gate) }
}

func TestAnErrorReachesTheCallersOfItsBatchAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("13 is refused")
		b, open := gated(func(items []int) ([]int, error) {
			if slices.Contains(items, 13) {
				return nil, bad
			}
			return items, nil
		})
		errs := map[int]error{}
		var mu sync.Mutex
		for _, items := range [][]int{{0}, {1, 2}, {13}, {3, 4}, {5}} { // the gate; a batch of three; the next
			go func() {
				got, err := b.Submit(t.Context(), items...)
				mu.Lock()
				defer mu.Unlock()
				errs[items[0]] = err
				if err == nil && !reflect.DeepEqual(got, items) {
					t.Errorf("%v got %v", items, got)
				}
			}()
			synctest.Wait()
		}
		open()
		synctest.Wait()
		if want := (map[int]error{0: nil, 1: bad, 13: bad, 3: nil, 5: nil}); !reflect.DeepEqual(errs, want) {
			t.Errorf("errors %v, want %v", errs, want)
		}
		b.close()
	})
}

func TestWhatACallerAddsIsNotItsNeighbours(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, open := gated(func(items []int) ([]int, error) { return items, nil })
		results := make([][]int, 3)
		for i := range results {
			go func() { results[i], _ = b.Submit(t.Context(), i) }()
			synctest.Wait()
		}
		open()
		synctest.Wait()
		_ = append(results[1], 99)
		if results[2][0] != 2 {
			t.Errorf("the neighbour has %v", results[2])
		}
		b.close()
	})
}

// One caller's end must not undo the others' work.
func TestABatchOutlivesTheCallerThatBegan(t *testing.T) {
	t.Parallel()
	b := newBatcher(1, 3, func(ctx context.Context, items []int) ([]int, error) { return items, ctx.Err() })
	defer b.close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := b.Submit(ctx, 1); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestCloseWaitsForWhatIsInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, open := gated(func(items []int) ([]int, error) { return items, nil })
		var got []int
		go func() { got, _ = b.Submit(t.Context(), 0) }()
		synctest.Wait()
		closed := false
		go func() { b.close(); closed = true }()
		synctest.Wait()
		if closed {
			t.Error("closed under a statement")
		}
		open()
		synctest.Wait()
		if !closed || len(got) != 1 {
			t.Errorf("closed %v, with %v", closed, got)
		}
	})
}
