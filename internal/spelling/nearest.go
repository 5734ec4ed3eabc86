package spelling

import "strings"

// Nearest is the one of names that a mistyped name most likely meant, "" if none
// is near. It takes time of the order of the names' lengths times that of name.
func Nearest(name string, names []string) string {
	const longest = 64 // a longer word is no slip of the finger
	if name == "" || len(name) > longest {
		return ""
	}
	lower := strings.ToLower(name)
	best, least := "", max(2, len(name)/3)+1
	for _, n := range names {
		if d := distance(lower, strings.ToLower(n)); d < least {
			best, least = n, d
		}
	}
	if best != "" {
		return best
	}
	if len(name) < 3 {
		return ""
	}
	for _, n := range names {
		if strings.Contains(strings.ToLower(n), lower) {
			return n
		}
	}
	return ""
}

// distance counts the insertions, deletions, substitutions and swaps of
// neighbours that make b of a, in bytes.
func distance(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	before, last, now := rows[0], rows[1], rows[2]
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now[0] = i
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}
