package reference

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"conform/faults"
	"conform/spec"
)

// The kinds of control messages, and what each one claims.
const (
	sigMetadata   = "METADATA"        // decode → prefill: write the prompt's KV here
	sigAbort      = "ABORT"           // decode → prefill: stop, and tell me when you have
	sigAbortAck   = "ABORT_ACK"       // prefill → decode: drained
	sigSuccess    = "STATUS/Success"  // prefill → decode: completed
	sigFailed     = "STATUS/Failed"   // prefill → decode: drained, there will be no more
	sigRejected   = "STATUS/Rejected" // prefill → decode: drained, it never began
	sigParams     = "KV_PARAMS"       // prefill → decode, by way of the router: read here
	sigHeartbeat  = "HEARTBEAT"       // decode → prefill: I still need it
	sigReadDone   = "READ_DONE"       // decode → prefill: completed
	sigReadAbort  = "READ_ABORT"      // decode → prefill: drained, I won't read any more
	sigXferPost   = "XFER_POST"       // in-process: scheduler → transfer thread
	sigXferDone   = "XFER_DONE"       // in-process: transfer thread → scheduler: completed
	sigCopyPost   = "COPY_POST"       // in-process: decode's scheduler → its copier
	sigCopyDone   = "COPY_DONE"       // in-process: copier → scheduler: completed
	wireMagic     = "CONFORM/1"
	wireFrames    = 3
	wireMaxBytes  = 1 << 20
	maxTokensWire = 1 << 16
)

// rawKey is a handoff's key without the number of its use.
func rawKey(handoff string) string {
	key, _, _ := strings.Cut(handoff, "#")
	return key
}

// claims is the documented predicate of each kind of signal.
func claims(signal string) spec.Predicate {
	switch signal {
	case sigSuccess, sigReadDone, sigXferDone, sigCopyDone:
		return spec.ClaimsCompleted
	case sigAbortAck, sigFailed, sigRejected, sigReadAbort:
		return spec.ClaimsDrained
	}
	return spec.ClaimsNothing
}

// Message is one control message between the stages. Its handoff names the use
// of a key, generation included, and From and To name incarnations, so that a
// late or duplicated message can't be taken for one of a later use.
type Message struct {
	Signal  string `json:"-"`
	Sig     string `json:"sig"`
	Handoff string `json:"handoff"`
	Req     string `json:"req"`
	From    string `json:"from"` // worker
	To      string `json:"to"`   // worker

	Reply  string  `json:"reply,omitempty"`  // METADATA, ABORT: where decode's PULL socket is
	NIC    string  `json:"nic,omitempty"`    // METADATA: decode's NIC
	Blocks []int64 `json:"blocks,omitempty"` // METADATA: where to write
	Aux    int64   `json:"aux,omitempty"`    // METADATA: the metadata slot
	Why    string  `json:"why,omitempty"`
}

// encode gives the frames: a magic word, the kind, a JSON body.
func (m *Message) encode() [][]byte {
	body, err := json.Marshal(m)
	if err != nil { // strings and integers always encode
		panic(err)
	}
	return [][]byte{[]byte(wireMagic), []byte(m.Signal), body}
}

// decodeMessage reads the frames of a control message.
func decodeMessage(frames [][]byte) (*Message, error) {
	if len(frames) != wireFrames || string(frames[0]) != wireMagic {
		return nil, errors.New("not a control message of the reference stack")
	}
	m := &Message{Signal: string(frames[1])}
	if err := json.Unmarshal(frames[2], m); err != nil {
		return nil, fmt.Errorf("control message %s: %w", m.Signal, err)
	}
	return m, nil
}

// decodePoint tells the proxies what passes by.
func decodePoint(frames [][]byte) (faults.Point, bool) {
	m, err := decodeMessage(frames)
	if err != nil {
		return faults.Point{}, false
	}
	return faults.Point{Kind: "signal", Name: m.Signal, Signal: m.Signal, Sig: m.Sig, Handoff: m.Handoff, Req: m.Req}, true
}

// kvParams is what prefill's answer tells decode in pull mode.
type kvParams struct {
	Sig      string  `json:"sig"`
	Handoff  string  `json:"handoff"`
	Worker   string  `json:"worker"` // prefill's incarnation
	To       string  `json:"to"`     // the decode worker that was granted
	NIC      string  `json:"nic"`
	Blocks   []int64 `json:"blocks"`
	First    int32   `json:"first_token"`
	Prompted int     `json:"prompt_tokens"`
	Until    int64   `json:"until"` // ns: the end of the lease, by prefill's clock
}

// leg is what the router sends to a stage.
type leg struct {
	Req      string    `json:"req"`
	Client   string    `json:"client,omitempty"` // the client's request, where this is a sample of it
	Handoff  string    `json:"handoff"`
	Prompt   []int32   `json:"prompt"`
	MaxNew   int       `json:"max_new_tokens"`
	Stream   bool      `json:"stream,omitempty"`
	Follower bool      `json:"follower,omitempty"`       // another rank of the stage answers the client
	Decode   string    `json:"decode_worker,omitempty"`  // pull, prefill leg
	Prefill  string    `json:"prefill_worker,omitempty"` // push, decode leg
	KVParams *kvParams `json:"kv_params,omitempty"`      // pull, decode leg
}

// legAnswer is a stage's answer, and a line of a stream.
type legAnswer struct {
	Tokens   []int32   `json:"tokens,omitempty"`
	Outcome  string    `json:"outcome,omitempty"` // ok, length, or what stopped it
	Status   int       `json:"status,omitempty"`
	Error    string    `json:"error,omitempty"`
	Done     bool      `json:"done,omitempty"`
	KVParams *kvParams `json:"kv_params,omitempty"`
}

// info is a worker's answer to GET /info.
type info struct {
	Worker string `json:"worker"`
	Role   string `json:"role"`
}

// load is a worker's answer to GET /load: what is in flight there.
type load struct {
	Requests  int `json:"requests"`
	Handoffs  int `json:"handoffs"`
	Transfers int `json:"transfers"`
}

func (l load) idle() bool { return l == load{} }
