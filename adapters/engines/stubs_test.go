package engines

import (
	"context"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// needTool skips where a program is missing; CI has all of them.
func needTool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip("needs " + name)
	}
	return path
}

func compiler(t *testing.T) compileFunc {
	gcc := needTool(t, "gcc")
	return func(ctx context.Context, args ...string) error {
		out, err := exec.CommandContext(ctx, gcc, args...).CombinedOutput()
		if err != nil {
			t.Logf("%s", out)
		}
		return err
	}
}

// fakeTorch makes a torch/lib whose one library asks for a CUDA library with
// symbol versions, for one without, and for functions that it has itself. The
// libraries that it was linked with are gone afterwards.
func fakeTorch(t *testing.T, compile compileFunc) (site string) {
	t.Helper()
	site = t.TempDir()
	lib := filepath.Join(site, "torch", "lib")
	require.NoError(t, os.MkdirAll(lib, 0o755))
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	script := write("map", "libcudart.so.13 { global: cudaMalloc; cudaGetErrorString; __cudaRegisterFatBinary; cudaTable; };\n")
	build := func(args ...string) {
		require.NoError(t, compile(t.Context(), append([]string{"-shared", "-fPIC", "-w"}, args...)...))
	}
	build("-Wl,-soname,libcudart.so.13", "-Wl,--version-script="+script, "-o", filepath.Join(lib, "libcudart.so.13"),
		write("rt.c", "int cudaMalloc(){return 0;} const char*cudaGetErrorString(){return 0;} void*__cudaRegisterFatBinary(){return 0;} int cudaTable[4];"))
	build("-Wl,-soname,libnccl.so.2", "-o", filepath.Join(lib, "libnccl.so.2"), write("nccl.c", "int ncclInit(){return 0;}"))
	build("-Wl,-rpath,$ORIGIN", "-L"+lib, "-o", filepath.Join(lib, "libtorch.so"), write("torch.c", `
		int cudaMalloc(), ncclInit(); const char *cudaGetErrorString(); void *__cudaRegisterFatBinary(); extern int cudaTable[4];
		int cudnnOwn(){return 5;}
		static void *handle; __attribute__((constructor)) static void load(){handle=__cudaRegisterFatBinary(); *(char*)handle=1;}
		int answer(){return cudaMalloc()*1000+ncclInit()+cudnnOwn()+cudaTable[0];} const char *text(){return cudaGetErrorString();}`),
		"-l:libcudart.so.13", "-l:libnccl.so.2")
	require.NoError(t, os.Remove(filepath.Join(lib, "libcudart.so.13")))
	require.NoError(t, os.Remove(filepath.Join(lib, "libnccl.so.2")))
	return site
}

func TestStandInsLoadAndAnswerNoDevice(t *testing.T) {
	compile, python := compiler(t), needTool(t, "python3")
	site := fakeTorch(t, compile)
	load := func() (string, error) {
		out, err := exec.Command(python, "-c", `import ctypes, sys
l = ctypes.CDLL(sys.argv[1]); l.text.restype = ctypes.c_char_p
print(l.answer(), l.text().decode())`, filepath.Join(site, "torch", "lib", "libtorch.so")).CombinedOutput()
		return string(out), err
	}
	_, err := load()
	require.Error(t, err, "without the stand-ins it does not load")
	for range 2 { // it may be done again
		names, err := CUDAStubs(t.Context(), site, t.TempDir(), compile)
		require.NoError(t, err)
		require.Equal(t, []string{"libcudart.so.13", "libnccl.so.2"}, names)
		out, err := load()
		require.NoError(t, err, out)
		require.Equal(t, "100105 no CUDA: a stand-in by conform\n", out)
	}
	f, err := elf.Open(filepath.Join(site, "torch", "lib", "libcudart.so.13"))
	require.NoError(t, err)
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	require.NoError(t, err)
	found := map[string]string{}
	for _, s := range symbols {
		found[s.Name] = s.Version
	}
	require.Equal(t, "libcudart.so.13", found["cudaMalloc"], "under its version, which the linker insists on")
	require.Contains(t, found, stubMark)
	require.NotContains(t, found, "cudnnOwn", "what torch has itself")
}

func TestStandInsRefuse(t *testing.T) {
	never := func(context.Context, ...string) error { return os.ErrInvalid }
	_, err := CUDAStubs(t.Context(), t.TempDir(), t.TempDir(), never)
	require.ErrorContains(t, err, "torch has no shared libraries")

	site := t.TempDir()
	lib := filepath.Join(site, "torch", "lib")
	require.NoError(t, os.MkdirAll(lib, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(lib, "libtorch.so"), []byte("no ELF"), 0o644))
	_, err = CUDAStubs(t.Context(), site, t.TempDir(), never)
	require.ErrorContains(t, err, "libtorch.so")

	_, err = CUDAStubs(t.Context(), fakeTorch(t, compiler(t)), t.TempDir(), never)
	require.ErrorIs(t, err, os.ErrInvalid, "the compiler's error")
}

func TestKernelPackageImportsAndRaises(t *testing.T) {
	python := needTool(t, "python3")
	pkg := filepath.Join(t.TempDir(), "sgl_kernel")
	require.NoError(t, os.MkdirAll(pkg, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(pkg, "__init__.py"), sglKernel, 0o644))
	cmd := exec.Command(python, "-B", "-c", `
import sgl_kernel, sgl_kernel.a.b
from sgl_kernel import gemm
from sgl_kernel.flash import f, g
import sgl_kernel.flash as flash
assert not hasattr(sgl_kernel, "__wrapped__") and flash.f.__name__ == "f"
for call in (gemm, f, g.h, sgl_kernel.a.b.c):
    try:
        call(1)
    except NotImplementedError as e:
        print(e)
`)
	cmd.Dir = filepath.Dir(pkg)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	for _, name := range []string{"sgl_kernel.gemm is", "sgl_kernel.flash.f is", "sgl_kernel.flash.g.h is", "sgl_kernel.a.b.c is"} {
		require.Contains(t, string(out), name)
	}
}
