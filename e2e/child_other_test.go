//go:build !linux

package e2e_test

import "syscall"

// childAttributes keep an interrupt on the terminal from reaching children directly.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
