package engines

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const goodHash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

const goodBase = `# kind: base
# name: tiny
# device: cpu
# platform: linux-x86_64
# python: 3.11 3.12
# disk: 1 MB
# a comment
alpha==1.0 --hash=sha256:` + goodHash + `  # 1200
`

const goodEngine = `# kind: engine
# name: toy
# version: 1.2
# device: cpu
# base: tiny
# platform: linux-x86_64
# python: 3.11
# env: A=1 B=x=y
# disk: 2 MB
Beta.x==2 --hash=sha256:` + goodHash + ` --hash=sha256:` + goodHash + `
`

func TestParseLock(t *testing.T) {
	l, err := ParseLock("f", []byte(goodEngine))
	require.NoError(t, err)
	require.Equal(t, "toy", l.Name)
	require.Equal(t, []string{"A=1", "B=x=y"}, l.Env)
	require.EqualValues(t, 2e6, l.DiskBytes)
	require.Equal(t, []Package{{Name: "Beta.x", Version: "2", Hashes: []string{goodHash, goodHash}}}, l.Packages)
	require.Equal(t, "Beta.x==2 --hash=sha256:"+goodHash+" --hash=sha256:"+goodHash, l.Packages[0].requirement())
	b, err := ParseLock("f", []byte(goodBase))
	require.NoError(t, err)
	require.EqualValues(t, 1200, b.downloadBytes())
	require.NotEqual(t, l.Digest, b.Digest)
}

func TestParseLockRefuses(t *testing.T) {
	line := func(replace, by string) string { return strings.Replace(goodEngine, replace, by, 1) }
	for name, c := range map[string]struct{ text, want string }{
		"empty":              {"", "f: the header's name"},
		"no package":         {strings.Split(goodEngine, "Beta")[0], "no package"},
		"no hash":            {line(" --hash=sha256:"+goodHash+" --hash=sha256:"+goodHash, ""), "f:10: "},
		"short hash":         {line(goodHash, "abc"), "f:10: "},
		"an option of pip":   {goodEngine + "--index-url x\n", "f:11: "},
		"a file":             {goodEngine + "./evil.whl --hash=sha256:" + goodHash + "\n", "f:11: "},
		"not pinned":         {line("Beta.x==2", "Beta.x>=2"), "f:10: "},
		"twice":              {goodEngine + "beta-x==3 --hash=sha256:" + goodHash + "\n", "is there twice"},
		"header key":         {"# colour: red\n" + goodEngine, "unknown header key"},
		"header twice":       {"# kind: base\n" + goodEngine, "twice"},
		"kind":               {line("kind: engine", "kind: other"), "neither base nor engine"},
		"device":             {line("device: cpu", "device: tpu"), "neither cpu nor cuda"},
		"name leaves folder": {line("name: toy", "name: ../toy"), "not a plain word"},
		"version":            {line("version: 1.2", "version: a/b"), "needs a version"},
		"no base":            {line("# base: tiny\n", ""), "needs a version and a base"},
		"python":             {line("python: 3.11", "python: 3"), "not a minor version"},
		"no python":          {line("# python: 3.11\n", ""), "no python"},
		"disk":               {line("2 MB", "2 GB"), "not a number of MB"},
		"no disk":            {line("# disk: 2 MB\n", ""), "no disk size"},
		"import":             {line("# disk", "# import: os;evil()\n# disk"), "no name of a Python module"},
		"env":                {line("A=1", "1"), "not NAME=VALUE"},
		"needs":              {line("# disk", "# needs: a/b\n# disk"), "not a plain word"},
		"stubs of an engine": {line("# disk", "# stubs: cuda\n# disk"), "not in an engine"},
		"unknown stub":       {strings.Replace(goodBase, "# disk", "# stubs: x\n# disk", 1), "unknown stub"},
		"base on a base":     {strings.Replace(goodBase, "# disk", "# base: x\n# disk", 1), "neither a version nor a base"},
		"too large":          {goodEngine + strings.Repeat("#\n", maxLockBytes/2), "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseLock("f", []byte(c.text))
			var bad *LockError
			require.ErrorAs(t, err, &bad)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestParseLockNeverPanics(t *testing.T) {
	words := []string{
		"#", "# kind: base\n", "# name:", " ", "\n", "a==1", " --hash=sha256:" + goodHash, "# 9", ":", "=", "\x00", "é",
		"# disk: 5 MB\n", "# python: 3.11\n", "# device: cpu\n", "# name: n\n", "# platform: p\n",
	}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 0, 30).Draw(t, "words"), "")
		l, err := ParseLock("f", []byte(text))
		if (l == nil) == (err == nil) {
			t.Fatalf("lock %v, error %v", l, err)
		}
	})
}

