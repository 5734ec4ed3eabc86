//go:build !linux

package reference

import "syscall"

// processAttributes puts a worker into a process group of its own, so that a
// Ctrl-C reaches the harness alone, which ends the workers in good order.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
