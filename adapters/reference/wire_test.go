package reference

import (
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
)

func TestMessageSurvivesTheWire(t *testing.T) {
	m := &Message{
		Signal: sigMetadata, Sig: "decode-0.s1", Handoff: "room-3#2", Req: "r-1", From: "decode-0", To: "prefill-0.1",
		Reply: "127.0.0.1:1", NIC: "127.0.0.1:2", Blocks: []int64{4, 5}, Aux: 7,
	}
	got, err := decodeMessage(m.encode())
	require.NoError(t, err)
	require.Equal(t, m, got)
	p, ok := decodePoint(m.encode())
	require.True(t, ok)
	require.Equal(t, "METADATA", p.Name)
	require.Equal(t, "room-3#2", p.Handoff)
}

func TestForeignFramesAreNotMessages(t *testing.T) {
	for name, frames := range map[string][][]byte{
		"none":        {},
		"other magic": {[]byte("X"), []byte("ABORT"), []byte("{}")},
		"no body":     {[]byte(wireMagic), []byte("ABORT")},
		"no JSON":     {[]byte(wireMagic), []byte("ABORT"), []byte("{")},
	} {
		_, err := decodeMessage(frames)
		require.Error(t, err, name)
		_, ok := decodePoint(frames)
		require.False(t, ok, name)
	}
}

func TestOnlyWordsThatProveAnythingClaimIt(t *testing.T) {
	require.Equal(t, spec.ClaimsDrained, claims(sigAbortAck))
	require.Equal(t, spec.ClaimsCompleted, claims(sigSuccess))
	require.Equal(t, spec.ClaimsNothing, claims(sigHeartbeat))
	require.Equal(t, spec.ClaimsNothing, claims(sigAbort))
}

func TestDefectsNameRulesAndPublicIssues(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range Defects() {
		require.False(t, seen[d.Name], d.Name)
		seen[d.Name] = true
		require.NotEmpty(t, d.Rules, d.Name)
		require.NotEmpty(t, d.Scenarios, d.Name)
		require.NotEmpty(t, d.Issues, d.Name)
		for _, r := range d.Rules {
			_, ok := spec.RuleByID(r)
			require.True(t, ok, "%s names %s", d.Name, r)
		}
	}
	_, ok := DefectByName("no-such")
	require.False(t, ok)
}
