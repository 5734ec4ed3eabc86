package export

import (
	"fmt"
	"hash/fnv"
	"io"

	"google.golang.org/protobuf/encoding/protowire"

	"conform/spec"
	"conform/spec/check"
)

// Field numbers and values of perfetto/trace/perfetto_trace.proto. The tests read
// what is written here back with that file.
const (
	tracePacket = 1 // of Trace

	packetTimestamp, packetSequence, packetTrackEvent, packetFlags, packetTrack = 8, 10, 11, 13, 60 // of TracePacket

	trackUUID, trackName, trackParent, trackOrdering, trackRank = 1, 2, 5, 11, 12 // of TrackDescriptor
	orderExplicit                                               = 3

	eventAnnotation, eventType, eventTrack, eventCategory, eventName, eventFlow, eventFlowEnd = 4, 9, 11, 22, 23, 47, 48 // of TrackEvent
	typeBegin, typeEnd, typeInstant                                                           = 1, 2, 3

	annotationInt, annotationString, annotationName = 4, 6, 10 // of DebugAnnotation
)

// packets writes packets, until the first error.
type packets struct {
	w    io.Writer
	err  error
	n    int
	body []byte
	part []byte
	note []byte
	out  []byte
}

// flow is an arrow: it begins at an event, or ends there.
type flow struct {
	id   uint64
	ends bool
}

// about is what is told of a finding where it is marked.
type about check.Finding

func (p *packets) declare(id, parent uint64, name string, rank int64) {
	b := varint(nil, trackUUID, id)
	if parent != 0 {
		b = varint(b, trackParent, parent)
	}
	b = text8(b, trackName, name)
	b = varint(b, trackOrdering, orderExplicit)
	b = varint(b, trackRank, uint64(rank))
	p.packet(protowire.AppendBytes(protowire.AppendTag(p.body[:0], packetTrack, protowire.BytesType), b))
}

func (p *packets) slice(track, at uint64, name, category string, e *spec.Event) {
	p.event0(typeBegin, track, at, name, category, e)
}

func (p *packets) instant(track, at uint64, name, category string, e *spec.Event, more ...any) {
	p.event0(typeInstant, track, at, name, category, e, more...)
}

func (p *packets) finish(track, at uint64) { p.event0(typeEnd, track, at, "", "", nil) }

// event0 writes one TrackEvent, with all that the line says as annotations.
func (p *packets) event0(kind, track, at uint64, name, category string, e *spec.Event, more ...any) {
	b := varint(p.part[:0], eventType, kind)
	b = varint(b, eventTrack, track)
	if kind != typeEnd {
		b = text8(text8(b, eventCategory, category), eventName, name)
	}
	if e != nil {
		b = p.annotated(b, "line", fmt.Sprintf("%s#%d", e.Src, e.Seq))
		for _, f := range spec.Fields(e.K) {
			switch f.Name {
			case "src", "seq", "t", "t2", "k":
				continue
			}
			if v := e.Value(f); v != nil {
				b = p.annotated(b, f.Name, v)
			}
		}
	}
	for _, m := range more {
		switch m := m.(type) {
		case flow:
			number := protowire.Number(eventFlow)
			if m.ends {
				number = eventFlowEnd
			}
			b = protowire.AppendFixed64(protowire.AppendTag(b, number, protowire.Fixed64Type), m.id)
		case about:
			b = p.annotated(p.annotated(b, "finding", m.Text), "fingerprint", m.ID)
		}
	}
	p.part = b
	body := varint(p.body[:0], packetTimestamp, at)
	p.packet(protowire.AppendBytes(protowire.AppendTag(body, packetTrackEvent, protowire.BytesType), b))
}

// annotated appends one annotation.
func (p *packets) annotated(b []byte, name string, v any) []byte {
	n := text8(p.note[:0], annotationName, name)
	switch v := v.(type) {
	case int64:
		n = varint(n, annotationInt, uint64(v))
	case string:
		n = text8(n, annotationString, v)
	case spec.Blocks:
		n = text8(n, annotationString, v.String())
	case []string:
		n = text8(n, annotationString, asJSON(v))
	default:
		n = text8(n, annotationString, fmt.Sprint(v))
	}
	p.note = n
	return protowire.AppendBytes(protowire.AppendTag(b, eventAnnotation, protowire.BytesType), n)
}

func (p *packets) packet(body []byte) {
	body = varint(body, packetSequence, 1)
	if p.n++; p.n == 1 {
		body = varint(body, packetFlags, 1) // nothing before it is referred to
	}
	p.body = body
	p.out = protowire.AppendBytes(protowire.AppendTag(p.out[:0], tracePacket, protowire.BytesType), body)
	if p.err == nil {
		_, p.err = p.w.Write(p.out)
	}
}

func varint(b []byte, number protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), v)
}

func text8(b []byte, number protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), s)
}

// digest names a track or an arrow: the same parts, the same number, never 0.
func digest(parts ...string) uint64 {
	h := fnv.New64a()
	for _, p := range parts {
		_, _ = h.Write([]byte(p + "\x00")) // a hash takes everything
	}
	return max(1, h.Sum64())
}

// title is what an event is called in the picture.
func title(e *spec.Event) string {
	switch e.K {
	case spec.KindEmit:
		return e.Signal
	case spec.KindObserve:
		if e.Signal == "" {
			return "observed"
		}
		return "observed " + e.Signal
	case spec.KindGrant, spec.KindRevoke:
		return fmt.Sprintf("%s %s to %s", e.K, e.Mode, e.To)
	case spec.KindFree, spec.KindHold, spec.KindDrop:
		return string(e.K) + " " + e.Holder
	case spec.KindFault:
		return "fault: " + e.Do
	case spec.KindFinish:
		return "finish " + string(e.Result)
	}
	return string(e.K)
}

func category(k spec.Kind) string {
	switch k {
	case spec.KindFault:
		return "fault"
	case spec.KindSource, spec.KindPool, spec.KindSeal, spec.KindLost, spec.KindNote, spec.KindClockCmp:
		return "recorder"
	}
	return "request"
}

func word(have, want, yes, no string) string {
	if have == want {
		return yes
	}
	return no
}
