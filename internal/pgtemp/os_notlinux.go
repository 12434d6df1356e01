//go:build unix && !linux

package pgtemp

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// A server whose owner is killed goes on here until the next Start finds it.
const hasDeathSignal = false

func setDeathSignal(*syscall.SysProcAttr) {}

func ramDir() string { return "" }

// isPostmaster says whether pid is a postmaster on data.
func isPostmaster(pid int, data string) bool {
	out, err := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.Contains(string(out), "postgres") && strings.Contains(string(out), data)
}
