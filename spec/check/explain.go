package check

import (
	"fmt"
	"strconv"

	"conform/spec"
)

// say names an event in a sentence: "D#5 (free at 40)". The number is its seq.
func (c *court) say(e int32) string {
	ev := &c.h.ev[e]
	what := string(ev.K)
	if ev.K == spec.KindEmit || ev.K == spec.KindObserve {
		what += " " + ev.Sig
		if ev.Signal != "" {
			what += " " + ev.Signal
		}
	}
	if ev.T2 != ev.T {
		return fmt.Sprintf("%s#%d (%s at %s to %s)", ev.Src, ev.Seq, what, c.when(e, ev.T), c.when(e, ev.T2))
	}
	return fmt.Sprintf("%s#%d (%s at %s)", ev.Src, ev.Seq, what, c.when(e, ev.T))
}

// bigTime is where a time, in ns, is no longer read at a glance.
const bigTime = 1_000_000

// when writes a time for a person: as it stands while it is small, else in
// milliseconds, to the nanosecond, since the first event on its clock.
func (c *court) when(e int32, t int64) string {
	first := c.h.zero[c.h.clockOf[e]]
	if -bigTime < first && t < bigTime {
		return strconv.FormatInt(t, 10)
	}
	sign, d := "+", uint64(t)-uint64(first)
	if t < first {
		sign, d = "-", -d
	}
	return fmt.Sprintf("%s%d.%06d ms", sign, d/1e6, d%1e6)
}

// ids names events for a finding.
func (c *court) ids(events ...int32) []spec.EventID {
	out := make([]spec.EventID, 0, len(events))
	for _, e := range events {
		if e != none {
			out = append(out, c.h.ev[e].ID())
		}
	}
	return out
}

// poolName is "worker/pool".
func (c *court) poolName(p int32) string {
	return c.h.workers[c.h.pools[p].worker] + "/" + c.h.pools[p].name
}

func (c *court) blockName(p int32, number int64) *spec.BlockID {
	return &spec.BlockID{Worker: c.h.workers[c.h.pools[p].worker], Pool: c.h.pools[p].name, Number: number}
}

// describe names an access: "access a1 (write by p0, handoff room-1)".
func (c *court) describe(a *access) string {
	mode := "read"
	if c.h.ev[a.begin].Mode == "w" {
		mode = "write"
	}
	under := ""
	if e := &c.h.ev[a.begin]; e.Handoff != "" {
		under = ", handoff " + e.Handoff
	} else if e.Req != "" {
		under = ", request " + e.Req
	}
	return fmt.Sprintf("access %s (%s by %s%s)", a.id, mode, c.h.workers[a.by], under)
}
