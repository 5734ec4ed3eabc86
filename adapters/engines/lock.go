package engines

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The devices that an environment is built for.
const (
	CPU  = "cpu"  // no accelerator; CUDA's libraries are replaced by stand-ins
	CUDA = "cuda" // the stock wheels, for NVIDIA GPUs
)

// The kinds of lock files.
const (
	kindBase   = "base"
	kindEngine = "engine"
)

// The stand-ins that a base can ask for.
const (
	stubCUDA      = "cuda"       // CUDA's shared libraries, for torch
	stubSGLKernel = "sgl_kernel" // SGLang's package of compiled kernels
)

// A Lock is one lock file: what it locks, and its packages.
type Lock struct {
	Kind      string   // "base" or "engine"
	Name      string   // of the base, or of the engine
	Version   string   // of the engine; "" for a base
	Device    string   // CPU or CUDA
	Base      string   // the name of the base that an engine stands on; "" for a base
	Platform  string   // such as linux-x86_64
	Pythons   []string // the minor versions of Python that the wheels are for, such as 3.11
	Needs     []string // what the machine must have: gcc, or the name of a shared library
	Stubs     []string // stand-ins to make: "cuda", "sgl_kernel"
	Imports   []string // modules that must import at the end
	NoCUDA    []string // modules whose cuda.is_available() must be false at the end
	Env       []string // NAME=VALUE pairs that a process of the environment needs
	DiskBytes int64    // of the finished environment, without the base's share for an engine
	Packages  []Package
	Digest    string // sha256 of the file, in hex
}

// A Package is one line of a lock: a version and the files that may be it.
type Package struct {
	Name    string
	Version string
	Hashes  []string // sha256 in hex, one for each platform or Python
	Bytes   int64    // of the largest of those files; 0 if the lock does not say
}

// requirement is the line for pip.
func (p Package) requirement() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s==%s", p.Name, p.Version)
	for _, h := range p.Hashes {
		b.WriteString(" --hash=sha256:" + h)
	}
	return b.String()
}

// downloadBytes is the sum of the sizes of all packages, as far as they are known.
func (l *Lock) downloadBytes() int64 {
	var n int64
	for _, p := range l.Packages {
		n += p.Bytes
	}
	return n
}

// A LockError is a lock file that is not what it should be.
type LockError struct {
	File  string
	Line  int    // from 1; 0 if it is the file as a whole
	Found string // what is wrong
}

func (e *LockError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Found)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Found)
}

// maxLockBytes bounds a lock file; the largest of ours has 30 kB.
const maxLockBytes = 4 << 20

var (
	packageLine = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9.!+_-]*)((?: --hash=sha256:[0-9a-f]{64})+)(?:\s+# ([0-9]{1,15}))?$`)
	safeWord    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$`)
	minorPython = regexp.MustCompile(`^3\.[0-9]{1,2}$`)
	moduleName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)
	envPair     = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*=.*$`)
)

// ParseLock reads a lock file; name is used in errors. The format is pip's
// requirements format with a hash for every package, which pip reads as it is:
//
//	# key: value            header lines, before the first package
//	name==version --hash=sha256:… [--hash=…]  # bytes to download
//
// An error is a [*LockError].
func ParseLock(name string, data []byte) (*Lock, error) {
	if len(data) > maxLockBytes {
		return nil, &LockError{name, 0, fmt.Sprintf("has %d bytes, more than %d", len(data), maxLockBytes)}
	}
	sum := sha256.Sum256(data)
	l := &Lock{Digest: hex.EncodeToString(sum[:])}
	seen := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxLockBytes)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		var err error
		switch {
		case line == "":
		case strings.HasPrefix(line, "#") && len(l.Packages) == 0:
			err = l.header(strings.TrimSpace(line[1:]), seen)
		case strings.HasPrefix(line, "#"):
		default:
			err = l.addPackage(line, seen)
		}
		if err != nil {
			return nil, &LockError{name, n, err.Error()}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, &LockError{name, 0, err.Error()}
	}
	if err := l.validate(); err != nil {
		return nil, &LockError{name, 0, err.Error()}
	}
	return l, nil
}

