package e2e_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// seedEnv repeats a run of the random test, as far as processes can be repeated.
const seedEnv = "E2E_SEED"

func seed(t *testing.T) uint64 {
	t.Helper()
	s := uint64(time.Now().UnixNano())
	if text := os.Getenv(seedEnv); text != "" {
		var err error
		if s, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedEnv, err)
		}
	}
	t.Logf("%s=%d", seedEnv, s)
	return s
}

// fewCalls keeps a worker from having the whole lane in flight, which would then stand
// still until its leases run out.
const fewCalls = "OUTBOX_WORKER__CONCURRENCY=20"

// Rounds of work in which one or two of three workers are killed at random moments, while
// four producers enqueue what others enqueue as well. In the end every intent is there
// once and has succeeded with exactly one effect, or waits for a person because nobody can
// know, and had one at most.
func TestWorkersKilledAtRandomLoseNothingAndRepeatNothing(t *testing.T) {
	t.Parallel()
	const rounds, each = 4, 120
	b := setup(t, withTimes(2*time.Second, 7*time.Second))
	chance := rand.New(rand.NewPCG(seed(t), 0))
	b.slowly(100 * time.Millisecond)
	workers := make([]*child, 3)
	for i := range workers {
		workers[i] = b.worker(fmt.Sprint("worker-", i), fewCalls)
	}
	b.ready(workers...)

	book := &book{references: map[string]string{}}
	for round := range rounds {
		var producing sync.WaitGroup
		for i, produce := range producers {
			first := round*each + i*each/len(producers)
			orders := make([]order, each/len(producers)+each/8) // so that neighbours share some
			for j := range orders {
				orders[j] = full(fmt.Sprint("o", first+j))
				orders[j].Email = "" // mail is slow, and of its own test
			}
			producing.Go(func() { produce(b, book, orders) })
		}
		target := b.sim.Count(simulator.Charges, "") + 1 + chance.IntN(each*2/3)
		victims := chance.Perm(len(workers))[:1+chance.IntN(2)]
		lateBy := time.Duration(chance.IntN(50)) * time.Millisecond
		b.atProvider(func(s simulator.Snapshot) bool { return s.Count(simulator.Charges, "") >= target })
		time.Sleep(lateBy) // not to wait for anything, but to hit any moment
		for _, v := range victims {
			workers[v].kill()
			workers[v] = b.worker(fmt.Sprintf("worker-%d-%d", v, round+1), fewCalls)
		}
		producing.Wait()
	}
	b.quiet()
	for _, w := range workers {
		w.alive()
	}

	states := b.compare()
	t.Logf("states %v", states)
	if len(book.references) != value[int](b, `count(*)::int FROM outbox.intents WHERE parent_id IS NULL`) {
		t.Errorf("%d orders were answered, and there are other intents", len(book.references))
	}
	for id, reference := range book.references {
		if !value[bool](b, `EXISTS (SELECT FROM outbox.intents WHERE reference = $1 AND payload ->> 'order_id' = $2)`, reference, id) {
			t.Errorf("order %s was answered with %s, which is lost", id, reference)
		}
	}
	if n := value[int](b, `count(*)::int FROM outbox.intents`); states[outbox.Succeeded]+states[outbox.NeedsReview] != n || n <= rounds*each {
		t.Errorf("%d intents, states %v: the others are stuck", n, states)
	}
	if states[outbox.NeedsReview] == 0 {
		t.Error("no worker was killed with a call in flight, so nothing is shown")
	}
}

// book is which reference was answered for an order.
type book struct {
	mu         sync.Mutex
	references map[string]string
}

// note fails the test if an order is answered with two references.
func (k *book) note(b *bundle, o order, a outbox.Answer, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch known := k.references[o.OrderID]; {
	case err != nil:
		b.t.Errorf("enqueue %s: %v", o.OrderID, err)
	case a.Kind != outbox.AnswerAccepted && a.Kind != outbox.AnswerInFlight && a.Kind != outbox.AnswerSettled:
		b.t.Errorf("enqueue %s: %+v", o.OrderID, a)
	case known != "" && known != a.Reference:
		b.t.Errorf("order %s was answered with %s and %s", o.OrderID, known, a.Reference)
	default:
		k.references[o.OrderID] = a.Reference
	}
}

// producers are ways to enqueue some orders.
var producers = []func(*bundle, *book, []order){
	func(b *bundle, k *book, orders []order) {
		for _, o := range orders {
			a, err := outbox.Enqueue(b.ctx, b.pool, o.intent())
			k.note(b, o, a, err)
		}
	},
	func(b *bundle, k *book, orders []order) {
		db, err := sql.Open("pgx", b.asApplication())
		if err != nil {
			b.t.Error(err)
			return
		}
		defer func() { _ = db.Close() }()
		for _, o := range orders {
			a, err := outbox.EnqueueSQL(b.ctx, db, o.intent())
			k.note(b, o, a, err)
		}
	},
	func(b *bundle, k *book, orders []order) {
		intents := make([]outbox.Intent, len(orders))
		for i, o := range orders {
			intents[i] = o.intent()
		}
		answers, err := outbox.EnqueueMany(b.ctx, b.pool, intents)
		if err != nil {
			b.t.Error(err)
		}
		for i, a := range answers {
			k.note(b, orders[i], a, nil)
		}
	},
	func(b *bundle, k *book, orders []order) {
		var lines strings.Builder
		for _, o := range orders {
			payload, _ := json.Marshal(o) // strings and numbers cannot fail
			fmt.Fprintf(&lines, `{"tenant":"shop","operation":"charge_card.v1","payload":%s}`+"\n", payload)
		}
		ran := b.call(lines.String(), nil, command(b.t, "enqueue"), "--ndjson", "-", "--batch", "10", "--output", "json")
		if ran.code != 0 {
			b.t.Errorf("enqueue ended with %d: %s", ran.code, ran.stderr)
		}
		d := json.NewDecoder(strings.NewReader(ran.stdout))
		for _, o := range orders {
			var a outbox.Answer
			err := d.Decode(&a)
			k.note(b, o, a, err)
		}
	},
}
