package harness

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"conform/adapters"
	"conform/spec"
)

// clients sends a scenario's requests and records what was sent and told.
type clients struct {
	stack adapters.Stack
	w     workload
	rec   *recorder
	wait  time.Duration // for one answer, at most

	mu      sync.Mutex
	giveUps map[string]chan giveUp // by request that is in flight
	served  int                    // requests that were answered in full
	failure error                  // the last that kept a request from being answered
}

func newClients(stack adapters.Stack, w workload, rec *recorder, wait time.Duration) *clients {
	return &clients{stack: stack, w: w, rec: rec, wait: wait, giveUps: map[string]chan giveUp{}}
}

// request is one request, drawn in full before the first is sent, so that the
// same seed gives the same requests whatever the timing.
type request struct {
	id       string
	prompt   []int32
	output   int
	stream   bool
	pause    time.Duration
	giveUp   giveUp        // by itself, 0 for not
	giveUpIn time.Duration // after it was sent
}

// draw makes the scenario's requests from a seed.
func (w workload) draw(seed uint64, limits adapters.Limits, pace adapters.Pace) []request {
	rng := rand.New(rand.NewPCG(seed, 0x636f6e666f726d))
	between := func(r [2]int) int { return r[0] + rng.IntN(r[1]-r[0]+1) }
	after := func(r [2]time.Duration) time.Duration { return r[0] + time.Duration(rng.Int64N(int64(r[1]-r[0])+1)) }
	every := func(n, i int) bool { return n > 0 && i%n == n-1 }
	reqs := make([]request, w.requests)
	for i := range reqs {
		q := request{id: fmt.Sprintf("r-%04d", i), output: between(w.output), stream: every(w.streamEvery, i)}
		n := between(w.prompt)
		if rng.IntN(4) == 0 { // around a block boundary
			n = max(1, n-n%pace.PageTokens+rng.IntN(3)-1)
		}
		if every(w.tooLongEvery, i) {
			n = limits.PrefillTokens + 1 + rng.IntN(16)
		}
		if every(w.outputEvery, i) {
			q.output = limits.DecodeTokens
		}
		q.prompt = make([]int32, n)
		for j := range q.prompt {
			q.prompt[j] = pace.Vocab[0] + rng.Int32N(pace.Vocab[1]-pace.Vocab[0]+1)
		}
		q.pause = time.Duration(rng.Int64N(int64(w.pause[1]-w.pause[0])+1)) + w.pause[0]
		switch {
		case every(w.abortEvery, i):
			q.giveUp = abort
		case every(w.leaveEvery, i):
			q.giveUp = leave
		}
		if q.giveUp != 0 {
			q.giveUpIn = after(w.cancelAfter)
		}
		reqs[i] = q
	}
	return reqs
}

// run sends all requests and returns when each has been answered or given up.
func (c *clients) run(ctx context.Context, reqs []request) {
	queue := make(chan request)
	var wg sync.WaitGroup
	for i := range c.w.clients {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for q := range queue {
				c.one(ctx, "client"+strconv.Itoa(i), q)
			}
		}()
	}
	for _, q := range reqs {
		select {
		case queue <- q:
		case <-ctx.Done():
		}
	}
	close(queue)
	wg.Wait()
}

// hit lets the client of a request give it up, because a fault of the plan hit it.
func (c *clients) hit(rule, req string) {
	g := c.w.onFault[rule]
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch := c.giveUps[req]; g != 0 && ch != nil {
		select {
		case ch <- g:
		default:
		}
	}
}

// one sends a request and sees it to its end.
func (c *clients) one(ctx context.Context, thread string, q request) {
	sleep(ctx, q.pause)
	if ctx.Err() != nil {
		return
	}
	need := int64(len(q.prompt))
	c.rec.record(spec.Event{
		K: spec.KindSubmit, Th: thread, Req: q.id, Need: &need, Unit: "token",
		Limit: int64(c.stack.Limits().ContextTokens), Prompt: tokenDigest(q.prompt),
	})
	giveUps := make(chan giveUp, 1)
	c.mu.Lock()
	c.giveUps[q.id] = giveUps
	c.mu.Unlock()
	run := ctx
	ctx, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	done := make(chan told, 1)
	go func() {
		a, err := c.stack.Generate(ctx, adapters.Request{ID: q.id, Prompt: q.prompt, Output: q.output, Stream: q.stream})
		done <- told{a, err, run.Err() != nil}
	}()
	var timer <-chan time.Time
	if q.giveUp != 0 {
		timer = time.After(q.giveUpIn)
	}
	c.see(ctx, cancel, thread, q, giveUps, timer, done)
	c.mu.Lock()
	delete(c.giveUps, q.id)
	c.mu.Unlock()
}

// see waits for the answer and gives up when it is time to.
func (c *clients) see(ctx context.Context, cancel func(), thread string, q request, giveUps <-chan giveUp, timer <-chan time.Time, done <-chan told) {
	for {
		var g giveUp
		select {
		case t := <-done:
			c.ended(ctx, thread, q, t)
			return
		case g = <-giveUps:
			sleep(ctx, time.Millisecond)
		case <-timer:
			g = q.giveUp
		}
		timer = nil
		if g == leave {
			c.rec.record(spec.Event{K: spec.KindCancel, Th: thread, Req: q.id, Why: "disconnect"})
			cancel()
			<-done
			c.rec.record(spec.Event{K: spec.KindFinish, Th: thread, Req: q.id, Result: spec.OutcomeCancelled})
			return
		}
		c.rec.record(spec.Event{K: spec.KindCancel, Th: thread, Req: q.id, Why: "abort"})
		_ = c.stack.Abort(ctx, q.id, "") // the answer tells what came of it
	}
}

// told is what a client was told.
type told struct {
	adapters.Answer
	err error
	// cutShort is set where the run was stopped: whatever came then, the harness
	// caused it.
	cutShort bool
}

// unserved says why no request at all was served, "" if one was.
func (c *clients) unserved() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.served > 0 {
		return ""
	}
	if c.failure == nil {
		return "no request was answered in full"
	}
	return "no request was answered in full; the last failed: " + c.failure.Error()
}

func (c *clients) count(outcome spec.Outcome, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if outcome == spec.OutcomeOK {
		c.served++
	}
	if err != nil {
		c.failure = err
	}
}

// ended records the client's outcome and what it got.
func (c *clients) ended(ctx context.Context, thread string, q request, t told) {
	if t.cutShort {
		return
	}
	outcome := t.Outcome
	if t.err != nil || outcome == "" {
		outcome = spec.OutcomeError
	}
	c.count(outcome, t.err)
	c.rec.record(spec.Event{K: spec.KindFinish, Th: thread, Req: q.id, Result: outcome, Status: int64(t.Status)})
	if outcome == spec.OutcomeOK || outcome == spec.OutcomeLength && len(t.Tokens) > 0 {
		n := q.output
		if outcome == spec.OutcomeLength {
			n = len(t.Tokens)
		}
		c.rec.record(spec.Event{
			K: spec.KindAnswer, Th: thread, Req: q.id, Sum: tokenDigest(t.Tokens),
			Expect: tokenDigest(c.stack.Reference(q.prompt, n)), HasExp: true,
		})
	}
	if t.err != nil || t.Status == http.StatusBadGateway || t.Status == http.StatusServiceUnavailable {
		sleep(ctx, c.w.backoff)
	}
}

// tokenDigest names tokens without showing them.
func tokenDigest(tokens []int32) string {
	b := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:12])
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
