package report

import (
	"io"
	"net/url"
	"path/filepath"
	"strings"

	"conform/harness"
	"conform/spec"
	"conform/spec/check"
)

// SARIF writes a run's findings as SARIF 2.1.0: each finding a result, with its
// fingerprint among the partial ones; what a scenario did not show a notification.
// The level is error for fail, unproven and inconclusive, warning for the latter
// two with o.Warn. What o.Baseline knows is suppressed.
func SARIF(w io.Writer, r *harness.RunResult, o Options) error {
	run := sarifRun{Language: "en", ColumnKind: "unicodeCodePoints", Newlines: []string{"\r\n", "\n"}, Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: "conform", Version: harness.Version, Language: "en", Rules: sarifRules()}
	invocation := sarifInvocation{ExecutionSuccessful: r.Verdict != spec.Error && !r.Interrupted, Notifications: []sarifNotification{}}
	for i := range r.Scenarios {
		sc := &r.Scenarios[i]
		if why := missed(sc); why != "" {
			level := "warning"
			if sc.Verdict == spec.Error {
				level = "error"
			}
			invocation.Notifications = append(invocation.Notifications, sarifNotification{level, sarifText{Clean(named(sc) + ": " + why)}})
		}
		for j := range sc.Rules {
			rule := &sc.Rules[j]
			for k := range rule.Findings {
				run.Results = append(run.Results, sarifResultOf(r, sc, &rule.Findings[k], o))
			}
			if more := unlisted(rule); more > 0 || bad(rule.Verdict) && len(rule.Findings) == 0 {
				invocation.Notifications = append(invocation.Notifications, sarifNotification{"warning", sarifText{
					Clean(named(sc)) + ": " + string(rule.ID) + " " + rule.Verdict.String() + ", with " + count(more, "further finding") + " that no result here tells",
				}})
			}
		}
	}
	run.Invocations = []sarifInvocation{invocation}
	run.Properties = map[string]string{"verdict": r.Verdict.String(), "adapter": Clean(r.Adapter), "engine": Clean(r.Engine)}
	return Encode(w, sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}})
}

// sarifRules are all rules of the registry, in its order.
func sarifRules() []sarifRule {
	rules := make([]sarifRule, 0, len(spec.Rules()))
	for _, r := range spec.Rules() {
		rules = append(rules, sarifRule{
			ID: string(r.ID), Name: pascal(r.Name), Short: sarifText{string(r.ID) + " " + r.Name}, Full: sarifText{r.Must}, Help: sarifText{r.Why},
		})
	}
	return rules
}

// pascal writes "no stale access" as NoStaleAccess, which names of SARIF's rules are.
func pascal(s string) string {
	var b strings.Builder
	for _, word := range strings.Fields(s) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

func sarifResultOf(r *harness.RunResult, sc *harness.ScenarioResult, f *check.Finding, o Options) sarifResult {
	id := idOf(r, sc, f)
	res := sarifResult{
		RuleID: string(f.Rule), RuleIndex: ruleIndex(f.Rule), Level: "error", Message: sarifText{Clean(f.Text + shownBy(*f))},
		Fingerprints: map[string]string{"conform/v1": id},
		Properties: sarifProperties{
			Verdict: f.Verdict.String(), Harm: string(f.Harm), Scenario: Clean(sc.ID), Mode: Clean(sc.Mode), Seed: sc.Seed, Req: Clean(f.Req), Handoff: Clean(f.Handoff),
		},
	}
	if f.Verdict < spec.Fail && o.Warn {
		res.Level = "warning"
	}
	for _, e := range f.Events {
		res.Properties.Events = append(res.Properties.Events, Clean(eventName(e)))
	}
	loc := sarifLocation{Physical: sarifPhysical{sarifArtifact{fileURI(sc.Trace)}}}
	if f.Block != nil {
		name := Clean(f.Block.Worker + "/" + f.Block.Pool)
		loc.Logical = []sarifLogical{{Name: name, Kind: "resource"}}
	}
	res.Locations = []sarifLocation{loc}
	if e, known := o.Baseline.entry(id); known {
		res.Suppressions = []sarifSuppression{{Kind: "external", Justification: Clean("known until " + e.Until.String() + ": " + e.Why)}}
	}
	return res
}

func ruleIndex(id spec.RuleID) int {
	for i, r := range spec.Rules() {
		if r.ID == id {
			return i
		}
	}
	return -1
}

// fileURI is a path as a URI: relative to where the program ran, or absolute.
func fileURI(path string) string {
	if path == "" || path == "-" {
		path = "standard-input"
	}
	u := url.URL{Path: filepath.ToSlash(filepath.Clean(path))}
	if filepath.IsAbs(path) {
		u.Scheme = "file"
	}
	return u.String()
}

type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool struct {
			Driver sarifDriver `json:"driver"`
		} `json:"tool"`
		Language    string            `json:"language"`
		ColumnKind  string            `json:"columnKind"`
		Newlines    []string          `json:"newlineSequences"`
		Invocations []sarifInvocation `json:"invocations"`
		Results     []sarifResult     `json:"results"`
		Properties  map[string]string `json:"properties"`
	}
	sarifDriver struct {
		Name     string      `json:"name"`
		Version  string      `json:"version"`
		Language string      `json:"language"`
		Rules    []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID    string    `json:"id"`
		Name  string    `json:"name"`
		Short sarifText `json:"shortDescription"`
		Full  sarifText `json:"fullDescription"`
		Help  sarifText `json:"help"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifInvocation struct {
		ExecutionSuccessful bool                `json:"executionSuccessful"`
		Notifications       []sarifNotification `json:"toolExecutionNotifications"`
	}
	sarifNotification struct {
		Level   string    `json:"level"`
		Message sarifText `json:"message"`
	}
	sarifResult struct {
		RuleID       string             `json:"ruleId"`
		RuleIndex    int                `json:"ruleIndex"`
		Level        string             `json:"level"`
		Message      sarifText          `json:"message"`
		Locations    []sarifLocation    `json:"locations"`
		Fingerprints map[string]string  `json:"partialFingerprints"`
		Suppressions []sarifSuppression `json:"suppressions,omitempty"`
		Properties   sarifProperties    `json:"properties"`
	}
	sarifLocation struct {
		Physical sarifPhysical  `json:"physicalLocation"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifLogical struct {
		Name string `json:"fullyQualifiedName"`
		Kind string `json:"kind"`
	}
	sarifSuppression struct {
		Kind          string `json:"kind"`
		Justification string `json:"justification"`
	}
	sarifProperties struct {
		Verdict  string   `json:"verdict"`
		Harm     string   `json:"harm,omitempty"`
		Scenario string   `json:"scenario"`
		Mode     string   `json:"mode,omitempty"`
		Seed     uint64   `json:"seed"`
		Req      string   `json:"req,omitempty"`
		Handoff  string   `json:"handoff,omitempty"`
		Events   []string `json:"events,omitempty"`
	}
)
