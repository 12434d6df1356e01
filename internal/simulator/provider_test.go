package simulator

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestEachServiceHasItsEffectAndItsID(t *testing.T) {
	b := setup(t, Options{})
	for service, prefix := range map[string]string{Charges: "ch_", Refunds: "re_", Shipments: "sh_", Bookings: "bk_"} {
		r := b.post(b.ctx, service, "k1", order)
		b.wantStatus(r, http.StatusCreated)
		if !strings.HasPrefix(r.id(), prefix) || r.body["status"] != "succeeded" || r.body["reference"] != "k1" {
			t.Errorf("%s answered %s", service, r.text)
		}
		if r.body["amount"] != 24000.0 || r.body["currency"] != "eur" || r.body["customer"] != "c_71" {
			t.Errorf("%s did not echo the request: %s", service, r.text)
		}
		b.wantCount(service, "k1", 1)
		e := b.Effects(service)
		if len(e) != 1 || e[0].ProviderID != r.id() || e[0].Field("amount") != "24000" || e[0].Request != 1 {
			t.Errorf("%s ledger: %+v", service, e)
		}
	}
	if n := len(b.Effects("")); n != 4 {
		t.Errorf("effects of all services: %d, want 4", n)
	}
}

func TestRepeatIsAnsweredWithWhatWasSaved(t *testing.T) {
	b := setup(t, Options{})
	first, again := b.charge("k1"), b.charge("k1")
	b.wantStatus(again, http.StatusCreated)
	if again.text != first.text || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("first %q, again %q, header %v", first.text, again.text, again.header)
	}
	if first.header.Get("Idempotent-Replayed") != "" {
		t.Error("the first answer claims to be a replay")
	}
	b.wantCount(Charges, "k1", 1)
	if n := b.Requests(Charges, "k1"); n != 2 {
		t.Errorf("requests: %d, want 2", n)
	}
}

func TestSameKeyWithAnotherBodyIsRefused(t *testing.T) {
	b := setup(t, Options{})
	b.wantStatus(b.charge("k1"), http.StatusCreated)
	r := b.post(b.ctx, Charges, "k1", `{"amount":24001,"currency":"eur","customer":"c_71"}`)
	b.wantStatus(r, http.StatusUnprocessableEntity)
	if r.code() != "idempotency_key_reused" {
		t.Errorf("code %q", r.code())
	}
	b.wantCount(Charges, "k1", 1)
}

func TestKeysOfServicesAreApart(t *testing.T) {
	b := setup(t, Options{})
	b.wantStatus(b.charge("k1"), http.StatusCreated)
	b.wantStatus(b.post(b.ctx, Refunds, "k1", order), http.StatusCreated)
	b.wantCount(Charges, "k1", 1)
	b.wantCount(Refunds, "k1", 1)
	if d := b.Duplicates(); len(d) != 0 {
		t.Errorf("duplicates %v", d)
	}
}

func TestSameKeyWhileTheFirstRunsIsConflict(t *testing.T) {
	b := setup(t, Options{})
	release := b.Hold(Charges, "k1", BeforeEffect)
	defer release()
	first := async(func() reply { return b.charge("k1") })
	b.await("first is held", func(v Snapshot) bool { return v.Held(Charges, "k1") == 1 })

	r := b.charge("k1")
	b.wantStatus(r, http.StatusConflict)
	if r.code() != "idempotency_key_in_use" {
		t.Errorf("code %q", r.code())
	}
	b.wantStatus(b.charge("other"), http.StatusCreated) // one held request holds no other
	b.wantCount(Charges, "k1", 0)

	release()
	b.wantStatus(<-first, http.StatusCreated)
	b.wantCount(Charges, "k1", 1)
}

func TestHundredsAtOnceHaveOneEffectPerKey(t *testing.T) {
	b := setup(t, Options{})
	const keys, repeats = 40, 10
	var wg sync.WaitGroup
	for i := range keys * repeats {
		wg.Go(func() {
			r := b.charge(fmt.Sprint("k", i%keys))
			if r.err != nil || r.status != http.StatusCreated && r.status != http.StatusConflict {
				t.Errorf("answered %d (error %v)", r.status, r.err)
			}
		})
	}
	wg.Wait()
	sum := b.Summary().Services[Charges]
	if sum != (Totals{Effects: keys, References: keys, Requests: keys * repeats}) {
		t.Errorf("counted %+v", sum)
	}
}

func TestForgottenKeyHasASecondEffect(t *testing.T) {
	b := setup(t, Options{Services: map[string]Behaviour{Charges: {Memory: 24 * time.Hour}}})
	first := b.charge("k1")
	if err := b.Advance(24*time.Hour - time.Minute); err != nil {
		t.Fatal(err)
	}
	b.charge("k1")
	b.wantCount(Charges, "k1", 1)
	if err := b.Advance(time.Minute); err != nil {
		t.Fatal(err)
	}
	again := b.charge("k1")
	b.wantCount(Charges, "k1", 2)
	if again.id() == first.id() || again.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("not a new effect: %s", again.text)
	}
	if d := b.Duplicates(); len(d) != 1 || d[0] != (Duplicate{Charges, "k1", 2}) {
		t.Errorf("duplicates %v", d)
	}
}

func TestIgnoredKeysMakeEveryRequestAnEffect(t *testing.T) {
	b := setup(t, Options{Services: map[string]Behaviour{Bookings: {Keys: Ignore}}})
	for range 3 {
		b.wantStatus(b.post(b.ctx, Bookings, "k1", `{"slot":"9:00"}`), http.StatusCreated)
		b.wantStatus(b.post(b.ctx, Bookings, "", `{"slot":"9:00","reference":"k2"}`), http.StatusCreated)
	}
	b.wantCount(Bookings, "k1", 3)
	b.wantCount(Bookings, "k2", 3)
	if len(b.Duplicates()) != 2 {
		t.Errorf("duplicates %v", b.Duplicates())
	}
}

