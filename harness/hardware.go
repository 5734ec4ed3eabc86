package harness

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"conform/traces"
)

// hardware looks what this machine has. What the system does not tell is left out.
func hardware() *traces.Hardware {
	h := &traces.Hardware{OS: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(), CPU: field("/proc/cpuinfo", "model name")}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		h.Kernel = strings.TrimSpace(string(b))
	}
	if kb, err := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 10, 64); err == nil {
		h.MemoryBytes = kb << 10
	}
	files, _ := filepath.Glob("/proc/driver/nvidia/gpus/*/information") // the pattern is well formed
	for _, f := range files {
		if model := field(f, "Model"); model != "" {
			h.Accelerators = append(h.Accelerators, model)
		}
	}
	slices.Sort(h.Accelerators)
	h.Driver = field("/proc/driver/nvidia/version", "NVRM version")
	return h
}

// field is what a line "NAME: VALUE" of a file of the system says; "" if it has none.
func field(path, name string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return ""
}
