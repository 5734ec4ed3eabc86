package engines

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// stubMark is a symbol that each stand-in defines, so that it is known for one.
const stubMark = "conform_cuda_stub"

var (
	cudaLibrary = regexp.MustCompile(`^lib(cu|nv|nccl)[A-Za-z0-9_]*\.so(\.[0-9]+)*$`)
	cudaSymbol  = regexp.MustCompile(`^_{0,2}(cu|nv|nccl)[A-Za-z0-9_]*$`)
	cIdentifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	versionNode = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)
)

// A stubLibrary is one stand-in: what it is called, and what it has to define.
type stubLibrary struct {
	soname  string
	symbols map[string]stubSymbol // by name
}

type stubSymbol struct {
	version string // the version node, "" for none
	object  bool   // data, not a function
}

// A compileFunc compiles a C source into a shared library.
type compileFunc func(ctx context.Context, args ...string) error

// CUDAStubs finds out which of CUDA's libraries torch's own libraries in
// sitePackages ask for and do not have, and compiles a stand-in for each of them
// into torch/lib. What they must define is read from the undefined symbols of
// torch's libraries, with the symbol versions, which the dynamic linker insists on.
// It returns the names of the libraries. It may be called again.
func CUDAStubs(ctx context.Context, sitePackages, scratch string, compile compileFunc) ([]string, error) {
	lib := filepath.Join(sitePackages, "torch", "lib")
	files, err := torchLibraries(sitePackages)
	if err != nil {
		return nil, err
	}
	stubs, err := missingLibraries(files)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range stubs {
		if err := s.build(ctx, lib, scratch, compile); err != nil {
			return nil, fmt.Errorf("stand-in for %s: %w", s.soname, err)
		}
		names = append(names, s.soname)
	}
	return names, nil
}

// torchLibraries are the shared libraries of torch, stand-ins of an earlier call
// left out.
func torchLibraries(sitePackages string) ([]string, error) {
	var out []string
	for _, pattern := range []string{"torch/lib/*.so*", "torch/_C*.so"} {
		found, err := filepath.Glob(filepath.Join(sitePackages, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
				continue
			}
			stub, err := isStub(path)
			if err != nil {
				return nil, err
			}
			if !stub {
				out = append(out, path)
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("torch has no shared libraries in " + sitePackages)
	}
	return out, nil
}

func isStub(path string) (bool, error) {
	f, err := elf.Open(path)
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	if f.FileHeader.Type != elf.ET_DYN {
		return false, fmt.Errorf("%s is no shared library", path)
	}
	if !cudaLibrary.MatchString(filepath.Base(path)) {
		return false, nil // torch's own; some have many symbols to read
	}
	symbols, err := f.DynamicSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == stubMark }), nil
}

// demand is what one library asks of others.
type demand struct {
	libraries []string     // needed, and not among the files
	symbols   []elf.Symbol // undefined, not weak
}

// missingLibraries collects what the files ask of libraries of CUDA that are not
// among them. A symbol with a version says whose it is. One without could be
// anybody's: the dynamic linker looks through all libraries, so it may go into any
// that its user needs.
func missingLibraries(files []string) ([]*stubLibrary, error) {
	present, defined := map[string]bool{}, map[string]bool{}
	for _, path := range files {
		present[filepath.Base(path)] = true
	}
	var demands []demand
	for _, path := range files {
		d, err := readDemand(path, present, defined)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		demands = append(demands, d)
	}
	stubs := map[string]*stubLibrary{}
	for _, d := range demands {
		for _, name := range d.libraries {
			if stubs[name] == nil {
				stubs[name] = &stubLibrary{soname: name, symbols: map[string]stubSymbol{}}
			}
		}
	}
	for _, d := range demands {
		for _, s := range d.symbols {
			owner := stubs[s.Library]
			if owner == nil && s.Version == "" && len(d.libraries) > 0 && cudaSymbol.MatchString(s.Name) && !defined[s.Name] {
				owner = stubs[d.libraries[0]]
			}
			if owner != nil && cIdentifier.MatchString(s.Name) {
				owner.symbols[s.Name] = stubSymbol{version: s.Version, object: elf.ST_TYPE(s.Info) == elf.STT_OBJECT}
			}
		}
	}
	var out []*stubLibrary
	for _, s := range stubs {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *stubLibrary) int { return strings.Compare(a.soname, b.soname) })
	return out, nil
}

