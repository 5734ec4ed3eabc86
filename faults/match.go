package faults

import (
	"strings"

	"conform/spec"
)

// matcher compares points with conditions. It knows which role a worker's id
// has, once a source event has said so.
type matcher struct {
	workers map[string]string // source -> worker
	roles   map[string]string // worker -> role
}

// maxSources bounds what source events can make the engine remember.
const maxSources = 1 << 16

func newMatcher() matcher {
	return matcher{workers: map[string]string{}, roles: map[string]string{}}
}

// learn takes in a source event.
func (m *matcher) learn(ev *spec.Event) {
	if ev.K != spec.KindSource || len(m.workers) >= maxSources {
		return
	}
	m.workers[ev.Src] = ev.Worker
	m.roles[ev.Worker] = string(ev.Role)
}

// point makes a recorded event a point.
func (m *matcher) point(ev *spec.Event) Point {
	p := Point{
		Kind: KindEvent, Name: string(ev.K), From: ev.Worker, To: ev.To,
		Pool: ev.Pool, Sig: ev.Sig, Access: ev.Access, Handoff: ev.Handoff, Req: ev.Req,
		Signal: ev.Signal, Why: ev.Why, Mode: ev.Mode, N: ev.N, Blocks: ev.Blocks,
	}
	if p.From == "" {
		p.From = m.workers[ev.Src]
	}
	if p.From == "" {
		p.From = ev.Src
	}
	switch ev.K {
	case spec.KindBegin:
		p.To = ev.Target
	case spec.KindFinish:
		p.Why = string(ev.Result)
	case spec.KindDigest:
		p.N = ev.Part
	}
	return p
}

func (m *matcher) matches(c *Match, p *Point) bool {
	if c.Kind != p.Kind || !nameMatches(c, p.Name) {
		return false
	}
	if c.N != nil && *c.N != p.N {
		return false
	}
	for _, f := range [...][2]string{
		{c.Pool, p.Pool},
		{c.Sig, p.Sig},
		{c.Handoff, p.Handoff},
		{c.Req, p.Req},
		{c.Why, p.Why},
		{c.Mode, p.Mode},
	} {
		if f[0] != "" && f[0] != f[1] {
			return false
		}
	}
	if c.Signal != "" && !signalMatches(c.Signal, p.Signal) {
		return false
	}
	return m.isWorker(c.From, p.From) && m.isWorker(c.To, p.To)
}

func nameMatches(c *Match, name string) bool {
	if c.Kind == KindSignal {
		return signalMatches(c.Name, name)
	}
	return glob(c.Name, name)
}

// signalMatches compares kinds of signals; what follows a "/" is a variant.
func signalMatches(pattern, name string) bool {
	base, _, _ := strings.Cut(name, "/")
	return glob(pattern, name) || pattern == base
}

func glob(pattern, name string) bool {
	if head, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, head)
	}
	return pattern == name
}

// isWorker reports whether pattern names the worker: by its role, by its id, or
// by a beginning of its id that ends where a word does, so that "prefill" is
// "prefill-0#1" and "prefill0" but "prefill1" is not "prefill10".
func (m *matcher) isWorker(pattern, worker string) bool {
	if pattern == "" || pattern == worker {
		return true
	}
	if worker == "" {
		return false
	}
	if m.roles[worker] == pattern {
		return true
	}
	rest, ok := strings.CutPrefix(worker, pattern)
	if !ok || rest == "" {
		return false
	}
	before, after := charClass(pattern[len(pattern)-1]), charClass(rest[0])
	return after != before || after == classOther
}

const (
	classOther = iota
	classLetter
	classDigit
)

func charClass(b byte) int {
	switch {
	case '0' <= b && b <= '9':
		return classDigit
	case 'a' <= b|0x20 && b|0x20 <= 'z' || b >= 0x80 || b == '_':
		return classLetter
	}
	return classOther
}

// same reports whether two points agree in what `same` names. What a point does
// not know agrees with nothing.
func (m *matcher) same(what string, a, b *Point) bool {
	switch what {
	case "":
		return true
	case "handoff":
		return a.Handoff != "" && a.Handoff == b.Handoff
	case "req":
		return a.Req != "" && a.Req == b.Req
	case "block":
		return a.Pool == b.Pool && m.sameOwner(ownerOf(a), ownerOf(b)) && overlap(a.Blocks, b.Blocks)
	}
	return false
}

// ownerOf is the worker whose blocks a point speaks of.
func ownerOf(p *Point) string {
	if p.Kind == KindEvent && p.Name != string(spec.KindBegin) {
		return p.From
	}
	return p.To
}

func (m *matcher) sameOwner(a, b string) bool {
	return a == "" || b == "" || m.isWorker(a, b) || m.isWorker(b, a)
}

func overlap(a, b spec.Blocks) bool {
	for _, x := range a {
		for _, y := range b {
			if x.First <= y.Last && y.First <= x.Last {
				return true
			}
		}
	}
	return false
}
