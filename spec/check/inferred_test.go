package check

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"conform/spec"
)

// refutedAt is a refutation by two events of P: an emission and a begin.
func refutedAt(claim spec.Predicate, emit, begin uint64) Refutation {
	return Refutation{Claim: claim, Events: []spec.EventID{{Src: "P", Seq: emit}, {Src: "P", Seq: begin}}}
}

// Each kind's strongest predicate, and what refutes the stronger ones: by the judge
// of whole traces and, where it can tell, by the sieve.
func TestInferredPredicates(t *testing.T) {
	w := offered(blocks(3, 4)).
		at("P", 20, room(spec.KindBegin, acc("a"))).
		at("P", 21, room(spec.KindEmit, sig("e1", "EARLY"))).
		at("P", 30, end("a")).
		at("P", 31, room(spec.KindEmit, sig("c1", "CHUNK"))).
		at("P", 32, room(spec.KindEmit, sig("c2", "CHUNK"))).
		at("P", 40, room(spec.KindBegin, acc("b"), blocks(4))).
		at("P", 41, room(spec.KindEmit, sig("t0", "STOP"), claims(spec.ClaimsReceived))).
		at("P", 45, room(spec.KindEmit, sig("t1", "STOP"), claims(spec.ClaimsReceived))).
		at("P", 50, end("b")).
		at("P", 51, room(spec.KindEmit, sig("d1", "DONE"), claims(spec.ClaimsCompleted)))
	res, err := Judge(context.Background(), &w.tr, Options{})
	require.NoError(t, err)
	stopped := func(emit, begin uint64) Refutation { return refutedAt(spec.ClaimsStopped, emit, begin) }
	completed := func(emit, begin uint64) Refutation { return refutedAt(spec.ClaimsCompleted, emit, begin) }
	want := []SignalResult{
		{Signal: "CHUNK", Inferred: spec.ClaimsCompleted, Seen: 2, Refuted: []Refutation{stopped(6, 7)}},
		{Signal: "DONE", Claims: spec.ClaimsCompleted, Inferred: spec.ClaimsDrained, Seen: 1},
		{Signal: "EARLY", Inferred: spec.ClaimsReceived, Seen: 1, Refuted: []Refutation{stopped(3, 7), completed(3, 2)}},
		{Signal: "METADATA", Seen: 1},
		{Signal: "STOP", Claims: spec.ClaimsReceived, Inferred: spec.ClaimsStopped, Seen: 2, Refuted: []Refutation{completed(8, 7)}},
	}
	require.Equal(t, want, res.Signals)
	sifted, why := sift(&w.tr)
	require.Empty(t, why)
	require.Equal(t, want, sifted.Signals)
}

// A later event on another thread that nothing orders refutes too, though the lines
// have it otherwise.
func TestRefutedByWhatMayBe(t *testing.T) {
	w := offered().
		at("P", 20, room(spec.KindBegin, acc("a"), wide(40))).
		at("P", 60, end("a")).
		on("P", "other", 30, room(spec.KindEmit, sig("e1", "EARLY"), wide(70)))
	res, err := Judge(context.Background(), &w.tr, Options{})
	require.NoError(t, err)
	require.Equal(t, SignalResult{Signal: "EARLY", Inferred: spec.ClaimsReceived, Seen: 1, Refuted: []Refutation{
		refutedAt(spec.ClaimsStopped, 4, 2), refutedAt(spec.ClaimsCompleted, 4, 2),
	}}, res.Signals[0])
}

// What traces show together is what one trace of all their emissions would show:
// emissions are drawn with what each shows, and are cut into traces.
func TestJoinSignals(t *testing.T) {
	type emission struct{ over, open, later int } // accesses, by how they lie to it
	whole := func(trace string, all []emission) SignalResult {
		s := SignalResult{Signal: "S", Seen: len(all)}
		var any, past, later, open bool
		for i, e := range all {
			any, past = any || e.over+e.open+e.later > 0, past || e.over > 0
			id := []spec.EventID{{Src: trace, Seq: uint64(i)}}
			if e.later > 0 && !later {
				later = true
				s.Refuted = append(s.Refuted, Refutation{Claim: spec.ClaimsStopped, Events: id})
			}
			if e.open > 0 && !open {
				open = true
				s.Refuted = append(s.Refuted, Refutation{Claim: spec.ClaimsCompleted, Events: id})
			}
		}
		if len(s.Refuted) == 2 && s.Refuted[0].Claim == spec.ClaimsCompleted {
			s.Refuted[0], s.Refuted[1] = s.Refuted[1], s.Refuted[0]
		}
		s.Inferred = inferred(any, past, !later, !open)
		return s
	}
	few := rapid.IntRange(0, 1)
	emissions := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) emission {
		return emission{few.Draw(t, "over"), few.Draw(t, "open"), few.Draw(t, "later")}
	}), 1, 3)
	rapid.Check(t, func(t *rapid.T) {
		var traces []TraceSignals
		var all []emission
		for i, part := range rapid.SliceOfN(emissions, 1, 4).Draw(t, "traces") {
			name := fmt.Sprint(i)
			traces = append(traces, TraceSignals{Trace: name, Signals: []SignalResult{whole(name, part)}})
			all = append(all, part...)
		}
		got, want := JoinSignals(traces), whole("", all)
		if len(got) != 1 || got[0].Inferred != want.Inferred || got[0].Seen != want.Seen || len(got[0].Refuted) != len(want.Refuted) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		for i, r := range got[0].Refuted {
			if r.Claim != want.Refuted[i].Claim || r.Trace != r.Events[0].Src {
				t.Fatalf("refuted by %+v, want %+v", r, want.Refuted[i])
			}
		}
	})
}

// A name that only one trace has is there, and a claim that only one makes.
func TestJoinedSignals(t *testing.T) {
	require.Equal(t, []SignalResult{
		{Signal: "A", Claims: spec.ClaimsDrained, Inferred: spec.ClaimsDrained, Seen: 5},
		{Signal: "B", Claims: spec.ClaimsReceived, Seen: 1},
	}, JoinSignals([]TraceSignals{
		{"one", []SignalResult{{Signal: "A", Claims: spec.ClaimsReceived, Seen: 2}}},
		{"two", []SignalResult{
			{Signal: "A", Claims: spec.ClaimsDrained, Inferred: spec.ClaimsDrained, Seen: 3},
			{Signal: "B", Claims: spec.ClaimsReceived, Seen: 1},
		}},
	}))
	require.Empty(t, JoinSignals(nil))
}
