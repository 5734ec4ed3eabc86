package harness

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/adapters"
	"conform/adapters/reference"
	"conform/faults"
	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

const holdOne = `rules:
  - name: hold-it
    when: {access: w, pool: kv, from: prefill, nth: 1}
    do: hold
    until: {event: idle}
    limit: 15s
`

// forcedCancel cancels a request whose write has begun and can't end, gives its
// blocks' neighbours to another request, and then lets the write go.
func forcedCancel(ctx context.Context, d *director) error {
	if err := d.rule("hold-it", true); err != nil {
		return err
	}
	victim, err := d.send(ctx, "victim")
	if err != nil {
		return err
	}
	held, err := d.fired(ctx, "hold-it", 1)
	if err != nil {
		return err
	}
	if held.Req != victim.id {
		return fmt.Errorf("%s was held", held.Req)
	}
	if err := d.abort(ctx, victim, ""); err != nil {
		return err
	}
	if _, err := d.await(ctx, d.at(spec.RoleDecode, spec.KindCancel, ofReq(victim.id))); err != nil {
		return err
	}
	for i := range 3 {
		other, err := d.send(ctx, fmt.Sprintf("other-%d", i))
		if err != nil {
			return err
		}
		if told, err := other.wait(ctx); err != nil || told.Outcome != spec.OutcomeOK {
			return fmt.Errorf("a bystander was told %+v, %v: %w", told.Answer, told.err, err)
		}
	}
	freed := d.at(spec.RoleDecode, spec.KindFree, ofReq(victim.id), inPool("kv"), d.by("decode-0"))
	if early, _ := d.heard(freed); early {
		return errors.New("freed under the write")
	}
	if err := d.release("hold-it"); err != nil {
		return err
	}
	if _, err := d.await(ctx, freed); err != nil {
		return err
	}
	if _, err := d.await(ctx, d.at(spec.RoleDecode, spec.KindObserve, ofReq(victim.id), ofSignal("ABORT_ACK"))); err != nil {
		return err
	}
	told, err := victim.wait(ctx)
	if err != nil {
		return err
	}
	if told.Outcome != spec.OutcomeCancelled {
		return fmt.Errorf("the victim was told %s", told.Outcome)
	}
	if err := d.settled(ctx); err != nil {
		return err
	}
	// Long ago, and found all the same.
	_, err = d.await(ctx, all(ofKind(spec.KindSubmit), ofReq(victim.id)))
	return err
}

func playKit(sh shape) *kit {
	s := Scenario{
		ID: "play", Title: "a play", Why: "x", Branches: []string{"a transfer was open when its request was cancelled"},
		shapes: map[string]shape{onReference: sh},
		reach:  map[string]func(*recorded) bool{"a transfer was open when its request was cancelled": openAt(isKind(spec.KindCancel))},
	}
	return &kit{adapters: []adapters.Adapter{reference.Adapter{}}, scenarios: []Scenario{s}, engines: openStore}
}

func cancelPlay() shape {
	return shape{
		modes: []string{"push"}, plans: map[string]string{"": holdOne},
		limits: adapters.Limits{AbortTimeout: 20 * time.Second, HandoffTimeout: 30 * time.Second, PeerTimeout: 10 * time.Second},
		cast: func(adapters.Limits, adapters.Pace) []part {
			return append([]part{{name: "victim", prompt: 40, output: 4}}, chorus("other", 3, 20, 3)...)
		},
		play: forcedCancel, hears: []spec.Kind{spec.KindCancel, spec.KindFree, spec.KindObserve},
	}
}

// A play forces its order on the reference stack, every time.
func TestPlayForcesItsOrder(t *testing.T) {
	res, err := Run(t.Context(), Config{kit: playKit(cancelPlay()), Seeds: []uint64{1, 2, 3}, Jobs: 1, OutDir: filepath.Join(t.TempDir(), "run")})
	require.NoError(t, err)
	for _, s := range res.Scenarios {
		require.Equal(t, spec.Pass, s.Verdict, "%s%s", s.Why, findingsOf(s))
		require.Equal(t, []Branch{{Name: "a transfer was open when its request was cancelled", Reached: true}}, s.Branches)
		tr, err := traces.Read(s.Trace, nil)
		require.NoError(t, err)
		at := map[string]int64{}
		for _, e := range tr.Events {
			switch {
			case e.K == spec.KindFault && e.Rule == "hold-it":
				at[e.Do] = e.T
			case e.Src == "client" && e.Req == "r-0000":
				at[string(e.K)] = e.T
				require.Equal(t, "victim", e.Th)
			case e.Src == "client" && e.K == spec.KindFinish && e.Req == "r-0003":
				at["bystander"] = e.T
			case e.Src == "decode-0" && e.K == spec.KindFree && e.Req == "r-0000" && e.Pool == "kv":
				at["free"] = e.T
			}
		}
		order := []string{"submit", faults.DoHold, "cancel", "bystander", faults.DoRelease, "free"}
		for i := 1; i < len(order); i++ {
			require.Less(t, at[order[i-1]], at[order[i]], "%s before %s: %v", order[i-1], order[i], at)
		}
		require.Less(t, at["cancel"], at["finish"])
	}
}

