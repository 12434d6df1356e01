package simulator

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestCloseEndsWhateverHangs(t *testing.T) {
	b := setup(t, Options{})
	b.script(
		Fault{Kind: Lost, Reference: "lost"},
		Fault{Kind: Delay, Duration: time.Hour, Reference: "delayed"},
		Fault{Kind: SlowBody, Duration: time.Hour, Reference: "slow"},
	)
	b.Hold(Charges, "before", BeforeEffect)
	b.Hold(Charges, "after", AfterEffect)
	b.Hold(Mail, "mail", AfterEffect)
	var ends []<-chan reply
	for _, key := range []string{"lost", "delayed", "slow", "before", "after"} {
		ends = append(ends, async(func() reply { return b.charge(key) }))
	}
	mail := b.dial()
	mail.envelope("ann@example.com")
	mailed := async(func() reply {
		code, text, err := mail.send(message("mail"))
		return reply{status: code, text: text, err: err}
	})
	b.await("all hang", func(v Snapshot) bool {
		return v.Held("", "") == 3 && v.Fired(Lost) == 1 && v.Fired(Delay) == 1 && v.Count(Charges, "slow") == 1
	})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range append(ends, mailed) {
		if r := <-c; r.err == nil {
			t.Errorf("answered %d %q", r.status, r.text)
		}
	}
	for key, want := range map[string]int{"lost": 1, "delayed": 0, "slow": 1, "before": 0, "after": 1} {
		b.wantCount(Charges, key, want)
	}
	b.wantCount(Mail, "mail", 1)
	for _, addr := range []string{strings.TrimPrefix(b.HTTPURL(), "http://"), b.SMTPAddr()} {
		if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial after Close: %v", err)
		}
	}
	if err := b.MailUp(b.ctx); err == nil {
		t.Error("mail came up after Close")
	}
}

func TestHTTPDownRefusesAndComesBackOnTheSamePort(t *testing.T) {
	b := setup(t, Options{})
	url := b.HTTPURL()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	b.client.Transport = transport
	b.charge("k1") // leaves a connection to reuse
	b.HTTPDown()
	b.HTTPDown() // idempotent
	if r := b.charge("k2"); !errors.Is(r.err, syscall.ECONNREFUSED) {
		t.Errorf("client saw %d %v, want refused", r.status, r.err)
	}
	if err := b.HTTPUp(b.ctx); err != nil {
		t.Fatal(err)
	}
	if b.HTTPURL() != url {
		t.Errorf("up at %s, was %s", b.HTTPURL(), url)
	}
	b.wantStatus(b.charge("k2"), http.StatusCreated)
	if n := b.Requests(Charges, "k2"); n != 1 {
		t.Errorf("requests: %d, want 1", n)
	}
}

func TestAwaitEndsWithItsContextAndSaysWhatItSaw(t *testing.T) {
	b := setup(t, Options{})
	b.charge("k1")
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	err := b.Await(ctx, func(v Snapshot) bool { return v.Count(Charges, "k1") == 2 })
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `"effects":1`) {
		t.Errorf("error %v", err)
	}
}

func TestAwaitDoesNotAcceptWhatChangedMeanwhile(t *testing.T) {
	b := setup(t, Options{})
	evaluations := 0
	b.await("quiet", func(Snapshot) bool {
		evaluations++
		if evaluations == 1 {
			b.charge("k1") // the ledger moves while the condition is evaluated
		}
		return true
	})
	if evaluations != 2 {
		t.Errorf("evaluated %d times, want 2", evaluations)
	}
}

