package launch

import "syscall"

// serverAttributes gives the server a session of its own, so that a Ctrl-C reaches
// this program alone, and ends it with this program. Its guards then see it gone.
func serverAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}
