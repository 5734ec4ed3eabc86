package faults

// The kinds of faults: the words of `do`.
const (
	DoDelay     = "delay"
	DoHold      = "hold"
	DoDrop      = "drop"
	DoDuplicate = "duplicate"
	DoReorder   = "reorder"
	DoFail      = "fail"
	DoPause     = "pause"
	DoKill      = "kill"
	DoRestart   = "restart"
	DoPartition = "partition"
	DoAbort     = "abort"
	DoLeave     = "leave"
)

// What follows on a fault and is recorded as an event too, under the same rule.
const (
	DoRelease      = "release"       // a hold or reorder ended as the plan says
	DoReleaseLimit = "release-limit" // it ended at its limit
	DoReleaseEnd   = "release-end"   // it ended because the run, or who asked, did
	DoResume       = "resume"        // a paused worker goes on
	DoHeal         = "heal"          // a partition is over
	DoCut          = "cut"           // a partition dropped this message
)

// Fault is the registry entry of one kind of fault.
type Fault struct {
	Name    string // the word of `do`
	Summary string // one line
	Where   string // where it acts
	// Legal says where a real deployment can show it. A violation found by a
	// legal fault is the stack's; what a fault that is not legal brings to light
	// is a matter of robustness.
	Legal string

	kinds    []string // what `when` may be about
	process  bool     // acts beside what passes: on a worker's processes, the network between two, a client
	required []string // fields of a rule
	optional []string
}

// Registry lists the kinds of faults.
func Registry() []Fault {
	messages := []string{KindSignal, KindAccess, KindHTTP}
	anything := []string{KindSignal, KindAccess, KindHTTP, KindEvent}
	return []Fault{
		{
			Name: DoDelay, Summary: "lets it pass after a time", Where: "proxy, failpoint",
			Legal: "accesses and HTTP: always; a signal: with `ordered`, or between connections",
			kinds: messages, optional: []string{"for", "jitter", "ordered"},
		},
		{
			Name: DoHold, Summary: "lets it pass once a named event has been seen", Where: "proxy, failpoint",
			Legal: "accesses and HTTP: always; a signal: with `ordered`, or between connections",
			kinds: messages, required: []string{"until"}, optional: []string{"limit", "ordered"},
		},
		{
			Name: DoDrop, Summary: "it never arrives, and nobody is told", Where: "proxy, failpoint",
			Legal: "HTTP: always (the connection is closed); a signal or an access: never",
			kinds: messages,
		},
		{
			Name: DoDuplicate, Summary: "it arrives again, at once or later", Where: "proxy, failpoint",
			Legal: "HTTP: always (a client's retry); a signal or an access: never",
			kinds: messages, optional: []string{"for", "jitter", "copies", "until", "limit"},
		},
		{
			Name: DoReorder, Summary: "it goes behind the next message of a kind", Where: "proxy",
			Legal: "never within one connection; between connections always",
			kinds: []string{KindSignal}, optional: []string{"behind", "limit"},
		},
		{
			Name: DoFail, Summary: "it ends with an error: a failed access, HTTP 503", Where: "proxy, failpoint",
			Legal: "always",
			kinds: []string{KindAccess, KindHTTP},
		},
		{
			Name: DoPause, Summary: "a worker stands still for a time (SIGSTOP, SIGCONT)", Where: "process",
			Legal: "always",
			kinds: anything, process: true, required: []string{"worker", "for"},
		},
		{
			Name: DoKill, Summary: "a worker ends at once (SIGKILL)", Where: "process",
			Legal: "always",
			kinds: anything, process: true, required: []string{"worker"}, optional: []string{"restart_after"},
		},
		{
			Name: DoRestart, Summary: "a worker is started again, after it was killed if it lives", Where: "process",
			Legal: "always",
			kinds: anything, process: true, required: []string{"worker"}, optional: []string{"restart_after"},
		},
		{
			Name: DoPartition, Summary: "nothing passes between two for a time; then their connections break", Where: "proxy, failpoint",
			Legal: "always",
			kinds: anything, process: true, required: []string{"between", "for"},
		},
		{
			Name: DoAbort, Summary: "the client of the request asks to stop it, through its own API or at one stage", Where: "client",
			Legal: "always",
			kinds: anything, process: true, optional: []string{"worker"},
		},
		{
			Name: DoLeave, Summary: "the client of the request closes its connections", Where: "client",
			Legal: "always",
			kinds: anything, process: true,
		},
	}
}

func faultByName(name string) (Fault, bool) {
	for _, f := range Registry() {
		if f.Name == name {
			return f, true
		}
	}
	return Fault{}, false
}

// Legal reports whether a real deployment can show what the rule does: TCP with
// ZeroMQ neither loses, repeats nor reorders messages within one live
// connection.
func (r *Rule) Legal() bool {
	switch r.Do {
	case DoDelay, DoHold:
		return r.When.Kind != KindSignal || r.Ordered
	case DoDrop, DoDuplicate:
		return r.When.Kind == KindHTTP
	case DoReorder:
		return false
	}
	return true
}
