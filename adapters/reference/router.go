package reference

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"conform/adapters"
	"conform/spec"
)

// router passes a client's request to both stages: at once in push mode, one
// after the other in pull mode. It decides nothing about admission.
type router struct {
	w        *worker
	client   *http.Client
	active   int
	requests int
	seen     *tombstones    // requests that came, by rid
	uses     map[string]int // of keys that clients chose
}

// clientRequest is the body of POST /generate.
type clientRequest struct {
	Req    string  `json:"rid"`
	Prompt []int32 `json:"prompt"`
	MaxNew int     `json:"max_new_tokens"`
	Stream bool    `json:"stream"`
	// Handoff is a key of the client's choice, "" for one of the router's.
	Handoff string `json:"key,omitempty"`
	Samples int    `json:"n,omitempty"` // answers to the one prompt; 0 and 1 are one
}

func newRouter(w *worker) *router {
	return &router{w: w, seen: newTombstones(tombstoneCap), uses: map[string]int{}, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
}

func (ro *router) pools() []*pool   { return nil }
func (ro *router) message(*Message) {}
func (ro *router) step(time.Time)   {}
func (ro *router) load() load       { return load{Requests: ro.active} }

func (ro *router) routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /generate", ro.handleGenerate)
	mux.HandleFunc("POST /abort", ro.handleAbort)
}

// useOf names the next use of a key that a client chose: the first by the key
// itself, each further one with its number. It gives "" once there are too many keys.
func (ro *router) useOf(key string) string {
	n, known := ro.uses[key]
	if !known && len(ro.uses) >= tombstoneCap {
		return ""
	}
	ro.uses[key]++
	if n == 0 {
		return key
	}
	return fmt.Sprintf("%s#%d", key, n)
}

// handoffKey names a use of a key: keys come round, as engines' do, and carry
// the number of their use. A router that was restarted has keys of its own, for
// it does not know how far the earlier one had come.
func (ro *router) handoffKey() string {
	n := ro.requests
	ro.requests++
	room := "room"
	if _, again, restarted := strings.Cut(ro.w.cfg.ID, "."); restarted {
		room += "." + again
	}
	if n < keyReuse {
		return fmt.Sprintf("%s-%d", room, n)
	}
	return fmt.Sprintf("%s-%d#%d", room, n%keyReuse, n/keyReuse)
}

func (ro *router) handleGenerate(rw http.ResponseWriter, hr *http.Request) {
	var c clientRequest
	if err := readJSON(hr, &c); err != nil || c.Req == "" || len(c.Prompt) == 0 || c.MaxNew < 1 || c.Samples < 0 || c.Samples > maxSamples || strings.Contains(c.Handoff, "#") {
		writeJSON(rw, http.StatusBadRequest, legAnswer{Error: "expected rid, prompt (token ids), max_new_tokens from 1, n from 1 to 16, a key without #"})
		return
	}
	legs := ro.legs(c)
	begun := false
	if err := ro.w.call(hr.Context(), func() { begun = ro.begin(legs, c.Handoff) }); err != nil {
		return
	}
	if !begun {
		writeJSON(rw, http.StatusConflict, legAnswer{Error: "a request of this rid has come already", Done: true})
		return
	}
	defer ro.w.post(func() { ro.active-- })
	out := &clientAnswer{rw: rw}
	if len(legs) > 1 {
		ro.several(hr.Context(), legs, out)
	} else {
		ro.serve(hr.Context(), legs[0], out)
	}
	out.close()
	l := legs[0]
	l.Req = c.Req
	ro.w.post(func() { ro.finish(l, hr.Context().Err() != nil, out) })
}

// legs are the requests that a client's request becomes: one, or one a sample.
func (ro *router) legs(c clientRequest) []leg {
	legs := make([]leg, max(c.Samples, 1))
	for i := range legs {
		legs[i] = leg{Req: c.Req, Prompt: c.Prompt, MaxNew: c.MaxNew, Stream: c.Stream}
		if len(legs) > 1 {
			legs[i].Req, legs[i].Client, legs[i].Stream = fmt.Sprintf("%s.%d", c.Req, i), c.Req, false
		}
	}
	return legs
}

func (ro *router) serve(ctx context.Context, l leg, out *clientAnswer) {
	if ro.w.cfg.Mode == Push {
		ro.push(ctx, l, out)
	} else {
		ro.pull(ctx, l, out)
	}
}

