package harness

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
	os.Exit(m.Run())
}
