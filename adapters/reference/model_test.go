package reference

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestEachByteOfKVChangesTheNextToken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prompt := rapid.SliceOfN(rapid.Int32Range(0, vocabulary-1), 1, 40).Draw(t, "prompt")
		var s kvState
		kv := kvOf(&s, prompt)
		want := nextToken(kv)
		i := rapid.IntRange(0, len(kv)-1).Draw(t, "byte")
		kv[i] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		// Two tokens of 32,000 may be equal by chance: then the token after must differ.
		got := nextToken(kv)
		if got == want {
			got, want = nextToken(append(kv, 0)), nextToken(append(kvOf(new(kvState), prompt), 0))
		}
		require.NotEqual(t, want, got)
	})
}

func TestKVDependsOnAllEarlierTokens(t *testing.T) {
	a, b := new(kvState), new(kvState)
	x := kvOf(a, []int32{1, 2, 3})
	y := kvOf(b, []int32{9, 2, 3})
	for i := range 3 {
		require.NotEqual(t, x[i*tokenBytes:(i+1)*tokenBytes], y[i*tokenBytes:(i+1)*tokenBytes], "token %d", i)
	}
}

func TestGenerateIsWhatTheStagesCompute(t *testing.T) {
	prompt := []int32{5, 17, 31999, 0, 4}
	want := Generate(prompt, 6)
	var s kvState
	kv := kvOf(&s, prompt)
	state := stateAfter(prompt)
	require.Equal(t, s, state)
	got := []int32{nextToken(kv)}
	for len(got) < 6 {
		b := state.append(got[len(got)-1])
		kv = append(kv, b[:]...)
		got = append(got, nextToken(kv))
	}
	require.Equal(t, want, got)
	require.Empty(t, Generate(prompt, 0))
}

func TestBlocksFor(t *testing.T) {
	for tokens, want := range map[int]int{0: 0, 1: 1, BlockTokens: 1, BlockTokens + 1: 2} {
		require.Equal(t, want, blocksFor(tokens))
	}
}
