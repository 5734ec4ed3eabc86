package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"conform/harness"
	"conform/spec/check"
)

// settled writes how rejected, cancelled and expired requests gave back what they
// held: what REQ-2 asks for, as it was done.
func (p *page) settled(rows []check.SettledResult) {
	var lines []string
	for _, r := range rows {
		lines = append(lines, settledLine(r))
	}
	p.list("how ended requests gave back what they held", limit(lines, 2*maxLines))
}

func settledLine(r check.SettledResult) string {
	s := fmt.Sprintf("%s on %s (%s): ", count(r.Requests, "request"), r.Worker, strings.Join(r.Ended, ", "))
	holds := count(r.Holds, "hold")
	if r.How == "" {
		return s + holds + " not seen to be given back"
	}
	s += holds + " given back: " + r.How
	switch {
	case r.By != "":
		s += ", on " + r.By
	case r.Evidence != "":
		s += ", after " + r.Evidence
	default:
		s += ", on nobody's word"
	}
	if r.After == nil {
		return s
	}
	least, most := after(r.After[0]), after(r.After[1])
	if least != most {
		return s + fmt.Sprintf("; %s to %s later", least, most)
	}
	return s + fmt.Sprintf("; %s later", least)
}

// after is a time in ns for a person: three digits are enough.
func after(ns int64) string {
	d := time.Duration(ns)
	switch {
	case d.Abs() >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d.Abs() >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d.Abs() >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	case d.Abs() >= 100*time.Microsecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.String()
}

// runSettled joins the rows of all scenarios that read the same.
func runSettled(r *harness.RunResult) []check.SettledResult {
	var out []check.SettledResult
	at := map[string]int{}
	for _, sc := range r.Scenarios {
		for _, s := range sc.Settled {
			key := strings.Join(append([]string{s.Worker, s.How, s.By, s.Evidence}, s.Ended...), "\x00")
			i, known := at[key]
			if !known {
				at[key] = len(out)
				out = append(out, s)
				continue
			}
			o := &out[i]
			o.Requests, o.Holds = o.Requests+s.Requests, o.Holds+s.Holds
			switch {
			case s.After == nil:
			case o.After == nil:
				o.After = s.After
			default: // a new pair: the tree that is shown is not this one's to change
				o.After = &[2]int64{min(o.After[0], s.After[0]), max(o.After[1], s.After[1])}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b check.SettledResult) int { return b.Requests - a.Requests })
	return out
}
