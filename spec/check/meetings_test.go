package check_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec"
	"conform/spec/check"
)

// meeting is a trace in which p0 writes block 3 of d0 and says a word, and d0 takes it
// in and frees the block. WORD and END are for the cases.
const meeting = `{"src":"P","seq":0,"t":0,"k":"source","worker":"p0","role":"prefill","host":"h0","clock":"m"}
{"src":"D","seq":0,"t":0,"k":"source","worker":"d0","role":"decode","host":"h0","clock":"m"}
{"src":"D","seq":1,"t":1,"k":"pool","pool":"kv","blocks":8,"what":"kv"}
{"src":"D","seq":2,"t":10,"k":"alloc","pool":"kv","blocks":[3],"holder":"r1","req":"r1","handoff":"room-1"}
{"src":"D","seq":3,"t":11,"k":"grant","handoff":"room-1","pool":"kv","blocks":[3],"to":"p0","mode":"w","req":"r1"}
{"src":"D","seq":4,"t":12,"k":"emit","sig":"s1","signal":"METADATA","req":"r1","handoff":"room-1"}
{"src":"P","seq":1,"t":13,"k":"observe","sig":"s1"}
{"src":"P","seq":2,"t":20,"k":"begin","access":"a1","mode":"w","target":"d0","pool":"kv","blocks":[3],"req":"r1","handoff":"room-1"}
{"src":"P","seq":3,"t":30,"k":"end","access":"a1"}
{"src":"P","seq":4,"t":31,"k":"emit","sig":"s2","signal":"WORD","req":"r1","handoff":"room-1","claims":"CLAIM"}
{"src":"D","seq":5,"t":35,"k":"observe","sig":"s2"}
`

const freed = `{"src":"D","seq":6,"t":40,"k":"free","pool":"kv","blocks":[3],"holder":"r1","req":"r1","handoff":"room-1","why":"cancel"}
`

func meetings(t *testing.T, text string) []check.Meeting {
	t.Helper()
	j, err := check.Open(t.Context(), parse(t, t.Name(), []byte(text)), check.Options{})
	require.NoError(t, err)
	return j.Meetings()
}

func TestMeetings(t *testing.T) {
	base := check.Meeting{
		Access: "a1", Handoff: "room-1", Req: "r1", By: "prefill", Owner: "decode", Pool: "kv", Mode: "w",
		Why: "cancel", Begin: spec.EventID{Src: "P", Seq: 2}, Free: spec.EventID{Src: "D", Seq: 6},
	}
	with := func(f func(*check.Meeting)) []check.Meeting {
		m := base
		f(&m)
		return []check.Meeting{m}
	}
	word := func(claim string) string { return strings.ReplaceAll(meeting, "CLAIM", claim) }
	quiet := strings.NewReplacer(`{"src":"P","seq":2,"t":20,"k":"begin","access":"a1","mode":"w","target":"d0","pool":"kv","blocks":[3],"req":"r1","handoff":"room-1"}`,
		`{"src":"P","seq":2,"t":20,"k":"note","text":"-"}`, `{"src":"P","seq":3,"t":30,"k":"end","access":"a1"}`, `{"src":"P","seq":3,"t":30,"k":"note","text":"-"}`)
	grantee := func(m *check.Meeting) { m.Access, m.Begin = "", spec.EventID{Src: "D", Seq: 3} }
	for name, c := range map[string]struct {
		text string
		want []check.Meeting
	}{
		"a word that proves it":      {word("drained") + freed, with(func(m *check.Meeting) { m.Ordered = "WORD" })},
		"a word that proves nothing": {word("received") + freed, with(func(*check.Meeting) {})},
		"a word passed on by another thread": {
			strings.Replace(word("drained"), `"t":35,"k":"observe","sig":"s2"}`, `"t":35,"th":"io","k":"observe","sig":"s2"}
{"src":"D","seq":6,"t":36,"th":"io","k":"emit","sig":"s3","signal":"NOTED","req":"r1","handoff":"room-1","claims":"drained"}
{"src":"D","seq":7,"t":37,"k":"observe","sig":"s3"}`, 1) + strings.Replace(freed, `"seq":6`, `"seq":8`, 1),
			with(func(m *check.Meeting) { m.Ordered, m.Free.Seq = "WORD", 8 }),
		},
		"a lease that lasts":                 {word("drained"), with(func(m *check.Meeting) { m.Why, m.Free = "", spec.EventID{} })},
		"a fence":                            {strings.Replace(word("received"), `"k":"observe","sig":"s2"`, `"k":"fence","handoff":"room-1"`, 1) + freed, with(func(m *check.Meeting) { m.Ordered = check.ByFence })},
		"a lease that ended too soon":        {word("received") + strings.Replace(freed, `"t":40`, `"t":35`, 1), with(func(*check.Meeting) {})},
		"a grantee that was quiet":           {quiet.Replace(word("stopped")) + freed, with(func(m *check.Meeting) { grantee(m); m.Ordered = "WORD" })},
		"a grantee of whom nothing is known": {quiet.Replace(word("received")) + freed, with(grantee)},
	} {
		require.Equal(t, c.want, meetings(t, c.text), name)
	}
	early := strings.Replace(word("received"), `"t":30,"k":"end"`, `"t":50,"k":"end"`, 1)
	early = strings.Replace(early, `"seq":4,"t":31`, `"seq":4,"t":51`, 1)
	early = strings.Replace(early, `"seq":5,"t":35,"k":"observe","sig":"s2"`, `"seq":5,"t":35,"k":"note","text":"-"`, 1)
	got := meetings(t, early+freed)
	require.Len(t, got, 1)
	require.True(t, got[0].Early, "it was open when its lease ended")
	require.Empty(t, got[0].Ordered)
	require.Empty(t, meetings(t, ""), "an empty trace")
}

// An owner's own access on behalf of a transfer is told from one to another's memory,
// and ordered by its program where its own thread frees.
func TestMeetingsOfTheOwner(t *testing.T) {
	got := meetings(t, `{"src":"P","seq":0,"t":0,"k":"source","worker":"p0","role":"prefill","host":"h0","clock":"m"}
{"src":"P","seq":1,"t":1,"k":"pool","pool":"kv","blocks":8,"what":"kv"}
{"src":"P","seq":2,"t":10,"k":"alloc","pool":"kv","blocks":[3,4],"holder":"r1","req":"r1","handoff":"room-1"}
{"src":"P","seq":3,"t":20,"k":"begin","access":"a1","mode":"r","target":"p0","pool":"kv","blocks":[3,4],"req":"r1","handoff":"room-1"}
{"src":"P","seq":4,"t":30,"k":"end","access":"a1"}
{"src":"P","seq":5,"t":40,"k":"free","pool":"kv","blocks":[3,4],"holder":"r1","req":"r1","handoff":"room-1"}
`)
	require.Len(t, got, 1, "one for each free, however many blocks")
	require.True(t, got[0].Own)
	require.Equal(t, check.ByProgram, got[0].Ordered)
	require.Equal(t, "unsaid", got[0].Why)
}
