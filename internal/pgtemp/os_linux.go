package pgtemp

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

const hasDeathSignal = true

func setDeathSignal(attr *syscall.SysProcAttr) { attr.Pdeathsig = sigImmediate }

// isPostmaster says whether pid is a postmaster on data. A process that has ended and
// is not waited for yet has no command line, and does not count.
func isPostmaster(pid int, data string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	args := bytes.Split(b, []byte{0})
	return filepath.Base(string(args[0])) == "postgres" &&
		slices.ContainsFunc(args, func(arg []byte) bool { return string(arg) == data })
}