func (l *Lock) header(line string, seen map[string]bool) error {
	key, value, ok := strings.Cut(line, ":")
	value = strings.TrimSpace(value)
	if !ok || strings.ContainsRune(key, ' ') {
		return nil // a comment
	}
	if seen["# "+key] {
		return fmt.Errorf("the header has %q twice", key)
	}
	seen["# "+key] = true
	words := strings.Fields(value)
	switch key {
	case "kind":
		l.Kind = value
	case "name":
		l.Name = value
	case "version":
		l.Version = value
	case "device":
		l.Device = value
	case "base":
		l.Base = value
	case "platform":
		l.Platform = value
	case "python":
		l.Pythons = words
	case "needs":
		l.Needs = words
	case "stubs":
		l.Stubs = words
	case "import":
		l.Imports = words
	case "no-cuda":
		l.NoCUDA = words
	case "env":
		l.Env = words
	case "disk":
		mega, err := strconv.ParseUint(strings.TrimSuffix(value, " MB"), 10, 32)
		if err != nil {
			return fmt.Errorf("disk is %q, not a number of MB such as \"400 MB\"", value)
		}
		l.DiskBytes = int64(mega) * 1e6
	default:
		return fmt.Errorf("unknown header key %q", key)
	}
	return nil
}

func (l *Lock) addPackage(line string, seen map[string]bool) error {
	m := packageLine.FindStringSubmatch(line)
	if m == nil {
		return fmt.Errorf("%.60q is not NAME==VERSION with its --hash=sha256:HEX", line)
	}
	p := Package{Name: m[1], Version: m[2]}
	key := canonicalName(p.Name)
	if seen[key] {
		return fmt.Errorf("package %s is there twice", p.Name)
	}
	seen[key] = true
	for h := range strings.FieldsSeq(m[3]) {
		p.Hashes = append(p.Hashes, strings.TrimPrefix(h, "--hash=sha256:"))
	}
	if m[4] != "" {
		p.Bytes, _ = strconv.ParseInt(m[4], 10, 64)
	}
	l.Packages = append(l.Packages, p)
	return nil
}

// canonicalName is a package's name as indexes compare it.
func canonicalName(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(name), "_", "-"), ".", "-")
}

func (l *Lock) validate() error {
	for _, c := range []struct{ key, value string }{{"name", l.Name}, {"platform", l.Platform}} {
		if !safeWord.MatchString(c.value) {
			return fmt.Errorf("the header's %s is %q, not a plain word", c.key, c.value)
		}
	}
	switch {
	case l.Kind != kindBase && l.Kind != kindEngine:
		return fmt.Errorf("the header's kind is %q, neither base nor engine", l.Kind)
	case l.Device != CPU && l.Device != CUDA:
		return fmt.Errorf("the header's device is %q, neither cpu nor cuda", l.Device)
	case l.Kind == kindEngine && (!safeWord.MatchString(l.Version) || !safeWord.MatchString(l.Base)):
		return fmt.Errorf("an engine needs a version and a base; they are %q and %q", l.Version, l.Base)
	case l.Kind == kindBase && (l.Version != "" || l.Base != ""):
		return fmt.Errorf("a base has neither a version nor a base")
	case l.Kind == kindEngine && len(l.Stubs) > 0:
		return fmt.Errorf("stubs are made in a base, not in an engine's own folder")
	case len(l.Packages) == 0:
		return fmt.Errorf("no package is locked")
	case len(l.Pythons) == 0:
		return fmt.Errorf("the header says no python")
	case l.DiskBytes == 0:
		return fmt.Errorf("the header says no disk size")
	}
	return l.validateWords()
}

func (l *Lock) validateWords() error {
	for _, v := range l.Pythons {
		if !minorPython.MatchString(v) {
			return fmt.Errorf("python is %q, not a minor version such as 3.11", v)
		}
	}
	for _, v := range l.Stubs {
		if v != stubCUDA && v != stubSGLKernel {
			return fmt.Errorf("unknown stub %q", v)
		}
	}
	for _, v := range l.Needs {
		if !safeWord.MatchString(v) {
			return fmt.Errorf("needs has %q, not a plain word", v)
		}
	}
	for _, v := range slices.Concat(l.Imports, l.NoCUDA) {
		if !moduleName.MatchString(v) {
			return fmt.Errorf("%q is no name of a Python module", v)
		}
	}
	for _, v := range l.Env {
		if !envPair.MatchString(v) {
			return fmt.Errorf("env has %q, not NAME=VALUE", v)
		}
	}
	return nil
}
