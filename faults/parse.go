package faults

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"conform/spec"

	"go.yaml.in/yaml/v3"
)

// ParsePlan reads a plan; name stands for the file in errors, which are of type
// *[PlanError]. It is strict: what it does not know is an error.
func ParsePlan(name string, data []byte) (*Plan, error) {
	p := parser{file: name}
	root, err := p.document(data)
	if err != nil {
		return nil, err
	}
	plan := &Plan{Name: name}
	var rules *yaml.Node
	err = p.fields(root, "a plan", map[string]setter{
		"rules": func(n *yaml.Node) error { rules = n; return nil },
	})
	if err != nil {
		return nil, err
	}
	if rules == nil {
		return nil, p.fail(root, "a plan without rules", "`rules:` and a list")
	}
	if rules.Kind != yaml.SequenceNode {
		return nil, p.fail(rules, describe(rules), "a list of rules")
	}
	if len(rules.Content) > maxRules {
		return nil, p.fail(rules.Content[maxRules], fmt.Sprintf("%d rules", len(rules.Content)), fmt.Sprintf("at most %d", maxRules))
	}
	for _, n := range rules.Content {
		r, err := p.rule(n)
		if err != nil {
			return nil, err
		}
		same := func(o Rule) bool { return o.Name == r.Name }
		if i := slices.IndexFunc(plan.Rules, same); i >= 0 {
			return nil, p.fail(n, fmt.Sprintf("a second rule %q", r.Name), fmt.Sprintf("a name of its own; the first is at line %d", plan.Rules[i].Line))
		}
		plan.Rules = append(plan.Rules, r)
	}
	return plan, nil
}

type parser struct{ file string }

// setter takes the value of one field.
type setter func(*yaml.Node) error

func (p *parser) fail(n *yaml.Node, found, expected string) *PlanError {
	return &PlanError{p.file, max(n.Line, 1), max(n.Column, 1), found, expected}
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

func (p *parser) document(data []byte) (*yaml.Node, error) {
	if len(data) > maxPlanBytes {
		return nil, &PlanError{p.file, 1, 1, fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("at most %d", maxPlanBytes)}
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	err := dec.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF):
		return nil, &PlanError{p.file, 1, 1, "an empty file", "a plan"}
	case err != nil:
		return nil, p.syntax(err)
	case len(doc.Content) == 0:
		return nil, &PlanError{p.file, 1, 1, "an empty document", "a plan"}
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		return nil, p.fail(&second, "a second document", "one plan a file")
	case !errors.Is(err, io.EOF):
		return nil, p.syntax(err)
	}
	return doc.Content[0], nil
}

// syntax gives an error of the YAML reader, which knows the line alone.
func (p *parser) syntax(err error) *PlanError {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = strings.Replace(text, m[0], "", 1)
	}
	return &PlanError{p.file, max(line, 1), 1, "no YAML: " + text, "YAML"}
}

// fields reads a mapping whose keys are all known and none of which comes twice.
func (p *parser) fields(n *yaml.Node, what string, set map[string]setter) error {
	if n.Kind != yaml.MappingNode {
		return p.fail(n, describe(n), what)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		f, known := set[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || !known:
			return p.fail(key, "field "+describe(key), "a field of "+what+": "+strings.Join(sortedKeys(set), ", "))
		case seen[key.Value]:
			return p.fail(key, fmt.Sprintf("field %q twice", key.Value), "it once")
		}
		seen[key.Value] = true
		if err := f(value); err != nil {
			return err
		}
	}
	return nil
}

func sortedKeys(m map[string]setter) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// describe names what a node is, for "found".
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	v := n.Value
	if len(v) > maxName {
		v = v[:maxName] + "…"
	}
	if n.Tag == "!!str" {
		return strconv.Quote(v)
	}
	if v == "" {
		return "nothing"
	}
	return v
}

func (p *parser) text(dst *string, n *yaml.Node, what string) error {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" || n.Value == "" {
		return p.fail(n, describe(n), what)
	}
	*dst = n.Value
	return nil
}

func (p *parser) str(dst *string, what string) setter {
	return func(n *yaml.Node) error { return p.text(dst, n, what) }
}

