package wire

import "conform/spec"

// Claim is what one kind of signal is declared to prove, and by whom.
type Claim struct {
	Signal string
	Claims spec.Predicate
	// Says is what upstream says of it, in our words.
	Says string
	// Source is where upstream says so: a pull request, or a file below
	// sglang/srt/disaggregation and a function in it.
	Source string
}

// Claims is the claims table: one row for each kind of signal that the frame
// table can give. What a report infers from runs is set against it.
//
// The strength of an acknowledgement is in its number of frames and not in a
// version: the same build sends the weak one when deferred release is off.
func Claims() []Claim {
	return []Claim{
		{"REGISTER", spec.ClaimsNothing, "decode tells a prefill rank where its memory lies; exposes no page to any request", "mooncake/conn.py, KVArgsRegisterInfo; nixl/conn.py, KVArgsRegisterInfo"},
		{"BOOTSTRAP", spec.ClaimsNothing, "decode waits for prefill's forward pass before it allocates; grants nothing", "common/conn.py, _handle_bootstrap_message (0.5.23)"},
		{"METADATA", spec.ClaimsNothing, "decode has allocated these pages and this slot, and exposes them to writes for this room", "mooncake/conn.py, TransferInfo; nixl/conn.py, TransferInfo"},
		{"METADATA/dummy", spec.ClaimsNothing, "decode expects nothing from this prefill rank for this room", "mooncake/conn.py, TransferInfo.is_dummy"},
		{"ABORT", spec.ClaimsNothing, "decode wants the room dead; it has freed nothing yet that it may still hold", "common/conn.py, _send_abort_notification"},
		{"ABORT_ACK/2", spec.ClaimsReceived, "the abort was read, and the room marked failed if it was live; writes may be under way", "pull request 27372; mooncake/conn.py, _handle_legacy_abort_notification"},
		{"ABORT_ACK/3", spec.ClaimsDrained, "this prefill rank has no write of the room under way, and will begin none", "pull request 35049 (NIXL: 35360); common/conn.py, _maybe_ack_drained_abort (0.5.20)"},
		{"ABORT_ACK/4", spec.ClaimsDrained, "as with 3 frames, for the abort of this generation alone", "pull request 37077; common/conn.py, _maybe_ack_drained_abort and note_abort_ack (0.5.23)"},
		{"STATUS/Success", spec.ClaimsCompleted, "all writes of this rank for the room have ended well, the metadata slot's too", "mooncake/conn.py, transfer_worker; nixl/conn.py, transfer_worker (0.5.23)"},
		{"STATUS/Failed", spec.ClaimsReceived, "this rank has given the room up; other writes, and other ranks, may go on", "common/conn.py, conclude_failure; mooncake/conn.py, sync_status_to_decode_endpoint (0.5.18)"},
		{"STATUS/WaitingForInput", spec.ClaimsNothing, "prefill has computed, decode may allocate; says of itself that it permits no write", "common/conn.py, _notify_bootstrap (0.5.23)"},
		{"STATUS/Bootstrapping", spec.ClaimsNothing, "not sent by any version that was examined; decode ignores it", "common/conn.py, apply_prefill_status"},
		{"STATUS/Transferring", spec.ClaimsNothing, "not sent by any version that was examined; decode ignores it", "common/conn.py, apply_prefill_status"},
		{"AUX_DATA", spec.ClaimsNothing, "the metadata slot's content itself, for decode to write", "mooncake/conn.py, send_aux_data_to_endpoint"},
		{"STAGING_REQ", spec.ClaimsNothing, "prefill asks for room in decode's staging buffer", "common/staging_handler.py, prefetch_staging_reqs"},
		{"STAGING_RSP", spec.ClaimsNothing, "decode grants a piece of its staging buffer", "common/staging_handler.py, handle_staging_req"},
		{"CHUNK_READY", spec.ClaimsNothing, "one chunk lies in the staging buffer; says nothing of other chunks, nor of pages", "mooncake/conn.py, _send_chunk_ready; common/conn.py, send_chunk_ready (0.5.23)"},
		{"WATERMARK", spec.ClaimsNothing, "decode has used up its staging buffer up to there", "common/staging_handler.py, _send_watermark"},
	}
}

// ClaimOf is the row of a signal in [Claims]; false for a kind that it lacks,
// such as a STATUS of a number that upstream gives no name.
func ClaimOf(signal string) (Claim, bool) {
	for _, c := range Claims() {
		if c.Signal == signal {
			return c, true
		}
	}
	return Claim{}, false
}
