package dispatch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// The compare-and-set, condition by condition: each row would be sent if its condition
// were not there.
func TestAClaimComparesBeforeItSets(t *testing.T) {
	t.Parallel()
	b := steps(t)
	for _, test := range []struct {
		claim   string
		set     []string
		attempt int
		want    bool
	}{
		{"as it was released", []string{isReleased}, 0, true},
		{"released anew since the job was late", nil, 0, true},
		{"under the same pins", []string{isRetried}, 1, true},
		{"before its deadline", []string{`deadline = clock_timestamp() + interval '1 hour'`}, 0, true},

		{"at an earlier attempt", []string{isRetried}, 0, false},
		{"at a later attempt", []string{isRetried}, 2, false},

		{"while it is executed", []string{isLeased}, 1, false},
		{"while its outcome is unknown", []string{isAsking}, 1, false},
		{"while it is asked about", []string{isProbing}, 2, false},
		{"in review", []string{isReviewed}, 2, false},
		{"exhausted", []string{isRetried, `state = 'exhausted', phase = 'parked', next_at = NULL`}, 1, false},
		{"awaiting approval", []string{`state = 'awaiting_approval', phase = 'parked'`}, 0, false},
		{"succeeded", []string{pinned + `, attempt = 1, state = 'succeeded', phase = 'following'`}, 1, false},

		{"after its deadline", []string{`deadline = clock_timestamp() - interval '1 millisecond'`}, 0, false},

		{"from another account", []string{isRetried, `account = 'acct_0'`}, 1, false},
		{"under another preset", []string{isRetried, `preset = 'preset_0'`}, 1, false},
		{"with another request", []string{isRetried, `request_hash = sha256('another')`}, 1, false},
	} {
		id := b.put("pay", test.set...)
		before := b.open(id)
		got, err := b.w.claim(b.ctx, b.pool, []*candidate{b.candidate(id, test.attempt)})
		if err != nil || got[0] != test.want {
			t.Errorf("%s: claimed %v, %v; want %v", test.claim, got, err, test.want)
		}
		if !test.want {
			b.is(test.claim, b.open(id), before)
			b.is(test.claim, b.events(id), "")
			continue
		}
		b.is(test.claim, b.open(id), fmt.Sprint("executing leased ", test.attempt+1))
		b.is(test.claim, b.ask(`SELECT event || ' ' || attempt || ' ' || from_state FROM outbox.timeline WHERE intent_id = $1 AND event <> 'committed'`, id),
			fmt.Sprint("claimed ", test.attempt+1, " ", before[:strings.Index(before, " ")]))
		b.is(test.claim, b.ask(`SELECT concat_ws(' ', account, preset, request_hash = $2, sends, holder = $3, next_at > clock_timestamp() + interval '29 seconds')
			FROM outbox.outbox WHERE intent_id = $1`, id, requestHash[:], b.w.cfg.holder), fmt.Sprint("acct_1 preset_1 t ", test.attempt+1, " t t"))
	}
}

func TestTwoJobsThatMeetInOneClaimSendOnce(t *testing.T) {
	t.Parallel()
	b := steps(t)
	id := b.put("pay", isReleased)
	got, err := b.w.claim(b.ctx, b.pool, []*candidate{b.candidate(id, 0), b.candidate(id, 0)})
	b.must(err)
	if want := []bool{true, false}; !reflect.DeepEqual(got, want) {
		t.Errorf("claimed %v, want %v", got, want)
	}
	b.is("attempts", b.open(id), "executing leased 1")
}

// A row that another transaction holds is being dealt with there: whoever waits for it
// holds up the others of its batch.
func TestAClaimWaitsForNobody(t *testing.T) {
	t.Parallel()
	b := steps(t)
	held, free := b.put("pay", isReleased), b.put("pay", isReleased)
	tx, err := b.pool.Begin(b.ctx)
	b.must(err)
	defer func() { b.must(tx.Rollback(b.ctx)) }()
	_, err = tx.Exec(b.ctx, `SELECT FROM outbox.outbox WHERE intent_id = $1 FOR UPDATE`, held)
	b.must(err)
	ctx, cancel := context.WithTimeout(b.ctx, 10*time.Second)
	defer cancel()
	got, err := b.w.claim(ctx, b.pool, []*candidate{b.candidate(held, 0), b.candidate(free, 0)})
	b.must(err)
	if want := []bool{false, true}; !reflect.DeepEqual(got, want) {
		t.Errorf("claimed %v, want %v", got, want)
	}
}

