package dispatch

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/internal/pgtest"
)

// sessions is a pool whose sessions have a setting of their own.
func sessions(t *testing.T, url, synchronousCommit string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["synchronous_commit"] = synchronousCommit
	config.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// A claim that a crash can forget is a second charge.
func TestWhatASessionSaysMakesNoCommitLessDurable(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	for session, want := range map[string]string{"off": "on", "local": "on", "on": "on", "remote_write": "remote_write", "remote_apply": "remote_apply"} {
		pool := sessions(t, url, session)
		got, err := collect(t.Context(), pool, `SELECT current_setting('synchronous_commit')`, pgx.RowTo[string])
		if err != nil || got[0] != want {
			t.Errorf("%s: %v, %v; want %s", session, got, err, want)
		}
		var after string
		if err := pool.QueryRow(t.Context(), `SHOW synchronous_commit`).Scan(&after); err != nil || after != session {
			t.Errorf("the session had %s and has %s, %v", session, after, err)
		}
	}
}

// And every statement that moves an outbox row goes that way.
func TestEveryMoveOfARowIsDurable(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	b := stepsOn(t, sessions(t, url, "off"))
	b.do(`CREATE TABLE seen (setting text)`)
	b.do(`CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$`)
	claimed, reported, asked := b.put("pay"), b.put("pay", isLeased), b.put("pay", isAsking)
	b.do(`CREATE TRIGGER see AFTER INSERT OR UPDATE OR DELETE ON outbox.outbox FOR EACH STATEMENT EXECUTE FUNCTION see()`)
	_, err := b.w.claim(b.ctx, b.pool, []*candidate{b.candidate(claimed, 0)})
	b.must(err)
	_, err = b.w.settleBatch(b.ctx, []settlement{reports(reported, 1, accepts)})
	b.must(err)
	p := b.probe()
	if p.ID != asked {
		t.Fatalf("asked about %d", p.ID)
	}
	b.w.resend(b.ctx, p)
	b.is("settings", b.ask(`SELECT string_agg(DISTINCT setting, ' ') FROM seen`), "on")
	b.is("steps that were taken", b.ask(`SELECT string_agg(event, ' ' ORDER BY event) FROM outbox.timeline WHERE event <> 'committed'`), "claimed claimed provider_accepted resent")
}

func TestAStatementOfOursEndsThoughItsProcessDoesNot(t *testing.T) {
	t.Parallel()
	pool := pgtest.DB(t)
	for setting, want := range map[string]string{
		"enable_seqscan": "off", "enable_bitmapscan": "off", "enable_mergejoin": "off", "enable_hashjoin": "off", "jit": "off", "idle_in_transaction_session_timeout": "5s",
	} {
		got, err := collect(t.Context(), pool, `SELECT current_setting($1)`, pgx.RowTo[string], setting)
		if err != nil || got[0] != want {
			t.Errorf("%s is %v, %v; want %s", setting, got, err, want)
		}
	}
}
