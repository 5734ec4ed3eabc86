package spec_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"conform/spec"
)

// sample is a value of a field's type, as JSON; other is one of another type.
func sample(f spec.Field) string {
	if f.Enum != nil {
		return `"` + f.Enum[0] + `"`
	}
	switch f.Type {
	case spec.TypeString:
		return `"x \" é"`
	case spec.TypeInt, spec.TypeUint:
		return "7"
	case spec.TypeBool:
		return "false"
	case spec.TypeStrings:
		return `["a","b"]`
	case spec.TypeBlocks:
		return `[4,[10,13]]`
	}
	return `{"a":[1]}`
}

func other(f spec.Field) string {
	if f.Type == spec.TypeString {
		return "7"
	}
	return `"x"`
}

// line joins fields into a line, in an order of its own.
func line(fields map[string]string) []byte {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		parts = append(parts, `"`+name+`":`+fields[name])
	}
	return []byte("{" + strings.Join(parts, ",") + "}")
}

// lineOf has the fields of a kind that want lets in.
func lineOf(k spec.Kind, want func(spec.Field) bool) map[string]string {
	fields := map[string]string{}
	for _, f := range spec.Fields(k) {
		if f.Required || want(f) {
			fields[f.Name] = sample(f)
		}
	}
	fields["k"] = `"` + string(k) + `"`
	if k == spec.KindBegin || k == spec.KindExpire { // one of two is asked for
		fields["req"] = `"r1"`
	}
	return fields
}

func TestEventsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.SampledFrom(spec.Kinds()).Draw(t, "kind")
		fields := lineOf(k, func(f spec.Field) bool { return rapid.Bool().Draw(t, f.Name) })
		if rapid.Bool().Draw(t, "unknown field") {
			fields["x_later"] = `{"a":[1,null]}`
		}
		e, err := spec.ParseEvent(line(fields))
		require.NoError(t, err, "%s", line(fields))
		require.Equal(t, k, e.K)
		out := e.AppendJSON(nil)
		require.True(t, json.Valid(out), "%s", out)
		again, err := spec.ParseEvent(out)
		require.NoError(t, err, "%s", out)
		require.Equal(t, e, again)
		require.Equal(t, string(out), string(again.AppendJSON(nil)))
		require.Equal(t, spec.EventID{Src: e.Src, Seq: 7}, e.ID())
	})
}

func TestFieldsAreHeld(t *testing.T) {
	for _, k := range spec.Kinds() {
		all := func(spec.Field) bool { return true }
		for _, f := range spec.Fields(k) {
			refused := func(value, why string) {
				fields := lineOf(k, all)
				fields[f.Name] = value
				if value == "" {
					delete(fields, f.Name)
				}
				_, err := spec.ParseEvent(line(fields))
				var wrong *spec.FieldError
				require.ErrorAs(t, err, &wrong, "%s %s: %s", k, f.Name, why)
				require.NotEmpty(t, wrong.Found)
				require.NotEmpty(t, wrong.Expected)
			}
			if f.Required {
				refused("", "missing")
			}
			refused(other(f), "another type")
			refused("null", "null")
			if f.Enum != nil {
				refused(`"no such word"`, "a word out of the list")
			}
			if f.Type == spec.TypeUint {
				refused("-1", "below 0")
			}
			if f.Type == spec.TypeInt || f.Type == spec.TypeUint {
				refused("1.5", "a fraction")
				refused("1e3", "an exponent")
				refused("9223372036854775808", "too large")
			}
		}
	}
	require.Nil(t, spec.Fields("no such kind"))
}

func TestLinesAreHeld(t *testing.T) {
	good := `{"src":"D","seq":1,"t":5,"k":"note","text":"x"}`
	_, err := spec.ParseEvent([]byte(good))
	require.NoError(t, err)
	alloc := `{"src":"D","seq":1,"t":5,"k":"alloc","pool":"kv","holder":"x","blocks":`
	for name, bad := range map[string]string{
		"blank": "", "spaces": "  ", "CR LF": good + "\r", "no JSON": "{", "a list": "[]", "null": "null", "not UTF-8": "\xff",
		"two values":     good + good,
		"no such kind":   `{"src":"D","seq":1,"t":5,"k":"nope"}`,
		"t2 below t":     `{"src":"D","seq":1,"t":5,"t2":4,"k":"note","text":"x"}`,
		"names neither":  `{"src":"D","seq":1,"t":5,"k":"expire"}`,
		"lo above hi":    `{"src":"D","seq":1,"t":5,"k":"clockcmp","clock":"c","lo":2,"hi":1}`,
		"reversed pair":  alloc + `[[5,4]]}`,
		"half a pair":    alloc + `[[5]]}`,
		"a negative one": alloc + `[-1]}`,
		"a word":         alloc + `["1"]}`,
	} {
		_, err := spec.ParseEvent([]byte(bad))
		require.Error(t, err, name)
		require.NotEmpty(t, err.Error())
	}
}

func TestBlocks(t *testing.T) {
	b := spec.MakeBlocks(4, 10, 11, 12, 13, 2)
	require.Equal(t, "[4,[10,13],2]", b.String())
	require.Equal(t, []int64{4, 10, 11, 12, 13, 2}, slices.Collect(b.All))
	require.EqualValues(t, 6, b.Len())
	require.EqualValues(t, 13, b.Max())
	require.True(t, b.Contains(11))
	require.False(t, b.Contains(9))
	require.EqualValues(t, -1, spec.Blocks{}.Max())
	huge := spec.Blocks{{First: 0, Last: 1<<63 - 1}, {First: 0, Last: 5}}
	require.EqualValues(t, int64(1<<63-1), huge.Len(), "it does not overflow")
	for n := range (spec.Blocks{{First: 1<<63 - 2, Last: 1<<63 - 1}}).All {
		require.Positive(t, n)
	}
}

func TestVerdicts(t *testing.T) {
	for _, v := range spec.Verdicts() {
		text, err := v.MarshalText()
		require.NoError(t, err)
		var back spec.Verdict
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, v, back)
	}
	var v spec.Verdict
	require.Error(t, v.UnmarshalText([]byte("fine")))
	require.Equal(t, "verdict(99)", spec.Verdict(99).String())
	require.Equal(t, spec.Fail, spec.Worst(spec.Fail, spec.Unproven))
	require.Equal(t, []int{0, 2, 2, 1, 3}, []int{
		spec.Pass.ExitStatus(), spec.Inconclusive.ExitStatus(), spec.Unproven.ExitStatus(), spec.Fail.ExitStatus(), spec.Error.ExitStatus(),
	})
	var l spec.Level
	for _, want := range []spec.Level{spec.L0, spec.L1, spec.L2, spec.L3} {
		text, _ := want.MarshalText()
		require.NoError(t, l.UnmarshalText(text))
		require.Equal(t, want, l)
	}
	require.Error(t, l.UnmarshalText([]byte("L4")))
}
