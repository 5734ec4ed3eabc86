package fleet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
)

// The range that ports are taken from: above those of well-known services and those
// that Mooncake chooses from by itself, below those that systems hand out for any
// connection or proxy, which could take a port between its choice and its use.
const (
	lowestPort  = 20000
	highestPort = 32000
	maxTries    = 20000
)

// ErrNoPorts is a loopback interface without a free port.
var ErrNoPorts = errors.New("no free port of the loopback interface")

// FreePorts finds n ports of the loopback interface that nobody listens on now. The
// error wraps [ErrNoPorts].
func FreePorts(n int) ([]int, error) {
	low, high := handedOut()
	var got []int
	for range min(100*(n+1), maxTries) {
		if len(got) == n {
			return got, nil
		}
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if port >= low && port <= high || slices.Contains(got, port) {
			continue
		}
		ln, err := net.Listen("tcp", Local(port))
		if err != nil {
			continue
		}
		_ = ln.Close()
		got = append(got, port)
	}
	return nil, fmt.Errorf("%w between %d and %d", ErrNoPorts, lowestPort, highestPort)
}

// Local is a port of the loopback interface as host:port.
func Local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// handedOut is the range of ports that this system hands out by itself, where it lies
// above the lowest that are taken here; else they overlap, and it is taken for empty.
func handedOut() (low, high int) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0, -1
	}
	if n, err := fmt.Sscan(string(b), &low, &high); err != nil || n != 2 || low <= lowestPort+1000 {
		return 0, -1
	}
	return low, high
}
