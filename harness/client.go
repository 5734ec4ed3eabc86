package harness

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
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
	giveUps map[string]chan ask // by request that is in flight
	served  int                 // requests that were answered in full
	failure error               // the last that kept a request from being answered
	blind   []string            // requests whose right answer nobody knows
}

// ask is the wish to give a request up.
type ask struct {
	how  giveUp
	at   spec.Role  // abort: the stage, "" for the client's API
	done chan error // told what came of it; nil if nobody waits
}

func newClients(stack adapters.Stack, w workload, rec *recorder, wait time.Duration) *clients {
	return &clients{stack: stack, w: w, rec: rec, wait: wait, giveUps: map[string]chan ask{}}
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

	samples         int    // answers to the one prompt; 0 is one
	handoff         string // "" lets the stack choose
	prefill, decode int    // which worker of each role
}

// draw makes the scenario's requests from a seed.
func (w workload) draw(seed uint64, limits adapters.Limits, pace adapters.Pace) []request {
	rng := rand.New(rand.NewPCG(seed, 0x636f6e666f726d))
	between := func(r [2]int) int { return r[0] + rng.IntN(r[1]-r[0]+1) }
	after := func(r [2]time.Duration) time.Duration { return r[0] + time.Duration(rng.Int64N(int64(r[1]-r[0])+1)) }
	every := func(n, i int) bool { return n > 0 && i%n == n-1 }
	reqs := make([]request, w.requests)
	for i := range reqs {
		q := request{id: requestID(i), output: between(w.output), stream: every(w.streamEvery, i)}
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
		if every(w.prefixEvery, i) { // begins as an earlier one does
			earlier := reqs[rng.IntN(i)].prompt
			copy(q.prompt, earlier[:len(earlier)*(1+rng.IntN(4))/4])
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

// requestID names a run's nth request. All have one length: there are engines
// that match an id by its beginning.
func requestID(n int) string { return fmt.Sprintf("r-%04d", n) }

// run sends all requests, or as many as it takes until enough says that they are,
// and returns when each has been answered or given up.
func (c *clients) run(ctx context.Context, reqs []request, enough func() bool) {
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
	for i, q := range reqs {
		if i >= c.w.least && enough() {
			break
		}
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
	if g != 0 {
		c.giveUp(req, ask{how: g})
	}
}

// giveUp lets the client of a request give it up, because a rule of the plan says so.
// A request that has ended, or that is asked for already, is left as it is.
func (c *clients) giveUp(req string, a ask) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch := c.giveUps[req]; ch != nil {
		select {
		case ch <- a:
		default:
		}
	}
}

// one sends a request and sees it to its end.
func (c *clients) one(ctx context.Context, thread string, q request) told {
	sleep(ctx, q.pause)
	if ctx.Err() != nil {
		return told{err: ctx.Err(), cutShort: true}
	}
	need := int64(len(q.prompt))
	c.rec.record(spec.Event{
		K: spec.KindSubmit, Th: thread, Req: q.id, Need: &need, Unit: "token",
		Limit: int64(c.stack.Limits().ContextTokens), Prompt: tokenDigest(q.prompt),
	})
	asks := make(chan ask, 1)
	c.mu.Lock()
	c.giveUps[q.id] = asks
	c.mu.Unlock()
	run := ctx
	ctx, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	done := make(chan told, 1)
	go func() {
		a, err := c.stack.Generate(ctx, adapters.Request{
			ID: q.id, Prompt: q.prompt, Output: q.output, Stream: q.stream, Samples: q.samples, Handoff: q.handoff, Prefill: q.prefill, Decode: q.decode,
		})
		done <- told{a, err, run.Err() != nil}
	}()
	var timer <-chan time.Time
	if q.giveUp != 0 {
		timer = time.After(q.giveUpIn)
	}
	t := c.see(ctx, cancel, thread, q, asks, timer, done)
	c.mu.Lock()
	delete(c.giveUps, q.id)
	c.mu.Unlock()
	select { // that came too late
	case a := <-asks:
		a.tell(errEnded)
	default:
	}
	return t
}

// errEnded is what comes of giving up a request that has ended.
var errEnded = errors.New("the request has ended already")

func (a ask) tell(err error) {
	if a.done != nil {
		a.done <- err
	}
}

// see waits for the answer and gives up when it is time to.
func (c *clients) see(ctx context.Context, cancel func(), thread string, q request, asks <-chan ask, timer <-chan time.Time, done <-chan told) told {
	for {
		var a ask
		select {
		case t := <-done:
			c.ended(ctx, thread, q, t)
			return t
		case a = <-asks:
			if a.done == nil { // a fault has hit it just now: let the fault act
				sleep(ctx, time.Millisecond)
			}
		case <-timer:
			a.how = q.giveUp
		}
		timer = nil
		if a.how == leave {
			c.rec.record(spec.Event{K: spec.KindCancel, Th: thread, Req: q.id, Why: "disconnect"})
			cancel()
			t := <-done
			c.rec.record(spec.Event{K: spec.KindFinish, Th: thread, Req: q.id, Result: spec.OutcomeCancelled})
			a.tell(nil)
			return told{Answer: adapters.Answer{Tokens: t.Tokens, Outcome: spec.OutcomeCancelled}}
		}
		why := "abort"
		if a.at != "" {
			why += " at " + string(a.at)
		}
		c.rec.record(spec.Event{K: spec.KindCancel, Th: thread, Req: q.id, Why: why})
		a.tell(c.stack.Abort(ctx, q.id, a.at)) // the answer tells what came of it
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

// unknown says whose answers nobody could compare, "" if there is none.
func (c *clients) unknown() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.blind) == 0 {
		return ""
	}
	slices.Sort(c.blind)
	names := strings.Join(c.blind[:min(len(c.blind), 4)], ", ")
	if more := len(c.blind) - 4; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return "no reference answer is known to compare the answer with: " + names
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
		e := spec.Event{K: spec.KindAnswer, Th: thread, Req: q.id, Sum: tokenDigest(t.Tokens)}
		if right := c.stack.Reference(q.prompt, n); len(right) > 0 {
			right = slices.Repeat(right, max(q.samples, 1))
			e.Expect, e.HasExp = tokenDigest(right), true
		} else {
			c.mu.Lock()
			c.blind = append(c.blind, q.id)
			c.mu.Unlock()
		}
		c.rec.record(e)
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
