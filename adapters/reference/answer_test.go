package reference

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// net/http takes the ResponseWriter back when a handler returns: a leg that fails
// later must not write to it.
func TestLegThatSpeaksAfterItsHandlerIsNotHeard(t *testing.T) {
	rec := httptest.NewRecorder()
	out := &clientAnswer{rw: rec}
	out.line(http.StatusOK, legAnswer{Tokens: []int32{7}})
	out.close()
	sent := rec.Body.String()
	require.NotEmpty(t, sent)
	out.line(http.StatusOK, legAnswer{Done: true})
	out.fail(legAnswer{Status: http.StatusBadRequest, Error: "too long"})
	require.Equal(t, sent, rec.Body.String())
	status, complete := out.told()
	require.Equal(t, http.StatusOK, status)
	require.False(t, complete)
}