func TestResetEmptiesAllButWhatRuns(t *testing.T) {
	b := setup(t, Options{Services: map[string]Behaviour{Bookings: {Keys: Ignore}}})
	b.charge("k1")
	b.script(Fault{Kind: ErrorBefore, Reference: "never"})
	release := b.Hold(Charges, "runs", BeforeEffect)
	defer release()
	running := async(func() reply { return b.charge("runs") })
	b.await("held", func(v Snapshot) bool { return v.Held("", "") == 1 })

	if err := b.Reset(); err != nil {
		t.Fatal(err)
	}
	s := b.Summary()
	if s.Services[Charges] != (Totals{}) || len(s.FaultsFired) != 0 || len(b.Effects("")) != 0 {
		t.Errorf("after reset %+v", s)
	}
	b.wantStatus(b.charge("never"), http.StatusCreated) // the script is gone
	fresh := b.charge("k1")                             // the key is forgotten
	if fresh.header.Get("Idempotent-Replayed") != "" {
		t.Error("an answer survived the reset")
	}
	b.wantStatus(b.charge("runs"), http.StatusConflict) // but not that of a running request
	release()
	b.wantStatus(<-running, http.StatusCreated)
	b.wantCount(Charges, "runs", 1)
	b.wantStatus(b.post(b.ctx, Bookings, "", `{"reference":"k"}`), http.StatusCreated) // behaviour stays
	b.await("nothing held", func(v Snapshot) bool { return v.Held("", "") == 0 })
}

func TestJournalOutlivesTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	first := setup(t, Options{Journal: path})
	made := first.charge("k1")
	if code, text, err := first.mail("r1"); code != 250 {
		t.Fatal(code, text, err)
	}
	// A copy taken now is what kill -9 leaves; the torn line is an effect that was never
	// answered.
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	killed := filepath.Join(t.TempDir(), "killed")
	if err := os.WriteFile(killed, append(data, `{"effect":{"seq":3,`...), 0o600); err != nil {
		t.Fatal(err)
	}
	effects, err := ReadJournal(killed)
	if err != nil || len(effects) != 2 || effects[0].Field("amount") != "24000" || effects[1].Mail.Body != "Thank you.\r\n.dot\r\n" {
		t.Errorf("read %+v (%v)", effects, err)
	}

	s, err := Start(first.ctx, Options{Journal: killed})
	if err != nil {
		t.Fatal(err)
	}
	second := &bundle{s, t, first.ctx, first.client}
	second.wantCount(Charges, "k1", 1)
	second.wantCount(Mail, "r1", 1)
	again := second.charge("k1")
	if again.text != made.text || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("made %s, again %s", made.text, again.text)
	}
	second.wantStatus(second.post(first.ctx, Charges, "k1", `{"amount":1}`), http.StatusUnprocessableEntity)
	second.charge("k2")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	effects, err = ReadJournal(killed)
	if err != nil || len(effects) != 3 || effects[2].Reference != "k2" || effects[2].Seq != 3 {
		t.Errorf("read %+v (%v)", effects, err)
	}
}

func TestResetEmptiesTheJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	b := setup(t, Options{Journal: path})
	b.charge("k1")
	if err := b.Reset(); err != nil {
		t.Fatal(err)
	}
	b.charge("k2")
	effects, err := ReadJournal(path)
	if err != nil || len(effects) != 1 || effects[0].Reference != "k2" {
		t.Errorf("read %+v (%v)", effects, err)
	}
}

func TestUnusableOptionsAreErrors(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("what\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, o := range map[string]Options{
		"behaviour": {Services: map[string]Behaviour{"fax": {}}},
		"journal":   {Journal: bad},
		"http":      {HTTPAddr: taken.Addr().String()},
		"smtp":      {SMTPAddr: taken.Addr().String()},
	} {
		if s, err := Start(context.Background(), o); err == nil {
			t.Errorf("%s: started", name)
			_ = s.Close()
		}
	}
	if effects, err := ReadJournal(filepath.Join(t.TempDir(), "absent")); err != nil || len(effects) != 0 {
		t.Errorf("absent journal: %v %v", effects, err)
	}
}

func TestRunPrintsItsAddressesAndStopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	ended := async(func() error { return Run(ctx, Options{}, w) })
	line, err := bufio.NewReader(r).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var addrs map[string]string
	if err := json.Unmarshal(line, &addrs); err != nil {
		t.Fatal(err)
	}
	if _, err := NewClient(addrs["http"]).Summary(ctx); err != nil {
		t.Error(err)
	}
	conn, err := net.Dial("tcp", addrs["smtp"])
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