// several serves the samples of one request side by side. The client gets the
// tokens of each, one after the other, or the first error.
func (ro *router) several(ctx context.Context, legs []leg, out *clientAnswer) {
	answers := make([]*spooled, len(legs))
	var wg sync.WaitGroup
	for i := range legs {
		answers[i] = &spooled{header: http.Header{}}
		wg.Go(func() {
			part := &clientAnswer{rw: answers[i]}
			ro.serve(ctx, legs[i], part)
			part.close()
		})
	}
	wg.Wait()
	var tokens []int32
	for _, s := range answers {
		a := s.answer()
		if a.Status >= 300 {
			out.fail(a)
			return
		}
		tokens = append(tokens, a.Tokens...)
	}
	out.line(http.StatusOK, legAnswer{Tokens: tokens, Done: true, Status: http.StatusOK, Outcome: string(spec.OutcomeOK)})
}

// begin gives each leg its handoff, unless a request of its name has come before: a
// client's retry must not run twice under one name.
func (ro *router) begin(legs []leg, key string) bool {
	client := cmp.Or(legs[0].Client, legs[0].Req)
	if ro.seen.has(client) {
		return false
	}
	for i := range legs {
		switch {
		case i > 0 && ro.w.cfg.Defect == defSharedKey:
			legs[i].Handoff = legs[0].Handoff
		case key != "":
			legs[i].Handoff = ro.useOf(key)
		default:
			legs[i].Handoff = ro.handoffKey()
		}
		if legs[i].Handoff == "" {
			return false
		}
		ro.w.record(spec.Event{K: spec.KindOffer, Req: client, Handoff: legs[i].Handoff})
	}
	ro.seen.add(client, sigFailed)
	ro.active++
	return true
}

// finish records what the client was told.
func (ro *router) finish(l leg, gone bool, out *clientAnswer) {
	outcome := spec.OutcomeError
	status, complete := out.told()
	switch {
	case complete && status < 300:
		outcome = spec.OutcomeOK
	case gone:
		outcome = spec.OutcomeCancelled
	case status == http.StatusBadRequest:
		outcome = spec.OutcomeRejected
	case status == statusCancelled:
		outcome = spec.OutcomeCancelled
	}
	ro.w.record(spec.Event{K: spec.KindFinish, Req: l.Req, Handoff: l.Handoff, Result: outcome, Status: int64(status)})
}

// push sends both legs at once; the first that fails speaks to the client and
// ends the other. A leg whose worker is gone decides nothing: the other stage
// finds out by itself.
func (ro *router) push(ctx context.Context, l leg, out *clientAnswer) {
	rest, endRest := context.WithCancel(context.WithoutCancel(ctx))
	defer endRest()
	defer context.AfterFunc(ctx, func() { // a client that has its answer and goes has not given it up
		if _, complete := out.told(); !complete {
			endRest()
		}
	})()
	dctx, endDecode := context.WithCancel(ctx)
	defer endDecode()
	if silentReject(ro.w.cfg.Defect) { // nobody tells decode: not even by closing its leg
		dctx = context.WithoutCancel(ctx)
	}
	prefill := make(chan legAnswer, len(ro.w.cfg.PrefillHTTP))
	for _, addr := range ro.w.cfg.PrefillHTTP {
		go func() {
			a, err := ro.send(rest, addr, l)
			if err != nil {
				a = legAnswer{Status: http.StatusBadGateway, Error: err.Error(), Outcome: "lost"}
			}
			if refused(a) {
				out.fail(a)
				endDecode()
				endRest()
			}
			prefill <- a
		}()
	}
	followed := ro.follow(rest, l)
	decoded := make(chan struct{})
	go func() {
		defer close(decoded)
		ro.relay(dctx, l, out)
	}()
	if silentReject(ro.w.cfg.Defect) {
		select {
		case <-decoded:
			return
		case a := <-prefill:
			if refused(a) {
				out.fail(a)
				return
			}
			prefill <- a
		}
	}
	<-decoded
	if status, _ := out.told(); status >= 300 && status != http.StatusServiceUnavailable && status != http.StatusBadGateway {
		endRest()
	}
	patience := time.After(ro.w.cfg.Limits.HandoffTimeout)
	for range ro.w.cfg.PrefillHTTP { // their end, so that a request leaves nothing behind that still runs
		select {
		case <-prefill:
		case <-patience:
			return
		}
	}
	select {
	case <-followed:
	case <-patience:
	}
}

