package harness

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

// HookReport says what became of one source's hooks: the places in an engine where
// its probe records.
type HookReport struct {
	Source string `json:"source"`
	Asked  int    `json:"asked"`
	Bound  int    `json:"bound"`
	// Fired counts the hooks that recorded something; -1 where the source has not
	// told.
	Fired int `json:"fired"`
	// Missing are the hooks that did not bind, by the rule that needs them.
	Missing map[spec.RuleID][]string `json:"missing,omitempty"`
	// Errors say what went wrong in a hook while it recorded, by its name.
	Errors map[string]string `json:"errors,omitempty"`
}

// hookNote is a line of a source, or of what a stack tells in the end. Fired is a
// number, or how often each hook fired by its name.
type hookNote struct {
	Asked   int                      `json:"asked"`
	Bound   int                      `json:"bound"`
	Missing map[spec.RuleID][]string `json:"missing"`
	Fired   json.RawMessage          `json:"fired"`
	Errors  map[string]string        `json:"errors"`
}

// firings reads the two forms of fired: -1 and nil where it is neither.
func (n *hookNote) firings() (count int, byName map[string]int64) {
	if json.Unmarshal(n.Fired, &byName) == nil && byName != nil {
		for _, times := range byName {
			if times > 0 {
				count++
			}
		}
		return count, byName
	}
	if len(n.Fired) == 0 || json.Unmarshal(n.Fired, &count) != nil {
		return -1, nil
	}
	return count, nil
}

// HooksOf reads what the sources of a trace say about their hooks: in their first
// line, or in a note whose text is the JSON object {"hooks":{…}}. A source that
// says nothing about hooks has none.
func HooksOf(tr *spec.Trace) []HookReport {
	said := map[string]*hookNote{}
	for i := range tr.Events {
		e := &tr.Events[i]
		raw := e.Hooks
		if e.K == spec.KindNote && strings.HasPrefix(e.Text, `{"hooks":`) {
			var note struct {
				Hooks json.RawMessage `json:"hooks"`
			}
			if json.Unmarshal([]byte(e.Text), &note) == nil {
				raw = note.Hooks
			}
		}
		if len(raw) > 0 {
			hear(said, e.Src, raw)
		}
	}
	return hookReports(said)
}

// hear takes in what a source says; a later word adds to an earlier one. What is
// no object of hooks says nothing: other tools may put other things there.
func hear(said map[string]*hookNote, src string, raw []byte) {
	n := said[src]
	if n == nil {
		n = &hookNote{}
	}
	var more hookNote
	if json.Unmarshal(raw, &more) != nil {
		return
	}
	n.Asked, n.Bound = max(n.Asked, more.Asked), max(n.Bound, more.Bound)
	if more.Missing != nil {
		n.Missing = more.Missing
	}
	if more.Fired != nil {
		n.Fired = more.Fired
	}
	if more.Errors != nil {
		n.Errors = more.Errors
	}
	said[src] = n
}

func hookReports(said map[string]*hookNote) []HookReport {
	var reports []HookReport
	for _, src := range slices.Sorted(maps.Keys(said)) {
		n := said[src]
		fired, _ := n.firings()
		reports = append(reports, HookReport{Source: src, Asked: n.Asked, Bound: n.Bound, Fired: fired, Missing: n.Missing, Errors: n.Errors})
	}
	return reports
}

// addServed puts what the stack tells in the end beside what its sources said.
func addServed(reports []HookReport, served map[string]any) []HookReport {
	for src, value := range served {
		n, ok := asNote(value)
		if !ok {
			continue
		}
		i := slices.IndexFunc(reports, func(r HookReport) bool { return r.Source == src })
		if i < 0 {
			reports = append(reports, HookReport{Source: src, Fired: -1})
			i = len(reports) - 1
		}
		r := &reports[i]
		r.Asked, r.Bound = max(r.Asked, n.Asked), max(r.Bound, n.Bound)
		if fired, _ := n.firings(); fired >= 0 {
			r.Fired = fired
		}
		if r.Missing == nil {
			r.Missing = n.Missing
		}
		if r.Errors == nil {
			r.Errors = n.Errors
		}
	}
	slices.SortFunc(reports, func(a, b HookReport) int { return cmp.Compare(a.Source, b.Source) })
	return reports
}

// asNote reads plain data as what it says about hooks.
func asNote(value any) (n hookNote, ok bool) {
	b, err := json.Marshal(value)
	if err != nil || json.Unmarshal(b, &n) != nil {
		return n, false
	}
	return n, true
}

// manifestHooks lists each hook that was named: those that are missing, and, where
// the stack tells, those that fired. A name is SOURCE/HOOK.
func manifestHooks(reports []HookReport, served map[string]any) []traces.ManifestHook {
	all := map[string]traces.ManifestHook{}
	for _, r := range reports {
		for _, names := range r.Missing {
			for _, name := range names {
				all[r.Source+"/"+name] = traces.ManifestHook{Name: r.Source + "/" + name, Asked: true}
			}
		}
	}
	for src, value := range served {
		n, _ := asNote(value)
		_, byName := n.firings()
		for name, times := range byName {
			all[src+"/"+name] = traces.ManifestHook{Name: src + "/" + name, Asked: true, Bound: true, Fired: times}
		}
	}
	hooks := slices.Collect(maps.Values(all))
	slices.SortFunc(hooks, func(a, b traces.ManifestHook) int { return cmp.Compare(a.Name, b.Name) })
	return hooks
}

// failedHooks says which hooks went wrong while they recorded, "" if none did: what
// they should have recorded is missing.
func failedHooks(reports []HookReport) string {
	var failed []string
	for _, r := range reports {
		for _, name := range slices.Sorted(maps.Keys(r.Errors)) {
			failed = append(failed, fmt.Sprintf("%s/%s (%s)", r.Source, name, r.Errors[name]))
		}
	}
	if len(failed) == 0 {
		return ""
	}
	text := "hooks that failed while they recorded: " + strings.Join(failed[:min(len(failed), 3)], ", ")
	if more := len(failed) - 3; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// HoldToHooks takes back what rests on hooks that did not bind: a rule of which
// some source misses a hook is at best inconclusive, and a note names the hooks.
// What such a rule has found stands.
func HoldToHooks(reports []HookReport, res *check.Result) {
	missing := map[spec.RuleID][]string{}
	for _, r := range reports {
		for id, names := range r.Missing {
			for _, name := range names {
				missing[id] = append(missing[id], r.Source+"/"+name)
			}
		}
	}
	for i := range res.Rules {
		rule := &res.Rules[i]
		names := missing[rule.ID]
		if len(names) == 0 {
			continue
		}
		slices.Sort(names)
		res.Notes = append(res.Notes, fmt.Sprintf("%s is judged without the hooks %s, which did not bind", rule.ID, strings.Join(names, ", ")))
		rule.Verdict = max(rule.Verdict, spec.Inconclusive)
		res.Verdict = max(res.Verdict, spec.Inconclusive)
	}
}
