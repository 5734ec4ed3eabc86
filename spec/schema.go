package spec

import "slices"

// FieldType is the type of a field of a line.
type FieldType string

// The types of TRACE.md.
const (
	TypeString  FieldType = "string"
	TypeInt     FieldType = "int"
	TypeUint    FieldType = "uint"
	TypeBool    FieldType = "bool"
	TypeStrings FieldType = "list of strings"
	TypeBlocks  FieldType = "list of blocks"
	TypeObject  FieldType = "object"
)

// Field says what a kind of event may or must carry under one name.
type Field struct {
	Name     string
	Type     FieldType
	Required bool
	Enum     []string // the allowed words, nil for any
}

var (
	enumRole     = []string{"client", "router", "prefill", "decode", "store", "harness"}
	enumWhat     = []string{"kv", "aux", "slot", "host"}
	enumWhyFree  = []string{"done", "cancel", "reject", "timeout", "evict", "peer_lost", "preempt", "shutdown"}
	enumGrant    = []string{"r", "w", "rw"}
	enumAccess   = []string{"r", "w"}
	enumClaims   = []string{"received", "scheduled", "stopped", "completed", "drained"}
	enumOutcome  = []string{"ok", "error", "rejected", "cancelled", "length"}
	enumSide     = []string{"source", "target"}
	commonFields = []Field{
		must("src", TypeString), must("seq", TypeUint), must("t", TypeInt),
		may("t2", TypeInt), may("th", TypeString), must("k", TypeString),
	}
)

func must(name string, t FieldType, enum ...string) Field {
	return Field{Name: name, Type: t, Required: true, Enum: enum}
}

func may(name string, t FieldType, enum ...string) Field {
	return Field{Name: name, Type: t, Enum: enum}
}

func str(names ...string) []Field {
	var fs []Field
	for _, n := range names {
		fs = append(fs, may(n, TypeString))
	}
	return fs
}

func fields(required []Field, optional ...[]Field) []Field {
	return append(required, slices.Concat(optional...)...)
}

