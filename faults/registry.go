package faults

// Fault is the registry entry of one kind of fault.
type Fault struct {
	Name    string // the word of `do`
	Summary string // one line
	Where   string // where it acts
	Legal   string // what makes it legal for a real network, or that nothing does
}

// Registry lists the kinds of faults.
func Registry() []Fault { return nil }
