//go:build unix

package pgtemp

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// What a primary has acknowledged its synchronous standby has, whenever the primary
// crashes; and the standby is made while it is written to.
func TestAPromotedStandbyHasWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	primary, err := Start(ctx, Options{Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = primary.Stop() }()
	conn, err := pgx.Connect(ctx, primary.URL())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, "CREATE TABLE noted (n int PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	acknowledged, synchronous := 0, make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for n := 1; ; n++ {
			if _, err := conn.Exec(ctx, "INSERT INTO noted VALUES ($1)", n); err != nil {
				return
			}
			acknowledged = n
			if n == 100 {
				close(synchronous) // the standby is made in the middle of this
			}
		}
	})
	<-synchronous
	standby, err := primary.Standby(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if err := primary.Halt(ModeImmediate); err != nil {
		t.Fatal(err)
	}
	writing.Wait()
	if err := standby.Promote(ctx); err != nil {
		t.Fatal(err)
	}
	// It is a server like any other now, and has a standby of its own.
	if err := standby.Restart(ctx, ModeImmediate); err != nil {
		t.Fatal(err)
	}
	next, err := standby.Standby(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := next.Stop(); err != nil {
			t.Error(err)
		}
	}()
	promoted, err := pgx.Connect(ctx, standby.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = promoted.Close(ctx) }()
	var have, timeline int
	if err := promoted.QueryRow(ctx, "SELECT count(*)::int, ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int FROM noted WHERE n <= $1", acknowledged).Scan(&have, &timeline); err != nil {
		t.Fatal(err)
	}
	if have != acknowledged || timeline != 2 {
		t.Errorf("%d of %d that were acknowledged, timeline %d, want 2", have, acknowledged, timeline)
	}
	if _, err := promoted.Exec(ctx, "INSERT INTO noted VALUES (-1)"); err != nil {
		t.Error(err)
	}
}
