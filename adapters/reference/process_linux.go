package reference

import "syscall"

// processAttributes puts a worker into a process group of its own, so that a
// Ctrl-C reaches the harness alone, which ends the workers in good order. When
// the harness dies, a worker that a fault had stopped is woken, finds its
// standard input closed and ends.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGCONT}
}
