package simulator

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestFaultsWithoutEffect(t *testing.T) {
	for _, c := range []struct {
		fault  Fault
		status int
		code   string
		header [2]string
	}{
		{Fault{Kind: ErrorBefore}, 503, "unavailable", [2]string{}},
		{Fault{Kind: ErrorBefore, Status: 502}, 502, "unavailable", [2]string{}},
		{Fault{Kind: InProgress}, 409, "idempotency_key_in_use", [2]string{}},
		{Fault{Kind: Throttle}, 429, "rate_limited", [2]string{"Retry-After", "1"}},
		{Fault{Kind: Throttle, RetryAfter: 7}, 429, "rate_limited", [2]string{"Retry-After", "7"}},
		{Fault{Kind: Unauthorized}, 401, "unauthorized", [2]string{}},
		{Fault{Kind: Redirect}, 302, "moved", [2]string{"Location", "/moved"}},
		{Fault{Kind: Redirect, Status: 307, Location: "/v1/refunds"}, 307, "moved", [2]string{"Location", "/v1/refunds"}},
	} {
		t.Run(string(c.fault.Kind), func(t *testing.T) {
			b := setup(t, Options{})
			c.fault.Nth = 1
			b.script(c.fault)
			r := b.charge("k1")
			b.wantStatus(r, c.status)
			if r.code() != c.code || c.header[0] != "" && r.header.Get(c.header[0]) != c.header[1] {
				t.Errorf("answered %s %v", r.text, r.header)
			}
			b.wantCount(Charges, "k1", 0)
			// The key was not used up: the same request executes, and so does another body.
			again := b.post(b.ctx, Charges, "k1", `{"amount":1}`)
			b.wantStatus(again, http.StatusCreated)
			if again.header.Get("Idempotent-Replayed") != "" {
				t.Error("a gated request left an answer under its key")
			}
			b.wantCount(Charges, "k1", 1)
		})
	}
}

func TestResetBeforeIsARealResetWithoutEffect(t *testing.T) {
	b := setup(t, Options{})
	b.script(Fault{Kind: ResetBefore, Nth: 1})
	if r := b.charge("k1"); !errors.Is(r.err, syscall.ECONNRESET) {
		t.Errorf("client saw %d %v, want a reset", r.status, r.err)
	}
	b.wantCount(Charges, "k1", 0)
	b.wantStatus(b.charge("k1"), http.StatusCreated)
	b.wantCount(Charges, "k1", 1)
}

func TestResetAfterHasTheEffect(t *testing.T) {
	b := setup(t, Options{})
	b.script(Fault{Kind: ResetAfter, Nth: 1})
	if r := b.charge("k1"); !errors.Is(r.err, syscall.ECONNRESET) {
		t.Errorf("client saw %d %v, want a reset", r.status, r.err)
	}
	b.wantCount(Charges, "k1", 1)
	again := b.charge("k1")
	b.wantStatus(again, http.StatusCreated)
	if again.id() != b.Effects(Charges)[0].ProviderID {
		t.Errorf("replayed %s", again.text)
	}
	b.wantCount(Charges, "k1", 1)
}

func TestErrorAfterSavesTheSuccess(t *testing.T) {
	b := setup(t, Options{})
	b.script(Fault{Kind: ErrorAfter, Status: 502, Nth: 1})
	b.wantStatus(b.charge("k1"), http.StatusBadGateway)
	b.wantCount(Charges, "k1", 1)
	b.wantStatus(b.charge("k1"), http.StatusCreated)
	b.wantCount(Charges, "k1", 1)
}

func TestErrorAfterCanBeSavedLikeStripe(t *testing.T) {
	b := setup(t, Options{Services: map[string]Behaviour{Charges: {SaveErrors: true}}})
	b.script(Fault{Kind: ErrorAfter, Nth: 1})
	b.wantStatus(b.charge("k1"), http.StatusInternalServerError)
	again := b.charge("k1")
	b.wantStatus(again, http.StatusInternalServerError)
	if again.header.Get("Idempotent-Replayed") != "true" {
		t.Error("the saved error is not marked as replayed")
	}
	b.wantCount(Charges, "k1", 1)
	if r := b.get("/v1/charges?reference=k1"); !strings.Contains(r.text, "succeeded") {
		t.Errorf("a lookup does not see what happened: %s", r.text)
	}
}

