package reference

import (
	"fmt"
	"sync"
)

// pool is a worker's blocks of one kind: their memory, which the NIC reaches,
// and the free list, which only the scheduler touches. The list is last in,
// first out, as engines have it: a block that was just freed is the next one
// handed out, so that a release which came too early shows within milliseconds.
type pool struct {
	name  string
	what  string
	size  int // bytes of one block
	count int

	mu  sync.RWMutex // the memory, as the NIC's bus would arbitrate it
	mem []byte

	free []int64
}

func newPool(name, what string, count, size int) *pool {
	p := &pool{name: name, what: what, size: size, count: count, mem: make([]byte, count*size)}
	for n := count - 1; n >= 0; n-- {
		p.free = append(p.free, int64(n))
	}
	return p
}

// take hands out n blocks, or none if there are fewer.
func (p *pool) take(n int) ([]int64, bool) {
	if n > len(p.free) {
		return nil, false
	}
	got := make([]int64, n)
	for i := range got {
		got[i] = p.free[len(p.free)-1-i]
	}
	p.free = p.free[:len(p.free)-n]
	return got, true
}

// put gives blocks back. It does not look whether they were out: that is the
// protocol's duty, and a defect that gives back twice must show.
func (p *pool) put(blocks []int64) { p.free = append(p.free, blocks...) }

// readAt copies memory out.
func (p *pool) readAt(off int64, n int) ([]byte, error) {
	if err := p.bounds(off, n); err != nil {
		return nil, err
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	return append([]byte(nil), p.mem[off:off+int64(n)]...), nil
}

// writeAt copies memory in.
func (p *pool) writeAt(off int64, b []byte) error {
	if err := p.bounds(off, len(b)); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	copy(p.mem[off:], b)
	return nil
}

func (p *pool) bounds(off int64, n int) error {
	if off < 0 || n < 0 || off+int64(n) > int64(len(p.mem)) {
		return fmt.Errorf("pool %s: %d bytes at %d are outside its %d bytes", p.name, n, off, len(p.mem))
	}
	return nil
}

// readBlocks concatenates the first n bytes of the blocks' memory.
func (p *pool) readBlocks(blocks []int64, n int) []byte {
	out := make([]byte, 0, n)
	for _, b := range blocks {
		if n <= 0 {
			break
		}
		m := min(n, p.size)
		part, err := p.readAt(b*int64(p.size), m)
		if err != nil { // the scheduler only names blocks of its own pool
			panic(err)
		}
		out = append(out, part...)
		n -= m
	}
	return out
}

// writeBlocks spreads content over the blocks, from offset bytes on.
func (p *pool) writeBlocks(blocks []int64, offset int, content []byte) {
	for len(content) > 0 {
		b, within := blocks[offset/p.size], offset%p.size
		m := min(len(content), p.size-within)
		if err := p.writeAt(b*int64(p.size)+int64(within), content[:m]); err != nil {
			panic(err)
		}
		content, offset = content[m:], offset+m
	}
}