func readDemand(path string, present, defined map[string]bool) (demand, error) {
	f, err := elf.Open(path)
	if err != nil {
		return demand{}, err
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil {
		return demand{}, err
	}
	var d demand
	for _, name := range needed {
		if cudaLibrary.MatchString(name) && !present[name] {
			d.libraries = append(d.libraries, name)
		}
	}
	symbols, err := f.DynamicSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return demand{}, err
	}
	for _, s := range symbols {
		switch {
		case s.Section != elf.SHN_UNDEF:
			defined[s.Name] = true
		case elf.ST_BIND(s.Info) != elf.STB_WEAK:
			d.symbols = append(d.symbols, s)
		}
	}
	return d, nil
}

// build compiles the stand-in under another name and then puts it in its place.
func (s *stubLibrary) build(ctx context.Context, folder, scratch string, compile compileFunc) error {
	source, script := s.source()
	c, ld := filepath.Join(scratch, "stub.c"), filepath.Join(scratch, "stub.map")
	if err := os.WriteFile(c, []byte(source), 0o644); err != nil {
		return err
	}
	args := []string{"-shared", "-fPIC", "-nostdlib", "-w", "-O1", "-Wl,-soname," + s.soname}
	if script != "" {
		if err := os.WriteFile(ld, []byte(script), 0o644); err != nil {
			return err
		}
		args = append(args, "-Wl,--version-script="+ld)
	}
	out := filepath.Join(scratch, s.soname)
	if err := compile(ctx, append(args, "-o", out, c)...); err != nil {
		return err
	}
	return os.Rename(out, filepath.Join(folder, s.soname))
}

// source is the C text of the library, and the linker's version script ("" if no
// symbol has a version).
func (s *stubLibrary) source() (c, script string) {
	var b, v strings.Builder
	fmt.Fprintf(&b, "const char %s[] = \"%s\";\n", stubMark, s.soname)
	var names []string
	for name := range s.symbols {
		names = append(names, name)
	}
	slices.Sort(names)
	nodes := map[string][]string{}
	for _, name := range names {
		b.WriteString(s.symbols[name].definition(name))
		if node := s.symbols[name].version; versionNode.MatchString(node) {
			nodes[node] = append(nodes[node], name)
		}
	}
	var order []string
	for node := range nodes {
		order = append(order, node)
	}
	slices.Sort(order)
	for _, node := range order {
		fmt.Fprintf(&v, "%s { global: %s; };\n", node, strings.Join(nodes[node], "; "))
	}
	return b.String(), v.String()
}

// noDevice is what a function of CUDA's runtime and driver returns where there is
// no GPU.
const noDevice = 100

// definition is one symbol in C. The functions that register kernels run when
// torch's libraries are loaded, before anybody asks for a device, and their answer
// is dereferenced.
func (y stubSymbol) definition(name string) string {
	switch {
	case y.object:
		return fmt.Sprintf("char %s[256];\n", name)
	case strings.HasPrefix(name, "__cuda"):
		return fmt.Sprintf("static void *handle_%s[8]; void *%s(void) { return handle_%s; }\n", name, name, name)
	case strings.Contains(name, "String") || strings.Contains(name, "ErrorName"):
		return fmt.Sprintf("const char *%s(void) { return \"no CUDA: a stand-in by conform\"; }\n", name)
	default:
		return fmt.Sprintf("int %s(void) { return %d; }\n", name, noDevice)
	}
}