func TestLostHasTheEffectAndNeverAnswers(t *testing.T) {
	b := setup(t, Options{})
	b.script(Fault{Kind: Lost, Nth: 1})
	ctx, leave := context.WithCancel(b.ctx)
	answered := async(func() reply { return b.post(ctx, Charges, "k1", order) })
	b.await("effect", func(v Snapshot) bool { return v.Count(Charges, "k1") == 1 })
	select {
	case r := <-answered:
		t.Fatalf("answered %+v", r)
	default:
	}
	// While it hangs, a repeat is told the outcome: the provider has finished.
	b.wantStatus(b.charge("k1"), http.StatusCreated)
	leave()
	if r := <-answered; !errors.Is(r.err, context.Canceled) {
		t.Errorf("client saw %+v", r)
	}
	b.wantCount(Charges, "k1", 1)
}

func TestRefusalIsSavedAndHasNoEffect(t *testing.T) {
	b := setup(t, Options{})
	b.script(
		Fault{Kind: Refuse, Reference: "k1", Nth: 1},
		Fault{Kind: Refuse, Reference: "k2", Status: 403, Code: "account_closed"},
	)
	first := b.charge("k1")
	b.wantStatus(first, http.StatusPaymentRequired)
	if first.code() != "card_declined" {
		t.Errorf("code %q", first.code())
	}
	again := b.charge("k1")
	b.wantStatus(again, http.StatusPaymentRequired)
	if again.text != first.text || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("first %s, again %s", first.text, again.text)
	}
	b.wantCount(Charges, "k1", 0)
	if r := b.charge("k2"); r.status != 403 || r.code() != "account_closed" {
		t.Errorf("answered %d %s", r.status, r.text)
	}
}

func TestRefuseDoesNotUndoASavedSuccess(t *testing.T) {
	b := setup(t, Options{})
	b.charge("k1")
	b.script(Fault{Kind: Refuse})
	b.wantStatus(b.charge("k1"), http.StatusCreated)
	b.wantCount(Charges, "k1", 1)
	if n := b.Summary().FaultsFired[Refuse]; n != 0 {
		t.Errorf("refuse fired %d times", n)
	}
}

func TestTruncatedIsA201WithHalfABody(t *testing.T) {
	b := setup(t, Options{})
	b.script(Fault{Kind: Truncated, Nth: 1})
	r := b.charge("k1")
	if r.status != http.StatusCreated || r.err == nil || r.text == "" || r.body != nil {
		t.Errorf("client saw %d %q %v", r.status, r.text, r.err)
	}
	b.wantCount(Charges, "k1", 1)
	if again := b.charge("k1"); !strings.HasPrefix(again.text, r.text) || again.err != nil {
		t.Errorf("%q is no part of %q", r.text, again.text)
	}
}

func TestGarbageIsA200ThatIsNotJSON(t *testing.T) {
	b := setup(t, Options{})
	b.script(Fault{Kind: Garbage, Nth: 1})
	r := b.charge("k1")
	b.wantStatus(r, http.StatusOK)
	if json.Valid([]byte(r.text)) {
		t.Errorf("%q is JSON", r.text)
	}
	b.wantCount(Charges, "k1", 1)
	b.wantStatus(b.charge("k1"), http.StatusCreated)
}

func TestWhoFollowsTheRedirectIsCounted(t *testing.T) {
	b := setup(t, Options{})
	b.script(Fault{Kind: Redirect})
	b.client.CheckRedirect = nil
	r := b.charge("k1")
	b.wantStatus(r, http.StatusOK)
	if r.body["status"] != "succeeded" {
		t.Errorf("the trap does not look like success: %s", r.text)
	}
	b.wantCount(Charges, "k1", 0)
	if n := b.Summary().RedirectsFollowed; n != 1 {
		t.Errorf("redirects followed: %d", n)
	}
}

