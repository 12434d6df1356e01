package e2e_test

import (
	"database/sql"
	"encoding/json"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx of database/sql

	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// The same charge, fired twice at once while the provider takes its two seconds: one
// request there; the second caller is told that it is in flight, under the same
// reference, while the provider has not answered yet; and who asks afterwards gets the
// stored result. Through every door.
func TestTheSameChargeFiredTwiceIsOneEffect(t *testing.T) {
	t.Parallel()
	for name, door := range map[string]func(*bundle, order) outbox.Answer{
		"pgx":          throughPgx,
		"database/sql": throughDatabaseSQL,
		"plain SQL":    throughPlainSQL,
		"cmd enqueue":  throughCommand,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, withTimes(patientCall, patientLease))
			b.must(b.sim.Script(simulator.Fault{Kind: simulator.Delay, Service: simulator.Charges, Duration: 2 * time.Second}))
			// Until the test says so the provider answers nobody, however long this takes.
			answer := b.sim.Hold(simulator.Charges, "", simulator.AfterEffect)
			b.ready(b.worker("worker"))
			o := plain("1042")

			first, second := atOnceThrough(b, door, o)
			if first.Kind == outbox.AnswerInFlight {
				first, second = second, first
			}
			if first.Kind != outbox.AnswerAccepted || second.Kind != outbox.AnswerInFlight || first.Reference != second.Reference {
				t.Fatalf("fired twice at once: %s %s and %s %s", first.Kind, first.Reference, second.Kind, second.Reference)
			}
			b.atProvider(func(s simulator.Snapshot) bool { return s.Requests(simulator.Charges, first.Reference) == 1 })
			expect(t, door(b, o), outbox.AnswerInFlight, outbox.Executing, first.Reference)
			b.held(simulator.Charges, first.Reference)
			expect(t, door(b, o), outbox.AnswerInFlight, outbox.Executing, first.Reference)

			answer()
			b.state(first.Reference, outbox.Succeeded)
			effects := b.sim.Effects(simulator.Charges)
			last := door(b, o)
			expect(t, last, outbox.AnswerSettled, outbox.Succeeded, first.Reference)
			var result struct{ ID string }
			b.must(json.Unmarshal(last.Result, &result))
			if len(effects) != 1 || last.ProviderID != effects[0].ProviderID || result.ID != effects[0].ProviderID {
				t.Errorf("answered %s with result %s, effects %+v", last.ProviderID, last.Result, effects)
			}
			b.counted(simulator.Charges, first.Reference, 1, 1)
			b.compare()
		})
	}
}

func expect(t *testing.T, a outbox.Answer, kind outbox.AnswerKind, state outbox.State, reference string) {
	t.Helper()
	if a.Kind != kind || a.State != state || a.Reference != reference {
		t.Errorf("answered %s %s %s, want %s %s %s", a.Kind, a.State, a.Reference, kind, state, reference)
	}
}

// atOnceThrough enqueues the order twice, each time in a transaction of its own.
func atOnceThrough(b *bundle, door func(*bundle, order) outbox.Answer, o order) (first, second outbox.Answer) {
	var both sync.WaitGroup
	both.Go(func() { first = door(b, o) })
	both.Go(func() { second = door(b, o) })
	both.Wait()
	return first, second
}

func throughPgx(b *bundle, o order) (a outbox.Answer) {
	conn, err := pgx.Connect(b.ctx, b.asApplication())
	if err != nil {
		b.t.Error(err)
		return a
	}
	defer func() { _ = conn.Close(b.ctx) }()
	if err := pgx.BeginFunc(b.ctx, conn, func(tx pgx.Tx) error {
		a, err = outbox.Enqueue(b.ctx, tx, o.intent())
		return err
	}); err != nil {
		b.t.Error(err)
	}
	return a
}

func throughDatabaseSQL(b *bundle, o order) (a outbox.Answer) {
	a, err := func() (a outbox.Answer, err error) {
		db, err := sql.Open("pgx", b.asApplication())
		if err != nil {
			return a, err
		}
		defer func() { _ = db.Close() }()
		tx, err := db.BeginTx(b.ctx, nil)
		if err != nil {
			return a, err
		}
		defer func() { _ = tx.Rollback() }()
		if a, err = outbox.EnqueueSQL(b.ctx, tx, o.intent()); err != nil {
			return a, err
		}
		return a, tx.Commit()
	}()
	if err != nil {
		b.t.Error(err)
	}
	return a
}

// throughPlainSQL uses psql, or what comes nearest where there is none.
func throughPlainSQL(b *bundle, o order) (a outbox.Answer) {
	payload, _ := json.Marshal(o) // strings and numbers cannot fail
	var text string
	var err error
	if psql, lookErr := exec.LookPath("psql"); lookErr == nil {
		ran := b.call(`SELECT row_to_json(a) FROM outbox.enqueue('shop', 'charge_card.v1', :'payload') a;`, nil,
			psql, "-XAtq", "-v", "ON_ERROR_STOP=1", "-v", "payload="+string(payload), b.asApplication())
		if ran.code != 0 {
			b.t.Errorf("psql: %s", ran.stderr)
			return a
		}
		text = ran.stdout
	} else if text, err = simply(b, string(payload)); err != nil {
		b.t.Error(err)
		return a
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		b.t.Errorf("%v: %s", err, text)
	}
	return a
}

// simply enqueues by the simple protocol, as a driver does that knows nothing else.
func simply(b *bundle, payload string) (text string, err error) {
	config, err := pgx.ParseConfig(b.asApplication())
	if err != nil {
		return "", err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(b.ctx, config)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(b.ctx) }()
	err = conn.QueryRow(b.ctx, `SELECT row_to_json(a)::text FROM outbox.enqueue('shop', 'charge_card.v1', $1) a`, payload).Scan(&text)
	return text, err
}

func throughCommand(b *bundle, o order) (a outbox.Answer) {
	payload, _ := json.Marshal(o) // strings and numbers cannot fail
	ran := b.call("", []string{"DATABASE_URL=" + b.asApplication()}, command(b.t, "enqueue"),
		"--tenant", "shop", "--operation", "charge_card.v1", "--payload", string(payload), "--output", "json")
	if ran.code != 0 {
		b.t.Errorf("enqueue ended with %d: %s", ran.code, ran.stderr)
	}
	if err := json.Unmarshal([]byte(ran.stdout), &a); err != nil {
		b.t.Errorf("%v: %s", err, ran.stdout)
	}
	return a
}