func TestBadRequestsHaveNoEffectAndUseUpNoKey(t *testing.T) {
	b := setup(t, Options{Services: map[string]Behaviour{Bookings: {Keys: Ignore}}})
	for _, c := range []struct {
		name, service, key, body string
		status                   int
		code                     string
	}{
		{"no key where keys are honoured", Charges, "", order, 400, "idempotency_key_missing"},
		{"the body's reference is no key", Charges, "", `{"amount":1,"reference":"k"}`, 400, "idempotency_key_missing"},
		{"no reference where they are ignored", Bookings, "", `{}`, 400, "reference_missing"},
		{"reference of another type", Bookings, "", `{"reference":7}`, 400, "reference_missing"},
		{"a key too long", Charges, strings.Repeat("k", 256), order, 400, "idempotency_key_too_long"},
		{"not JSON", Charges, "k", `amount=1`, 400, "invalid_json"},
		{"not an object", Charges, "k", `[1]`, 400, "invalid_json"},
		{"null", Charges, "k", `null`, 400, "invalid_json"},
		{"two values", Charges, "k", order + `}`, 400, "invalid_json"},
		{"no amount", Charges, "k", `{"currency":"eur"}`, 400, "amount_invalid"},
		{"amount with a fraction", Charges, "k", `{"amount":240.5}`, 400, "amount_invalid"},
		{"amount as text", Charges, "k", `{"amount":"240"}`, 400, "amount_invalid"},
		{"negative amount", Refunds, "k", `{"amount":-1}`, 400, "amount_invalid"},
		{"over a megabyte", Charges, "k", `{"amount":1,"x":"` + strings.Repeat("x", maxBody) + `"}`, 413, "body_too_large"},
	} {
		r := b.post(b.ctx, c.service, c.key, c.body)
		if r.err != nil || r.status != c.status || r.code() != c.code {
			t.Errorf("%s: answered %d %s (error %v)", c.name, r.status, r.text, r.err)
		}
	}
	if n := len(b.Effects("")); n != 0 {
		t.Errorf("effects: %d", n)
	}
	b.wantStatus(b.charge("k"), http.StatusCreated)
}

func TestLookupFindsByReferenceAndID(t *testing.T) {
	b := setup(t, Options{})
	made := b.charge("k1")
	b.charge("k2")

	r := b.get("/v1/charges?reference=k1")
	b.wantStatus(r, http.StatusOK)
	data, _ := r.body["data"].([]any)
	if len(data) != 1 || fmt.Sprint(data[0]) != fmt.Sprint(made.body) {
		t.Errorf("found %s, made %s", r.text, made.text)
	}
	byID := b.get("/v1/charges/" + made.id())
	b.wantStatus(byID, http.StatusOK)
	if byID.text != made.text {
		t.Errorf("by id %s, made %s", byID.text, made.text)
	}
	if r := b.get("/v1/charges?reference=unknown"); r.text != `{"data":[],"has_more":false}`+"\n" {
		t.Errorf("absent: %s", r.text)
	}
	b.wantStatus(b.get("/v1/refunds/"+made.id()), http.StatusNotFound)
	b.wantStatus(b.get("/v1/charges"), http.StatusBadRequest)
	if n := b.Lookups(Charges, "k1"); n != 2 {
		t.Errorf("lookups of k1: %d, want 2", n)
	}
	if n := b.Requests(Charges, "k1"); n != 1 {
		t.Errorf("requests of k1: %d, want 1", n)
	}
}

func TestLookupSeesAnEffectAfterItsLag(t *testing.T) {
	b := setup(t, Options{Services: map[string]Behaviour{Charges: {LookupLag: time.Hour}}})
	made := b.charge("k1")
	if r := b.get("/v1/charges?reference=k1"); strings.Contains(r.text, made.id()) {
		t.Errorf("visible at once: %s", r.text)
	}
	b.wantStatus(b.get("/v1/charges/"+made.id()), http.StatusOK)
	if err := b.Advance(time.Hour); err != nil {
		t.Fatal(err)
	}
	if r := b.get("/v1/charges?reference=k1"); !strings.Contains(r.text, made.id()) {
		t.Errorf("not visible after the lag: %s", r.text)
	}
}

func TestTheEffectIsCountedBeforeAnyAnswer(t *testing.T) {
	b := setup(t, Options{})
	release := b.Hold("", "", AfterEffect)
	defer release()
	answered := async(func() reply { return b.charge("k1") })
	b.await("held", func(v Snapshot) bool { return v.Held("", "") == 1 })
	b.wantCount(Charges, "k1", 1)
	select {
	case r := <-answered:
		t.Fatalf("answered while held: %+v", r)
	default:
	}
	release()
	release() // idempotent
	b.wantStatus(<-answered, http.StatusCreated)
}

func TestBehaviourCanChange(t *testing.T) {
	b := setup(t, Options{})
	b.charge("k1")
	if err := b.SetBehaviour(Charges, Behaviour{Keys: Ignore}); err != nil {
		t.Fatal(err)
	}
	b.charge("k1")
	b.wantCount(Charges, "k1", 2)
	for service, bad := range map[string]Behaviour{
		Mail: {}, "x": {}, Charges: {Keys: "maybe"}, Refunds: {Memory: -1}, Bookings: {LookupLag: -1},
	} {
		if err := b.SetBehaviour(service, bad); err == nil {
			t.Errorf("%s accepted %+v", service, bad)
		}
	}
}
