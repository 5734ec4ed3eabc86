// Package wire stands between SGLang's prefill and decode workers: it knows what
// their control messages say, and an [Interposer] leads them through the fault
// engine, without a change to either worker.
//
// # Who speaks to whom
//
// A request goes to both workers at once, under one number, its bootstrap_room.
// Before the first one, decode asks the prefill's bootstrap server (HTTP) where
// each prefill rank listens. From then on they speak over ZeroMQ: each rank of
// each worker binds one PULL socket, and peers connect PUSH sockets to it. There
// are no replies in the ZeroMQ sense: a decode message that wants an answer says
// where its own socket is, in two of its frames, and prefill connects there.
//
//	decode ──GET /route──> bootstrap server of prefill        HTTP
//	decode ──REGISTER, METADATA, ABORT──> prefill rank        PUSH -> PULL
//	decode rank <──STATUS, ABORT_ACK── prefill rank           PULL <- PUSH
//	prefill ══KV bytes══> decode's memory                     not here
//
// So there are two places where an address is named, and the interposer changes
// both: rank_ip and rank_port in an answer of GET /route, and the two frames.
// Nothing else is touched. Decode workers are told apart by giving each its own
// bootstrap address, and one decode rank keeps one address in front of it, by
// which prefill files its acknowledgements. GET /health passes here too. It is
// decode's heartbeat, so failing it is how a plan makes a prefill look dead.
//
// # What the messages say
//
//	METADATA      decode has allocated these pages and this metadata slot for the
//	              room, and lets prefill write there. Not that prefill took the
//	              request. It goes to every prefill rank; one that is to send
//	              nothing gets it without pages (METADATA/dummy).
//	STATUS        one prefill rank has concluded the room. Success: its writes are
//	              over. Not that the other ranks' are, nor that what was written is
//	              this prompt's. Failed: it has given up. Not that it has stopped.
//	ABORT         decode wants the room dead. Not that it has freed anything. With a
//	              fifth frame, the generation, decode keeps its pages until it is
//	              answered.
//	ABORT_ACK     two frames: the ABORT was read. No more than that: a write may
//	              be under way. Three or four: this rank's writes are over and none
//	              will begin; nothing of the other ranks.
//	REGISTER      where decode's memory lies. Once for each pair of ranks.
//	BOOTSTRAP     decode waits for prefill's forward pass before it allocates.
//	AUX_DATA      the metadata itself, where it does not go by one-sided write.
//	STAGING_REQ, STAGING_RSP, CHUNK_READY, WATERMARK
//	              the staging buffer between layouts of different rank counts.
//
// [Claims] has it as a table, with where upstream says so.
//
// # What they do not say
//
// When memory was freed or given to the next request: METADATA of another room
// with the same page is the first that the wire shows of it. The bytes, which
// Mooncake and NIXL carry themselves. Which pages prefill reads. And with NIXL
// in 0.5.18, and for success in 0.5.20 too, that a transfer is over: it is told
// by NIXL's own notifications. In 0.5.18 NIXL acknowledges no ABORT at all, and
// later without deferred release neither.
//
// # Reading them
//
// The layouts differ between backends and versions, and within one version by
// setting. So a row of the table ([Rows]) is chosen by backend, by the fixed
// frames, and by the number of frames, never by a version. What has no row, or a
// field that is not what its row says, passes untouched and is listed by
// [Interposer.Unknown], since the parsers of some versions die of a message that
// they do not know, and nothing of ours may stand in for one. Numbers are
// decimal text; page numbers are 32-bit little-endian.
//
// The table was read off the packages of 0.5.18, 0.5.20 and 0.5.23, and
// testdata/captured.jsonl holds messages of real runs of them.
//
// # Ids
//
// [SigOf] makes a message's id of what it says, so that a probe in either worker
// gives it the same: signal, room, and rank and generation where it has them.
// An ABORT to two prefill ranks has one id; [Options.Sig] is for a caller that
// wants two.
package wire
