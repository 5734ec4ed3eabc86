package wire

// Connector is a KV connector of vLLM, by the word of this adapter.
type Connector string

// The connectors whose messages the table knows.
const (
	NIXL     Connector = "nixl"
	Mooncake Connector = "mooncake"
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
	Connector Connector
	Direction Direction
	Signals   []string // the kinds of signal that it may be
	Frames    []int    // how many the message may have
	Layout    string   // of its frames: what each is, and the fields that are read
	Claims    string   // what upstream takes it for; "" for nothing
	Source    string   // where upstream says so
}

// Rows is the frame table: every message that the package understands.
func Rows() []Row {
	const connector, side = "mooncake/mooncake_connector.py: ", "nixl/base_scheduler.py: _nixl_handshake_listener"
	return []Row{
		{NIXL, ToPrefill, []string{"HANDSHAKE"}, []int{2}, "empty, array(get_meta_msg, ranks…)", "", side + "; 0.15 and 0.16: nixl_connector.py, one rank"},
		{NIXL, ToDecode, []string{"HANDSHAKE_META"}, []int{2, 3}, "empty, map(compatibility_hash), and since 0.29 the time", "", side},
		{Mooncake, ToPrefill, []string{"PULL"}, []int{1}, "map(req_blocks: request → transfer_id, blocks)", "", connector + "MooncakeXferMetadata"},
		{
			Mooncake, ToDecode,
			[]string{"FINISH", "CONTINUE"},
			[]int{1},
			"map(status 0 or 1, ok_reqs)", "completed, for each of ok_reqs",
			connector + "send_kv_to_decode, after _send_blocks has returned",
		},
		{
			Mooncake, ToDecode,
			[]string{"FINISH/failed", "CONTINUE/failed"},
			[]int{1},
			"map(status 0 or 1, err_reqs and no ok_reqs)", "stopped",
			connector + "send_kv_to_decode: no write follows for a request that it names",
		},
		{Mooncake, ToDecode, []string{"ERROR"}, []int{1}, "map(status 2)", "stopped", connector + "_sender_worker: the PULL is done with"},
	}
}
