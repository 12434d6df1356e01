//go:build unix

package pgtemp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const helperEnv = "PGTEMP_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		os.Exit(helper())
	}
	os.Exit(m.Run())
}

// helper is a process that starts a server and waits to be killed.
func helper() int {
	s, err := Start(context.Background(), Options{Fast: true})
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	fmt.Println(s.home.dir)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// reachableDir is a t.TempDir that the server's account can enter.
func reachableDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgtemp-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func startServer(t *testing.T, o Options) *Server {
	t.Helper()
	o.Fast = true
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// mustFail starts a server that cannot start, and wants all of the words in the error.
func mustFail(t *testing.T, o Options, words ...string) {
	t.Helper()
	s, err := Start(t.Context(), o)
	if err == nil {
		_ = s.Stop()
		t.Fatal("the server started")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not mention %q:\n%v", w, err)
		}
	}
}

func queryRow(t *testing.T, s *Server, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	var v string
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestStopLeavesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, Options{Settings: map[string]string{"work_mem": "5MB", "port": "1", "listen_addresses": "*"}})
	if got := queryRow(t, s, "SHOW work_mem"); got != "5MB" {
		t.Errorf("work_mem is %s", got)
	}
	if got := queryRow(t, s, "SHOW listen_addresses"); got != "127.0.0.1" {
		t.Errorf("listens on %s", got)
	}
	if got := queryRow(t, s, "SHOW server_version"); !strings.HasPrefix(got, s.Version()) {
		t.Errorf("Version is %s, the server says %s", s.Version(), got)
	}
	pid := postmasterPID(s.home.data())
	if !isPostmaster(pid, s.home.data()) {
		t.Fatalf("%d is not a postmaster", pid)
	}
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if processAlive(pid) {
		t.Errorf("the server still runs as %d", pid)
	}
	if _, err := os.Stat(s.home.dir); !os.IsNotExist(err) {
		t.Errorf("the temporary directory is still there: %v", err)
	}
	if err := s.Resume(t.Context()); err == nil {
		t.Error("a stopped server was resumed")
	}
}

func TestDirKeepsData(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(reachableDir(t), "new", "pg")
	s := startServer(t, Options{Dir: dir})
	url, major := s.URL(), s.Major()
	exec := func(sql string) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), s.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.WithoutCancel(t.Context()))
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	count := func(want string) {
		t.Helper()
		if got := queryRow(t, s, "SELECT count(*)::text FROM kept"); got != want {
			t.Errorf("%s rows, want %s", got, want)
		}
	}
	exec("CREATE TABLE kept AS SELECT 1")
	for _, mode := range []Mode{ModeImmediate, ModeFast} {
		if err := s.Restart(t.Context(), mode); err != nil {
			t.Fatal(err)
		}
		if s.URL() != url {
			t.Errorf("the URL changed from %s to %s", url, s.URL())
		}
		count("1")
	}
	exec("INSERT INTO kept VALUES (2)")
	if err := s.Halt(ModeImmediate); err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.Connect(t.Context(), url); err == nil {
		t.Error("a halted server answers")
	}
	for range 2 {
		if err := s.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	count("2")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	s = startServer(t, Options{Dir: dir}) // the version follows the data
	if s.Major() != major {
		t.Errorf("version %d on data of %d", s.Major(), major)
	}
	count("2")
}

// A session that computes does not notice that its postmaster is gone, and keeps the
// next one out until it ends.
func TestResumeAfterPostmasterWasKilled(t *testing.T) {
	t.Parallel()
	s := startServer(t, Options{})
	conn, err := pgx.Connect(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		_, _ = conn.Exec(context.Background(), "SELECT count(*) FROM generate_series(1, 5000000)")
		_ = conn.Close(context.Background())
	}()
	defer func() { <-cut }()
	if !waitFor(10*time.Second, func() bool {
		return queryRow(t, s, "SELECT count(*)::text FROM pg_stat_activity WHERE query LIKE '%series%' AND pid <> pg_backend_pid() AND state = 'active'") == "1"
	}) {
		t.Fatal("the session does not compute")
	}
	if err := s.proc.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.proc.done
	if err := s.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	queryRow(t, s, "SELECT 'ok'")
}

// The kernel's death signal follows the thread that started the server.
func TestServerOutlivesThreadThatAskedForIt(t *testing.T) {
	t.Parallel()
	var s *Server
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		s, err = Start(t.Context(), Options{Fast: true})
	}()
	<-done
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	var wg sync.WaitGroup
	for range 100 { // end some more threads
		wg.Go(runtime.LockOSThread)
	}
	wg.Wait()
	queryRow(t, s, "SELECT 'ok'")
	if err := s.Halt(ModeFast); err != nil {
		t.Fatal(err)
	}
	if log := s.Log(); !strings.Contains(log, "received fast shutdown") || strings.Contains(log, "received immediate shutdown") {
		t.Errorf("the server went down in another way:\n%s", log)
	}
}

