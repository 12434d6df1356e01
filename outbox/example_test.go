package outbox_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outbox-worker/outbox-worker/outbox"
)

// An intent is part of the application's transaction: what is rolled back has never been
// said, and causes nothing.
func ExampleEnqueue() {
	ctx := context.Background()
	pool, done := exampleDB()
	defer done()

	tx, err := pool.Begin(ctx)
	check(err)
	_, err = tx.Exec(ctx, "INSERT INTO orders VALUES ('1042')")
	check(err)
	answer, err := outbox.Enqueue(ctx, tx, outbox.Intent{
		Tenant:    "acme",
		Operation: "charge_card.v1",
		Payload:   map[string]any{"order_id": "1042", "amount": 24000},
		Principal: []string{"checkout"},
	})
	check(err)
	fmt.Println(answer.Kind)

	check(tx.Rollback(ctx))
	fmt.Println("effects:", intents(pool))
	// Output:
	// accepted
	// effects: 0
}

// Whoever asks again gets the same intent, however the payload is spelled. The same key
// with another payload is a conflict, which says where it differs.
func ExampleEnqueue_again() {
	ctx := context.Background()
	pool, done := exampleDB()
	defer done()

	for _, payload := range []string{
		`{"order_id": "1042", "amount": 24000}`,
		`{"amount": 24000.0, "order_id": "1042"}`,
		`{"order_id": "1042", "amount": 24001}`,
		`{"amount": 24000}`,
	} {
		answer, err := outbox.Enqueue(ctx, pool, outbox.Intent{Tenant: "acme", Operation: "charge_card.v1", Payload: raw("%s", payload)})
		check(err)
		fmt.Println(answer.Kind, answer.Code, answer.Path, answer.Differs)
	}
	fmt.Println("effects:", intents(pool))
	// Output:
	// accepted   []
	// in_flight   []
	// conflict payload_differs  [/amount]
	// refused key_field_missing /order_id []
	// effects: 1
}

// A declined card must not wedge its order: the next try says what it is in place of.
func ExampleEnqueue_supersedes() {
	ctx := context.Background()
	pool, done := exampleDB()
	defer done()

	in := outbox.Intent{Tenant: "acme", Operation: "charge_card.v1", Payload: map[string]any{"order_id": "1042", "card": "expired"}}
	first, err := outbox.Enqueue(ctx, pool, in)
	check(err)

	in.Payload = map[string]any{"order_id": "1042", "card": "valid"}
	in.Supersedes = first.Reference
	tooEarly, err := outbox.Enqueue(ctx, pool, in)
	check(err)
	fmt.Println(tooEarly.Kind, tooEarly.Code)

	decline(pool, first.Reference) // a worker's part
	second, err := outbox.Enqueue(ctx, pool, in)
	check(err)
	fmt.Println(second.Kind, second.Reference != first.Reference)
	// Output:
	// refused supersedes_not_proven
	// accepted true
}

// EnqueueSQL is for transactions of database/sql.
func ExampleEnqueueSQL() {
	ctx := context.Background()
	pool, done := exampleDB()
	defer done()
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()

	tx, err := db.BeginTx(ctx, nil)
	check(err)
	_, err = tx.ExecContext(ctx, "INSERT INTO orders VALUES ('1042')")
	check(err)
	answer, err := outbox.EnqueueSQL(ctx, tx, outbox.Intent{
		Tenant: "acme", Operation: "charge_card.v1", Payload: map[string]any{"order_id": "1042", "amount": 24000},
	})
	check(err)
	check(tx.Commit())
	fmt.Println(answer.Kind, intents(pool))
	// Output: accepted 1
}

// EnqueueMany answers each of its intents.
func ExampleEnqueueMany() {
	ctx := context.Background()
	pool, done := exampleDB()
	defer done()

	var ins []outbox.Intent
	for _, order := range []string{"1042", "1043", "", "1042"} {
		ins = append(ins, outbox.Intent{Tenant: "acme", Operation: "charge_card.v1", Payload: map[string]any{"order_id": order}})
	}
	answers, err := outbox.EnqueueMany(ctx, pool, ins)
	check(err)
	for i, answer := range answers {
		fmt.Println(i, answer.Kind)
	}
	// Output:
	// 0 accepted
	// 1 accepted
	// 2 refused
	// 3 in_flight
}

// Get tells a tenant what became of its intent, and nobody else.
func ExampleGet() {
	ctx := context.Background()
	pool, done := exampleDB()
	defer done()
	accepted, err := outbox.Enqueue(ctx, pool, outbox.Intent{Tenant: "acme", Operation: "charge_card.v1", Payload: map[string]any{"order_id": "1042"}})
	check(err)

	for _, tenant := range []string{"acme", "another"} {
		answer, err := outbox.Get(ctx, pool, tenant, accepted.Reference)
		check(err)
		fmt.Println(answer.Kind, answer.State)
	}
	// Output:
	// in_flight accepted
	// not_found
}

// A Waiter waits for any number of intents with one query at a time.
func ExampleWaiter() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pool, done := exampleDB()
	defer done()
	waiter := outbox.NewWaiter(pool) // one per database and process

	accepted, err := outbox.Enqueue(ctx, pool, outbox.Intent{Tenant: "acme", Operation: "charge_card.v1", Payload: map[string]any{"order_id": "1042"}})
	check(err)
	go decline(pool, accepted.Reference) // a worker's part

	answer, err := waiter.Wait(ctx, "acme", accepted.Reference)
	check(err)
	fmt.Println(answer.Kind, answer.State, answer.Code)
	// Output: settled failed_final card_declined
}

// A reference is derived, so that whoever knows an intent's parts knows what the provider
// was given as its key.
func ExampleReference() {
	const ledger = "00000000-0000-4000-8000-000000000000"
	fmt.Println(outbox.Reference(ledger, "acme", "charge_card", `["1042"]`, 1))
	fmt.Println(outbox.Reference(ledger, "acme", "charge_card", `["1042"]`, 2))
	// Output:
	// pdh5qput21c993ji3769hcjdfuoh5np2
	// lck3b0079a9kiskltt9n7ov0mb88adv7
}

// Next is the machine of docs/state-machine.md.
func ExampleState_Next() {
	fmt.Println(outbox.Executing.Next(outbox.NoAnswer))
	fmt.Println(outbox.OutcomeUnknown.Next(outbox.Claimed))
	// Output:
	// outcome_unknown true
	//  false
}

func intents(pool *pgxpool.Pool) (n int) {
	check(pool.QueryRow(context.Background(), "SELECT count(*) FROM outbox.intents").Scan(&n))
	return n
}

// decline ends an intent as a worker does whose provider refused it.
func decline(pool *pgxpool.Pool, reference string) {
	_, err := pool.Exec(context.Background(), `
		WITH gone AS (
			DELETE FROM outbox.outbox o USING outbox.intents i WHERE i.id = o.intent_id AND i.reference = $1 RETURNING o.intent_id
		)
		INSERT INTO outbox.outcomes (intent_id, attempt, state, code) SELECT intent_id, 1, 'failed_final', 'card_declined' FROM gone`, reference)
	check(err)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