var schema = map[Kind][]Field{
	KindSource: fields([]Field{
		must("worker", TypeString), must("role", TypeString, enumRole...),
		must("host", TypeString), must("clock", TypeString),
	}, []Field{may("pid", TypeInt), may("hooks", TypeObject)}, str("probe", "engine")),
	KindPool: fields([]Field{must("pool", TypeString), must("blocks", TypeUint)},
		[]Field{may("bytes", TypeInt), may("what", TypeString, enumWhat...)}),
	KindAlloc: fields([]Field{must("pool", TypeString), must("blocks", TypeBlocks), must("holder", TypeString)},
		str("req", "handoff")),
	KindHold: fields([]Field{must("pool", TypeString), must("blocks", TypeBlocks), must("holder", TypeString)},
		str("req", "handoff", "by")),
	KindDrop: fields([]Field{must("pool", TypeString), must("blocks", TypeBlocks), must("holder", TypeString)},
		str("req", "handoff", "by")),
	KindFree: fields([]Field{must("pool", TypeString), must("blocks", TypeBlocks)},
		str("holder", "req", "handoff", "by"), []Field{may("why", TypeString, enumWhyFree...)}),
	KindGrant: fields([]Field{
		must("handoff", TypeString), must("pool", TypeString), must("blocks", TypeBlocks),
		must("to", TypeString), must("mode", TypeString, enumGrant...),
	}, str("req")),
	KindRevoke: fields([]Field{
		must("handoff", TypeString), must("pool", TypeString), must("blocks", TypeBlocks),
		must("to", TypeString), must("mode", TypeString, enumGrant...),
	}, str("req")),
	KindFence: fields([]Field{must("handoff", TypeString)}, str("why")),
	KindBegin: fields([]Field{
		must("access", TypeString), must("mode", TypeString, enumAccess...),
		must("target", TypeString), must("pool", TypeString), must("blocks", TypeBlocks),
	}, str("handoff", "req", "via")),
	KindEnd: fields([]Field{must("access", TypeString)}, []Field{may("ok", TypeBool)}),
	KindEmit: fields([]Field{must("sig", TypeString), must("signal", TypeString)},
		str("handoff", "req", "to", "asks"),
		[]Field{may("claims", TypeString, enumClaims...), may("access", TypeStrings)}),
	KindObserve: fields([]Field{must("sig", TypeString)}, str("signal", "handoff", "req")),
	KindCapacity: fields([]Field{must("stage", TypeString), must("limit", TypeInt), must("unit", TypeString)},
		str("why")),
	KindSubmit: fields([]Field{must("req", TypeString)},
		[]Field{may("need", TypeInt), may("limit", TypeInt)}, str("unit", "prompt")),
	KindAdmit: fields([]Field{must("req", TypeString)}, str("handoff", "unit", "why"),
		[]Field{may("need", TypeInt), may("status", TypeInt)}),
	KindReject: fields([]Field{must("req", TypeString)}, str("handoff", "unit", "why"),
		[]Field{may("need", TypeInt), may("status", TypeInt)}),
	KindOffer:  fields([]Field{must("req", TypeString), must("handoff", TypeString)}, str("to")),
	KindAccept: fields([]Field{must("req", TypeString), must("handoff", TypeString)}, str("by")),
	KindOutput: fields([]Field{must("req", TypeString)}, []Field{may("n", TypeInt)}, str("handoff")),
	KindCancel: fields([]Field{must("req", TypeString)}, str("handoff", "why")),
	// An expire names a request or a handoff; ParseEvent holds that.
	KindExpire: fields(nil, str("req", "handoff", "why", "by"), []Field{may("after", TypeInt)}),
	KindFinish: fields([]Field{must("req", TypeString), must("outcome", TypeString, enumOutcome...)},
		[]Field{may("status", TypeInt)}, str("handoff", "by")),
	KindDigest: fields([]Field{
		must("handoff", TypeString), must("side", TypeString, enumSide...),
		must("part", TypeInt), must("sum", TypeString),
	}, str("pool", "req"), []Field{may("blocks", TypeBlocks)}),
	KindAnswer: fields([]Field{must("req", TypeString), must("sum", TypeString)}, str("expect")),
	KindFault: fields([]Field{must("rule", TypeString), must("do", TypeString)},
		str("sig", "access", "req", "handoff"), []Field{may("ms", TypeInt)}),
	KindIdle:     {must("workers", TypeStrings)},
	KindExit:     fields([]Field{must("worker", TypeString)}, []Field{may("code", TypeInt), may("signal_no", TypeInt)}),
	KindLost:     {must("count", TypeUint)},
	KindClockCmp: {must("clock", TypeString), must("lo", TypeInt), must("hi", TypeInt)},
	KindNote:     {must("text", TypeString)},
	KindSeal:     {must("events", TypeUint), must("sum", TypeString)},
}

// Kinds lists every kind, in the order of TRACE.md.
func Kinds() []Kind {
	return []Kind{
		KindSource, KindPool, KindAlloc, KindHold, KindDrop, KindFree, KindGrant, KindRevoke, KindFence,
		KindBegin, KindEnd, KindEmit, KindObserve, KindCapacity, KindSubmit, KindAdmit, KindReject,
		KindOffer, KindAccept, KindOutput, KindCancel, KindExpire, KindFinish, KindDigest, KindAnswer,
		KindFault, KindIdle, KindExit, KindLost, KindClockCmp, KindNote, KindSeal,
	}
}

// Fields is the table of TRACE.md for one kind: the common fields, then its
// own. It is nil for an unknown kind.
func Fields(k Kind) []Field {
	own, ok := schema[k]
	if !ok {
		return nil
	}
	return slices.Concat(commonFields, own)
}