func verdictOf(rules []check.RuleResult, id spec.RuleID) spec.Verdict {
	for _, r := range rules {
		if r.ID == id {
			return r.Verdict
		}
	}
	return spec.NotJudged
}

// The same play tells a stack with the bug from one without.
func TestPlayFindsTheDefect(t *testing.T) {
	res, err := Run(t.Context(), Config{kit: playKit(cancelPlay()), Defect: "free-at-cancel", OutDir: filepath.Join(t.TempDir(), "run")})
	require.NoError(t, err)
	require.Equal(t, spec.Fail, res.Verdict, res.Scenarios[0].Why)
	require.Equal(t, spec.Fail, verdictOf(res.Scenarios[0].Rules, spec.BLK2))
	require.Contains(t, res.Scenarios[0].Why, "the order could not be forced: freed under the write")
}

// runPlay runs a play on the fake engine.
func runPlay(t *testing.T, f *fakeEngine, play func(context.Context, *director) error) ScenarioResult {
	t.Helper()
	sh := shape{
		modes: []string{"tcp"}, play: play, plans: map[string]string{"": "rules: [{name: r, when: {signal: X}, do: drop}]"},
		hears: []spec.Kind{spec.KindAdmit},
		cast: func(l adapters.Limits, _ adapters.Pace) []part {
			return []part{{name: "short", prompt: 8, output: 4}, {name: "long", prompt: l.PrefillTokens, output: 60}, {name: "left", prompt: 9, output: 60}}
		},
	}
	res, err := Run(t.Context(), Config{kit: fakeKit(f, sh), OutDir: filepath.Join(t.TempDir(), "run")})
	require.NoError(t, err)
	return res.Scenarios[0]
}

func TestDirectorOnAnEngine(t *testing.T) {
	f := &fakeEngine{}
	s := runPlay(t, f, func(ctx context.Context, d *director) error {
		_, err := d.send(ctx, "nobody")
		require.ErrorContains(t, err, `the cast has no part "nobody"`)
		short, err := d.send(ctx, "short")
		require.NoError(t, err)
		_, err = d.send(ctx, "short")
		require.ErrorContains(t, err, "sent already")
		told, err := short.wait(ctx)
		require.NoError(t, err)
		require.Equal(t, spec.OutcomeOK, told.Outcome)
		require.ErrorIs(t, d.abort(ctx, short, ""), errEnded)

		long, err := d.send(ctx, "long")
		require.NoError(t, err)
		_, err = d.await(ctx, d.at(spec.RoleDecode, spec.KindAdmit, ofReq(long.id), ofHandoff("")))
		require.NoError(t, err, "a worker's event is heard")
		require.NoError(t, d.abort(ctx, long, spec.RoleDecode))
		told, err = long.wait(ctx)
		require.NoError(t, err)
		require.Equal(t, spec.OutcomeCancelled, told.Outcome)

		left, err := d.send(ctx, "left")
		require.NoError(t, err)
		require.NoError(t, d.leave(ctx, left))
		require.ErrorIs(t, d.leave(ctx, left), errEnded)

		require.NoError(t, d.fill(ctx, "decode-0", 100, 8))
		require.Equal(t, 128, d.limits().DecodeTokens)
		require.NoError(t, d.kill(ctx, "prefill"))
		require.NoError(t, d.restart(ctx, "prefill"))
		require.NoError(t, d.pause(ctx, "prefill"))
		require.NoError(t, d.resume(ctx, "prefill"))
		require.NoError(t, d.pause(ctx, "decode"), "and is forgotten")
		require.ErrorContains(t, d.release("r"), "rule r holds nothing")
		require.Error(t, d.release("s"))
		require.Error(t, d.rule("s", true))
		require.Equal(t, []string{"kill prefill", "restart prefill", "pause prefill", "resume prefill", "pause decode"}, d.stack.(*fakeStack).stops)
		t.Cleanup(func() { require.Contains(t, d.stack.(*fakeStack).stops, "resume decode") })
		return nil
	})
	require.Equal(t, []string{"r-0001@decode"}, f.aborts)
	require.Equal(t, []string{"decode-0 100 8"}, f.filled)
	require.Equal(t, 3, f.baseline, "all prompts of the cast")
	require.Equal(t, "rule of the plan that never fired: r", s.Why)
	tr, err := traces.Read(s.Trace, nil)
	require.NoError(t, err)
	did := map[string]int{}
	for _, e := range tr.Events {
		did[string(e.K)+" "+e.Req+" "+e.Why+e.Do+string(e.Result)]++
	}
	for _, want := range []string{
		"cancel r-0001 abort at decode", "cancel r-0002 disconnect", "finish r-0002 cancelled", "submit r-0000 ", "answer r-0000 ",
		"fault  kill", "fault  restart", "fault  pause", "fault  resume",
	} {
		require.NotZero(t, did[want], "%s in %v", want, did)
	}
}

