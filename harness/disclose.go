package harness

import (
	"net/netip"
	"regexp"
	"strings"
)

// What a manifest tells of the user's own settings goes by lists of what may be
// told. A value that is not on them is withheld; its name is kept, so that a reader
// knows that something was set.

// withheld stands in the place of a value that is not told.
const withheld = "(withheld)"

// toldEnv are the beginnings of variables that set up engines, transports and
// accelerators.
var toldEnv = []string{
	"SGLANG_", "SGL_", "VLLM_", "NIXL_", "UCX_", "MC_", "MOONCAKE_", "NCCL_", "RCCL_", "CUDA_", "HIP_", "ROCR_", "OMP_", "TORCH", "PYTORCH_",
}

// secret is what a name has that stands for something to keep: keys, and addresses.
var secret = regexp.MustCompile(`(?i)key|token|secret|passw|credential|auth|host|addr|url|uri|endpoint|prompt`)

// plain is a value that can hold no path, address or sentence: a number, a word, a
// list of such.
var plain = regexp.MustCompile(`^[A-Za-z0-9_.,+-]{0,64}$`)

func disclosedEnv(env []string) []string {
	out := make([]string, len(env))
	for i, e := range env {
		name, value, _ := strings.Cut(e, "=")
		told := false
		for _, prefix := range toldEnv {
			told = told || strings.HasPrefix(name, prefix)
		}
		if !told {
			value = withheld
		}
		out[i] = name + "=" + disclosed(name, value)
	}
	return out
}

// disclosedArgs keeps the names of flags, and plain values of those that stand for
// nothing to keep.
func disclosedArgs(args []string) []string {
	out := make([]string, len(args))
	flag := ""
	for i, arg := range args {
		if !strings.HasPrefix(arg, "-") {
			out[i] = disclosed(flag, arg)
			continue
		}
		name, value, joined := strings.Cut(arg, "=")
		if out[i] = disclosed("", name); joined {
			out[i] += "=" + disclosed(name, value)
		}
		flag = name
	}
	return out
}

func disclosed(name, value string) string {
	_, err := netip.ParseAddr(value)
	_, errPort := netip.ParseAddrPort(value)
	if secret.MatchString(name) || !plain.MatchString(value) || err == nil || errPort == nil {
		return withheld
	}
	return value
}
