package layout

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// module is the path of this module.
const module = "conform"

// row says what the packages of one folder may import besides the standard
// library and each other: packages of this module (a folder stands for all that
// is below it) and of others (a prefix of the import path).
type row struct {
	folder  string
	within  []string
	outside []string
}

const (
	porcupine = "github.com/anishathalye/porcupine"
	zstd      = "github.com/klauspost/compress"
	sys       = "golang.org/x/sys"
	yaml      = "go.yaml.in/yaml/v3"
	cobra     = "github.com/spf13/cobra"
	pflag     = "github.com/spf13/pflag"
	msgpack   = "github.com/vmihailenco/msgpack/v5" // what vLLM's control messages are made of
)

// table is that of the design, section 3. The first row whose folder holds a
// package is the one that counts, so inner folders come first.
var table = []row{
	{"spec/check", []string{"spec"}, []string{porcupine}},
	{"spec/explore", []string{"spec"}, nil},
	{"spec/promela", []string{"spec", "spec/explore"}, nil},
	{"spec", nil, nil},
	{"traces", []string{"spec"}, []string{zstd, sys}},
	{"faults", []string{"spec"}, []string{yaml, sys}},
	{"adapters", []string{"spec", "faults", "traces"}, []string{sys, msgpack}},
	{
		"harness/certify",
		[]string{"spec", "spec/check", "traces", "harness"},
		[]string{yaml, "github.com/secure-systems-lab/go-securesystemslib/dsse", "github.com/in-toto/attestation", "google.golang.org/protobuf"},
	},
	{
		"harness/export",
		[]string{"spec", "spec/check"},
		[]string{"github.com/parquet-go/parquet-go", "google.golang.org/protobuf/encoding/protowire"},
	},
	{"harness", []string{"spec", "faults", "traces", "adapters", "internal/spelling"}, []string{yaml, sys}},
	{"cmd", []string{"spec", "faults", "traces", "adapters", "harness", "internal/spelling"}, []string{cobra, pflag, sys}},
	{"internal/layout", nil, nil},
	{"internal/spelling", nil, nil},
}

func TestImportTable(t *testing.T) {
	for dir, files := range packages(t, root(t)) {
		r, ok := rowOf(dir)
		require.True(t, ok, "%s is in no folder of the table; the top-level folders are fixed", dir)
		for _, f := range files {
			for _, imp := range f.imports {
				require.NoError(t, r.allows(dir, imp), "%s", f.name)
			}
		}
	}
}

// A table that allows everything would pass too.
func TestImportTableRefuses(t *testing.T) {
	for _, c := range []struct{ dir, imp string }{
		{"spec", "conform/traces"},
		{"spec", "conform/spec/check"},
		{"spec", porcupine},
		{"spec/check", "conform/traces"},
		{"spec/check", "conform/spec/explore"},
		{"spec/check", zstd + "/zstd"},
		{"traces", "conform/spec/check"},
		{"traces", "conform/faults"},
		{"faults", "conform/traces"},
		{"faults/zmtp", "conform/adapters"},
		{"adapters/reference", "conform/harness"},
		{"adapters", "conform/spec/check"},
		{"harness/report", "conform/cmd/conform"},
		{"harness", "github.com/docker/docker"},
		{"harness", "conform/harness/certify"},
		{"harness/report", "github.com/in-toto/attestation/go/v1"},
		{"harness/certify", "conform/adapters"},
		{"harness/export", "conform/traces"},
		{"harness", "github.com/parquet-go/parquet-go"},
		{"harness", "conform/internal/layout"},
	} {
		r, ok := rowOf(c.dir)
		require.True(t, ok, c.dir)
		require.Error(t, r.allows(c.dir, c.imp), "%s importing %s", c.dir, c.imp)
	}
	_, ok := rowOf("pkg/util")
	require.False(t, ok)
	_, ok = rowOf("specs")
	require.False(t, ok)
}

func TestEachPackageExplainsItself(t *testing.T) {
	for dir, files := range packages(t, root(t)) {
		i := slices.IndexFunc(files, func(f file) bool { return f.name == filepath.Join(dir, "doc.go") })
		require.GreaterOrEqual(t, i, 0, "%s has no doc.go", dir)
		require.NotEmpty(t, files[i].doc, "%s/doc.go has no package comment", dir)
		if files[i].pkg != "main" {
			require.True(t, strings.HasPrefix(files[i].doc, "Package "+files[i].pkg+" "),
				"the comment of %s begins with %q", dir, firstLine(files[i].doc))
		}
		for j, f := range files {
			require.True(t, i == j || f.doc == "", "%s has a package comment besides that of doc.go", f.name)
		}
	}
}

// allows says why a package of dir may not import imp, nil if it may.
func (r row) allows(dir, imp string) error {
	inner, ours := strings.CutPrefix(imp, module+"/")
	if !ours {
		first, _, _ := strings.Cut(imp, "/")
		if !strings.Contains(first, ".") { // the standard library
			return nil
		}
		if slices.ContainsFunc(r.outside, func(p string) bool { return below(imp, p) }) {
			return nil
		}
		return errors.New(dir + " may not import " + imp)
	}
	target, ok := rowOf(inner)
	switch {
	case !ok:
	case target.folder == r.folder && r.folder != "cmd":
		return nil
	case slices.ContainsFunc(r.within, func(p string) bool { return r.reaches(p, target.folder) }):
		return nil
	}
	return errors.New(dir + " may not import " + imp)
}

// reaches reports whether the permission to import folder p covers the folder of
// a row. Up to adapters, spec means the package of that name alone: what judges
// is not for those who record. Those above see all of it.
func (r row) reaches(p, folder string) bool {
	if p == "spec" && r.folder != "harness" && r.folder != "cmd" {
		return folder == "spec"
	}
	return below(folder, p)
}

func rowOf(dir string) (row, bool) {
	for _, r := range table {
		if below(dir, r.folder) {
			return r, true
		}
	}
	return row{}, false
}

func below(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

// file is what the tests need to know of one file that is no test.
type file struct {
	name    string // relative to the root
	pkg     string
	doc     string
	imports []string
}

// packages reads the files of each package of the module, tests left out.
func packages(t *testing.T, root string) map[string][]file {
	t.Helper()
	out := map[string][]file{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			skip := path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "runs")
			if skip || path == filepath.Join(root, "shared") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := read(root, path)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(f.name))
		out[dir] = append(out[dir], f)
		return nil
	})
	require.NoError(t, err)
	require.Contains(t, out, "spec", "the walk found the module")
	return out
}

func read(root, path string) (file, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return file{}, err
	}
	name, err := filepath.Rel(root, path)
	if err != nil {
		return file{}, err
	}
	f := file{name: name, pkg: parsed.Name.Name, doc: docOf(parsed)}
	for _, spec := range parsed.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return file{}, err
		}
		f.imports = append(f.imports, imp)
	}
	return f, nil
}

func docOf(f *ast.File) string {
	if f.Doc == nil {
		return ""
	}
	return f.Doc.Text()
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// root is the folder of go.mod, above the one that the test runs in.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		require.NotEqual(t, parent, dir, "no go.mod above the test")
		dir = parent
	}
}