// word reads one of a few words.
func (p *parser) word(dst *string, words ...string) setter {
	return func(n *yaml.Node) error {
		what := "one of " + strings.Join(words, ", ")
		if err := p.text(dst, n, what); err != nil {
			return err
		}
		if !slices.Contains(words, *dst) {
			return p.fail(n, describe(n), what)
		}
		return nil
	}
}

func (p *parser) integer(dst *int, lo, hi int) setter {
	return func(n *yaml.Node) error {
		v, err := strconv.Atoi(n.Value)
		if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil || v < lo || v > hi {
			return p.fail(n, describe(n), fmt.Sprintf("an integer from %d to %d", lo, hi))
		}
		*dst = v
		return nil
	}
}

func (p *parser) boolean(dst *bool) setter {
	return func(n *yaml.Node) error {
		if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || (n.Value != "true" && n.Value != "false") {
			return p.fail(n, describe(n), "true or false")
		}
		*dst = n.Value == "true"
		return nil
	}
}

func (p *parser) probability(dst *float64) setter {
	return func(n *yaml.Node) error {
		v, err := strconv.ParseFloat(n.Value, 64)
		number := n.Tag == "!!float" || n.Tag == "!!int"
		if n.Kind != yaml.ScalarNode || !number || err != nil || !(v > 0 && v <= 1) {
			return p.fail(n, describe(n), "a number above 0 and at most 1")
		}
		*dst = v
		return nil
	}
}

func parseWait(s string, least time.Duration) (time.Duration, bool) {
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= least && d <= maxWait
}

func (p *parser) duration(dst *time.Duration, least time.Duration) setter {
	return func(n *yaml.Node) error {
		d, ok := parseWait(n.Value, least)
		if n.Kind != yaml.ScalarNode || n.Tag != "!!str" && n.Value != "0" || !ok {
			return p.fail(n, describe(n), "a time such as 150ms, at most "+maxWait.String())
		}
		*dst = d
		return nil
	}
}

func (p *parser) jitter(lo, hi *time.Duration) setter {
	return func(n *yaml.Node) error {
		a, b, found := strings.Cut(n.Value, "..")
		from, ok := parseWait(a, 0)
		to, ok2 := parseWait(b, 1)
		if n.Kind != yaml.ScalarNode || !found || !ok || !ok2 || from > to {
			return p.fail(n, describe(n), "two times such as 10ms..50ms, the first not above the second")
		}
		*lo, *hi = from, to
		return nil
	}
}

func (p *parser) pair(dst *[2]string) setter {
	return func(n *yaml.Node) error {
		const what = "a list of two different workers"
		if n.Kind != yaml.SequenceNode || len(n.Content) != 2 {
			return p.fail(n, describe(n), what)
		}
		for i, c := range n.Content {
			if err := p.text(&dst[i], c, "a worker"); err != nil {
				return err
			}
		}
		if dst[0] == dst[1] {
			return p.fail(n, fmt.Sprintf("%q twice", dst[0]), what)
		}
		return nil
	}
}

// at remembers where a field stands, so that a check that involves several can
// point at it.
func at(where map[string]*yaml.Node, fields map[string]setter) map[string]setter {
	for name, set := range fields {
		fields[name] = func(n *yaml.Node) error {
			where[name] = n
			return set(n)
		}
	}
	return fields
}

func (p *parser) rule(n *yaml.Node) (Rule, error) {
	r := Rule{Line: n.Line, Probability: 1}
	where := map[string]*yaml.Node{}
	err := p.fields(n, "a rule", at(where, map[string]setter{
		"name":          p.str(&r.Name, "a name"),
		"when":          p.when(&r),
		"do":            p.str(&r.Do, "a kind of fault"),
		"for":           p.duration(&r.For, 1),
		"jitter":        p.jitter(&r.For, &r.ForMax),
		"until":         p.condition(&r.Until, []string{"handoff", "req", "block"}),
		"behind":        p.condition(&r.Behind, []string{"handoff", "req"}),
		"limit":         p.duration(&r.Limit, 1),
		"copies":        p.integer(&r.Copies, 1, maxCopies),
		"ordered":       p.boolean(&r.Ordered),
		"worker":        p.str(&r.Worker, "a worker"),
		"restart_after": p.duration(&r.RestartAfter, 0),
		"between":       p.pair(&r.Between),
	}))
	if err == nil {
		err = p.checkRule(n, &r, where)
	}
	return r, err
}