func TestDirInUse(t *testing.T) {
	t.Parallel()
	s := startServer(t, Options{Dir: reachableDir(t)})
	pid := strconv.Itoa(postmasterPID(s.home.data()))
	mustFail(t, Options{Dir: s.home.dir}, "in use", pid, strconv.Itoa(os.Getpid()))
	// One whose owner does not hold the lock any more.
	err := awaitGone(s.home.data(), 0)
	if err == nil || !strings.Contains(err.Error(), "pid "+pid) {
		t.Errorf("a server left running is not reported: %v", err)
	}
	queryRow(t, s, "SELECT 'still fine'")
}

func TestStalePIDOfAnotherProgram(t *testing.T) {
	t.Parallel()
	dir := reachableDir(t)
	s := startServer(t, Options{Dir: dir})
	pidFile := filepath.Join(s.home.data(), "postmaster.pid")
	left, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	// Postgres takes a live process of its own user for a server, whatever it is.
	other := exec.Command("cat")
	other.SysProcAttr = serverAttr(s.home.acct)
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer in.Close()
	_, rest, _ := strings.Cut(string(left), "\n")
	if err := os.WriteFile(pidFile, []byte(strconv.Itoa(other.Process.Pid)+"\n"+rest), 0o600); err != nil {
		t.Fatal(err)
	}
	if s.home.acct != nil {
		if err := os.Chown(pidFile, s.home.acct.uid, s.home.acct.gid); err != nil {
			t.Fatal(err)
		}
	}
	startServer(t, Options{Dir: dir})
}

func TestDirOfAnotherVersion(t *testing.T) {
	t.Parallel()
	dir := reachableDir(t)
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte("14\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if acct, err := serverAccount(); err != nil {
		t.Fatal(err)
	} else if acct != nil {
		if err := os.Chown(data, acct.uid, acct.gid); err != nil {
			t.Fatal(err)
		}
	}
	mustFail(t, Options{Dir: dir, Version: 15}, "Postgres 14", "version 15", "another directory")
	mustFail(t, Options{Dir: data}, "another Postgres")
}

func TestFailedStartTellsTheLog(t *testing.T) {
	tmp := reachableDir(t)
	t.Setenv("TMPDIR", tmp)
	mustFail(t, Options{Settings: map[string]string{"work_men": "5MB"}}, "work_men", "unrecognized configuration parameter")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Options{}); err == nil {
		t.Error("started though its context was over")
	}
	wantEmpty(t, tmp)
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestKilledOwner(t *testing.T) {
	t.Parallel()
	tmp := reachableDir(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"=1", "TMPDIR="+tmp)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.HasPrefix(line, "error") {
		t.Fatal(line, err)
	}
	data := filepath.Join(strings.TrimSpace(line), "data")
	pid := postmasterPID(data)
	log := startLog(t)
	sweep(tmp, log)
	if !isPostmaster(pid, data) {
		t.Fatal("the server of a live owner does not run, or was swept away")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if hasDeathSignal && !waitFor(goneTimeout, func() bool { return !isPostmaster(pid, data) }) {
		t.Errorf("the server (pid %d) has outlived its owner", pid)
	}
	sweep(tmp, log)
	if isPostmaster(pid, data) {
		t.Errorf("the server (pid %d) was not swept away", pid)
	}
	wantEmpty(t, tmp)
}

func TestSweepTouchesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	tmp := reachableDir(t)
	for _, name := range []string{tempPrefix + "without-lock", "unrelated"} {
		if err := os.Mkdir(filepath.Join(tmp, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(tmp, "unrelated", lockName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("unrelated", filepath.Join(tmp, tempPrefix+"link")); err != nil {
		t.Fatal(err)
	}
	sweep(tmp, startLog(t))
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) != 3 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestRootIsToldWhatBarsTheServer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root runs the server as somebody else")
	}
	tmp := t.TempDir() // below a directory of mode 0700
	mustFail(t, Options{Dir: filepath.Join(tmp, "pg")}, "cannot enter "+filepath.Dir(tmp), "chmod o+x", "another directory")
	t.Setenv("TMPDIR", tmp)
	mustFail(t, Options{}, "cannot enter "+filepath.Dir(tmp), "TMPDIR")
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
