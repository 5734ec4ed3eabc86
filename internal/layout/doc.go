// Package layout has no code: its test holds the layout of the repository.
//
// Who may import whom is what keeps a judge of saved traces light: it must never
// need an engine, a container runtime or a network. The table of the design
// (section 3) is in the test, and a new import that it does not allow fails there.
// The test also holds that each package explains itself in a doc.go.
package layout