// checkRule holds what involves several fields of a rule.
func (p *parser) checkRule(n *yaml.Node, r *Rule, where map[string]*yaml.Node) error {
	for _, name := range []string{"name", "when", "do"} {
		if where[name] == nil {
			return p.fail(n, "a rule without `"+name+"`", "`"+name+"`")
		}
	}
	if len(r.Name) > maxName {
		return p.fail(where["name"], describe(where["name"]), fmt.Sprintf("a name of at most %d bytes", maxName))
	}
	f, ok := faultByName(r.Do)
	if !ok {
		return p.fail(where["do"], describe(where["do"]), "one of "+strings.Join(faultNames(), ", "))
	}
	if err := p.checkFields(n, f, where); err != nil {
		return err
	}
	if !slices.Contains(f.kinds, r.When.Kind) {
		return p.fail(where["when"], fmt.Sprintf("%s when %s", r.Do, r.When.Kind), r.Do+" when "+strings.Join(f.kinds, " or "))
	}
	if err := p.checkTimes(n, r, where); err != nil {
		return err
	}
	if where["ordered"] != nil && r.When.Kind != KindSignal {
		return p.fail(where["ordered"], "`ordered` when "+r.When.Kind, "`ordered` when signal")
	}
	p.defaults(r, f, where)
	return nil
}

func (p *parser) checkFields(n *yaml.Node, f Fault, where map[string]*yaml.Node) error {
	for _, name := range f.required {
		if where[name] == nil {
			return p.fail(n, f.Name+" without `"+name+"`", "`"+name+"`")
		}
	}
	allowed := slices.Concat([]string{"name", "when", "do"}, f.required, f.optional)
	for _, name := range sortedNodes(where) {
		if !slices.Contains(allowed, name) {
			return p.fail(where[name], "`"+name+"` in a rule that does "+f.Name, "fields of "+f.Name+": "+strings.Join(allowed, ", "))
		}
	}
	return nil
}

// sortedNodes gives the fields in the order of the file.
func sortedNodes(where map[string]*yaml.Node) []string {
	names := make([]string, 0, len(where))
	for name := range where {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		x, y := where[a], where[b]
		if x.Line != y.Line {
			return x.Line - y.Line
		}
		return x.Column - y.Column
	})
	return names
}

func (p *parser) checkTimes(n *yaml.Node, r *Rule, where map[string]*yaml.Node) error {
	timed, until := where["for"] != nil || where["jitter"] != nil, where["until"] != nil
	switch {
	case where["for"] != nil && where["jitter"] != nil:
		return p.fail(where["jitter"], "`for` and `jitter`", "one of them")
	case r.Do == DoDelay && !timed:
		return p.fail(n, "delay without a time", "`for` or `jitter`")
	case r.Do == DoDuplicate && timed && until:
		return p.fail(where["until"], "`until` and a time", "one of them")
	case r.Do == DoDuplicate && until && r.When.Kind != KindSignal:
		return p.fail(where["until"], "`until` for the copy when "+r.When.Kind, "`for`: only a signal's copy can be held")
	case r.Do == DoDuplicate && where["limit"] != nil && !until:
		return p.fail(where["limit"], "`limit` without `until`", "both")
	}
	return nil
}

func (p *parser) defaults(r *Rule, f Fault, where map[string]*yaml.Node) {
	if r.ForMax < r.For {
		r.ForMax = r.For
	}
	if r.Limit == 0 {
		r.Limit = defaultLimit
	}
	if r.Do == DoDuplicate && r.Copies == 0 {
		r.Copies = 1
	}
	if f.process && r.Count == 0 && r.Every == 0 {
		// Without this, "when a block is allocated, kill prefill" would kill it
		// again as often as it comes back.
		r.Count = 1
	}
	r.WillRestart = where["restart_after"] != nil || r.Do == DoRestart
	if r.Do == DoReorder && r.Behind == nil {
		behind := r.When
		r.Behind = &behind
	}
}

func faultNames() []string {
	var names []string
	for _, f := range Registry() {
		names = append(names, f.Name)
	}
	return names
}

