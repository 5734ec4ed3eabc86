package hunt

import (
	"os"
	"testing"

	"conform/adapters/reference"
)

// The workers of the stack are this test's program executed again.
func TestMain(m *testing.M) {
	if reference.Main() {
		os.Exit(0)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=1 "+os.Getenv("GORACE")) // else each worker sleeps 1 s at its end
	os.Exit(m.Run())
}
