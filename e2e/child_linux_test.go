package e2e_test

import "syscall"

// childAttributes make a child end with the tests even if those are killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