// filters are the fields of every condition.
func (p *parser) filters(m *Match, subject map[string]string) map[string]setter {
	set := map[string]setter{
		"from": p.str(&m.From, "a role or a worker"), "worker": p.str(&m.From, "a role or a worker"),
		"to": p.str(&m.To, "a role or a worker"), "target": p.str(&m.To, "a role or a worker"),
		"pool": p.str(&m.Pool, "a pool"), "sig": p.str(&m.Sig, "a signal's id"),
		"handoff": p.str(&m.Handoff, "a handoff"), "req": p.str(&m.Req, "a request"),
		"why": p.str(&m.Why, "a reason"), "mode": p.word(&m.Mode, "r", "w", "rw"),
		"n": func(n *yaml.Node) error {
			var v int
			if err := p.integer(&v, 0, 1<<40)(n); err != nil {
				return err
			}
			n64 := int64(v)
			m.N = &n64
			return nil
		},
	}
	for _, kind := range []string{KindSignal, KindAccess, KindHTTP, KindEvent} {
		set[kind] = func(n *yaml.Node) error {
			var s string
			if err := p.text(&s, n, "what kind of "+kind); err != nil {
				return err
			}
			subject[kind] = s
			return nil
		}
	}
	return set
}

// when reads the condition of a rule, with its counters.
func (p *parser) when(r *Rule) setter {
	return func(n *yaml.Node) error {
		subject, where := map[string]string{}, map[string]*yaml.Node{}
		set := p.filters(&r.When, subject)
		set["nth"] = p.integer(&r.Nth, 1, 1<<40)
		set["every"] = p.integer(&r.Every, 1, 1<<40)
		set["probability"] = p.probability(&r.Probability)
		set["count"] = p.integer(&r.Count, 1, 1<<40)
		set["after"] = p.condition(&r.After, []string{"handoff", "req"})
		if err := p.fields(n, "when", at(where, set)); err != nil {
			return err
		}
		return p.subject(n, &r.When, subject, where)
	}
}

// condition reads until, behind or after.
func (p *parser) condition(dst **Match, same []string) setter {
	return func(n *yaml.Node) error {
		m := &Match{}
		subject, where := map[string]string{}, map[string]*yaml.Node{}
		set := p.filters(m, subject)
		set["nth"] = p.integer(&m.Nth, 1, 1<<40)
		set["same"] = p.word(&m.Same, same...)
		if err := p.fields(n, "a condition", at(where, set)); err != nil {
			return err
		}
		*dst = m
		return p.subject(n, m, subject, where)
	}
}

// subject settles what a condition is about. In one about an event, `signal` is
// a filter like others.
func (p *parser) subject(n *yaml.Node, m *Match, subject map[string]string, where map[string]*yaml.Node) error {
	if _, ok := subject[KindEvent]; ok {
		m.Signal = subject[KindSignal]
		delete(subject, KindSignal)
	}
	if len(subject) != 1 {
		return p.fail(n, fmt.Sprintf("a condition about %d things", len(subject)), "exactly one of signal, access, http, event")
	}
	for m.Kind, m.Name = range subject {
	}
	v := where[m.Kind]
	switch {
	case m.Kind == KindEvent && spec.Fields(spec.Kind(m.Name)) == nil:
		return p.fail(v, describe(v), "a kind of event of TRACE.md")
	case m.Kind == KindAccess && m.Name == "rw":
		m.Name = "*"
	case m.Kind == KindAccess && !isAccess(m.Name):
		return p.fail(v, describe(v), "r, w or rw; or r or w with .post, .done, .word or .renew")
	case where["from"] != nil && where["worker"] != nil:
		return p.fail(where["worker"], "`from` and `worker`", "one of them")
	case where["to"] != nil && where["target"] != nil:
		return p.fail(where["target"], "`to` and `target`", "one of them")
	case where["mode"] != nil && m.Kind != KindEvent:
		return p.fail(where["mode"], "`mode` with "+m.Kind, "`mode` with event alone; an access says it in its own word")
	}
	return nil
}

// isAccess reports whether a condition may name an access so: by its mode, for the
// moment when it is posted, or by mode and another moment where a probe asks: before it
// is posted, when it is over and the engine is not told yet, when the word that it is
// over has come to the other side, when a renewal of its lease has come there.
func isAccess(name string) bool {
	mode, moment, found := strings.Cut(name, ".")
	return (mode == "r" || mode == "w") && (!found || slices.Contains([]string{"post", "done", "word", "renew"}, moment))
}
