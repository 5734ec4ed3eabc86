package launch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// A Member is one process of a worker.
type Member struct {
	PID     int
	Parent  int
	Session int
	Name    string // the command's name as the kernel has it, at most 15 bytes
	started uint64 // in clock ticks since the machine started: tells it from a later process with its id
	ended   bool   // it has ended, and nobody has asked how
}

// String is the process as errors name it.
func (m Member) String() string { return fmt.Sprintf("%d (%s)", m.PID, m.Name) }

// lives says whether the process is still there and has not ended.
func (m Member) lives() bool {
	now, ok := readMember(m.PID)
	return ok && now.started == m.started && !now.ended
}

func (m Member) signal(sig syscall.Signal) error {
	if !m.lives() {
		return nil
	}
	if err := syscall.Kill(m.PID, sig); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("send %v to process %v: %w", sig, m, err)
	}
	return nil
}

// readMember reads /proc/PID/stat.
func readMember(pid int) (Member, bool) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return Member{}, false
	}
	return parseStat(pid, data)
}

// parseStat takes the line of /proc/PID/stat apart. The name may hold anything, also
// parentheses; what comes behind the last of them is numbers.
func parseStat(pid int, data []byte) (Member, bool) {
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 0 || end < open {
		return Member{}, false
	}
	f := bytes.Fields(data[end+1:]) // state, parent, group, session, … the 20th is the start time
	if len(f) < 20 {
		return Member{}, false
	}
	m := Member{PID: pid, Name: string(data[open+1 : end])}
	var err [3]error
	m.Parent, err[0] = strconv.Atoi(string(f[1]))
	m.Session, err[1] = strconv.Atoi(string(f[3]))
	m.started, err[2] = strconv.ParseUint(string(f[19]), 10, 64)
	m.ended = f[0][0] == 'Z' || f[0][0] == 'X'
	return m, err == [3]error{}
}

// processes are all processes of the machine that have not ended; none without /proc.
func processes() []Member {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []Member
	for _, name := range names {
		pid, err := strconv.Atoi(name.Name())
		if err != nil {
			continue
		}
		if m, ok := readMember(pid); ok && !m.ended {
			out = append(out, m)
		}
	}
	return out
}

// family picks the processes of one worker from all: those below its guard, those of
// the session of its main process, and those below these; without the guard. They
// are in the order of their ids. A main of 0 is one that has ended; 0 is never taken
// for a process, although the kernel's own have it as parent and session.
func family(all []Member, guard, main int) []Member {
	if guard <= 1 {
		return nil
	}
	in := map[int]bool{guard: true}
	if main > 1 {
		in[main] = true
	}
	for again := true; again; {
		again = false
		for _, m := range all {
			if !in[m.PID] && (in[m.Parent] || main > 1 && m.Session == main) {
				in[m.PID], again = true, true
			}
		}
	}
	out := slices.DeleteFunc(slices.Clone(all), func(m Member) bool { return m.PID == guard || !in[m.PID] })
	slices.SortFunc(out, func(a, b Member) int { return a.PID - b.PID })
	return out
}
