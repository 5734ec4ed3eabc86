package harness

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"conform/adapters/engines"
	"conform/traces"
)

// Check is one thing that a run needs of this machine.
type Check struct {
	Name  string
	OK    bool
	Found string
	Try   string // what to do where it is not OK
	// Optional: a run does without it, and what is then left out.
	Optional string
}

// Doctor looks whether this machine is ready: by doing, where that is cheap.
func Doctor(ctx context.Context) []Check {
	return []Check{
		checkCores(), checkExecutable(), checkLoopback(ctx), checkClock(), checkFolder(),
		checkEngines(),
		checkTool("docker", "needed by later versions for image-based stacks"), checkTool("python3", "needed to install real engines"),
		checkTool("spin", "needed by later versions for the Promela model"),
	}
}

func checkCores() Check {
	return Check{Name: "cores", OK: true, Found: fmt.Sprintf("%d, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)}
}

func checkExecutable() Check {
	c := Check{Name: "worker processes", Try: "run conform from a file system that allows execution"}
	exe, err := os.Executable()
	if err != nil {
		c.Found = err.Error()
		return c
	}
	c.OK, c.Found = true, "this program executes itself"
	if _, err := os.Stat(exe); err != nil {
		c.OK, c.Found = false, err.Error()
	}
	return c
}

func checkLoopback(ctx context.Context) Check {
	c := Check{Name: "loopback sockets", Try: "allow TCP on 127.0.0.1"}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.Found = err.Error()
		return c
	}
	defer ln.Close()
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "tcp", ln.Addr().String())
	if err != nil {
		c.Found = err.Error()
		return c
	}
	conn.Close()
	c.OK, c.Found = true, "listen and connect on 127.0.0.1"
	return c
}

func checkClock() Check {
	now, name := traces.Monotonic()
	a := now()
	b := now()
	return Check{Name: "monotonic clock", OK: b >= a && a > 0, Found: name, Try: "a kernel with CLOCK_MONOTONIC"}
}

func checkFolder() Check {
	c := Check{Name: "run folder", Try: "change to a writable folder, or give run --out"}
	f, err := os.CreateTemp(".", ".conform-doctor-*")
	if err != nil {
		c.Found = unwrapPath(err).Error()
		return c
	}
	f.Close()
	if err := os.Remove(f.Name()); err != nil {
		c.Found = err.Error()
		return c
	}
	c.OK, c.Found = true, "the present folder is writable"
	return c
}

// checkEngines tells which builds of real engines are installed. Those that do not
// work any more are named too.
func checkEngines() Check {
	c := Check{
		Name: "engines", Optional: "needed to drive a real engine: conform engine list shows which can be installed",
		Try: "conform engine install",
	}
	shelf, err := engines.Open(os.Getenv)
	if err != nil {
		c.Found = err.Error()
		return c
	}
	all, err := shelf.List()
	if err != nil {
		c.Found = err.Error()
		return c
	}
	var ready, broken []string
	for _, l := range all {
		switch name := l.Spec + " (" + l.Device + ")"; l.State {
		case engines.Installed:
			ready = append(ready, name)
		case engines.Broken, engines.Partial, engines.Outdated:
			broken = append(broken, name+" "+l.State)
		}
	}
	c.OK, c.Found = len(ready) > 0, "none is installed"
	if c.OK {
		c.Found = strings.Join(ready, ", ")
	}
	if len(broken) > 0 {
		c.Found += "; " + strings.Join(broken, ", ")
	}
	return c
}

// checkTool looks for a program that a run does without.
func checkTool(name, optional string) Check {
	c := Check{Name: name, Optional: optional, Try: "install " + name}
	path, err := exec.LookPath(name)
	if err != nil {
		c.Found = "not found"
		return c
	}
	c.OK, c.Found = true, strings.TrimSpace(path)
	return c
}
