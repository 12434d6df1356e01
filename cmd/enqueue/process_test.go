package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-worker/outbox-worker/internal/clitest"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// limit bounds what should take milliseconds.
const limit = 2 * time.Minute

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

// hold takes a key and keeps it until the test ends.
func hold(t *testing.T, pool *pgxpool.Pool, order string) {
	t.Helper()
	holder, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Rollback(context.Background()) })
	_, err = outbox.Enqueue(t.Context(), holder, outbox.Intent{
		Tenant: "acme", Operation: "charge_card.v1", Payload: map[string]any{"order_id": order, "amount": 1},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The second batch waits for a key that somebody else holds. However it ends there, it
// is undone as a whole, and the line before it is told.
func TestNoHalfBatchIsLeft(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		claim string
		end   func(t *testing.T, p *process, pool *pgxpool.Pool) (code int, stderr string)
		code  int
	}{
		{"interrupted", func(_ *testing.T, p *process, _ *pgxpool.Pool) (int, string) { return p.interrupt() }, 130},
		{"cut off by the server", func(t *testing.T, p *process, pool *pgxpool.Pool) (int, string) {
			_, err := pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name LIKE 'enqueue%'`)
			if err != nil {
				t.Fatal(err)
			}
			return p.end()
		}, 1},
		{"killed", func(t *testing.T, p *process, _ *pgxpool.Pool) (int, string) {
			if err := p.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_, _ = p.end()
			return 0, "line 2 was the last one committed" // nobody was left to say so
		}, 0},
	} {
		t.Run(test.claim, func(t *testing.T) {
			t.Parallel()
			url := clitest.Shop(t)
			pool := connect(t, url)
			hold(t, pool, "held")
			p := start(t, url, "--ndjson", "-", "--batch", "2")
			p.write("1", "2", "3", "held")
			p.answer()
			p.answer()
			awaitBlocked(t, pool)
			code, stderr := test.end(t, p, pool)
			if code != test.code || !strings.Contains(stderr, "line 2 was the last one committed") {
				t.Fatalf("exit code %d, %s", code, stderr)
			}
			if n := intents(t, pool); n != 2 {
				t.Errorf("%d intents, not 2", n)
			}
		})
	}
}

func TestNowaitIsBusy(t *testing.T) {
	t.Parallel()
	url := clitest.Shop(t)
	hold(t, connect(t, url), "held")
	args := []string{"--tenant", "acme", "--operation", "charge_card.v1", "--payload", `{"order_id":"held","amount":1}`, "--nowait"}
	p := start(t, url, args...)
	if res := p.answer(); res.Kind != outbox.AnswerBusy {
		t.Errorf("%+v", res)
	}
	if code, stderr := p.end(); code != 5 || !strings.Contains(stderr, "ask again with the same key") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// The connection is cut after COMMIT was sent and before it was answered: nobody can
// know, so nobody says. The same lines again bring the truth.
func TestACommitInDoubtIsToldAsSuch(t *testing.T) {
	t.Parallel()
	url := clitest.Shop(t)
	pool := connect(t, url)
	p := start(t, cutAtCommit(t, url), "--ndjson", "-")
	p.write("1", "2")
	if err := p.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	code, stderr := p.end()
	if code != 1 || !strings.Contains(stderr, "whether the lines after it are recorded is not known") || !strings.Contains(stderr, "run the same file again") {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	again := start(t, url, "--ndjson", "-")
	again.write("1", "2")
	if err := again.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if code, stderr := again.end(); code != 0 {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	if n := intents(t, pool); n != 2 {
		t.Errorf("%d intents, not 2", n)
	}
}

// cutAtCommit returns the URL of a proxy that passes a COMMIT on and then hangs up on
// the client.
func cutAtCommit(t *testing.T, url string) string {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	server := net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go relay(client, server)
		}
	}()
	return strings.Replace(url, server, l.Addr().String(), 1)
}

// relay ends with either side; what it returns on the way matters to nobody.
func relay(client net.Conn, address string) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() { _, _ = io.Copy(client, server) }()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if n > 0 && bytes.Contains(buf[:n], []byte("commit\x00")) {
			_ = client.Close() // first, so that no answer gets through
			_, _ = server.Write(buf[:n])
			return
		}
		if _, writeErr := server.Write(buf[:n]); err != nil || writeErr != nil {
			return
		}
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
