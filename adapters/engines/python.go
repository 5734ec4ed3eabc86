package engines

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	//go:embed data/probe.py
	probeScript string
	//go:embed data/check.py
	checkScript string
	//go:embed data/sgl_kernel.py
	sglKernel []byte
)

// PythonVariable names the environment variable that says which interpreter
// environments are made with.
const PythonVariable = "CONFORM_PYTHON"

// minGlibc is what the wheels' platform tag, manylinux_2_34, asks for.
var minGlibc = [2]int{2, 34}

// interpreter is what data/probe.py tells.
type interpreter struct {
	path string

	Minor          string `json:"minor"`
	Version        string `json:"version"`
	Implementation string `json:"implementation"`
	Platform       string `json:"platform"`
	Libc           string `json:"libc"`
	LibcVersion    string `json:"libc_version"`
	Executable     string `json:"executable"`
	Venv           bool   `json:"venv"`
}

// glibcTooOld reports whether the C library is older than minGlibc, or another.
func (p interpreter) glibcTooOld() bool {
	major, minor, _ := strings.Cut(p.LibcVersion, ".")
	a, errA := strconv.Atoi(major)
	b, errB := strconv.Atoi(minor)
	return p.Libc != "glibc" || errA != nil || errB != nil || slices.Compare([]int{a, b}, minGlibc[:]) < 0
}

// probePython asks one interpreter what it is.
func probePython(ctx context.Context, path string, env []string) (interpreter, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, err := child{args: []string{path, "-I", "-c", probeScript}, env: env}.output(ctx)
	if err != nil {
		return interpreter{}, fmt.Errorf("%s: %w: %s", path, err, lastLine(out))
	}
	p := interpreter{path: path}
	if err := json.Unmarshal([]byte(lastLine(out)), &p); err != nil {
		return interpreter{}, fmt.Errorf("%s does not answer as Python does: %w", path, err)
	}
	if !filepath.IsAbs(p.Executable) {
		return interpreter{}, fmt.Errorf("%s does not know where it lies", path)
	}
	return p, nil
}

// A Missing is something that the machine has not and the installation needs.
type Missing struct {
	What string // such as "gcc"
	Why  string // what it is for
	Try  string // the Debian package, or another way out
	Apt  string // the Debian package, "" if there is none
}

// A MissingError names all that the machine lacks at once.
type MissingError struct{ Missing []Missing }

func (e *MissingError) Error() string {
	var what, apt, other []string
	for _, m := range e.Missing {
		what = append(what, fmt.Sprintf("%s (%s)", m.What, m.Why))
		if m.Apt != "" {
			apt = append(apt, m.Apt)
		} else {
			other = append(other, m.Try)
		}
	}
	text := "this machine lacks " + strings.Join(what, ", ")
	if len(apt) > 0 {
		text += "; on Debian: apt-get install " + strings.Join(apt, " ")
	}
	if len(other) > 0 {
		text += "; " + strings.Join(other, "; ")
	}
	return text
}

// machine is what an installation asks the machine; tests put another in its place.
type machine struct {
	getenv    func(string) string
	environ   []string
	platform  string // such as linux-x86_64
	libraries []string
}

// libraryFolders are where the dynamic linker looks on the usual distributions,
// after those of LD_LIBRARY_PATH.
var libraryFolders = []string{
	"/usr/local/lib", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib",
}

// lookPath finds a program as a shell with the machine's PATH would.
func (m machine) lookPath(name string) (string, bool) {
	if strings.ContainsRune(name, filepath.Separator) {
		path, err := exec.LookPath(name)
		return path, err == nil
	}
	for _, dir := range filepath.SplitList(m.getenv("PATH")) {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil && filepath.IsAbs(path) {
			return path, true
		}
	}
	return "", false
}

