//go:build !linux

package launch

import "syscall"

// serverAttributes gives the server a session of its own, so that a Ctrl-C reaches
// this program alone. Its input ends with this program, and it with that.
func serverAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
