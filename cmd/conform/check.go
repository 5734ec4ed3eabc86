package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"conform/harness"
	"conform/harness/report"
	"conform/spec"
	"conform/spec/check"
	"conform/spec/check/clock"
	"conform/traces"
)

func (a *app) checkCommand() *cobra.Command {
	var out reports
	var opt check.Options
	var writer bool
	cmd := &cobra.Command{
		Use:   "check TRACE...",
		Short: "Judge saved traces",
		Long: `Judge a saved trace: a run directory, a .jsonl or .jsonl.zst file, or - for
standard input. Starts nothing and needs no engine.

Several traces are judged one by one. One table says of each kind of signal what it
declares, the strongest that held at every emission in all of them, and the event
that refutes more; then each trace has its findings under its name. The exit status
is that of the worst. A trace that can't be read is an error, and the others are
judged all the same.

Clocks of different hosts may be any constant time apart: what is found is wrong
whatever that is. For a long run on several hosts, --drift-ppm says how much
their rates may differ from each other besides. That only lets more pass: clocks
that keep within it give no false alarm.

With --writer nothing is judged: it is said, point by point, what a judge can make
of what the writer of one trace has recorded, for those who write one. The exit
status is 1 if something in it can't have happened so or was lost.`,
		Args: someTraces,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkDrift(opt.DriftPPM); err != nil {
				return err
			}
			if !slices.Contains(check.Checkers(), opt.Checker) {
				return unknown("--checker", string(opt.Checker), words(check.Checkers()), "")
			}
			if writer {
				return a.checkWriterAlone(cmd, args, out.format)
			}
			if err := out.open(); err != nil {
				return err
			}
			if len(args) > 1 {
				return a.checkTogether(cmd.Context(), args, opt, &out)
			}
			return a.checkOne(cmd.Context(), args[0], opt, &out)
		},
	}
	reportFlags(cmd, &out)
	cmd.Flags().StringVar((*string)(&opt.Checker), "checker", string(check.CheckerChain),
		"who judges which accesses fit their leases: chain, porcupine (slow: quadratic), or both, which must agree")
	driftFlag(cmd, &opt.DriftPPM)
	cmd.Flags().BoolVar(&writer, "writer", false, "say what a judge can make of the trace, instead of judging it")
	return cmd
}

// driftFlag adds --drift-ppm.
func driftFlag(cmd *cobra.Command, ppm *int) {
	cmd.Flags().IntVar(ppm, "drift-ppm", 0,
		"by how many millionths the clocks of different hosts may run at different rates; 0: their offsets are constant")
}

// checkDrift refuses a --drift-ppm that no clock has.
func checkDrift(ppm int) error {
	if ppm < 0 || ppm > clock.MaxDriftPPM {
		return usage(fmt.Sprintf("--drift-ppm is %d", ppm), fmt.Sprintf("a number from 0 to %d", clock.MaxDriftPPM), "")
	}
	return nil
}

// someTraces takes one trace or more, each once.
func someTraces(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return exactly(1, "one trace or more: "+traceWords)(cmd, args)
	}
	seen := map[string]bool{}
	for _, path := range args {
		clean := filepath.Clean(path)
		if seen[clean] {
			return usage(fmt.Sprintf("the trace %s is named twice", path), "each trace once", "")
		}
		seen[clean] = true
	}
	return nil
}

// checkOne judges one trace.
func (a *app) checkOne(ctx context.Context, path string, opt check.Options, out *reports) error {
	result, err := a.backend.check(ctx, path, a.stdin, opt)
	if err != nil {
		return a.failed(out, err)
	}
	a.status = result.Verdict.ExitStatus()
	return a.write(ctx, out, outcome{
		tree: report.Tree(judgedTrace(path, result)),
		text: func(w io.Writer, o report.Options) error { return report.TraceText(w, path, result, o) },
		json: func(w io.Writer, o report.Options) error { return report.TraceJSON(w, result, o) },

		driftPPM: opt.DriftPPM,
	})
}

