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

const minRAM = 4 << 30 // bytes; containers mostly have far less there, and disk instead

// ramDir is a directory in memory with room for databases, or "". Making the 300 files
// of a database there takes a tenth of the time or less.
func ramDir() string {
	const dir, tmpfs = "/dev/shm", 0x01021994
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil || int64(st.Type) != tmpfs || st.Bavail*uint64(st.Bsize) < minRAM {
		return ""
	}
	return dir
}

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
