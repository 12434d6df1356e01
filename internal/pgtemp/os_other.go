//go:build !unix

package pgtemp

import (
	"errors"
	"os"
	"syscall"
)

// This system has no private Postgres; Start says so. The rest only has to compile.
const supported = false

var (
	sigFast      = os.Interrupt
	sigImmediate = os.Kill

	errLocked = errors.New("locked by another process")
)

type account struct {
	name     string
	uid, gid int
}

func (*account) barredAt(string) string               { return "" }
func serverAccount() (*account, error)                { return nil, errors.ErrUnsupported }
func ownerAccount(string, *account) (*account, error) { return nil, errors.ErrUnsupported }
func serverAttr(*account) *syscall.SysProcAttr        { return nil }
func lockFile(string) (*os.File, error)               { return nil, errors.ErrUnsupported }
func relock(string) (*os.File, error)                 { return nil, errors.ErrUnsupported }
func ownDirectory(string) bool                        { return false }
func processAlive(int) bool                           { return false }
func signalQuit(int) error                            { return errors.ErrUnsupported }
func isPostmaster(int, string) bool                   { return false }
func ramDir() string                                  { return "" }
