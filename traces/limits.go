package traces

// Limits bound what reading a trace may cost. A trace above one of them is bad
// input.
type Limits struct {
	// LineBytes is the longest line, without its line feed.
	LineBytes int
	// TotalBytes is the size of all lines together, decompressed.
	TotalBytes int64
	// Events is the number of events; each takes about a kilobyte of memory, and from
	// standard input twice that for a moment at the end of reading.
	Events int
}

const (
	// MaxLineBytes is the longest line that a Writer writes and Read accepts.
	MaxLineBytes = 16 << 20

	maxWindowBytes   = 32 << 20 // of a zstd frame: that of level 20
	maxManifestBytes = 16 << 20
	maxFiles         = 10_000 // in one events folder
)

// DefaultLimits are the limits of [Read]: lines of 16 MiB, 2 GiB in all, and
// 4,000,000 events.
func DefaultLimits() Limits {
	return Limits{LineBytes: MaxLineBytes, TotalBytes: 2 << 30, Events: 4_000_000}
}
