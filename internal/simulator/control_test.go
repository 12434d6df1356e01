package simulator

import (
	"context"
	"errors"
	"net"
	"net/http"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAnotherProcessCanDoTheSame(t *testing.T) {
	b := setup(t, Options{})
	c := NewClient(b.HTTPURL())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.SetBehaviour(b.ctx, Charges, Behaviour{Memory: time.Hour, LookupLag: time.Minute}))
	must(c.Script(b.ctx, Fault{Kind: ErrorAfter, Reference: "k1", Nth: 1}, Fault{Kind: Delay, Duration: time.Millisecond}))
	b.wantStatus(b.charge("k1"), http.StatusInternalServerError)
	if r := b.get("/sim/faults"); !strings.Contains(r.text, `{"fault":{"kind":"error_after","reference":"k1","nth":1},"fired":1}`) {
		t.Errorf("script %s", r.text)
	}
	must(c.ClearFaults(b.ctx))
	if r := b.get("/sim/faults"); r.text != "[]\n" {
		t.Errorf("script %s", r.text)
	}
	must(c.Advance(b.ctx, time.Hour))
	b.wantStatus(b.charge("k1"), http.StatusCreated)
	b.charge("k2")

	got, err := c.Summary(b.ctx)
	must(err)
	if want := b.Summary(); !reflect.DeepEqual(got, want) || want.Services[Charges].Duplicates != 1 || len(want.Duplicates) != 1 {
		t.Errorf("summary %+v, want %+v", got, want)
	}
	effects, err := c.Effects(b.ctx, Charges, "k1")
	must(err)
	want := b.effects(Charges, "k1")
	if len(effects) != 2 || !effects[0].At.Equal(want[0].At) || effects[0].Field("amount") != "24000" || effects[1].ProviderID != want[1].ProviderID {
		t.Errorf("effects %+v, want %+v", effects, want)
	}
	counts, err := c.Count(b.ctx, Charges, "k1")
	must(err)
	if counts != (Counts{Effects: 2, Requests: 2}) {
		t.Errorf("counts %+v", counts)
	}

	must(c.MailDown(b.ctx))
	if _, err := net.Dial("tcp", b.SMTPAddr()); err == nil {
		t.Error("mail is not down")
	}
	must(c.MailUp(b.ctx))
	if code, text, err := b.mail("r1"); code != 250 {
		t.Error(code, text, err)
	}
	must(c.HTTPDown(b.ctx, time.Hour))
	if r := b.charge("k3"); !errors.Is(r.err, syscall.ECONNREFUSED) {
		t.Errorf("client saw %d %v, want refused", r.status, r.err)
	}
	must(b.HTTPUp(b.ctx))
	must(c.HTTPDown(b.ctx, 20*time.Millisecond))
	for b.charge("k3").err != nil { // refused until it comes back by itself
		must(b.ctx.Err())
	}
	must(c.Reset(b.ctx))
	b.wantCount("", "", 0)
}

func TestClientAwaitsEffects(t *testing.T) {
	b := setup(t, Options{})
	c := NewClient(b.HTTPURL())
	got := async(func() Counts {
		n, err := c.AwaitEffects(b.ctx, Charges, "k1", 1)
		if err != nil {
			t.Error(err)
		}
		return n
	})
	b.charge("other")
	b.charge("k1")
	if n := <-got; n.Effects != 1 {
		t.Errorf("counts %+v", n)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	if _, err := c.AwaitEffects(ctx, Charges, "never", 1); err == nil {
		t.Error("awaited what never came")
	}
}

func TestControlRefusesWhatItDoesNotUnderstand(t *testing.T) {
	b := setup(t, Options{})
	for _, c := range []struct{ method, path, body, says string }{
		{"POST", "/sim/faults", `[{"kind":"explode"}]`, `kind \"explode\" is unknown; kinds are delay, `},
		{"POST", "/sim/faults", `[{"kind":"lost","referense":"k"}]`, `unknown field \"referense\"`},
		{"POST", "/sim/faults", `[{"kind":"delay","duration":"soon"}]`, `duration`},
		{"POST", "/sim/faults", `[{"kind":"delay","duration":2}]`, `duration`},
		{"POST", "/sim/faults", `{"kind":"lost"}`, `[]simulator.Fault`},
		{"POST", "/sim/faults", `[{"kind":"lost"}] []`, `something follows`},
		{"POST", "/sim/faults", ``, `EOF`},
		{"POST", "/sim/faults", `[` + strings.Repeat(" ", maxBody) + `]`, `too large`},
		{"PUT", "/sim/services/charges", `{"keys":"perhaps"}`, `keys \"perhaps\"`},
		{"PUT", "/sim/services/charges", `{"memry":"1h"}`, `unknown field \"memry\"`},
		{"PUT", "/sim/services/fax", `{}`, `no behaviour`},
		{"POST", "/sim/clock", `{"advance":"-1h"}`, `forward only`},
		{"POST", "/sim/http/down", `{}`, `want {\"for\"`},
		{"POST", "/sim/http/down", `{"for":"soon"}`, `invalid duration`},
		{"GET", "/sim/count?effects=many", ``, `want a number`},
	} {
		r := b.do(b.ctx, c.method, c.path, nil, c.body)
		if r.err != nil || r.status != http.StatusBadRequest || !strings.Contains(r.text, c.says) {
			t.Errorf("%s %s: %d %s (error %v), want %q", c.method, c.path, r.status, r.text, r.err, c.says)
		}
	}
	if err := NewClient(b.HTTPURL()).Script(b.ctx, Fault{Kind: "explode"}); err == nil || !strings.Contains(err.Error(), "unknown; kinds are") {
		t.Errorf("the client lost the reason: %v", err)
	}
	b.wantStatus(b.do(b.ctx, "DELETE", "/v1/charges", nil, ""), http.StatusMethodNotAllowed)
	b.wantStatus(b.get("/v1/faxes"), http.StatusNotFound)
	b.wantStatus(b.charge("k1"), http.StatusCreated)
}