// A worker that lives through a failover sends nothing before the move was dealt with.
func TestOffItsTimelineNothingIsReleasedAndNothingClaimed(t *testing.T) {
	t.Parallel()
	b := steps(t)
	due, released := b.put("pay"), b.put("pay", isReleased)
	b.do(`UPDATE outbox.lanes SET concurrency = 10`)
	b.do(`UPDATE outbox.ledger SET timeline = timeline - 1`)
	got, err := b.w.claim(b.ctx, b.pool, []*candidate{b.candidate(released, 0)})
	b.must(err)
	n, full, err := b.w.releaseOnce(b.ctx, b.l)
	b.must(err)
	if got[0] || n != 0 || full != otherPoll {
		t.Errorf("off the timeline: claimed %v, released %d, to look again in %s", got[0], n, full)
	}
	b.is("due", b.open(due), "accepted due 0")
	b.is("released", b.open(released), "accepted released 0")

	b.do(`UPDATE outbox.ledger SET timeline = timeline + 1`)
	got, err = b.w.claim(b.ctx, b.pool, []*candidate{b.candidate(released, 0)})
	b.must(err)
	n, _, err = b.w.releaseOnce(b.ctx, b.l)
	b.must(err)
	if !got[0] || n != 1 {
		t.Errorf("at home: claimed %v, released %d", got[0], n)
	}
}

// What a job carries may have gone on without it.
func TestOnlyWhatIsStillToBeSentIsLoaded(t *testing.T) {
	t.Parallel()
	b := steps(t)
	retried := b.put("pay", isRetried)
	for _, test := range []struct {
		claim string
		t     ticket
		want  int
	}{
		{"at its attempt", ticket{retried, 1}, 1},
		{"at an attempt before", ticket{retried, 0}, 0},
		{"at none that there was", ticket{retried, 2}, 0},
		{"executing", ticket{b.put("pay", isLeased), 1}, 0},
		{"unknown", ticket{b.put("pay", isAsking), 1}, 0},
		{"gone", ticket{-1, 0}, 0},
	} {
		got, err := load(b.ctx, b.pool, []ticket{test.t})
		b.must(err)
		if len(got) != test.want {
			t.Errorf("%s: %d loaded, want %d", test.claim, len(got), test.want)
		}
	}
}

func TestEachTicketOfABatchIsLoadedForOneJob(t *testing.T) {
	t.Parallel()
	b := steps(t)
	one, two := b.put("pay", isRetried), b.put("pay", isReleased)
	tickets := []ticket{{one, 0}, {two, 0}, {one, 1}, {-1, 0}, {one, 1}, {two, 0}}
	got, err := b.w.loadEach(b.ctx, tickets)
	b.must(err)
	have := make([]bool, len(got))
	for i, c := range got {
		have[i] = c != nil
		if c != nil && c.ticket != tickets[i] {
			t.Errorf("ticket %v got %v", tickets[i], c.ticket)
		}
	}
	if want := []bool{false, true, true, false, false, false}; !reflect.DeepEqual(have, want) {
		t.Errorf("loaded %v, want %v", have, want)
	}
}

func TestPinsHoldAccountPresetAndRequest(t *testing.T) {
	t.Parallel()
	account, preset, hash := "acct_1", "preset_1", sha256.Sum256([]byte("one"))
	other := sha256.Sum256([]byte("another"))
	p := pins{account: &account, preset: &preset, hash: hash[:]}
	for _, test := range []struct {
		claim           string
		pins            pins
		account, preset string
		hash            []byte
		want            bool
	}{
		{"never sent", pins{}, "any", "any", other[:], true},
		{"the same", p, account, preset, hash[:], true},
		{"another account", p, "acct_2", preset, hash[:], false},
		{"another preset", p, account, "preset_2", hash[:], false},
		{"another request", p, account, preset, other[:], false},
	} {
		if why, ok := test.pins.allow(test.account, test.preset, test.hash); ok != test.want || ok != (why == "") {
			t.Errorf("%s: %v, %q", test.claim, ok, why)
		}
	}
}

// Pins are of the first sending; an intent whose input would now be rendered otherwise
// is not sent, and a person sees it.
func TestARetryThatWouldDifferGoesToReview(t *testing.T) {
	t.Parallel()
	for _, set := range []string{`account = 'acct_0'`, `preset = 'preset_0'`, `request_hash = sha256('another')`} {
		b := steps(t)
		id := b.put("pay", isRetried, isReleased, set)
		b.w.dispatch(b.ctx, b.l, []ticket{{id, 1}})
		b.is(set, b.open(id), "needs_review parked 1")
		b.is(set, b.events(id), "1 pins_differ")
		if n := b.says.sent.Load(); n != 0 {
			t.Errorf("%s: %d sent", set, n)
		}
	}
}