func TestDelayedRequestHasItsEffectThoughTheClientLeft(t *testing.T) {
	b := setup(t, Options{})
	b.script(Fault{Kind: Delay, Duration: 50 * time.Millisecond, Reference: "k1", Nth: 1})
	ctx, leave := context.WithCancel(b.ctx)
	began := time.Now()
	answered := async(func() reply { return b.post(ctx, Charges, "k1", order) })
	b.await("delay began", func(v Snapshot) bool { return v.Fired(Delay) == 1 })
	leave()
	<-answered
	b.await("late effect", func(v Snapshot) bool { return v.Count(Charges, "k1") == 1 })
	if d := time.Since(began); d < 50*time.Millisecond {
		t.Errorf("effect after %v", d)
	}
	b.wantStatus(b.charge("k1"), http.StatusCreated)
	b.wantCount(Charges, "k1", 1)
}

func TestDelayHoldsItsKeyAndNobodyElse(t *testing.T) {
	b := setup(t, Options{})
	b.script(Fault{Kind: Delay, Duration: time.Hour, Reference: "slow"})
	ctx, leave := context.WithCancel(b.ctx)
	answered := async(func() reply { return b.post(ctx, Charges, "slow", order) })
	b.await("delay began", func(v Snapshot) bool { return v.Fired(Delay) == 1 })
	b.wantStatus(b.charge("quick"), http.StatusCreated)
	b.wantCount(Charges, "slow", 0)

	b.ClearFaults()
	b.wantStatus(b.charge("slow"), http.StatusConflict)
	leave()
	<-answered
}

func TestSlowBodySendsTheHeadersFirst(t *testing.T) {
	b := setup(t, Options{})
	b.script(
		Fault{Kind: SlowBody, Duration: time.Hour, Reference: "hour"},
		Fault{Kind: SlowBody, Duration: 16 * time.Millisecond, Reference: "short"},
	)
	ctx, leave := context.WithCancel(b.ctx)
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.HTTPURL()+"/v1/charges", strings.NewReader(order))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", "hour")
	resp, err := b.client.Do(req) // returns once the headers are there
	if err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("%v %v", resp, err)
	}
	defer resp.Body.Close()
	b.wantCount(Charges, "hour", 1)
	leave()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("an hour's body arrived at once")
	}

	began := time.Now()
	r := b.charge("short")
	b.wantStatus(r, http.StatusCreated)
	if r.body == nil || time.Since(began) < 16*time.Millisecond {
		t.Errorf("%q after %v", r.text, time.Since(began))
	}
}

func TestFaultsOnLookups(t *testing.T) {
	b := setup(t, Options{})
	made := b.charge("k1")
	on := func(f Fault) Fault { f.On, f.Count = OnLookup, 1; return f }
	b.script(on(Fault{Kind: ErrorBefore}), on(Fault{Kind: Throttle, RetryAfter: 3}), on(Fault{Kind: Unauthorized}),
		on(Fault{Kind: ResetBefore}), on(Fault{Kind: Garbage}), on(Fault{Kind: Truncated}),
		on(Fault{Kind: Delay, Duration: time.Millisecond}))
	path := "/v1/charges?reference=k1"
	for _, status := range []int{503, 429, 401} {
		b.wantStatus(b.get(path), status)
	}
	if r := b.get(path); !errors.Is(r.err, syscall.ECONNRESET) {
		t.Errorf("saw %+v", r)
	}
	if r := b.get(path); r.err != nil || json.Valid([]byte(r.text)) {
		t.Errorf("saw %+v", r)
	}
	if r := b.get("/v1/charges/" + made.id()); r.err == nil || r.status != http.StatusOK {
		t.Errorf("saw %+v", r)
	}
	b.wantStatus(b.get(path), http.StatusOK)
	// A fault on lookups leaves creation alone, and the other way round.
	b.script(on(Fault{Kind: ErrorBefore}), Fault{Kind: Unauthorized, Count: 1})
	b.wantStatus(b.charge("k2"), http.StatusUnauthorized)
	b.wantStatus(b.get(path), http.StatusServiceUnavailable)
}

