package harness

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
)

func TestARunThatServedNothingSaysWhy(t *testing.T) {
	c := &clients{}
	require.Equal(t, "no request was answered in full", c.unserved())
	c.count(spec.OutcomeError, errors.New("connection refused"))
	require.Equal(t, "no request was answered in full; the last failed: connection refused", c.unserved())
	c.count(spec.OutcomeOK, nil)
	require.Empty(t, c.unserved())
}
