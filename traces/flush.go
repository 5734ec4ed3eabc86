package traces

// Flush writes what was recorded so far and returns Err. A recorder calls it
// before an effect that another process can see: a crash then never loses the
// cause of an effect that somebody else has recorded.
func (w *Writer) Flush() error {
	w.flush()
	return w.Err()
}