// A play that can't go on shows nothing of what it is for, and what is under way
// ends all the same.
func TestPlayThatCannotGoOn(t *testing.T) {
	s := runPlay(t, &fakeEngine{}, func(ctx context.Context, d *director) error {
		long, err := d.send(ctx, "long")
		require.NoError(t, err)
		short, cancel := context.WithCancel(ctx)
		time.AfterFunc(5*time.Millisecond, cancel)
		_, err = d.await(short, d.at(spec.RolePrefill, spec.KindAdmit))
		require.ErrorIs(t, err, context.Canceled)
		_, waited := long.wait(short)
		require.ErrorIs(t, waited, context.Canceled)
		require.ErrorIs(t, d.settled(short), context.Canceled)
		_, fired := d.fired(short, "r", 1)
		require.ErrorContains(t, fired, "rule r has not acted 1 times")
		require.NoError(t, d.abort(ctx, long, ""))
		return err
	})
	require.Equal(t, spec.Inconclusive, s.Verdict)
	require.Contains(t, s.Why, "the order could not be forced: the event did not come among ")
}

// A stack that can't do what a play wants makes it inconclusive, too.
func TestFillNeedsAStackThatCan(t *testing.T) {
	sh := cancelPlay()
	sh.play = func(ctx context.Context, d *director) error { return d.fill(ctx, "decode-0", 8, 1) }
	res, err := Run(t.Context(), Config{kit: playKit(sh), OutDir: filepath.Join(t.TempDir(), "run")})
	require.NoError(t, err)
	require.Equal(t, spec.Inconclusive, res.Verdict)
	require.Contains(t, res.Scenarios[0].Why, "fill decode-0: this stack can't do that")
}

func TestHearingIsBounded(t *testing.T) {
	h := newHearing()
	var none *hearing
	none.hear(&spec.Event{})
	for i := range maxHeard + 10 {
		h.hear(&spec.Event{K: spec.KindNote, Seq: uint64(i)})
	}
	events, next, _ := h.since(0)
	require.Equal(t, maxHeard+10, next)
	require.LessOrEqual(t, len(events), maxHeard)
	e, err := h.await(t.Context(), func(e *spec.Event) bool { return e.Seq == maxHeard+9 })
	require.NoError(t, err)
	require.EqualValues(t, maxHeard+9, e.Seq)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = h.await(ctx, func(e *spec.Event) bool { return e.Seq == 0 })
	require.ErrorContains(t, err, "were forgotten before")
}

func TestCastIsAFunctionOfTheSeed(t *testing.T) {
	parts := append(chorus("c", 2, 9, 3), part{name: "x", prompt: 5, output: 1, handoff: "room-1", decode: 1})
	pace := (&fakeEngine{}).Pace()
	a := drawCast(parts, 7, pace)
	require.Equal(t, a, drawCast(parts, 7, pace))
	require.NotEqual(t, a, drawCast(parts, 8, pace))
	require.Equal(t, "c-1", parts[1].name)
	require.NotEqual(t, a[0].prompt, a[1].prompt)
	require.Equal(t, request{id: "r-0002", prompt: a[2].prompt, output: 1, handoff: "room-1", decode: 1}, a[2])
	for _, q := range a {
		for _, token := range q.prompt {
			require.True(t, 3 <= token && token <= 1002)
		}
	}
}
