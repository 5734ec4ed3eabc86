package report

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"conform/harness"
	"conform/spec/check"
	"conform/traces"
)

// storyOf explains the worst finding of BLK-2's bad trace, with other names in it.
func storyOf(t *testing.T, names ...string) *check.Story {
	t.Helper()
	b, err := os.ReadFile("../../spec/rules/BLK-2.bad.jsonl")
	require.NoError(t, err)
	text := strings.NewReplacer(names...).Replace(string(b))
	tr, err := traces.Read("-", strings.NewReader(text))
	require.NoError(t, err)
	judged, err := check.Open(context.Background(), tr, check.Options{})
	require.NoError(t, err)
	s, err := judged.Explain(judged.Result.Ranked()[0].Findings[0])
	require.NoError(t, err)
	return s
}

// TestStoryOfHostileNames holds that names from a trace neither reach a terminal
// as they are nor begin a line of the picture.
func TestStoryOfHostileNames(t *testing.T) {
	quoted := func(s string) string { // as it stands in JSON
		b, err := json.Marshal(s)
		require.NoError(t, err)
		return string(b)
	}
	const forged = "\n>99 ns + free forged"
	names := []string{
		`"r1"`, quoted("r1" + forged + "\x1b[31m"),
		`"room-1"`, quoted("room\r\x07" + forged),
		`"METADATA"`, quoted("SIG\u202e" + forged),
		`"a1"`, quoted("a1\u0085" + forged),
		`"d0"`, quoted("d0" + forged),
		`"pool":"kv"`, `"pool":` + quoted("kv"+forged),
		`"D"`, quoted("D" + forged),
	}
	s := storyOf(t, names...)
	require.Contains(t, s.Finding.Block.Worker, forged, "the names are in the trace")
	var b bytes.Buffer
	require.NoError(t, StoryText(&b, Told{Trace: "a\x1b" + forged, Finding: "1", Story: s}, Options{}))
	marked := 0
	for line := range strings.Lines(b.String()) {
		line = strings.TrimSuffix(line, "\n")
		require.True(t, utf8.ValidString(line))
		require.NotContains(t, line[:min(len(line), 8)], ">99 ns", line)
		require.False(t, strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }), "%q", line)
		if strings.HasPrefix(line, ">") {
			marked++
			require.LessOrEqual(t, utf8.RuneCountInString(line), 100)
		}
	}
	require.Equal(t, 3, marked, "%s", b.String())
}

func TestStoryCommands(t *testing.T) {
	own, ok := harness.ScenarioByID("cancel-during-transfer")
	require.True(t, ok)
	base := func(change func(*traces.Manifest)) *traces.Manifest {
		m := &traces.Manifest{
			Tool: "conform", Seed: 7, Scenarios: []string{own.ID}, Mode: "push", Plan: own.Plan("reference", "push"),
			Adapter: traces.ManifestAdapter{Name: "reference", Engine: "reference 0.1.0"},
		}
		change(m)
		return m
	}
	const plain = "c run --scenario cancel-during-transfer --mode push --seed 7"
	for name, c := range map[string]struct {
		m    *traces.Manifest
		want string
	}{
		"none":       {nil, ""},
		"reference":  {base(func(*traces.Manifest) {}), plain},
		"defect":     {base(func(m *traces.Manifest) { m.Defect = "free-at-cancel" }), plain + " --defect free-at-cancel"},
		"own plan":   {base(func(m *traces.Manifest) { m.Plan = "rules: []" }), plain + " --plan FILE"},
		"other tool": {base(func(m *traces.Manifest) { m.Tool = "other" }), ""},
		"two":        {base(func(m *traces.Manifest) { m.Scenarios = []string{own.ID, "baseline"} }), ""},
		"hostile":    {base(func(m *traces.Manifest) { m.Scenarios = []string{"x; rm -rf ~\x1b"} }), `c run --scenario 'x; rm -rf ~\x1b' --mode push --seed 7`},
		"engine": {base(func(m *traces.Manifest) {
			m.Adapter = traces.ManifestAdapter{Name: "sglang", Engine: "sglang@0.5.23"}
			m.Mode, m.Plan = "nixl", own.Plan("sglang", "nixl")
			m.Config = map[string]string{"engine_version": "0.5.23", "device": "cuda", "model": "tiny"}
		}), "c run --adapter sglang --engine 0.5.23 --device cuda --scenario cancel-during-transfer --connector nixl --seed 7 --model FOLDER"},
	} {
		t.Run(name, func(t *testing.T) {
			told := Told{Trace: "a b", Finding: "2.3", Story: storyOf(t), Manifest: c.m}
			var b bytes.Buffer
			require.NoError(t, StoryText(&b, told, Options{Program: "c"}))
			require.Contains(t, b.String(), "\n  again    c explain 'a b' 2.3\n")
			require.Contains(t, b.String(), "\n  smallest c shrink 'a b' 2.3 -o small.jsonl\n")
			_, run, _ := strings.Cut(b.String(), "\n  run      ")
			run, _, _ = strings.Cut(run, "\n")
			require.Equal(t, c.want, run)

			b.Reset()
			require.NoError(t, StoryJSON(&b, told, Options{Program: "c"}))
			var j struct {
				Missing  string
				Commands []storyCommand
			}
			require.NoError(t, json.Unmarshal(b.Bytes(), &j))
			require.NotEmpty(t, j.Missing)
			require.Equal(t, told.commands(Options{Program: "c"}), j.Commands)
		})
	}
	require.Error(t, StoryText(brokenWriter{}, Told{Story: storyOf(t)}, Options{}))
	require.Error(t, StoryJSON(brokenWriter{}, Told{Story: storyOf(t)}, Options{}))
}
