package check_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"conform/spec/check"
)

// settling is a trace in which decode holds two blocks for r1 and one for r2,
// under a grant to prefill, which rejects both; decode's clock ends r1 besides.
const settling = `{"src":"P","seq":0,"t":0,"k":"source","worker":"p0","role":"prefill","host":"h0","clock":"m"}
{"src":"D","seq":0,"t":0,"k":"source","worker":"d0","role":"decode","host":"h0","clock":"m"}
{"src":"D","seq":1,"t":1,"k":"pool","pool":"kv","blocks":8}
{"src":"D","seq":2,"t":10,"k":"alloc","pool":"kv","blocks":[3,4],"holder":"r1","req":"r1","handoff":"room-1"}
{"src":"D","seq":3,"t":11,"k":"alloc","pool":"kv","blocks":[5],"holder":"r2","req":"r2","handoff":"room-2"}
{"src":"P","seq":1,"t":20,"k":"reject","req":"r1","handoff":"room-1"}
{"src":"P","seq":2,"t":21,"k":"reject","req":"r2","handoff":"room-2"}
{"src":"D","seq":4,"t":30,"k":"expire","req":"r1","handoff":"room-1"}
{"src":"P","seq":3,"t":35,"k":"emit","sig":"a1","signal":"ABORT_ACK/4","handoff":"room-1","claims":"drained"}
{"src":"P","seq":4,"t":36,"k":"emit","sig":"a2","signal":"ABORT_ACK/4","handoff":"room-2","claims":"drained"}
{"src":"D","seq":5,"t":40,"k":"observe","sig":"a1"}
`

func TestSettledRows(t *testing.T) {
	const end = `{"src":"D","seq":6,"t":50,"k":"free","pool":"kv","blocks":[3,4],"holder":"r1","req":"r1","handoff":"room-1","why":"cancel"}
{"src":"D","seq":7,"t":52,"k":"free","pool":"kv","blocks":[5],"holder":"r2","req":"r2","handoff":"room-2","why":"timeout"}
`
	both := []string{"reject by p0", "expire by d0"}
	reject := []string{"reject by p0"}
	r1 := func(r check.SettledResult) check.SettledResult {
		r.Worker, r.Ended, r.Requests, r.Holds = "d0", both, 1, 2
		return r
	}
	r2 := func(r check.SettledResult) check.SettledResult {
		r.Worker, r.Ended, r.Requests, r.Holds = "d0", reject, 1, 1
		return r
	}
	for name, c := range map[string]struct {
		trace string
		want  []check.SettledResult
	}{
		"a word that leads there, and none": {settling + end, []check.SettledResult{
			r2(check.SettledResult{How: "timeout", After: &[2]int64{31, 31}}),
			r1(check.SettledResult{How: "cancel", Evidence: "ABORT_ACK/4", After: &[2]int64{30, 30}}),
		}},
		"the word that the decision names": {settling + strings.Replace(end, `"why":"cancel"`, `"why":"cancel","by":"a1"`, 1), []check.SettledResult{
			r2(check.SettledResult{How: "timeout", After: &[2]int64{31, 31}}),
			r1(check.SettledResult{How: "cancel", By: "ABORT_ACK/4", Evidence: "ABORT_ACK/4", After: &[2]int64{30, 30}}),
		}},
		"a word taken in after the decision": {settling + `{"src":"D","seq":6,"t":50,"k":"free","pool":"kv","blocks":[5],"holder":"r2","req":"r2","handoff":"room-2","why":"timeout"}
{"src":"D","seq":7,"t":60,"k":"observe","sig":"a2"}
`, []check.SettledResult{
			r2(check.SettledResult{How: "timeout", After: &[2]int64{29, 29}}),
			r1(check.SettledResult{}),
		}},
		"a fence": {settling + `{"src":"D","seq":6,"t":45,"k":"fence","handoff":"room-2"}
` + strings.Replace(strings.Replace(end, `"seq":7`, `"seq":8`, 1), `"seq":6`, `"seq":7`, 1), []check.SettledResult{
			r2(check.SettledResult{How: "timeout", Evidence: "fence", After: &[2]int64{31, 31}}),
			r1(check.SettledResult{How: "cancel", Evidence: "ABORT_ACK/4", After: &[2]int64{30, 30}}),
		}},
		"no common clock": {strings.Replace(settling, `"role":"decode","host":"h0","clock":"m"`, `"role":"decode","host":"h1","clock":"n"`, 1) + end, []check.SettledResult{
			r2(check.SettledResult{How: "timeout"}),
			r1(check.SettledResult{How: "cancel", Evidence: "ABORT_ACK/4", After: &[2]int64{20, 20}}),
		}},
		"given back before the end": {strings.Replace(settling, `{"src":"P","seq":1,"t":20`, `{"src":"P","seq":1,"t":90`, 1)[:strings.Index(settling, `{"src":"P","seq":1`)] +
			`{"src":"D","seq":4,"t":15,"k":"free","pool":"kv","blocks":[3,4],"holder":"r1","why":"done"}
{"src":"P","seq":1,"t":20,"k":"reject","req":"r1","handoff":"room-1"}
`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge(t, name, []byte(c.trace)).Settled
			require.ElementsMatch(t, c.want, got)
		})
	}
}

// Requests that read the same are one row, whatever their number.
func TestSettledRowsAreGrouped(t *testing.T) {
	var b strings.Builder
	b.WriteString(settling[:strings.Index(settling, `{"src":"D","seq":2`)])
	for i := range 30 {
		req := strings.Repeat("x", i+1)
		b.WriteString(line("D", 2+3*i, 100*i+100, `"k":"alloc","pool":"kv","blocks":[3],"holder":"h","req":"`+req+`"`))
		b.WriteString(line("D", 3+3*i, 100*i+110, `"k":"cancel","req":"`+req+`"`))
		b.WriteString(line("D", 4+3*i, 100*i+120+i, `"k":"free","pool":"kv","blocks":[3],"why":"cancel"`))
	}
	require.Equal(t, []check.SettledResult{
		{Worker: "d0", Ended: []string{"cancel by d0"}, How: "cancel", Requests: 30, Holds: 30, After: &[2]int64{10, 39}},
	}, judge(t, "grouped", []byte(b.String())).Settled)
}

func line(src string, seq, t int, rest string) string {
	return fmt.Sprintf("{\"src\":%q,\"seq\":%d,\"t\":%d,%s}\n", src, seq, t, rest)
}