// judgedTrace is a result beside what its manifest tells, where it has one.
func judgedTrace(path string, result *check.Result) report.Judged {
	j := report.Judged{Trace: path, Result: result}
	if m, err := traces.ReadManifest(path); err == nil {
		j.Manifest = &m
	}
	return j
}

// checkTogether judges several traces and shows what they say together.
func (a *app) checkTogether(ctx context.Context, paths []string, opt check.Options, out *reports) error {
	judged := make([]report.Judged, 0, len(paths))
	worst := spec.Pass
	var failed []*failure
	for _, path := range paths {
		result, err := a.backend.check(ctx, path, a.stdin, opt)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			f := asFailure(err)
			failed = append(failed, f)
			judged = append(judged, report.Judged{Trace: path, Failure: new(f.json()), Why: f.Error()})
			continue
		}
		worst = spec.Worst(worst, result.Verdict)
		judged = append(judged, judgedTrace(path, result))
	}
	a.status = worst.ExitStatus()
	if len(failed) > 0 {
		f := slices.MaxFunc(failed, func(a, b *failure) int { return cmp.Compare(a.status, b.status) })
		if more := len(failed) - 1; more > 0 {
			f.try = strings.TrimPrefix(fmt.Sprintf("%s; %d more could not be judged either", f.try, more), "; ")
		}
		a.status = a.say(f)
	}
	return a.write(ctx, out, outcome{
		tree: report.Tree(judged...),
		text: func(w io.Writer, o report.Options) error { return report.TracesText(w, judged, o) },
		json: func(w io.Writer, o report.Options) error { return report.TracesJSON(w, judged, o) },

		driftPPM: opt.DriftPPM,
	})
}

// checkTrace reads a trace and judges it.
func checkTrace(ctx context.Context, path string, stdin io.Reader, opt check.Options) (*check.Result, error) {
	if result, err := siftTrace(ctx, path, opt); result != nil || err != nil {
		return result, err
	}
	trace, judged, err := readAndJudge(ctx, path, stdin, opt)
	if err != nil {
		return nil, err
	}
	harness.HoldToHooks(harness.HooksOf(trace), judged.Result)
	return judged.Result, nil
}

// siftTrace judges a trace without holding it. It is nil where that does not tell
// what there is to say.
func siftTrace(ctx context.Context, path string, opt check.Options) (*check.Result, error) {
	defer rarelyCollecting(streamMemory)()
	var said spec.Trace // what is needed of hooks
	first := true
	result, err := check.Sift(ctx, func(each func(*spec.Event, int32, int32) bool) (bool, error) {
		see := each
		if first {
			see = func(e *spec.Event, source, thread int32) bool {
				if len(e.Hooks) > 0 || e.K == spec.KindNote && strings.HasPrefix(e.Text, `{"hooks":`) {
					said.Events = append(said.Events, spec.Event{
						Src: strings.Clone(e.Src), K: e.K, Hooks: bytes.Clone(e.Hooks), Text: strings.Clone(e.Text),
					})
				}
				return each(e, source, thread)
			}
		}
		first = false
		return traces.Stream(ctx, path, see)
	}, opt)
	if err != nil {
		return nil, inTrace(path, err)
	}
	if result == nil {
		return nil, nil
	}
	harness.HoldToHooks(harness.HooksOf(&said), result)
	return result, nil
}

// rarelyCollecting has the garbage collector run less often for as long as traces are
// judged of which little is live, and returns what ends that. The limit keeps the
// memory of the longest traces where it was.
func rarelyCollecting(memory int64) func() {
	percent, limit := debug.SetGCPercent(rareGCPercent), debug.SetMemoryLimit(memory)
	return func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}

const (
	rareGCPercent = 400
	// Bytes above which it collects as often as it must: of a trace that streams, and of
	// a certificate, whose traces are held one by one.
	streamMemory      = 256 << 20
	certificateMemory = 1 << 30
)

// words are the values of a list of names.
func words[S ~string](list []S) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}