func TestAFaultNeedsEverythingItNames(t *testing.T) {
	b := setup(t, Options{})
	b.script(Fault{Kind: Unauthorized, Service: Refunds, Reference: "k1", Nth: 2, Count: 1})
	b.wantStatus(b.charge("k1"), http.StatusCreated)                           // another service
	b.wantStatus(b.post(b.ctx, Refunds, "k2", order), http.StatusCreated)      // another reference
	b.wantStatus(b.post(b.ctx, Refunds, "k2", order), http.StatusCreated)      //
	b.wantStatus(b.post(b.ctx, Refunds, "k1", order), http.StatusCreated)      // first, not second
	b.wantStatus(b.post(b.ctx, Refunds, "k1", order), http.StatusUnauthorized) // this one
	b.wantStatus(b.post(b.ctx, Refunds, "k1", order), http.StatusCreated)      // third
	b.wantStatus(b.post(b.ctx, Bookings, "k1", `{"a":1}`), http.StatusCreated) // another service
	if n := b.Summary().FaultsFired[Unauthorized]; n != 1 {
		t.Errorf("fired %d times", n)
	}
}

func TestTheScriptIsTriedInOrder(t *testing.T) {
	b := setup(t, Options{})
	b.script(
		Fault{Kind: Throttle, Count: 2},
		Fault{Kind: Delay, Duration: time.Millisecond},
		Fault{Kind: Unauthorized, Count: 1},
		Fault{Kind: ErrorBefore, Count: 1},
	)
	for _, status := range []int{429, 429, 401, 503, 201} {
		b.wantStatus(b.charge("k1"), status)
	}
	want := map[Kind]int{Throttle: 2, Delay: 3, Unauthorized: 1, ErrorBefore: 1}
	if got := b.Summary().FaultsFired; !reflect.DeepEqual(got, want) {
		t.Errorf("fired %v, want %v", got, want)
	}
}

func TestNetworkFaultsAlsoHitSavedAnswers(t *testing.T) {
	b := setup(t, Options{})
	b.script(Fault{Kind: ResetAfter})
	for range 3 {
		if r := b.charge("k1"); r.err == nil {
			t.Errorf("answered %+v", r)
		}
	}
	b.wantCount(Charges, "k1", 1)
}

func TestChanceDependsOnWhatIsAskedNotOnWhen(t *testing.T) {
	fate := func(b *bundle, keys []string) map[string]int {
		got := map[string]int{}
		for _, k := range keys {
			got[k] = b.charge(k).status
		}
		return got
	}
	var keys, backwards []string
	for i := range 60 {
		k := "k" + strings.Repeat("x", i)
		keys, backwards = append(keys, k), append([]string{k}, backwards...)
	}
	b := setup(t, Options{Seed: 7})
	b.script(Fault{Kind: ErrorBefore, Probability: 0.5})
	first := fate(b, keys)
	for _, again := range []struct {
		seed uint64
		same bool
	}{{7, true}, {8, false}} {
		if err := b.Reset(); err != nil {
			t.Fatal(err)
		}
		b.script(Fault{Kind: ErrorBefore, Probability: 0.5, Seed: again.seed})
		if same := reflect.DeepEqual(first, fate(b, backwards)); same != again.same {
			t.Errorf("seed %d decided alike: %v", again.seed, same)
		}
	}
	failed := 0
	for _, status := range first {
		if status == http.StatusServiceUnavailable {
			failed++
		}
	}
	if failed < 15 || failed > 45 {
		t.Errorf("a half chance struck %d of 60", failed)
	}
}

// net/http resends a keyed request by itself when a reused connection dies. The count of
// requests shows it, which is how adapters can prove that they do not.
func TestHiddenResendsAreCounted(t *testing.T) {
	b := setup(t, Options{})
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	b.client.Transport = transport
	b.charge("warm") // leaves a connection to reuse
	b.script(Fault{Kind: ResetAfter, Reference: "k1", Nth: 1})
	reused := false
	ctx := httptrace.WithClientTrace(b.ctx, &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) { reused = reused || i.Reused },
	})
	r := b.post(ctx, Charges, "k1", order)
	if !reused {
		t.Fatal("the connection was not reused")
	}
	b.wantStatus(r, http.StatusCreated)
	if n := b.Requests(Charges, "k1"); n != 2 {
		t.Errorf("requests %d, want 2", n)
	}
	b.wantCount(Charges, "k1", 1)
}

