package engines

import (
	"slices"
	"strings"
)

// foreign are the variables that would lead another Python, or another set of
// packages, into an environment, or make every process compile all of it again.
var foreign = []string{
	"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX",
	"PYTHONPLATLIBDIR", "PYTHONSAFEPATH", "PYTHONOPTIMIZE", "PYTHONDEVMODE", "PYTHONEXECUTABLE", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__",
	"PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_ROOT", "PIP_REQUIREMENT", "PIP_CONSTRAINT", "PIP_REQUIRE_VIRTUALENV", "PIP_LOG",
	"PIP_NO_BINARY", "PIP_ONLY_BINARY", "PIP_QUIET", "PIP_VERBOSE", "PIP_DRY_RUN", "PIP_REPORT", "PIP_PLATFORM", "PIP_PYTHON_VERSION",
}

// cleanEnv is env without the foreign variables. Where a mirror or a proxy of
// package indexes is set, it stays set.
func cleanEnv(env []string) []string {
	out := slices.DeleteFunc(slices.Clone(env), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.Contains(foreign, name)
	})
	return append(out, "PYTHONNOUSERSITE=1")
}

// setEnv sets one variable, in the place of an earlier value.
func setEnv(env []string, name, value string) []string {
	out := slices.DeleteFunc(env, func(pair string) bool { return strings.HasPrefix(pair, name+"=") })
	return append(out, name+"="+value)
}
