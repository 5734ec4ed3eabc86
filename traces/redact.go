package traces

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"conform/spec"
)

// ErrNamelessLoss is the error of a trace that lost a source which never said its name:
// no line of a new trace can say so.
var ErrNamelessLoss = errors.New("a file of the trace is torn before it names its source")

// Redact gives a trace that is judged like t and tells nothing of what t's writer put
// into words: each name of a request, handoff, signal, access, holder, host, clock or
// thread becomes one that only says what it is of ("r1", "room2#1"), the same for the
// same; digests become numbers, for short prompts and answers can be guessed from them;
// reasons, transports and units that are not among the format's own, notes, versions,
// process ids and fields that the format does not know are left out. Roles, workers that
// are named by role and number, pools, kinds of signals, and how many hooks were bound for which rule stay.
// Times stay as they are: they count from a machine's start.
//
// The events keep their order and their seq; seals are those of the old lines until
// somebody seals anew. What a torn line lost becomes an event of kind lost. Linear; t is
// not changed.
func Redact(t *spec.Trace) (*spec.Trace, error) {
	r := redactor{names: map[string]string{}, counts: map[string]int{}}
	out := &spec.Trace{Events: make([]spec.Event, 0, len(t.Events)+len(t.Losses))}
	said, next, last := map[string]bool{}, map[string]uint64{}, map[string]spec.Event{}
	for i := range t.Events {
		e := &t.Events[i]
		if e.Seq != next[e.Src] || e.K == spec.KindLost && e.Count > 0 {
			said[e.Src] = true
		}
		next[e.Src] = e.Seq + 1
		got := r.event(*e)
		last[e.Src] = got
		out.Events = append(out.Events, got)
	}
	for _, l := range t.Losses {
		e, ok := last[l.Src]
		if !ok {
			return nil, fmt.Errorf("%w: %s", ErrNamelessLoss, l.Why)
		}
		if !said[l.Src] {
			said[l.Src] = true
			out.Events = append(out.Events, spec.Event{Src: e.Src, Seq: next[l.Src], T: e.T2, T2: e.T2, Th: e.Th, K: spec.KindLost, Count: 1})
		}
		out.Losses = append(out.Losses, spec.Loss{Src: e.Src, Next: l.Next, Why: "events were lost"})
	}
	return out, nil
}

// redactor gives names. It knows each by what it was.
type redactor struct {
	names  map[string]string
	counts map[string]int
}

// What may stay as it is.
var (
	plainWorker = regexp.MustCompile(`^(client|router|prefill|decode|store|harness)(-\d{1,4}(\.r?\d{1,4})*(#\d{1,4})?)?$`)
	plainPool   = regexp.MustCompile(`^(kv|aux|slot|host)$`)
	plainKind   = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,31}$`) // of a signal
	plainShape  = regexp.MustCompile(`^([A-Za-z]{1,16}|\d{1,3})$`)
	plainWord   = regexp.MustCompile(`^(done|cancel|reject|timeout|evict|peer_lost|preempt|shutdown|capacity|abort|client|client_gone)$`)
	plainVia    = regexp.MustCompile(`^(forward|transfer|offload|commit|set_buf|nic/tcp)$`)
	plainUnit   = regexp.MustCompile(`^(token|request|block|byte|(pool|chunk|reserve|configured context) token)$`)
	plainDo     = regexp.MustCompile(`^[a-z]{1,16}$`)
	plainKey    = regexp.MustCompile(`^(hooks|asked|bound|missing|fired|errors)$|^[A-Z]{3}-\d$`)
	generation  = regexp.MustCompile(`#\d{1,9}$`)
)

// name is what a text of some kind is called from now on; "" stays.
func (r *redactor) name(kind, text string) string {
	if text == "" {
		return ""
	}
	tail := generation.FindString(text)
	base := strings.TrimSuffix(text, tail)
	got, ok := r.names[base]
	if !ok {
		r.counts[kind]++
		got = fmt.Sprintf("%s%d", kind, r.counts[kind])
		r.names[base] = got
	}
	return got + tail
}

