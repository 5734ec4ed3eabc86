package report

import (
	"fmt"
	"io"
	"strings"

	"conform/harness"
	"conform/spec"
)

// maxAnnotations is how many annotations of a level GitHub shows of one step.
const maxAnnotations = 10

// Annotations writes a run as workflow commands of GitHub Actions: an ::error for
// each distinct finding and for each scenario that did not show what it was for, a
// ::warning for what is no failure with o.Warn, a ::notice for what o.Baseline
// knows. At most ten of a level, the worst first; the last one says how many more.
func Annotations(w io.Writer, r *harness.RunResult, o Options) error {
	levels := map[string][]string{}
	for _, d := range distinctOf(r) {
		level := o.level(d.finding.Verdict)
		message := d.finding.Text + shownBy(d.finding) + fmt.Sprintf(" (%s; fingerprint %s)", times(d.count), d.id)
		if e, known := o.Baseline.entry(d.id); known {
			level, message = "notice", "known until "+e.Until.String()+": "+message
		}
		title := fmt.Sprintf("%s %s: %s in %s", d.finding.Rule, d.rule.Name, d.finding.Verdict, where(d.scenario))
		levels[level] = append(levels[level], annotation(level, title, message))
	}
	for i := range r.Scenarios {
		sc := &r.Scenarios[i]
		if why := missed(sc); why != "" {
			level := o.level(spec.Inconclusive)
			if sc.Verdict == spec.Error {
				level = o.level(spec.Error)
			}
			levels[level] = append(levels[level], annotation(level, "not shown in "+named(sc), why))
		}
	}
	var b strings.Builder
	for _, level := range []string{"error", "warning", "notice"} {
		lines := levels[level]
		if more := len(lines) - maxAnnotations; more > 0 {
			lines = append(lines[:maxAnnotations-1:maxAnnotations-1], annotation(level, "conform", fmt.Sprintf("and %d more: see the summary", more+1)))
		}
		for _, l := range lines {
			b.WriteString(l)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// level is how bad a verdict is for whoever reads the log.
func (o Options) level(v spec.Verdict) string {
	if o.Warn && v < spec.Fail {
		return "warning"
	}
	return "error"
}

// The escapes of workflow commands, as the runner undoes them.
var (
	commandData     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	commandProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

func annotation(level, title, message string) string {
	return fmt.Sprintf("::%s title=%s::%s\n", level, commandProperty.Replace(short(Clean(title))), commandData.Replace(short(Clean(message))))
}
