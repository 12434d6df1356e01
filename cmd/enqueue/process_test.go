package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/internal/clitest"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// limit bounds what should take milliseconds.
const limit = 30 * time.Second

// process is enqueue, running.
type process struct {
	*exec.Cmd
	t      *testing.T
	stdin  io.WriteCloser
	stdout *bufio.Scanner
	stderr strings.Builder
}

func start(t *testing.T, url string, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	p := &process{Cmd: exec.CommandContext(ctx, "enqueue", append([]string{"-o", "json"}, args...)...), t: t}
	p.Env = append(os.Environ(), "DATABASE_URL="+url)
	p.Cmd.Stderr = &p.stderr
	var err error
	if p.stdin, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdout = bufio.NewScanner(out)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// write sends lines for orders of tenant acme.
func (p *process) write(orders ...string) {
	p.t.Helper()
	for _, id := range orders {
		if _, err := fmt.Fprintf(p.stdin, `{"tenant":"acme","operation":"charge_card.v1","payload":{"order_id":%q,"amount":1}}`+"\n", id); err != nil {
			p.t.Fatal(err)
		}
	}
}

// answer reads the next line of output.
func (p *process) answer() (res result) {
	p.t.Helper()
	if !p.stdout.Scan() {
		p.t.Fatalf("no answer: %v; %s", p.stdout.Err(), p.stderr.String())
	}
	if err := json.Unmarshal(p.stdout.Bytes(), &res); err != nil {
		p.t.Fatal(err)
	}
	return res
}

// interrupt presses Ctrl-C and returns the exit code, with what stands on stderr.
func (p *process) interrupt() (code int, stderr string) {
	p.t.Helper()
	if err := p.Process.Signal(os.Interrupt); err != nil {
		p.t.Fatal(err)
	}
	return p.end()
}

func (p *process) end() (code int, stderr string) {
	for p.stdout.Scan() { // Wait may only follow the last read
	}
	_ = p.Wait() // the code tells
	return p.ProcessState.ExitCode(), p.stderr.String()
}

func connect(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func intents(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM outbox.intents").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestInterruptSaysWhichLineWasTheLast(t *testing.T) {
	t.Parallel()
	url := clitest.Shop(t)
	p := start(t, url, "--ndjson", "-", "--batch", "2")
	p.write("1", "2")
	for want := 1; want <= 2; want++ {
		if res := p.answer(); res.Line != want || res.Kind != outbox.AnswerAccepted {
			t.Fatalf("line %d: %+v", want, res)
		}
	}
	code, stderr := p.interrupt()
	if code != 130 || !strings.Contains(stderr, "interrupted: line 2 was the last one committed") {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	if n := intents(t, connect(t, url)); n != 2 {
		t.Errorf("%d intents, not 2", n)
	}
}

// The second batch waits for a key that somebody else holds. Interrupted there, it is
// undone as a whole.
func TestInterruptLeavesNoHalfBatch(t *testing.T) {
	t.Parallel()
	url := clitest.Shop(t)
	pool := connect(t, url)
	holder, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(context.Background()) }()
	_, err = outbox.Enqueue(t.Context(), holder, outbox.Intent{
		Tenant: "acme", Operation: "charge_card.v1", Payload: map[string]any{"order_id": "held", "amount": 1},
	})
	if err != nil {
		t.Fatal(err)
	}

	p := start(t, url, "--ndjson", "-", "--batch", "2")
	p.write("1", "2", "3", "held")
	p.answer()
	p.answer()
	awaitBlocked(t, pool)
	code, stderr := p.interrupt()
	if code != 130 || !strings.Contains(stderr, "line 2 was the last one committed") {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	if n := intents(t, pool); n != 2 {
		t.Errorf("%d intents, not 2", n)
	}
}

// awaitBlocked waits until a session of enqueue waits for another's transaction.
func awaitBlocked(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for blocked := false; !blocked; {
		err := pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE 'enqueue%' AND wait_event_type = 'Lock')`).Scan(&blocked)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A pipe that gives one line now and then is not held up until a batch is full.
func TestASlowPipeIsAnsweredLineByLine(t *testing.T) {
	t.Parallel()
	p := start(t, clitest.Shop(t), "--ndjson", "-")
	for i, order := range []string{"1", "2"} {
		p.write(order)
		if res := p.answer(); res.Line != i+1 {
			t.Fatalf("%+v", res)
		}
	}
	if err := p.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if code, stderr := p.end(); code != 0 {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
}

func TestThousandsOfLinesWithBadOnesBetween(t *testing.T) {
	t.Parallel()
	url := clitest.Shop(t)
	const lines = 3000
	bad := func(n int) bool { return n%250 == 0 }
	var text strings.Builder
	for n := 1; n <= lines; n++ {
		line := fmt.Sprintf(`{"tenant":"acme","operation":"charge_card.v1","payload":{"order_id":"%d","amount":%d}}`, n, n)
		if bad(n) {
			line = line[:len(line)/2]
		}
		text.WriteString(line + "\n")
	}
	name := filepath.Join(t.TempDir(), "charges.ndjson")
	if err := os.WriteFile(name, []byte(text.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, want := range []outbox.AnswerKind{outbox.AnswerAccepted, outbox.AnswerInFlight} { // the second run records nothing
		p := start(t, url, "--ndjson", name)
		for n := 1; n <= lines; n++ {
			res, expected := p.answer(), want
			if bad(n) {
				expected = outbox.AnswerRefused
			}
			if res.Line != n || res.Kind != expected {
				t.Fatalf("line %d, not %s: %+v", n, expected, res)
			}
		}
		if code, stderr := p.end(); code != 3 {
			t.Fatalf("exit code %d, %s", code, stderr)
		}
		if n := intents(t, connect(t, url)); n != lines-lines/250 {
			t.Fatalf("%d intents", n)
		}
	}
}

// A server that takes the connection and says nothing is given up in time.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	l := listener.Addr().String()
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("database: {connect_timeout: 100ms}"), 0o666); err != nil {
		t.Fatal(err)
	}
	p := start(t, "postgres://u:secret@"+l+"/db", "--tenant", "a", "--operation", "b.v1", "--payload", "{}", "--config", config)
	code, stderr := p.end()
	if code != 1 || !strings.Contains(stderr, "cannot connect to "+l+"/db as u: no answer in 100ms") || strings.Contains(stderr, "secret") {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
}
