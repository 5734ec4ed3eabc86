package certify

import (
	"embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"conform/harness"
	"conform/spec"
)

// Profile says what a certificate of its name needs.
type Profile struct {
	Name    string `yaml:"name"`
	Title   string `yaml:"title"`
	Adapter string `yaml:"adapter"`
	// Seeds is how many derived seeds each required scenario is run with.
	Seeds int `yaml:"seeds"`
	// ValidDays is how long a certificate holds after its last attempt ended.
	ValidDays int `yaml:"valid_days"`
	// Retries is how many attempts may have come to no result: aborted, inconclusive,
	// or an error. One that failed or was unproven is never made good by another.
	Retries   int        `yaml:"retries"`
	Scenarios []Required `yaml:"scenarios"`
	// Rules must each be exercised by some required attempt. (None may be worse than
	// pass in any.)
	Rules []spec.RuleID `yaml:"rules"`
	// Planted are runs with a known defect that must be found: proof that recorder
	// and judge were alive.
	Planted []Planted `yaml:"planted"`

	text []byte
}

// Required is a scenario in the modes in which it must pass.
type Required struct {
	ID    string   `yaml:"id"`
	Modes []string `yaml:"modes"`
}

// Planted is a run with a defect, and the rule that must find it.
type Planted struct {
	Defect   string      `yaml:"defect"`
	Scenario string      `yaml:"scenario"`
	Mode     string      `yaml:"mode"`
	Rule     spec.RuleID `yaml:"rule"`
}

//go:embed profiles/*.yaml
var profileFiles embed.FS

// ErrProfile is wrapped by the error of a profile that can't be.
var ErrProfile = errors.New("no profile")

const maxProfileBytes = 256 << 10

// Profiles lists the built-in profiles, by name.
func Profiles() []Profile {
	entries, err := profileFiles.ReadDir("profiles")
	if err != nil {
		panic("certify: the embedded profiles: " + err.Error())
	}
	var all []Profile
	for _, e := range entries {
		b, err := profileFiles.ReadFile("profiles/" + e.Name())
		if err != nil {
			panic("certify: the embedded profiles: " + err.Error())
		}
		p, err := ParseProfile(b)
		if err != nil {
			panic("certify: profiles/" + e.Name() + ": " + err.Error()) // a test parses each
		}
		all = append(all, p)
	}
	return all
}

// FindProfile is the built-in profile of that name, or the one in a file whose name
// ends in .yaml.
func FindProfile(name string) (Profile, error) {
	if strings.HasSuffix(name, ".yaml") {
		b, err := readBounded(name, maxProfileBytes)
		if err != nil {
			return Profile{}, err
		}
		return ParseProfile(b)
	}
	var names []string
	for _, p := range Profiles() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Profile{}, fmt.Errorf("%w has the name %q; there are %s, or a .yaml file", ErrProfile, name, strings.Join(names, ", "))
}

var profileName = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// ParseProfile reads a profile and checks that what it asks for exists.
func ParseProfile(b []byte) (Profile, error) {
	p := Profile{text: b}
	if err := decodeYAML(b, &p); err != nil {
		return p, fmt.Errorf("%w: %w", ErrProfile, err)
	}
	info, ok := harness.AdapterByName(p.Adapter)
	switch {
	case !ok:
		return p, fmt.Errorf("%w: unknown adapter %q", ErrProfile, p.Adapter)
	case !profileName.MatchString(p.Name), p.Seeds < 1 || p.Seeds > 100, p.ValidDays < 1 || p.ValidDays > 3660, p.Retries < 0, len(p.Scenarios) == 0, len(p.Rules) == 0:
		return p, fmt.Errorf("%w: it needs a name, 1 to 100 seeds, 1 to 3660 valid_days, scenarios and rules", ErrProfile)
	}
	for _, r := range p.Scenarios {
		s, ok := harness.ScenarioByID(r.ID)
		if !ok || len(r.Modes) == 0 {
			return p, fmt.Errorf("%w: scenario %q is unknown, or has no modes", ErrProfile, r.ID)
		}
		for _, m := range r.Modes {
			if !slices.Contains(s.Modes(info), m) {
				return p, fmt.Errorf("%w: scenario %s does not apply to %s %s", ErrProfile, r.ID, p.Adapter, m)
			}
		}
	}
	for _, id := range p.Rules {
		if !knownRule(id) {
			return p, fmt.Errorf("%w: unknown rule %q", ErrProfile, id)
		}
	}
	return p, p.checkPlanted()
}

func (p *Profile) checkPlanted() error {
	for _, l := range p.Planted {
		known := slices.ContainsFunc(p.Scenarios, func(r Required) bool { return r.ID == l.Scenario && slices.Contains(r.Modes, l.Mode) })
		if l.Defect == "" || !known || !knownRule(l.Rule) {
			return fmt.Errorf("%w: planted defect %q needs a required scenario with its mode, and a rule", ErrProfile, l.Defect)
		}
	}
	return nil
}

func knownRule(id spec.RuleID) bool {
	return slices.ContainsFunc(spec.Rules(), func(r spec.Rule) bool { return r.ID == id })
}