// follow sends a leg to each further rank of decode, which computes the same and whose
// answer nobody needs. The channel is closed when they have ended.
func (ro *router) follow(ctx context.Context, l leg) <-chan struct{} {
	l.Follower, l.Stream = true, false
	var wg sync.WaitGroup
	for _, addr := range ro.w.cfg.DecodeHTTP[1:] {
		wg.Go(func() { _, _ = ro.send(ctx, addr, l) })
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	return ended
}

// refused reports whether a stage itself ended the request.
func refused(a legAnswer) bool { return a.Status >= 300 && a.Outcome != "lost" }

// pull asks prefill first and hands its answer's reference on to decode.
func (ro *router) pull(ctx context.Context, l leg, out *clientAnswer) {
	to, err := ro.worker(ctx, ro.w.cfg.DecodeHTTP[0])
	if err != nil {
		out.fail(legAnswer{Status: http.StatusServiceUnavailable, Error: "decode is lost"})
		return
	}
	l.Decode = to
	a, err := ro.send(ctx, ro.w.cfg.PrefillHTTP[0], l)
	switch {
	case ctx.Err() != nil: // the client left before decode's leg: nobody else knows of the lease
		ro.abortAt(ro.w.cfg.PrefillHTTP[0], l)
		return
	case err != nil:
		out.fail(legAnswer{Status: http.StatusBadGateway, Error: "prefill is lost"})
		return
	case a.Status >= 300 || a.KVParams == nil:
		out.fail(a)
		return
	}
	l.KVParams = a.KVParams
	ro.relay(ctx, l, out)
}

// worker asks who serves at addr.
func (ro *router) worker(ctx context.Context, addr string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, ro.w.cfg.Limits.PeerTimeout)
	defer cancel()
	var i info
	err := getJSON(ctx, ro.client, "http://"+addr+"/info", &i)
	return i.Worker, err
}

// send posts a leg and reads its one answer.
func (ro *router) send(ctx context.Context, addr string, l leg) (legAnswer, error) {
	resp, err := adapters.PostJSON(ctx, ro.client, addr, "/generate", l)
	if err != nil {
		return legAnswer{}, err
	}
	defer resp.Body.Close()
	var a legAnswer
	if err := json.NewDecoder(io.LimitReader(resp.Body, wireMaxBytes)).Decode(&a); err != nil {
		return legAnswer{}, fmt.Errorf("answer of the leg: %w", err)
	}
	a.Status = resp.StatusCode
	return a, nil
}

// relay sends decode's leg and passes its answer on as it comes.
func (ro *router) relay(ctx context.Context, l leg, out *clientAnswer) {
	resp, err := adapters.PostJSON(ctx, ro.client, ro.w.cfg.DecodeHTTP[0], "/generate", l)
	if err != nil {
		if ctx.Err() == nil {
			out.fail(legAnswer{Status: http.StatusBadGateway, Error: "decode is lost"})
		}
		return
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(io.LimitReader(resp.Body, 64*wireMaxBytes))
	for {
		line, err := lines.ReadBytes('\n')
		var a legAnswer
		if err == nil {
			err = json.Unmarshal(line, &a)
		}
		if err != nil {
			if ctx.Err() == nil || !errors.Is(err, context.Canceled) {
				out.fail(legAnswer{Status: http.StatusBadGateway, Error: "decode is lost"})
			}
			return
		}
		if out.line(resp.StatusCode, a); a.Done || a.Error != "" {
			return
		}
	}
}

func (ro *router) handleAbort(rw http.ResponseWriter, hr *http.Request) {
	var c clientRequest
	if err := readJSON(hr, &c); err != nil || c.Req == "" {
		writeJSON(rw, http.StatusBadRequest, legAnswer{Error: "expected rid"})
		return
	}
	l := leg{Req: c.Req}
	for _, addr := range slices.Concat(ro.w.cfg.DecodeHTTP, ro.w.cfg.PrefillHTTP) {
		ro.abortAt(addr, l)
	}
	writeJSON(rw, http.StatusOK, legAnswer{})
}

// abortAt tells one stage that the client has given a request up. A stage that
// can't be reached is found out by its peer.
func (ro *router) abortAt(addr string, l leg) {
	ctx, cancel := context.WithTimeout(ro.w.ctx, ro.w.cfg.Limits.PeerTimeout)
	defer cancel()
	if resp, err := adapters.PostJSON(ctx, ro.client, addr, "/abort", l); err == nil {
		resp.Body.Close()
	}
}
