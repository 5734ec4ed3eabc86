package traces

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	"conform/spec"
)

// SpecVersion is the version of TRACE.md that this package reads and writes.
const SpecVersion = 1

const manifestName = "manifest.json"

// Manifest is manifest.json of a run directory: what was run. It holds no key,
// token, prompt, or address outside the run; whoever fills Config has redacted
// it. A manifest written before the run has neither End nor Files; a run that was
// killed keeps that one.
type Manifest struct {
	Tool        string `json:"tool"`         // conform
	ToolVersion string `json:"tool_version"` // of the tool
	SpecVersion int    `json:"spec_version"` // of TRACE.md; WriteManifest fills it
	SpecDigest  string `json:"spec_digest"`  // see SpecDigest; WriteManifest fills it

	Seed      uint64   `json:"seed"`
	Plan      string   `json:"plan,omitempty"` // the fault plan itself, as YAML
	Scenarios []string `json:"scenarios"`      // their ids
	Mode      string   `json:"mode,omitempty"` // push, pull
	Defect    string   `json:"defect,omitempty"`

	Adapter ManifestAdapter `json:"adapter"`
	Hooks   []ManifestHook  `json:"hooks,omitempty"`
	Hosts   []string        `json:"hosts,omitempty"` // as source lines name them

	Start time.Time `json:"start,omitzero"` // wall time
	End   time.Time `json:"end,omitzero"`   // wall time; zero while the run goes on

	Config map[string]string `json:"config,omitempty"` // redacted
	Args   []string          `json:"args,omitempty"`   // of the engine, as the user gave them; redacted
	Env    []string          `json:"env,omitempty"`    // NAME=VALUE, as the user gave them; redacted

	Hardware *Hardware `json:"hardware,omitempty"` // of the machine that ran the harness
	// Verdict and Why are the run's own word on itself, which may be worse than what
	// its trace shows: messages that no proxy could decode are in no trace. Empty
	// until it was judged.
	Verdict string `json:"verdict,omitempty"`
	Why     string `json:"why,omitempty"`

	Files []FileSum `json:"files,omitempty"` // see HashFiles
}

// cutShort reports whether the run was begun and never ended in good order.
func (m *Manifest) cutShort() bool { return !m.Start.IsZero() && m.End.IsZero() }

// ManifestAdapter says which stack was run.
type ManifestAdapter struct {
	Name   string `json:"name"`
	Engine string `json:"engine,omitempty"` // with its version
	Probe  string `json:"probe,omitempty"`  // with its version
}

// Hardware says what a machine has, as far as it tells.
type Hardware struct {
	OS           string   `json:"os"` // linux/amd64
	Kernel       string   `json:"kernel,omitempty"`
	CPU          string   `json:"cpu,omitempty"`
	Cores        int      `json:"cores"`
	MemoryBytes  int64    `json:"memory_bytes,omitempty"`
	Accelerators []string `json:"accelerators,omitempty"` // models, one for each device
	Driver       string   `json:"driver,omitempty"`       // of the accelerators
}

// ManifestHook is one place in an engine where a probe records.
type ManifestHook struct {
	Name  string `json:"name"`
	Asked bool   `json:"asked"`
	Bound bool   `json:"bound"`
	Fired int64  `json:"fired"`
}

// FileSum is the digest of one file of a run directory.
type FileSum struct {
	Name   string `json:"name"`   // relative to the run directory, with slashes
	Bytes  int64  `json:"bytes"`  // its size
	SHA256 string `json:"sha256"` // lowercase hex
}

