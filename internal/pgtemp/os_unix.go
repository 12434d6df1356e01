//go:build unix

package pgtemp

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

const supported = true

const (
	sigFast      = syscall.SIGINT
	sigImmediate = syscall.SIGQUIT
)

// account is the user that runs the server when this process is root's.
type account struct {
	name     string
	uid, gid int
}

// serverAccount returns nil when this process can run the server itself.
func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uerr := strconv.Atoi(u.Uid)
		gid, gerr := strconv.Atoi(u.Gid)
		if uerr == nil && gerr == nil && uid != 0 {
			return &account{name, uid, gid}, nil
		}
	}
	return nil, errors.New("Postgres refuses to run as root, and this system has neither a user postgres nor a user nobody: create one or run as another user")
}

// ownerAccount is the account for a cluster that exists: its owner's, since Postgres
// accepts no other.
func ownerAccount(data string, acct *account) (*account, error) {
	fi, err := os.Stat(data)
	if err != nil {
		return nil, err
	}
	st := fi.Sys().(*syscall.Stat_t)
	uid, gid := int(st.Uid), int(st.Gid)
	switch {
	case uid == os.Geteuid() && uid != 0:
		return nil, nil
	case acct == nil:
		return nil, fmt.Errorf("%s belongs to user %d: run as that user or choose another directory", data, uid)
	case uid == 0:
		return nil, fmt.Errorf("%s belongs to root, as whom Postgres refuses to run: give it to user %s (chown -R) or choose another directory", data, acct.name)
	case uid == acct.uid:
		return acct, nil
	}
	return &account{strconv.Itoa(uid), uid, gid}, nil
}

// barredAt returns the first directory on the way to dir, dir included, that the
// account may not enter; "" when it may enter all.
func (a *account) barredAt(dir string) string {
	if parent := filepath.Dir(dir); parent != dir {
		if at := a.barredAt(parent); at != "" {
			return at
		}
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return dir
	}
	st := fi.Sys().(*syscall.Stat_t)
	bit := fi.Mode().Perm()
	switch {
	case int(st.Uid) == a.uid:
		bit >>= 6
	case int(st.Gid) == a.gid:
		bit >>= 3
	}
	if bit&1 == 0 {
		return dir
	}
	return ""
}

// serverAttr sets the user, the death signal where there is one, and a process group
// of its own: the terminal's Ctrl-C is for us, who then stop the server in order.
func serverAttr(acct *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if acct != nil {
		attr.Credential = &syscall.Credential{Uid: uint32(acct.uid), Gid: uint32(acct.gid)}
	}
	setDeathSignal(attr)
	return attr
}

var errLocked = errors.New("locked by another process")

// lockFile makes the file if need be, locks it and writes our process number into it.
// The lock lasts until the file is closed, at the latest when this process ends.
func lockFile(name string) (*os.File, error) {
	f, err := openLocked(name, os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if _, err := fmt.Fprintln(f, os.Getpid()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// relock locks a file that exists.
func relock(name string) (*os.File, error) { return openLocked(name, 0) }

func openLocked(name string, flag int) (*os.File, error) {
	f, err := os.OpenFile(name, flag|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errLocked
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func ownDirectory(dir string) bool {
	fi, err := os.Lstat(dir)
	return err == nil && fi.IsDir() && int(fi.Sys().(*syscall.Stat_t).Uid) == os.Geteuid()
}

func processAlive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

func signalQuit(pid int) error {
	if err := syscall.Kill(pid, sigImmediate); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