func TestEveryKindIsValidatedAndSurvivesJSON(t *testing.T) {
	for kind, tr := range traits {
		f := Fault{
			Kind: kind, Reference: "r", Nth: 1, Count: 2, Probability: 0.5, Seed: 9,
			Status: tr.status[0],
		}
		if tr.stage == rcpt {
			f.Reference, f.Service, f.Recipient = "", Mail, "a@example.com"
		}
		if tr.lookup {
			f.On = OnLookup
		}
		for _, name := range tr.fields {
			switch name {
			case "duration":
				f.Duration = 1500 * time.Millisecond
			case "retry_after":
				f.RetryAfter = 3
			case "location":
				f.Location = "/x"
			case "code":
				f.Code = "5.1.1"
			case "at":
				f.At = AtDot
			default:
				t.Fatalf("no value for %s", name)
			}
		}
		if err := f.Validate(); err != nil {
			t.Errorf("%+v: %v", f, err)
		}
		data, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		var again Fault
		if err := json.Unmarshal(data, &again); err != nil || again != f {
			t.Errorf("%s became %+v (%v)", data, again, err)
		}
	}
}

func TestFaultsThatCannotDoWhatTheySayAreRefused(t *testing.T) {
	b := setup(t, Options{})
	for _, c := range []struct {
		fault Fault
		says  string
	}{
		{Fault{Kind: "explode"}, `kind "explode" is unknown`},
		{Fault{}, `kind "" is unknown`},
		{Fault{Kind: Delay, Duration: 1, Service: "fax"}, `service "fax" is unknown`},
		{Fault{Kind: Refuse, Service: Mail}, "cannot happen to mail"},
		{Fault{Kind: LostAfterDot, Service: Charges}, "only happen to mail"},
		{Fault{Kind: Delay}, "needs a duration"},
		{Fault{Kind: Delay, Duration: -1}, "cannot be negative"},
		{Fault{Kind: Throttle, Nth: -1}, "cannot be negative"},
		{Fault{Kind: Throttle, Probability: 1.5}, "between 0 and 1"},
		{Fault{Kind: Throttle, Status: 500}, "status means nothing"},
		{Fault{Kind: Throttle, Code: "x"}, "code means nothing"},
		{Fault{Kind: Refuse, RetryAfter: 1}, "retry_after means nothing"},
		{Fault{Kind: Lost, Duration: 1}, "duration means nothing"},
		{Fault{Kind: ErrorAfter, Status: 200}, "not between 500 and 599"},
		{Fault{Kind: Redirect, Status: 200}, "not between 300 and 399"},
		{Fault{Kind: ErrorAfter, On: OnLookup}, "cannot happen to a lookup"},
		{Fault{Kind: Delay, Duration: 1, On: OnLookup, Service: Mail}, "cannot happen to a lookup"},
		{Fault{Kind: Delay, Duration: 1, On: "delete"}, `on "delete"`},
		{Fault{Kind: RefuseRcpt, Reference: "r"}, "not known at RCPT"},
		{Fault{Kind: Tempfail, At: AtRcpt, Reference: "r"}, "not known at RCPT"},
		{Fault{Kind: Tempfail, At: "helo"}, `at "helo"`},
		{Fault{Kind: Tempfail, Code: "soon"}, "enhanced status code"},
		{Fault{Kind: RefuseDot, Code: "card_declined"}, "enhanced status code"},
		{Fault{Kind: Lost, Recipient: "a@b"}, "recipient needs service"},
	} {
		err := b.Script(Fault{Kind: Throttle}, c.fault)
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "fault 2") {
			t.Errorf("%+v: %v, want %q", c.fault, err, c.says)
		}
	}
	b.wantStatus(b.charge("k1"), http.StatusCreated) // none of a refused script was added
}
