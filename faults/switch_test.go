package faults

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"conform/spec"
)

func TestRulesAreSwitchedOffAndOn(t *testing.T) {
	plan, err := ParsePlan("plan", []byte("rules: [{name: second, when: {access: w, nth: 2}, do: fail}]"))
	require.NoError(t, err)
	e, err := NewEngine(plan, 1, EngineOptions{})
	require.NoError(t, err)
	defer e.Close()
	write := Point{Kind: KindAccess, Name: "w"}
	require.NoError(t, e.Switch("second", false))
	for range 3 {
		require.Equal(t, Forward, e.Pass(t.Context(), write).Do, "it counts nothing while it is off")
	}
	require.Zero(t, e.Counts()[0].Seen)
	require.NoError(t, e.Switch("second", true))
	require.Equal(t, Forward, e.Pass(t.Context(), write).Do)
	require.Equal(t, Fail, e.Pass(t.Context(), write).Do)
	require.ErrorContains(t, e.Switch("third", true), `no rule "third"`)
}

func TestReleaseEndsTheHoldsOfOneRule(t *testing.T) {
	plan, err := ParsePlan("plan", []byte(`rules:
  - {name: a, when: {access: w, pool: a}, do: hold, until: {event: idle}, limit: 1m}
  - {name: b, when: {access: w, pool: b}, do: hold, until: {event: idle}, limit: 1m}`))
	require.NoError(t, err)
	said := make(chan spec.Event, 8)
	e, err := NewEngine(plan, 1, EngineOptions{Record: func(ev spec.Event) { said <- ev }})
	require.NoError(t, err)
	defer e.Close()
	passed := make(chan string, 2)
	for _, pool := range []string{"a", "b"} {
		go func() {
			e.Pass(t.Context(), Point{Kind: KindAccess, Name: "w", Pool: pool})
			passed <- pool
		}()
	}
	require.Equal(t, DoHold, (<-said).Do)
	require.Equal(t, DoHold, (<-said).Do)
	n, err := e.Release("a")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, "a", <-passed)
	ev := <-said
	require.Equal(t, []string{"a", DoRelease}, []string{ev.Rule, ev.Do})
	select {
	case <-passed:
		t.Fatal("the other rule's hold has ended too")
	case <-time.After(10 * time.Millisecond):
	}
	n, err = e.Release("a")
	require.NoError(t, err)
	require.Zero(t, n)
	_, err = e.Release("c")
	require.Error(t, err)
}
