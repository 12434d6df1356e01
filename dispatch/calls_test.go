package dispatch

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/providers"
)

// A bound that nobody set is the same for one worker and for several that share it.
func TestTheBoundOnCallsHasOneDefault(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{0: 100, 1: 1, 8: 8, -1: 1} {
		if got := ShareCalls(n).slots.size; got != want {
			t.Errorf("ShareCalls(%d) bounds %d calls, want %d", n, got, want)
		}
	}
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/nowhere?pool_max_conns=8")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	cfg := Config{Pool: pool, Providers: map[string]providers.Provider{"scripted": nil}}
	if got, err := cfg.withDefaults(); err != nil || got.Concurrency != 100 {
		t.Errorf("concurrency %d, %v", got.Concurrency, err)
	}
	cfg.Calls = ShareCalls(8)
	if got, err := cfg.withDefaults(); err != nil || got.Concurrency != 8 {
		t.Errorf("shared: concurrency %d, %v", got.Concurrency, err)
	}
	cfg.Concurrency = 4
	if _, err := cfg.withDefaults(); err == nil {
		t.Error("two bounds were taken")
	}
}