// keep is text where it is plain, else a name of that kind.
func (r *redactor) keep(plain *regexp.Regexp, kind, text string) string {
	if plain.MatchString(text) {
		return text
	}
	return r.name(kind, text)
}

// drop is text where it is plain, else nothing.
func drop(plain *regexp.Regexp, text string) string {
	if plain.MatchString(text) {
		return text
	}
	return ""
}

// signal keeps the kind of a signal apart from its shape, as rules compare kinds.
func (r *redactor) signal(text string) string {
	base, shape, ok := strings.Cut(text, "/")
	base = r.keep(plainKind, "SIGNAL", base)
	if !ok {
		return base
	}
	return base + "/" + r.keep(plainShape, "shape", shape)
}

// event is e without its words. Kinds of names share one space: a holder that is called
// as its request is stays so.
func (r *redactor) event(e spec.Event) spec.Event {
	e.Pos, e.Extra, e.PID, e.Probe, e.Engine = spec.Position{}, nil, 0, "", ""
	e.Src, e.Worker, e.Target = r.keep(plainWorker, "source", e.Src), r.keep(plainWorker, "worker", e.Worker), r.keep(plainWorker, "worker", e.Target)
	if e.Th != "main" {
		e.Th = r.name("thread", e.Th)
	}
	if e.To != "*" {
		e.To = r.keep(plainWorker, "worker", e.To)
	}
	e.Host, e.Clock = r.name("host", e.Host), r.name("clock", e.Clock)
	e.Pool, e.What = r.keep(plainPool, "pool", e.Pool), drop(plainPool, e.What)
	e.Req, e.Handoff, e.Holder = r.name("r", e.Req), r.name("room", e.Handoff), r.name("holder", e.Holder)
	e.Sig, e.By, e.Access = r.name("s", e.Sig), r.name("s", e.By), r.name("a", e.Access)
	e.Signal, e.Asks = r.signal(e.Signal), r.signal(e.Asks)
	e.Why, e.Via, e.Stage = drop(plainWord, e.Why), drop(plainVia, e.Via), r.keep(plainWorker, "stage", e.Stage)
	e.Unit = r.keep(plainUnit, "unit", e.Unit)
	e.Rule, e.Do = r.name("rule", e.Rule), r.keep(plainDo, "do", e.Do)
	e.Prompt, e.Expect = r.name("digest", e.Prompt), r.name("digest", e.Expect)
	if e.K != spec.KindSeal {
		e.Sum = r.name("digest", e.Sum)
	}
	e.Accesses, e.Workers = slices.Clone(e.Accesses), slices.Clone(e.Workers)
	for i, a := range e.Accesses {
		e.Accesses[i] = r.name("a", a)
	}
	for i, w := range e.Workers {
		e.Workers[i] = r.keep(plainWorker, "worker", w)
	}
	if len(e.Hooks) > 0 {
		e.Hooks = r.hooks(e.Hooks)
	}
	e.Text = r.note(e.Text)
	return e
}

// note keeps a note only where it says what became of hooks: rules are held to that.
func (r *redactor) note(text string) string {
	if text == "" || !strings.HasPrefix(text, `{"hooks":`) {
		return ""
	}
	return string(r.hooks([]byte(text)))
}

// hooks keeps numbers and the names of rules.
func (r *redactor) hooks(raw []byte) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return json.RawMessage("{}")
	}
	b, err := json.Marshal(r.value(v))
	if err != nil {
		return json.RawMessage("{}")
	}
	return b
}

func (r *redactor) value(v any) any {
	switch v := v.(type) {
	case string:
		return r.keep(plainKey, "hook", v)
	case []any:
		for i := range v {
			v[i] = r.value(v[i])
		}
		return v
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			out[r.keep(plainKey, "hook", key)] = r.value(v[key])
		}
		return out
	}
	return v
}
