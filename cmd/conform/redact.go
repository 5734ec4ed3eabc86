package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"conform/harness/report"
	"conform/spec"
	"conform/spec/check"
	"conform/traces"
)

func (a *app) redactCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "redact TRACE -o FILE",
		Short: "Take out of a trace what it says in words, so that it can be shown",
		Long: `Write a trace that is judged like TRACE and tells nothing of what its writer put
into words: names of requests, handoffs, signals, accesses, holders, hosts, clocks
and threads become ones that only say what they are of, the same for the same;
digests become numbers, since short prompts can be guessed from theirs; notes,
versions, process ids, reasons that are not the format's own, and fields that the
format does not know are left out. Times, block numbers, roles, workers named by
role and number, and kinds of signals stay. Look at the result before you show it.

What Conform itself records has digests in the place of prompts and tokens, and no
keys; redact is for traces that others wrote.`,
		Args: exactly(1, "one trace: "+traceWords),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usage("there is no -o", "-o FILE, a .jsonl file to write to", "")
			}
			if err := newTraceFile(out, args[0]); err != nil {
				return err
			}
			return a.redact(cmd.Context(), args[0], out)
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "the .jsonl `FILE` to write the trace to")
	return cmd
}

func (a *app) redact(ctx context.Context, path, out string) error {
	trace, err := readTrace(ctx, path, a.stdin)
	if err != nil {
		return err
	}
	bare, err := traces.Redact(trace)
	if errors.Is(err, traces.ErrNamelessLoss) {
		return &failure{
			status: statusUsage, place: path, found: err.Error(), err: err,
			expected: "a trace whose files name their sources", try: "leave the torn file out",
		}
	} else if err != nil {
		return err
	}
	check.Reseal(bare.Events)
	if err := writeTraceFile(out, bare); err != nil {
		return unreadable(out, "a file that can be written", err)
	}
	fmt.Fprintf(a.stdout, "%d events\n  %s check %s\n", len(bare.Events), a.program, report.Quote(out))
	return nil
}

func writeTraceFile(out string, t *spec.Trace) error {
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	err = check.WriteTrace(w, t)
	if err == nil {
		err = w.Flush()
	}
	return errors.Join(err, f.Close())
}