// hasLibrary reports whether the dynamic linker will find a shared library.
func (m machine) hasLibrary(name string) bool {
	for _, dir := range slices.Concat(filepath.SplitList(m.getenv("LD_LIBRARY_PATH")), m.libraries) {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

// findPython finds an interpreter of a minor version that the recipe is for. Where
// CONFORM_PYTHON names one, no other is tried. Where one without venv is all there
// is, it is returned with what is missing.
func (m machine) findPython(ctx context.Context, minors []string) (interpreter, *Missing) {
	candidates := []string{"python3"}
	for _, v := range minors {
		candidates = append(candidates, "python"+v)
	}
	named := m.getenv(PythonVariable)
	if named != "" {
		candidates = []string{named}
	}
	var seen []string
	var bare *interpreter // without venv
	for _, name := range candidates {
		path, ok := m.lookPath(name)
		if !ok {
			continue
		}
		p, err := probePython(ctx, path, cleanEnv(m.environ))
		if err != nil {
			continue // a launcher with nothing behind it
		}
		seen = append(seen, fmt.Sprintf("%s is %s %s", name, p.Implementation, p.Version))
		if !slices.Contains(minors, p.Minor) || p.Implementation != "CPython" {
			continue
		}
		if p.Venv {
			return p, nil
		}
		if bare == nil {
			bare = &p
		}
	}
	if bare != nil {
		return *bare, &Missing{
			What: "the venv module of Python " + bare.Minor, Why: "makes the environment", Apt: "python" + bare.Minor + "-venv",
		}
	}
	why := "runs the engine"
	if len(seen) > 0 {
		why += "; found: " + strings.Join(seen, ", ")
	}
	missing := &Missing{What: "Python " + strings.Join(minors, " or "), Why: why, Apt: "python3 python3-venv"}
	if len(seen) > 0 || named != "" {
		missing.Apt, missing.Try = "", "name one with "+PythonVariable+"=/path/to/python"
	}
	return interpreter{}, missing
}

// requirements are the header's needs, with what they are for and who has them.
var requirements = map[string]Missing{
	"gcc":             {Why: "compiles the stand-ins for CUDA's libraries", Apt: "gcc"},
	"libibverbs.so.1": {Why: "the transfer engine Mooncake is linked with it", Apt: "libibverbs1"},
}

// ready finds the interpreter, and says all that is missing at once. An error is a
// [*MissingError], or that of the context.
func (m machine) ready(ctx context.Context, r Recipe) (interpreter, error) {
	if r.Engine.Platform != m.platform {
		return interpreter{}, &MissingError{[]Missing{{
			What: "the platform " + r.Engine.Platform, Why: "the wheels are built for it; this is " + m.platform,
			Try: "install on such a machine, or in a container of it",
		}}}
	}
	var missing []Missing
	p, lack := m.findPython(ctx, r.Pythons())
	if err := ctx.Err(); err != nil {
		return interpreter{}, err
	}
	if lack != nil {
		missing = append(missing, *lack)
	} else if p.glibcTooOld() {
		missing = append(missing, Missing{
			What: fmt.Sprintf("glibc %d.%d", minGlibc[0], minGlibc[1]), Why: fmt.Sprintf("the wheels need it; found: %s %s", p.Libc, p.LibcVersion),
			Try: "use Debian 12, Ubuntu 22.04 or newer",
		})
	}
	for _, need := range slices.Concat(r.Base.Needs, r.Engine.Needs) {
		found := false
		if strings.Contains(need, ".so") {
			found = m.hasLibrary(need)
		} else {
			_, found = m.lookPath(need)
		}
		if found {
			continue
		}
		lack := requirements[need]
		lack.What = need
		if lack.Apt == "" {
			lack.Why, lack.Try = "the lock file asks for it", "install "+need
		}
		missing = append(missing, lack)
	}
	if len(missing) > 0 {
		return interpreter{}, &MissingError{missing}
	}
	return p, nil
}

// freeBytes is the room that is left for this user where path is, or will be.
func freeBytes(path string) (int64, error) {
	for {
		if _, err := os.Stat(path); err == nil || !os.IsNotExist(err) || filepath.Dir(path) == path {
			return statFree(path)
		}
		path = filepath.Dir(path)
	}
}

// treeBytes is the room that a tree takes on disk; 0 if there is none.
func treeBytes(root string) int64 {
	var n int64
	_ = filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := d.Info(); err == nil {
			n += diskBytes(info)
		}
		return nil
	})
	return n
}
