package launch

import (
	"os"
	"regexp"
	"slices"
	"strings"
)

var (
	plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)
	plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// quote writes a word so that a POSIX shell reads it back.
func quote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// commandLine writes a command for a shell, with what of its environment differs
// from this program's, by name. Names that a shell can't set are left out.
func commandLine(argv, env []string) string {
	var words []string
	own, set := environment(os.Environ()), environment(env)
	for name, value := range set {
		if before, same := own[name]; plainName.MatchString(name) && !(same && before == value) {
			words = append(words, name+"="+quote(value))
		}
	}
	slices.Sort(words)
	for _, word := range argv {
		words = append(words, quote(word))
	}
	return strings.Join(words, " ")
}

// environment is NAME=VALUE pairs as a map; of a name the last counts.
func environment(pairs []string) map[string]string {
	out := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		if name, value, found := strings.Cut(pair, "="); found && name != "" {
			out[name] = value
		}
	}
	return out
}
