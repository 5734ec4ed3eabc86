// Package spelling finds what a mistyped name most likely meant, for errors that
// end in "did you mean".
package spelling
