//go:build !linux

package children

import "syscall"

// childAttributes keep an interrupt on the terminal from reaching children directly.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
