package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"conform/spec"
)

// bigTrace writes traces of any length, as a stack of two prefill and two decode
// workers on hosts of their own would leave them: many requests at a time, pools
// of which blocks are used again and again, lines of all sources in one file.
type bigTrace struct {
	r       *rand.Rand
	out     *bufio.Writer
	sources []*bigSource
	decode  []*bigPool
	prefill []*bigPool
	now     int64
	lines   int
	ids     int
	// spoil makes one request in so many free its blocks before its transfer ends.
	spoil int
	buf   []byte
}

type bigSource struct {
	name string
	skew int64
	seq  uint64
	sum  hash.Hash
}

type bigPool struct {
	src    *bigSource
	worker string
	free   []int64
}

// writeBigTrace writes a trace of about so many events.
func writeBigTrace(tb testing.TB, path string, events int, seed uint64, spoil int) (lines int) {
	tb.Helper()
	f, err := os.Create(path)
	require.NoError(tb, err)
	enc, err := zstd.NewWriter(f, zstd.WithEncoderConcurrency(1))
	require.NoError(tb, err)
	b := &bigTrace{r: rand.New(rand.NewPCG(seed, 1)), spoil: spoil}
	b.write(enc, events)
	require.NoError(tb, enc.Close())
	require.NoError(tb, f.Close())
	return b.lines
}

func (b *bigTrace) write(w io.Writer, events int) {
	b.out = bufio.NewWriterSize(w, 1<<20)
	client := b.source("client-1", "client", spec.RoleClient, "h0")
	for i := range 2 {
		b.decode = append(b.decode, b.pool(i, spec.RoleDecode))
		b.prefill = append(b.prefill, b.pool(i, spec.RolePrefill))
	}
	var open [][]func()
	for b.lines < events || len(open) > 0 {
		for b.lines < events && len(open) < 48 {
			open = append(open, b.request(client))
		}
		i := b.r.IntN(len(open))
		open[i][0]()
		if open[i] = open[i][1:]; len(open[i]) == 0 {
			open[i] = open[len(open)-1]
			open = open[:len(open)-1]
		}
	}
	for _, s := range b.sources {
		b.add(s, "main", spec.Event{K: spec.KindSeal, Events: int64(s.seq), Sum: hex.EncodeToString(s.sum.Sum(nil))})
	}
	if err := b.out.Flush(); err != nil {
		panic(err)
	}
}

func (b *bigTrace) source(name, worker string, role spec.Role, host string) *bigSource {
	s := &bigSource{name: name, sum: sha256.New(), skew: int64(len(b.sources)) * 7_000_000_000}
	b.sources = append(b.sources, s)
	b.add(s, "main", spec.Event{K: spec.KindSource, Worker: worker, Role: role, Host: host, Clock: "mono-" + host, PID: 4711})
	return s
}

func (b *bigTrace) pool(i int, role spec.Role) *bigPool {
	p := &bigPool{worker: fmt.Sprintf("%s-%d", role, i)}
	p.src = b.source(fmt.Sprintf("%s-%d-4711", role, i), p.worker, role, p.worker)
	for n := range int64(4096) {
		p.free = append(p.free, n)
	}
	b.add(p.src, "main", spec.Event{K: spec.KindPool, Pool: "kv", Count: 4096, Bytes: 65536, What: "kv"})
	return p
}

func (b *bigTrace) add(s *bigSource, th string, e spec.Event) {
	b.now += 200 + b.r.Int64N(2000)
	e.Src, e.Seq, e.Th, e.T = s.name, s.seq, th, 91827364500000+b.now+s.skew
	e.T2 = e.T
	s.seq++
	b.buf = append(e.AppendJSON(b.buf[:0]), '\n')
	s.sum.Write(b.buf)
	if _, err := b.out.Write(b.buf); err != nil {
		panic(err)
	}
	b.lines++
}

func (p *bigPool) take(r *rand.Rand, n int) spec.Blocks {
	blocks := make([]int64, 0, n)
	for range n {
		i := r.IntN(len(p.free))
		if r.IntN(3) > 0 { // runs are common
			i = len(p.free) - 1
		}
		blocks = append(blocks, p.free[i])
		p.free[i] = p.free[len(p.free)-1]
		p.free = p.free[:len(p.free)-1]
	}
	return spec.MakeBlocks(blocks...)
}

