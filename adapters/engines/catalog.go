package engines

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed locks/*.lock
var embedded embed.FS

// A Recipe is what one environment is made from.
type Recipe struct {
	Base   *Lock
	Engine *Lock
}

// Spec is how a person names the engine, such as sglang@0.5.23.
func (r Recipe) Spec() string { return r.Engine.Name + "@" + r.Engine.Version }

// Device is CPU or CUDA.
func (r Recipe) Device() string { return r.Engine.Device }

// format is part of every digest; it changes when what Install makes of the same
// locks changes, so that environments of an earlier program are not taken for ours.
const format = "1"

// Digest is the sha256, in hex, that stands for both locks and for how this
// program installs them. It goes into manifests.
func (r Recipe) Digest() string { return digestOf(format, r.Base.Digest, r.Engine.Digest) }

func digestOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:])
}

// Pythons are the minor versions of Python that both locks are for.
func (r Recipe) Pythons() []string {
	var out []string
	for _, v := range r.Engine.Pythons {
		if slices.Contains(r.Base.Pythons, v) {
			out = append(out, v)
		}
	}
	return out
}

// short is the part of a digest that folder names carry.
func short(digest string) string { return digest[:10] }

func pyTag(minor string) string { return "py" + strings.ReplaceAll(minor, ".", "") }

// baseDir and envDir are the names of the folders of an environment. They hold
// the digest, so that a changed lock is another folder.
func (r Recipe) baseDir(minor string) string {
	return r.Base.Name + "-" + pyTag(minor) + "-" + short(digestOf(format, r.Base.Digest))
}

func (r Recipe) envDir(minor string) string {
	return strings.Join([]string{r.Engine.Name, r.Engine.Version, r.Device(), pyTag(minor), short(r.Digest())}, "-")
}

// A Catalog is the engines that can be installed. It is not changed after it was
// made, and may be used by many at once.
type Catalog struct {
	bases   map[string]*Lock
	recipes []Recipe
}

var builtin = sync.OnceValues(func() (*Catalog, error) {
	locks, err := fs.Sub(embedded, "locks")
	if err != nil {
		return nil, err
	}
	return (&Catalog{}).Add(locks)
})

// Builtin is the catalog that ships with the program.
func Builtin() *Catalog {
	c, err := builtin()
	if err != nil {
		panic(fmt.Sprintf("engines: embedded locks: %v", err)) // a test reads them all
	}
	return c
}

// Add gives a catalog that has the lock files (*.lock) at the top of a folder as
// well. An engine version that is there already is replaced. An error is a
// [*LockError], or that of reading the folder.
func (c *Catalog) Add(folder fs.FS) (*Catalog, error) {
	files, err := fs.Glob(folder, "*.lock")
	if err != nil {
		return nil, fmt.Errorf("lock files: %w", err)
	}
	out := &Catalog{bases: map[string]*Lock{}, recipes: slices.Clone(c.recipes)}
	for name, base := range c.bases {
		out.bases[name] = base
	}
	engines := map[string]*Lock{}
	for _, name := range files {
		data, err := fs.ReadFile(folder, name)
		if err != nil {
			return nil, fmt.Errorf("lock files: %w", err)
		}
		l, err := ParseLock(name, data)
		if err != nil {
			return nil, err
		}
		if l.Kind == kindBase {
			out.bases[l.Name] = l
		} else {
			engines[name] = l
		}
	}
	for _, name := range files {
		if l := engines[name]; l != nil {
			if err := out.addEngine(l); err != nil {
				return nil, &LockError{name, 0, err.Error()}
			}
		}
	}
	slices.SortFunc(out.recipes, compareRecipes)
	return out, nil
}

func (c *Catalog) addEngine(l *Lock) error {
	base := c.bases[l.Base]
	if base == nil {
		return fmt.Errorf("there is no base %q", l.Base)
	}
	if base.Device != l.Device || base.Platform != l.Platform {
		return fmt.Errorf("it is for %s on %s, and its base for %s on %s", l.Device, l.Platform, base.Device, base.Platform)
	}
	r := Recipe{Base: base, Engine: l}
	if len(r.Pythons()) == 0 {
		return fmt.Errorf("it and its base have no Python version in common")
	}
	c.recipes = slices.DeleteFunc(c.recipes, func(old Recipe) bool {
		return old.Spec() == r.Spec() && old.Device() == r.Device()
	})
	c.recipes = append(c.recipes, r)
	return nil
}

// Recipes are all engines that can be installed, by name, version and device.
func (c *Catalog) Recipes() []Recipe { return slices.Clone(c.recipes) }

// Find gives the recipe of an engine such as "sglang@0.5.23". An error is an
// [*UnknownError].
func (c *Catalog) Find(spec, device string) (Recipe, error) {
	var names []string
	for _, r := range c.recipes {
		if r.Spec() == spec && r.Device() == device {
			return r, nil
		}
		if r.Device() == device {
			names = append(names, r.Spec())
		}
	}
	return Recipe{}, &UnknownError{Spec: spec, Device: device, Known: names}
}

// An UnknownError is the name of an engine that no lock file is for.
type UnknownError struct {
	Spec   string
	Device string
	Known  []string // the engines that there are for that device
}

func (e *UnknownError) Error() string {
	if e.Device != CPU && e.Device != CUDA {
		return fmt.Sprintf("unknown device %q; expected one of %s, %s", e.Device, CPU, CUDA)
	}
	return fmt.Sprintf("no lock file for engine %q on %s; expected one of %s", e.Spec, e.Device, strings.Join(e.Known, ", "))
}

func compareRecipes(a, b Recipe) int {
	if c := strings.Compare(a.Engine.Name, b.Engine.Name); c != 0 {
		return c
	}
	if c := compareVersions(a.Engine.Version, b.Engine.Version); c != 0 {
		return c
	}
	return strings.Compare(a.Device(), b.Device())
}

// compareVersions orders versions by their numbers, part by part; parts that are
// no numbers are compared as text.
func compareVersions(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		x, errX := strconv.Atoi(as[i])
		y, errY := strconv.Atoi(bs[i])
		if errX != nil || errY != nil {
			if c := strings.Compare(as[i], bs[i]); c != 0 {
				return c
			}
		} else if x != y {
			return x - y
		}
	}
	return len(as) - len(bs)
}
