package wire

import (
	"slices"
	"strings"
	"sync"
)

// Backend is a KV transfer backend of SGLang, by the word of its option
// --disaggregation-transfer-backend. "mooncake_tcp" is [Mooncake].
type Backend string

// The backends whose frames the table knows.
const (
	Mooncake Backend = "mooncake"
	NIXL     Backend = "nixl"
)

// Direction is the way that a message goes.
type Direction string

// The directions.
const (
	ToPrefill Direction = "decode->prefill"
	ToDecode  Direction = "prefill->decode"
)

// Row is one layout of one message.
type Row struct {
	Backend   Backend
	Direction Direction
	// Signal is the message's kind. A STATUS has its status added ("STATUS/Failed"),
	// a METADATA that grants nothing is "METADATA/dummy".
	Signal string
	// Layout names the frames in their order, a word each: "=TEXT" for a frame that
	// is this text, the name of a field of [Message] (room, ip, port, session,
	// pages, aux, prefix, dummy, rank, generation, status, reason), or a word for a
	// frame that is passed on unread.
	Layout string
	// Optional says how many of the last frames may be missing.
	Optional int
	// Sent says which of the versions that were examined (0.5.18, 0.5.20, 0.5.23)
	// send it, or what is known of it otherwise.
	Sent string
}

// Frames are the numbers of frames that the row stands for, ascending.
func (r Row) Frames() []int {
	n := len(strings.Fields(r.Layout))
	var counts []int
	for c := n - r.Optional; c <= n; c++ {
		counts = append(counts, c)
	}
	return counts
}

// Rows is the frame table: every message that the package understands. No two
// rows have the backend, the fixed frames and a number of frames in common.
func Rows() []Row {
	both := func(r Row) []Row {
		m, n := r, r
		m.Backend, n.Backend = Mooncake, NIXL
		return []Row{m, n}
	}
	return slices.Concat(mooncakeRows(), nixlRows(),
		both(Row{"", ToPrefill, "ABORT", "=ABORT room ip port generation", 1, "4 frames: all; 5: 0.5.23, when decode holds its pages for the answer"}),
		both(Row{"", ToPrefill, "ABORT", "=ABORT room", 0, "none; the parsers of NIXL and of 0.5.23 take it"}),
		both(Row{"", ToPrefill, "BOOTSTRAP", "=BOOTSTRAP room ip port", 0, "0.5.23, with the allocation policy prefill_complete"}),
		both(Row{"", ToPrefill, "WATERMARK", "=WATERMARK round tail session", 0, "all, with staging"}),
		both(Row{"", ToPrefill, "STAGING_RSP", "=STAGING_RSP room chunk offset round end session", 0, "all, with staging"}),
		both(Row{"", ToDecode, "STAGING_REQ", "=STAGING_REQ room chunk chunk_pages session pp_rank", 1, "all, with staging; the last frame with pipeline ranks"}),
		both(Row{"", ToDecode, "CHUNK_READY", "=CHUNK_READY room chunk page_start num_pages session rank", 1, "all (NIXL: 0.5.23), with staging; parsers read six frames"}),
		both(Row{"", ToDecode, "ABORT_ACK/2", "=ABORT_ACK room", 0, "Mooncake without deferred release; NIXL never"}),
		both(Row{"", ToDecode, "ABORT_ACK/3", "=ABORT_ACK room rank", 0, "0.5.20 with deferred release; not seen there for an abort during a write (pull request 40645)"}),
		both(Row{"", ToDecode, "ABORT_ACK/4", "=ABORT_ACK room rank generation", 0, "0.5.23 with deferred release"}),
	)
}

func mooncakeRows() []Row {
	return []Row{
		{
			Mooncake, ToPrefill, "REGISTER", "=None ip port session kv_ptrs aux_ptrs state_ptrs tp_rank tp_size item_len " +
				"state_item_lens state_dims layer_ids state_layer_ids staging_base staging_size dcp_size dcp_rank staging_layer_ids item_lens",
			2, "18 frames: 0.5.18; 19: 0.5.20; 20: 0.5.23",
		},
		{Mooncake, ToPrefill, "METADATA", "room ip port session pages aux state destinations prefix device_pages", 0, "all"},
		{Mooncake, ToDecode, "STATUS", "room status rank reason", 1, "3 frames: all; 4: none, the parsers from 0.5.20 on take it, that of 0.5.18 dies of it"},
		{Mooncake, ToDecode, "AUX_DATA", "=AUX_DATA room buffer aux length data", 0, "all, when the metadata goes over TCP"},
	}
}

func nixlRows() []Row {
	return []Row{
		{
			NIXL, ToPrefill, "REGISTER", "=NixlMsgGuard =None ip port session agent kv_ptrs aux_ptrs state_ptrs gpu tp_size tp_rank item_len " +
				"state_item_lens state_dims staging_base staging_size slots mem_kinds item_lens state_layer_ids layer_ids dcp_size dcp_rank state_lens",
			1, "24 frames: 0.5.18, 0.5.20; 25: 0.5.23",
		},
		{NIXL, ToPrefill, "METADATA", "=NixlMsgGuard room ip port session pages aux destinations state prefix dummy", 0, "all"},
		{NIXL, ToDecode, "STATUS", "=KV_STATUS room status rank reason", 1, "5 frames: 0.5.20 (failures alone), 0.5.23; 4: none, the parsers take it"},
	}
}

// key is what a layout is chosen by. Tag is the first frame, or nothing where
// that is a room's number.
type key struct {
	backend Backend
	tag     string
	frames  int
}

// layout is a row made ready for one number of frames.
type layout struct {
	row   Row
	words []string
}

// index is the table by key. What shares a key differs in a later fixed frame.
var index = sync.OnceValue(func() map[key][]layout {
	byKey := map[key][]layout{}
	for _, r := range Rows() {
		words := strings.Fields(r.Layout)
		tag, _ := strings.CutPrefix(words[0], "=")
		if tag == words[0] {
			tag = ""
		}
		for _, n := range r.Frames() {
			k := key{r.Backend, tag, n}
			byKey[k] = append(byKey[k], layout{r, words[:n]})
		}
	}
	return byKey
})
