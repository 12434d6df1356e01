package pgtemp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	tempPrefix  = "outbox-postgres-"
	lockName    = "owner.lock"
	goneTimeout = 10 * time.Second // for a server whose owner has just died to go, too
)

// home is a directory with a cluster in it, locked by this process.
type home struct {
	dir   string
	temp  bool
	lock  *os.File
	acct  *account // who runs the server; nil for this process's own user
	major int      // version of the cluster in it; 0 when there is none yet
}

func (h *home) data() string { return filepath.Join(h.dir, "data") }

// close lets go of the directory, and removes it if it is temporary. The lock goes
// last, so that nobody else clears the directory at the same time.
func (h *home) close() error {
	var err error
	if h.temp {
		// The last processes of a killed server may still write for a moment.
		waitFor(goneTimeout, func() bool {
			err = remove(h.dir)
			return err == nil
		})
	}
	return errors.Join(err, h.lock.Close())
}

func openHome(o Options, acct *account, log *slog.Logger) (*home, error) {
	if o.Dir != "" {
		return keptHome(o.Dir, acct)
	}
	tmp, ram := os.TempDir(), ramDir()
	sweep(tmp, log)
	if ram != "" {
		sweep(ram, log)
		if o.Fast && os.Getenv("TMPDIR") == "" {
			tmp = ram
		}
	}
	return tempHome(tmp, acct)
}

func tempHome(parent string, acct *account) (_ *home, err error) {
	dir, err := os.MkdirTemp(parent, tempPrefix)
	if err != nil {
		return nil, err
	}
	h := &home{dir: dir, temp: true, acct: acct}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	// data_directory is reported without symbolic links.
	if h.dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	// The lock file appears under its name when it is locked already, so a sweep
	// never takes a directory in the making for an abandoned one.
	tmp := filepath.Join(h.dir, lockName+".new")
	if h.lock, err = lockFile(tmp); err != nil {
		return nil, err
	}
	if err := os.Rename(tmp, filepath.Join(h.dir, lockName)); err != nil {
		return nil, errors.Join(err, h.lock.Close())
	}
	if err := errors.Join(os.Chmod(h.dir, dirMode(acct)), h.admit()); err != nil {
		return nil, errors.Join(err, h.lock.Close())
	}
	return h, nil
}

func keptHome(dir string, acct *account) (_ *home, err error) {
	if err := makeKept(dir, acct); err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, "PG_VERSION")); err == nil {
		return nil, fmt.Errorf("%s is the data directory of another Postgres: choose an empty directory", dir)
	}
	h := &home{dir: dir, acct: acct}
	h.lock, err = lockFile(filepath.Join(dir, lockName))
	if errors.Is(err, errLocked) {
		return nil, h.inUse()
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.lock.Close())
		}
	}()
	if err := h.inspect(); err != nil {
		return nil, err
	}
	if err := h.admit(); err != nil {
		return nil, err
	}
	return h, nil
}

// makeKept makes a directory that does not exist; one that does keeps its mode.
func makeKept(dir string, acct *account) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.MkdirAll(dir, dirMode(acct))
}

// dirMode lets the account that runs the server through.
func dirMode(acct *account) os.FileMode {
	if acct == nil {
		return 0o700
	}
	return 0o711
}

func (h *home) inUse() error {
	owner, _ := os.ReadFile(filepath.Join(h.dir, lockName))
	if pid := postmasterPID(h.data()); pid != 0 {
		return fmt.Errorf("%s is in use: process %s runs a Postgres in it (pid %d); stop that first or choose another directory",
			h.dir, strings.TrimSpace(string(owner)), pid)
	}
	return fmt.Errorf("%s is in use: process %s is starting or stopping a Postgres in it; stop that first or choose another directory",
		h.dir, strings.TrimSpace(string(owner)))
}

// inspect learns the version and the owner of a cluster that exists.
func (h *home) inspect() error {
	b, err := os.ReadFile(filepath.Join(h.data(), "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(h.data()); err == nil {
			return fmt.Errorf("%s exists but is not a Postgres data directory", h.data())
		}
		return nil
	}
	if err != nil {
		return err
	}
	if h.major, err = strconv.Atoi(strings.TrimSpace(string(b))); err != nil {
		return fmt.Errorf("%s: unreadable version: %w", h.data(), err)
	}
	h.acct, err = ownerAccount(h.data(), h.acct)
	return err
}

