//go:build !linux

package engines

import "syscall"

// childAttributes gives a child its own process group.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
