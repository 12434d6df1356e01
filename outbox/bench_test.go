package outbox_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/outbox"
)

// BenchmarkEnqueue holds the door against the least that could stand in its place: a row
// with a unique key and the same payload, in the same run, turn by turn, so that the ratio
// says something on a busy machine too. Medians: "in a transaction of its own" is what a
// caller waits for, "among others" what it adds to a transaction that does more.
func BenchmarkEnqueue(b *testing.B) {
	for _, alone := range []bool{true, false} {
		name := "in a transaction of its own"
		if !alone {
			name = "among others"
		}
		b.Run(name, func(b *testing.B) {
			t := setup(b)
			t.exec(`CREATE TABLE public.bare (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
				tenant text NOT NULL, key text NOT NULL UNIQUE, payload json); GRANT INSERT, SELECT ON public.bare TO outbox_app`)
			pool := t.pool(func(c *pgxpool.Config) { asApp(c); c.MaxConns = 1 })
			var db outbox.Querier = pool
			if !alone {
				tx, err := pool.Begin(t.ctx)
				t.must(err)
				defer func() { t.must(tx.Rollback(t.ctx)) }()
				db = tx
			}
			bare := func(n int) {
				payload := fmt.Sprintf(`{"amount":24000,"currency":"eur","order":"%d"}`, n)
				rows, err := db.Query(t.ctx, "INSERT INTO public.bare (tenant, key, payload) VALUES ($1, $2, $3) ON CONFLICT (key) DO NOTHING RETURNING id", "acme", fmt.Sprint(n), payload)
				t.must(err)
				rows.Close()
				t.must(rows.Err())
			}
			enqueue := func(n int) {
				a := t.enqueueIn(db, outbox.Intent{
					Tenant: "acme", Operation: "charge.v1", Payload: raw(`{"order": "%d", "amount": 24000, "currency": "eur"}`, n), Principal: []string{"shop"},
				})
				if a.Kind != outbox.AnswerAccepted {
					b.Fatalf("%+v", a)
				}
			}
			var n int
			var bares, enqueues []time.Duration
			for b.Loop() {
				n++
				began := time.Now()
				bare(n)
				between := time.Now()
				enqueue(n)
				bares, enqueues = append(bares, between.Sub(began)), append(enqueues, time.Since(between))
			}
			x, y := median(bares), median(enqueues)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(x.Microseconds()), "µs/bare")
			b.ReportMetric(float64(y.Microseconds()), "µs/enqueue")
			b.ReportMetric(float64(y)/float64(x), "ratio")
		})
	}
}

// BenchmarkEnqueueMany is the time of one intent in a bulk of a thousand.
func BenchmarkEnqueueMany(b *testing.B) {
	t := setup(b)
	var n int
	for b.Loop() {
		ins := make([]outbox.Intent, 1000)
		for i := range ins {
			n++
			ins[i] = charge(fmt.Sprint(n), 24000)
		}
		t.enqueueMany(t.app, ins)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n), "µs/intent")
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func BenchmarkReference(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		outbox.Reference("0b7bd78a-2d0b-4f63-8b5f-2b8a0a8f1c11", "acme", "charge_card", `["ord_4711"]`, 1)
	}
}