// SpecDigest is the SHA-256, in lowercase hex, of what is normative in package
// spec: the fields of each kind of event, and of each rule its id, its sentence
// and its level. Two tools with the same digest judge by the same specification.
func SpecDigest() string {
	type kind struct {
		Kind   spec.Kind
		Fields []spec.Field
	}
	type rule struct {
		ID    spec.RuleID
		Must  string
		Level spec.Level
	}
	var text struct {
		Version int
		Kinds   []kind
		Rules   []rule
	}
	text.Version = SpecVersion
	for _, k := range spec.Kinds() {
		text.Kinds = append(text.Kinds, kind{k, spec.Fields(k)})
	}
	for _, r := range spec.Rules() {
		text.Rules = append(text.Rules, rule{r.ID, r.Must, r.Level})
	}
	b, err := json.Marshal(text)
	if err != nil {
		panic("traces: the specification is plain data: " + err.Error())
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// WriteManifest writes manifest.json in dir, which it makes if need be. It fills
// SpecVersion and SpecDigest. A reader sees the old file or the new one, never a
// part: the file is written beside it and renamed.
func WriteManifest(dir string, m Manifest) error {
	m.SpecVersion, m.SpecDigest = SpecVersion, SpecDigest()
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	if err := writeAtomic(dir, manifestName, append(b, '\n')); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}

func writeAtomic(dir, name string, content []byte) (err error) {
	f, err := os.CreateTemp(dir, "."+name+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, name))
}

// ReadManifest reads manifest.json of a run directory. Unknown fields are left
// out; an empty object is a manifest. A manifest of a newer TRACE.md, or of
// another shape, is a [*BadInput].
func ReadManifest(dir string) (Manifest, error) {
	path := filepath.Join(dir, manifestName)
	info, err := os.Stat(path)
	if err != nil {
		return Manifest{}, fmt.Errorf("%s is no run directory: %w", dir, err)
	}
	if !info.Mode().IsRegular() { // a pipe would block
		return Manifest{}, &BadInput{manifestName, 0, "no regular file", "a manifest"}
	}
	f, err := os.Open(path)
	if err != nil {
		return Manifest{}, fmt.Errorf("%s is no run directory: %w", dir, err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxManifestBytes+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return Manifest{}, fmt.Errorf("read manifest: %w", err)
	}
	return parseManifest(b)
}

func parseManifest(b []byte) (Manifest, error) {
	if len(b) > maxManifestBytes {
		return Manifest{}, &BadInput{manifestName, 0, "a larger file", fmt.Sprintf("at most %d bytes", maxManifestBytes)}
	}
	// The version first, for in a newer one everything else may have changed.
	var head *struct {
		SpecVersion *int `json:"spec_version"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return Manifest{}, manifestError(b, err)
	}
	switch {
	case head == nil:
		return Manifest{}, &BadInput{manifestName, 1, "null", "an object"}
	case head.SpecVersion != nil && *head.SpecVersion > SpecVersion:
		return Manifest{}, &BadInput{
			manifestName, 0, fmt.Sprintf("a trace of version %d (spec_version)", *head.SpecVersion),
			fmt.Sprintf("version %d or older: this conform knows no newer one", SpecVersion),
		}
	case head.SpecVersion != nil && *head.SpecVersion < 1:
		return Manifest{}, &BadInput{manifestName, 0, fmt.Sprintf("spec_version %d", *head.SpecVersion), "a version from 1 on"}
	}
	m := Manifest{SpecVersion: SpecVersion}
	if err := json.Unmarshal(b, &m); err != nil {
		return Manifest{}, manifestError(b, err)
	}
	return m, nil
}

func manifestError(b []byte, err error) error {
	line := func(offset int64) int {
		return 1 + bytes.Count(b[:min(max(offset, 0), int64(len(b)))], []byte{'\n'})
	}
	var syntax *json.SyntaxError
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return &BadInput{manifestName, line(syntax.Offset), "no JSON: " + err.Error(), "a JSON object"}
	case errors.As(err, &wrong):
		found := wrong.Value
		if wrong.Field != "" {
			found = fmt.Sprintf("%q: %s", wrong.Field, wrong.Value)
		}
		return &BadInput{manifestName, line(wrong.Offset), found, "a value of type " + wrong.Type.String()}
	}
	return &BadInput{manifestName, 0, err.Error(), "a manifest"}
}

// HashFiles returns the digest of each file of events in a run directory, in the
// order of their names.
func HashFiles(dir string) ([]FileSum, error) {
	names, err := eventFiles(dir)
	if err != nil {
		return nil, fmt.Errorf("hash files: %w", err)
	}
	sums := make([]FileSum, len(names))
	for i, name := range names {
		if sums[i], err = hashFile(dir, name); err != nil {
			return nil, fmt.Errorf("hash files: %w", err)
		}
	}
	return sums, nil
}

func hashFile(dir, name string) (FileSum, error) {
	f, err := os.Open(filepath.Join(dir, eventsDir, name))
	if err != nil {
		return FileSum{}, err
	}
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return FileSum{}, err
	}
	return FileSum{path.Join(eventsDir, name), n, hex.EncodeToString(h.Sum(nil))}, nil
}

// verifyFiles compares the files of events with those that the manifest lists,
// if it lists any: that of a run that was killed does not. Other files that it
// lists are none of the trace's.
func verifyFiles(dir string, names []string, listed []FileSum) error {
	if len(listed) == 0 {
		return nil
	}
	want := map[string]string{}
	for _, s := range listed {
		if path.Dir(s.Name) == eventsDir {
			want[path.Base(s.Name)] = s.SHA256
		}
	}
	for _, name := range names {
		sum, ok := want[name]
		if !ok {
			return &BadInput{name, 0, "a file that the manifest does not list", "the files of the manifest alone"}
		}
		delete(want, name)
		got, err := hashFile(dir, name)
		if err != nil {
			return fmt.Errorf("read trace: %w", err)
		}
		if got.SHA256 != sum {
			return &BadInput{name, 0, "a file with the SHA-256 " + got.SHA256, "that of the manifest, " + sum}
		}
	}
	for _, s := range listed {
		if _, missing := want[path.Base(s.Name)]; missing && path.Dir(s.Name) == eventsDir {
			return &BadInput{path.Base(s.Name), 0, "no such file", "a file that the manifest lists"}
		}
	}
	return nil
}
