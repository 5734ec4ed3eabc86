package explore

// maxBlocks and maxRequests are the largest scope; a smaller one leaves the rest
// unused. Each request has one handoff.
const (
	maxBlocks   = 2
	maxRequests = 2
)

// ownerPhase is where a request stands at the stage whose memory is granted.
type ownerPhase uint8

const (
	ownerNew       ownerPhase = iota
	ownerComputing            // pull: a forward pass writes the blocks
	ownerGranted              // the blocks are exposed to the accessor
	ownerAborting             // push: ABORT is out, the answer is not in
	ownerRunning              // push: the state is accepted and read
	ownerDone
)

// accessorPhase is where a request stands at the stage that reaches into the
// owner's memory.
type accessorPhase uint8

const (
	accessorNew       accessorPhase = iota
	accessorReady                   // admitted; begins when it has the grant
	accessorAccessing               // its access is posted
	accessorRunning                 // pull: the state is accepted, output is made
	accessorDone
)

// answer is what a leg answered, and what the client was told.
type answer uint8

const (
	noAnswer answer = iota
	answerOK
	answerError
	answerRejected
	answerCancelled
)

// message is a kind of message between the two stages. The network is a bag: it
// may lose, duplicate and reorder. Messages between a client and a stage are a
// connection's, in flags: late, but neither lost nor doubled.
type message uint8

const (
	msgGrant   message = iota // owner → accessor: METADATA, KV_PARAMS
	msgAbort                  // owner → accessor, push
	msgAck                    // accessor → owner: drained
	msgHollow                 // the same on the wire, sent before the end
	msgDone                   // accessor → owner: completed
	msgFail                   // accessor → owner: drained, there will be no more
	msgRefused                // accessor → owner: drained, it never began
	messages
)

func (k message) toAccessor() bool { return k <= msgAbort }

// flag is one bit of what is known about a request.
type flag uint32

const (
	submitOwner    flag = 1 << iota // the submission is on its way to the owner
	submitAccessor                  // … to the accessor
	cancelOwner                     // the client's cancellation is on its way to the owner
	cancelAccessor                  // … to the accessor
	cancelAsked                     // the client has cancelled
	gotGrant                        // the accessor has the grant
	stopped                         // the accessor has taken a cancellation in
	ackOwed                         // the accessor owes an acknowledgement
	askedAck                        // the owner asked for one that has neither come nor been reported
	wordIn                          // evidence that the accessor is quiet has reached the owner
	saidDrained                     // the accessor has claimed drained
	beganFenced                     // the accessor's access began after the fence
	hasSource                       // the writer has recorded what it wrote
	wasEnded                        // rejected, cancelled or expired somewhere
	earlyGrant                      // pull, without complete-first: granted while computing
	finishedOwner                   // the owner has finished the request
	luckyBegin                      // without await-grant: it began before it had the grant
)

// content is what the reader of the state found.
type reading uint8

const (
	notRead reading = iota
	readRight
	readWrong
)

// request is all that is known about one request and its handoff.
type request struct {
	block    uint8 // 1-based number of the block that was leased for it, 0 for none
	lease    uint8 // generation of that lease
	need     uint8 // 0 not submitted, 1 fits, 2 more than the accessor can process
	owner    ownerPhase
	accessor accessorPhase
	ans      [2]answer // by side: owner, accessor
	told     answer
	read     reading
	net      uint16   // two bits per kind of message: how many are under way
	machine  [3]uint8 // by side: the state of spec.Request, interned
	flags    flag
}

func (q *request) has(f flag) bool { return q.flags&f != 0 }
func (q *request) set(f flag)      { q.flags |= f }
func (q *request) clear(f flag)    { q.flags &^= f }

func (q *request) flying(k message) int { return int(q.net >> (2 * k) & 3) }

func (q *request) add(k message, n int) { q.net += uint16(n) << (2 * k) }

// state is one state of the whole system.
type state struct {
	block   [maxBlocks]uint16 // the state of spec.Block, interned
	content [maxBlocks]uint8  // 1-based request whose state the bytes are, 0 for none
	req     [maxRequests]request
	down    [2]bool // by side: the worker has crashed
	doubles uint8   // duplications that the network may still do
	crashes uint8   // crashes that may still happen
}

// packed is a state in 32 bytes, comparable.
type packed [4]uint64

func pack(s *state) packed {
	var p packed
	for i := range s.req {
		q := &s.req[i]
		p[i] = uint64(q.block) | uint64(q.lease)<<2 | uint64(q.need)<<4 | uint64(q.owner)<<6 | uint64(q.accessor)<<9 |
			uint64(q.ans[0])<<12 | uint64(q.ans[1])<<15 | uint64(q.told)<<18 | uint64(q.read)<<21 | uint64(q.net)<<23 |
			uint64(q.machine[0])<<40 | uint64(q.machine[1])<<48 | uint64(q.machine[2])<<56
		p[2] |= uint64(q.flags) << (32 * i)
	}
	p[3] = uint64(s.block[0]) | uint64(s.block[1])<<16 | uint64(s.content[0])<<32 | uint64(s.content[1])<<36 |
		bit(s.down[0])<<40 | bit(s.down[1])<<41 | uint64(s.doubles)<<44 | uint64(s.crashes)<<48
	return p
}

func unpack(p packed) state {
	var s state
	for i := range s.req {
		q, w := &s.req[i], p[i]
		q.block, q.lease, q.need = uint8(w&3), uint8(w>>2&3), uint8(w>>4&3)
		q.owner, q.accessor = ownerPhase(w>>6&7), accessorPhase(w>>9&7)
		q.ans = [2]answer{answer(w >> 12 & 7), answer(w >> 15 & 7)}
		q.told, q.read, q.net = answer(w>>18&7), reading(w>>21&3), uint16(w>>23&0x3fff)
		q.machine = [3]uint8{uint8(w >> 40), uint8(w >> 48), uint8(w >> 56)}
		q.flags = flag(p[2] >> (32 * i))
	}
	w := p[3]
	s.block = [maxBlocks]uint16{uint16(w), uint16(w >> 16)}
	s.content = [maxBlocks]uint8{uint8(w >> 32 & 15), uint8(w >> 36 & 15)}
	s.down = [2]bool{w>>40&1 == 1, w>>41&1 == 1}
	s.doubles, s.crashes = uint8(w>>44&15), uint8(w>>48&15)
	return s
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// less is the order by which the canonical one of equivalent states is chosen.
func (p packed) less(o packed) bool {
	for i := range p {
		if p[i] != o[i] {
			return p[i] < o[i]
		}
	}
	return false
}

// hash spreads packed states over a table.
func (p packed) hash() uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, w := range p {
		h = (h ^ w) * 0xff51afd7ed558ccd
		h ^= h >> 32
	}
	return h * 0xc4ceb9fe1a85ec53
}