func TestEmbeddedLocks(t *testing.T) {
	c := Builtin()
	for _, version := range []string{"0.5.18", "0.5.20", "0.5.23"} {
		cpu, err := c.Find("sglang@"+version, CPU)
		require.NoError(t, err)
		require.Equal(t, "sglang-cpu", cpu.Base.Name, "the versions share a base")
		require.Contains(t, cpu.Base.Stubs, stubCUDA)
		cuda, err := c.Find("sglang@"+version, CUDA)
		require.NoError(t, err)
		require.Empty(t, cuda.Base.Stubs, "a GPU needs the real libraries")
		require.NotEqual(t, cpu.Digest(), cuda.Digest())
	}
	for version, base := range map[string]string{"0.15.1": "vllm-cpu-torch2.10", "0.16.0": "vllm-cpu-torch2.10", "0.29.0": "vllm-cpu-torch2.13", "0.32.0": "vllm-cpu-torch2.13"} {
		cpu, err := c.Find("vllm@"+version, CPU)
		require.NoError(t, err)
		require.Equal(t, base, cpu.Base.Name, "versions of one torch share a base")
		require.Equal(t, []string{stubCUDA}, cpu.Base.Stubs)
		require.Equal(t, "vllm-cpu", cpu.Engine.Packages[len(cpu.Engine.Packages)-1].Name, "the build for CPUs")
		cuda, err := c.Find("vllm@"+version, CUDA)
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(cuda.Engine.Packages, func(p Package) bool { return p.Name == "vllm" && p.Version == version }), "the stock wheel")
	}
	for _, r := range c.Recipes() {
		require.NotEmpty(t, r.Pythons(), r.Spec())
		for _, p := range append(r.Base.Packages, r.Engine.Packages...) {
			require.Positive(t, p.Bytes, p.Name)
		}
	}
	files, err := fs.Glob(embedded, "locks/*.lock")
	require.NoError(t, err)
	for _, name := range files {
		data, err := embedded.ReadFile(name)
		require.NoError(t, err)
		require.NotContains(t, string(data), "://", "%s names no index", name)
	}
}

// locks is a folder of lock files.
func locks(files map[string]string) fs.FS {
	out := fstest.MapFS{}
	for name, text := range files {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

func TestCatalog(t *testing.T) {
	first, err := (&Catalog{}).Add(locks(map[string]string{
		"z-base.lock": goodBase, "a.lock": goodEngine, "readme.txt": "no lock",
		"b.lock": strings.Replace(goodEngine, "version: 1.2", "version: 1.10", 1),
	}))
	require.NoError(t, err)
	require.Len(t, first.Recipes(), 2)
	require.Equal(t, "toy@1.10", first.Recipes()[1].Spec(), "1.10 is after 1.2")
	old, err := first.Find("toy@1.2", CPU)
	require.NoError(t, err)
	require.Equal(t, []string{"3.11"}, old.Pythons())

	second, err := first.Add(locks(map[string]string{"c.lock": strings.Replace(goodEngine, "x==2", "x==3", 1)}))
	require.NoError(t, err)
	require.Len(t, second.Recipes(), 2, "a lock of the same version replaces the first")
	changed, err := second.Find("toy@1.2", CPU)
	require.NoError(t, err)
	require.NotEqual(t, old.Digest(), changed.Digest())
	require.NotEqual(t, old.envDir("3.11"), changed.envDir("3.11"))
	require.Equal(t, old.baseDir("3.11"), changed.baseDir("3.11"))
	again, err := first.Find("toy@1.2", CPU)
	require.NoError(t, err)
	require.Equal(t, old.Digest(), again.Digest(), "the first catalog is as it was")
}

func TestCatalogRefuses(t *testing.T) {
	for want, files := range map[string]map[string]string{
		`no base "tiny"`:              {"a.lock": goodEngine},
		"no Python version in common": {"b.lock": goodBase, "a.lock": strings.Replace(goodEngine, "3.11", "3.10", 1)},
		"and its base for cpu":        {"b.lock": goodBase, "a.lock": strings.Replace(goodEngine, "device: cpu", "device: cuda", 1)},
		"a.lock:1: ":                  {"a.lock": "x"},
	} {
		_, err := (&Catalog{}).Add(locks(files))
		var bad *LockError
		require.ErrorAs(t, err, &bad)
		require.ErrorContains(t, err, want)
	}
	_, err := Builtin().Find("sglang@9", CPU)
	require.ErrorContains(t, err, "expected one of sglang@0.5.18, sglang@0.5.20, sglang@0.5.23")
	_, err = Builtin().Find("sglang@0.5.23", "tpu")
	require.ErrorContains(t, err, `unknown device "tpu"`)
	_, err = (&Catalog{}).Find("a@1", CPU)
	require.ErrorContains(t, err, "no lock file")
}

func TestBatchesHoldEachPackageOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.Int64Range(0, 2*batchBytes), 1, 200).Draw(t, "sizes")
		var all []Package
		for i, n := range sizes {
			all = append(all, Package{Name: fmt.Sprintf("p%d", i), Version: "1", Hashes: []string{goodHash}, Bytes: n})
		}
		seen, steps := map[string]int{}, map[string]bool{}
		for _, b := range batches(all) {
			var sum int64
			for _, p := range b.packages {
				seen[p.Name]++
				sum += p.Bytes
			}
			if sum != b.bytes || (sum > batchBytes && len(b.packages) > 1) || len(b.packages) > batchPackages {
				t.Fatalf("a batch of %d packages, %d bytes", len(b.packages), sum)
			}
			if steps[b.step()] {
				t.Fatalf("two batches are called %s", b.step())
			}
			steps[b.step()] = true
		}
		if len(seen) != len(all) {
			t.Fatalf("%d of %d packages", len(seen), len(all))
		}
	})
}