// admit makes sure that the account that runs the server can enter the directory.
func (h *home) admit() error {
	if h.acct == nil {
		return nil
	}
	at := h.acct.barredAt(h.dir)
	if at == "" {
		return nil
	}
	other := "choose another directory"
	if h.temp {
		other = "set TMPDIR to another one"
	}
	return fmt.Errorf("running as root, so Postgres has to run as user %s, which cannot enter %s on the way to %s: allow that (chmod o+x %s) or %s",
		h.acct.name, at, h.dir, at, other)
}

// initdb makes the cluster under another name first: an interrupted one is never
// taken for a whole one.
func (h *home) initdb(ctx context.Context, bin Binaries, fast bool) error {
	dir := h.data() + ".new"
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if h.acct != nil {
		if err := os.Chown(dir, h.acct.uid, h.acct.gid); err != nil {
			return err
		}
	}
	args := []string{"-D", dir, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale"}
	if fast || h.temp {
		args = append(args, "-N") // no fsync
	}
	out, err := runTool(ctx, h.acct, h.dir, bin.path("initdb"), args...)
	if err != nil {
		return fmt.Errorf("initdb of Postgres %s: %w; it said:\n%s", bin.Version, err, tail(out))
	}
	h.major = bin.Major
	return os.Rename(dir, h.data())
}

// awaitGone waits for the server that a process now dead has left in data: on Linux it
// is on its way out. A process number that belongs to somebody else by now, as happens
// when a container starts again, does not count.
func awaitGone(data string, timeout time.Duration) error {
	pid := postmasterPID(data)
	if pid == 0 || !processAlive(pid) {
		return nil
	}
	if !isPostmaster(pid, data) {
		return disownPID(data)
	}
	if waitFor(timeout, func() bool { return !isPostmaster(pid, data) }) {
		return nil
	}
	return fmt.Errorf("a Postgres (pid %d) is still running in %s: stop it with kill -INT %d", pid, data, pid)
}

// disownPID puts this process's number into postmaster.pid. Postgres takes the number
// of its parent for a leftover of an earlier boot, yet still makes sure that nobody
// uses the shared memory named there; removing the file would skip that.
func disownPID(data string) error {
	name := filepath.Join(data, "postmaster.pid")
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(b), "\n")
	return os.WriteFile(name, []byte(strconv.Itoa(os.Getpid())+"\n"+rest), 0o600)
}

// postmasterPID reads the process number from postmaster.pid; 0 when there is none.
func postmasterPID(data string) int {
	b, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), "\n")
	pid, _ := strconv.Atoi(strings.TrimSpace(first))
	return max(pid, 0) // negative for a single-user server
}

// sweep removes the temporary directories whose owners are gone, and stops the servers
// they left. It touches only directories of this user with a lock file that it can
// lock, and reports problems to the log alone: a leftover never fails a start.
func sweep(parent string, log *slog.Logger) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		log.Debug("temporary directory not swept", "err", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		dir := filepath.Join(parent, e.Name())
		if err := sweepOne(dir); err != nil {
			log.Debug("leftover directory not removed", "dir", dir, "err", err)
		}
	}
}

func sweepOne(dir string) error {
	if !ownDirectory(dir) {
		return nil
	}
	lock, err := relock(filepath.Join(dir, lockName))
	if errors.Is(err, errLocked) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	data := filepath.Join(real, "data")
	if pid := postmasterPID(data); pid != 0 && isPostmaster(pid, data) {
		if err := signalQuit(pid); err != nil {
			return err
		}
		if !waitFor(goneTimeout, func() bool { return !isPostmaster(pid, data) }) {
			return fmt.Errorf("postgres with pid %d does not go", pid)
		}
	}
	return remove(dir)
}

// remove takes the lock file last: while something is left, a sweep can find it.
func remove(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != lockName {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// waitFor asks cond until it holds or the time is up.
func waitFor(timeout time.Duration, cond func() bool) bool {
	deadline := time.Now().Add(timeout)
	for !cond() {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(readyPoll)
	}
	return true
}
