package certify

import (
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// Quarters maps a quarter, such as 2026Q4, to the value that was published when it
// began. Seeds derive from it and from the subject, so that nobody knows them
// before the subject and the quarter are fixed, and nobody picks lucky ones.
type Quarters map[string]string

// ErrQuarter is wrapped by the error of a list of quarters that can't be.
var ErrQuarter = errors.New("no list of quarters")

//go:embed profiles/quarters.txt
var builtinQuarters []byte

// BuiltinQuarters are the values that ship with this version.
func BuiltinQuarters() Quarters {
	q, err := parseQuarters(builtinQuarters)
	if err != nil {
		panic("certify: profiles/quarters.txt: " + err.Error()) // a test reads it
	}
	return q
}

// ReadQuarters reads a file of lines QUARTER: VALUE, with a value of 64 hex digits.
func ReadQuarters(path string) (Quarters, error) {
	b, err := readBounded(path, maxProfileBytes)
	if err != nil {
		return nil, err
	}
	return parseQuarters(b)
}

var (
	quarterName  = regexp.MustCompile(`^[0-9]{4}Q[1-4]$`)
	quarterValue = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

func parseQuarters(b []byte) (Quarters, error) {
	var q Quarters
	if err := decodeYAML(b, &q); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrQuarter, err)
	}
	for name, value := range q {
		if !quarterName.MatchString(name) || !quarterValue.MatchString(value) {
			return nil, fmt.Errorf("%w: %q: %q is not a quarter such as 2026Q4 with 64 hex digits", ErrQuarter, name, value)
		}
	}
	return q, nil
}

// QuarterOf is the quarter that a time lies in, in UTC.
func QuarterOf(t time.Time) string {
	t = t.UTC()
	return strconv.Itoa(t.Year()) + "Q" + strconv.Itoa((int(t.Month())+2)/3)
}

// seedBits keeps seeds exact in programs that hold numbers as floats.
const seedBits = 53

// Seeds are the seeds that the runs of a build must take: each a hash of the
// quarter's value, the digest of the build and its own number.
func Seeds(value, build string, n int) []uint64 {
	seeds := make([]uint64, n)
	for i := range seeds {
		sum := sha256.Sum256(fmt.Appendf(nil, "conform seed 1\n%s\n%s\n%d\n", value, build, i))
		seeds[i] = binary.BigEndian.Uint64(sum[:8]) >> (64 - seedBits)
	}
	return seeds
}