func (p *bigPool) give(b spec.Blocks) {
	for n := range b.All {
		p.free = append(p.free, n)
	}
}

// request is the life of one request, as steps that others come between.
func (b *bigTrace) request(client *bigSource) []func() {
	b.ids++
	id := b.ids
	r, h := fmt.Sprintf("req-%d", id), fmt.Sprintf("room-%d", id)
	d, p := b.decode[b.r.IntN(2)], b.prefill[b.r.IntN(2)]
	early := b.spoil > 0 && id%b.spoil == 0
	n, need := 4+b.r.IntN(8), int64(500)
	var mine, theirs spec.Blocks
	on := func(s *bigSource, th string, e spec.Event) func() {
		return func() { b.add(s, th, e) }
	}
	named := func(e spec.Event) spec.Event {
		e.Req, e.Handoff = r, h
		return e
	}
	mutate := func(pool *bigPool, blocks *spec.Blocks, e spec.Event) func() {
		return func() {
			if e.K == spec.KindAlloc {
				*blocks = pool.take(b.r, n)
			}
			e := named(e)
			e.Pool, e.Blocks = "kv", *blocks
			b.add(pool.src, "scheduler", e)
			if e.K == spec.KindFree {
				pool.give(*blocks)
			}
		}
	}
	access := func(src *bigSource, th, mode, via string, pool *bigPool, blocks *spec.Blocks, n int) (begin, end func()) {
		a := fmt.Sprintf("%s-a%d.%d", src.name, id, n)
		return func() {
				b.add(src, th, named(spec.Event{K: spec.KindBegin, Access: a, Mode: mode, Target: pool.worker, Pool: "kv", Blocks: *blocks, Via: via}))
			}, func() {
				ok := true
				b.add(src, th, spec.Event{K: spec.KindEnd, Access: a, OK: &ok})
			}
	}
	free := mutate(d, &mine, spec.Event{K: spec.KindFree, Holder: r, Why: "done"})
	steps := []func(){
		on(client, "main", spec.Event{K: spec.KindSubmit, Req: r, Need: &need, Unit: "tokens"}),
		on(d.src, "scheduler", named(spec.Event{K: spec.KindAdmit})),
		mutate(d, &mine, spec.Event{K: spec.KindAlloc, Holder: r}),
		mutate(d, &mine, spec.Event{K: spec.KindGrant, To: p.worker, Mode: "w"}),
		on(d.src, "scheduler", named(spec.Event{K: spec.KindEmit, Sig: "m" + h, Signal: "METADATA", To: p.worker, Claims: spec.ClaimsReceived})),
		on(p.src, "scheduler", spec.Event{K: spec.KindObserve, Sig: "m" + h}),
		mutate(p, &theirs, spec.Event{K: spec.KindAlloc, Holder: r}),
	}
	forward, over := access(p.src, "scheduler", "w", "", p, &theirs, 0)
	steps = append(steps, forward, over)
	for i := range 2 {
		begin, end := access(p.src, "scheduler", "w", "rdma", d, &mine, 1+i)
		steps = append(steps, begin)
		if early && i == 1 {
			steps = append(steps, free)
		}
		steps = append(steps, end)
	}
	steps = append(steps,
		on(p.src, "scheduler", named(spec.Event{K: spec.KindEmit, Sig: "s" + h, Signal: "STATUS", To: d.worker, Claims: spec.ClaimsDrained})),
		mutate(p, &theirs, spec.Event{K: spec.KindFree, Holder: r, Why: "done"}),
		on(d.src, "scheduler", spec.Event{K: spec.KindObserve, Sig: "s" + h}))
	if !early {
		for i := range 2 {
			begin, end := access(d.src, "scheduler", "r", "", d, &mine, 1+i)
			steps = append(steps, begin, end, on(d.src, "scheduler", spec.Event{K: spec.KindOutput, Req: r, N: 1}))
		}
		steps = append(steps, free)
	}
	return append(steps,
		on(d.src, "scheduler", spec.Event{K: spec.KindFinish, Req: r, Result: spec.OutcomeOK, Status: 200}),
		on(client, "main", spec.Event{K: spec.KindFinish, Req: r, Result: spec.OutcomeOK, Status: 200}))
}
