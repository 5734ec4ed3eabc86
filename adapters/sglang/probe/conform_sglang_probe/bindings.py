"""The bindings: which function of which version of SGLang each hook goes round.

This is data. A row names the place, the rules that can't be judged without it, and
the versions that have it. An optional row is one that some connector or build lacks.
A row that did not bind makes its rules inconclusive.
"""

from __future__ import annotations

from conform_probe.binding import ACCESS, BLOCKS, PATHS, Hook
from .hooks import Hooks

S = "sglang.srt."
D = S + "disaggregation."
PAGED = S + "mem_cache.allocator.paged:PagedTokenToKVPoolAllocator."
TREE = S + "mem_cache.unified_radix_cache:UnifiedRadixCache."
OLD_TREE = S + "mem_cache.radix_cache:RadixCache."
COMMON = D + "common.conn:"
MOONCAKE = D + "mooncake.conn:"
NIXL = D + "nixl.conn:"


def hooks(h: Hooks) -> list[Hook]:
    """All rows."""
    return [*_pools(h), *_cache(h), *_transfers(h), *_signals(h), *_requests(h)]


def _pools(h: Hooks) -> list[Hook]:
    slots = [S + "mem_cache.memory_pool:ReqToTokenPool.", D + "decode:DecodeReqToTokenPool."]
    return [
        Hook(PAGED + "alloc", BLOCKS, after=h.kv_alloc),
        Hook(PAGED + "alloc_extend", BLOCKS, after=h.kv_alloc_extend),
        Hook(PAGED + "free", BLOCKS, before=h.kv_collect),
        Hook(PAGED + "free_segment", BLOCKS, before=h.kv_collect),
        Hook(PAGED + "free_page_ids", BLOCKS, before=h.kv_collect_pages, optional=True),
        Hook(PAGED + "_release_page_ids", BLOCKS, before=h.kv_free),
        Hook(PAGED + "clear", BLOCKS, after=h.kv_clear),
        Hook(S + "mem_cache.allocation:alloc_for_extend", BLOCKS, around=h.with_requests),
        Hook(S + "mem_cache.allocation:alloc_for_decode", BLOCKS, after=h.decode_allocated),
        Hook(D + "decode:DecodePreallocQueue._pre_alloc", BLOCKS, around=h.with_request),
        Hook(D + "prefill:PrefillBootstrapQueue.ensure_metadata_buffer", BLOCKS, around=h.with_request),
        Hook(slots[0] + "alloc", BLOCKS, after=h.slot_alloc),
        Hook(slots[0] + "free", BLOCKS, before=h.slot_free),
        Hook(slots[1] + "alloc", BLOCKS, after=h.slot_alloc),
        Hook(slots[1] + "free", BLOCKS, before=h.slot_free),
        Hook(D + "utils:ReqToMetadataIdxAllocator.alloc", BLOCKS, after=h.aux_alloc),
        Hook(D + "utils:ReqToMetadataIdxAllocator.free", BLOCKS, before=h.aux_free),
        Hook(S + "mem_cache.common:release_kv_cache", BLOCKS, around=h.released),
    ]


def _cache(h: Hooks) -> list[Hook]:
    return [
        Hook(TREE + "insert", BLOCKS, after=h.inserted),
        Hook(TREE + "checkpoint_into_tree", BLOCKS, after=h.cached, since=(0, 5, 23)),
        Hook(TREE + "cache_unfinished_req", BLOCKS, after=h.cached, until=(0, 5, 23)),
        Hook(OLD_TREE + "insert", BLOCKS, after=h.inserted, until=(0, 5, 23)),
        Hook(OLD_TREE + "cache_unfinished_req", BLOCKS, after=h.cached, until=(0, 5, 23)),
    ]


def _transfers(h: Hooks) -> list[Hook]:
    other = h.connector != "nixl"
    return [
        Hook(S + "managers.scheduler:Scheduler.run_batch", ACCESS, around=h.forward),
        Hook(D + "utils:MetadataBuffers.set_buf", ACCESS, around=h.aux_set),
        Hook(D + "common.utils:FastQueue.put", ACCESS, before=h.queued),
        Hook(D + "common.utils:FastQueue.get", ACCESS, after=h.dequeued),
        Hook(MOONCAKE + "MooncakeKVManager.send_kvcache", ACCESS, around=h.send_kv),
        Hook(MOONCAKE + "MooncakeKVManager.send_kvcache_slice", ACCESS, around=h.send_kv),
        Hook(MOONCAKE + "MooncakeKVManager.send_aux", ACCESS, around=h.send_aux),
        Hook(NIXL + "NixlKVManager.send_kvcache", ACCESS, around=h.post_kv, optional=other, since=(0, 5, 19)),
        Hook(NIXL + "NixlKVManager.send_kvcache_slice", ACCESS, around=h.post_kv, optional=other, since=(0, 5, 19)),
        Hook(NIXL + "NixlKVManager.send_aux", ACCESS, around=h.post_aux, optional=other, since=(0, 5, 19)),
        Hook(NIXL + "NixlKVManager._await_handles", ACCESS, after=h.settled, optional=other, since=(0, 5, 19)),
        *([] if other else [_UNSETTLED]),
        Hook(D + "decode:DecodeTransferQueue._commit_transfer_to_req", ("REQ-1",), around=h.committed),
    ]


def _signals(h: Hooks) -> list[Hook]:
    statuses = [Hook(c + "update_status", PATHS, before=h.status, optional=c != COMMON + "CommonKVManager.") for c in (COMMON + "CommonKVManager.", NIXL + "NixlKVManager.")]
    polls = [Hook(c + "check_status", PATHS, after=h.polled, optional=c != COMMON + "CommonKVManager.") for c in (COMMON + "CommonKVManager.", NIXL + "NixlKVManager.")]
    return [
        *statuses,
        *polls,
        Hook("zmq.sugar.socket:Socket.send_multipart", PATHS + ("SIG-1", "SIG-4"), before=h.zmq_send),
        Hook("zmq.sugar.socket:Socket.recv_multipart", PATHS + ("SIG-4",), after=h.zmq_recv),
        *([_UNSEEN] if h.connector == "nixl" else []),
        Hook(COMMON + "CommonKVManager.note_abort_ack", PATHS, before=h.ack_noted, since=(0, 5, 19)),
        Hook(COMMON + "CommonKVManager.is_abort_release_safe", PATHS, after=h.ack_checked, since=(0, 5, 19)),
        Hook(D + "decode:DecodeTransferQueue._do_release", ("REQ-2", "SIG-4"), around=h.do_release, since=(0, 5, 19)),
    ]


# NIXL told of completion by notifications of its own, which no hook sees.
_UNSEEN = Hook("nixl:notifications", ("SIG-2", "REQ-2"), until=(0, 5, 21))


# … and of the end of its writes before that.
_UNSETTLED = Hook("nixl:settled", ACCESS, until=(0, 5, 19))


def _requests(h: Hooks) -> list[Hook]:
    return [
        Hook(D + "prefill:PrefillBootstrapQueue.add", ("REQ-1", "REQ-5"), around=h.prefill_added),
        Hook(D + "decode:DecodePreallocQueue.add", ("REQ-1", "REQ-5"), around=h.decode_added),
        Hook(S + "managers.schedule_batch:Req.set_finish_with_abort", ("REQ-1",), before=h.refused),
        Hook(D + "prefill:PrefillBootstrapQueue._check_if_req_exceed_kv_capacity", ("REQ-1",), after=h.over_capacity),
        Hook(D + "decode:DecodePreallocQueue._check_if_req_exceed_kv_capacity", ("REQ-1",), after=h.over_capacity),
        Hook(S + "managers.scheduler:Scheduler.abort_request", ("REQ-2", "REQ-3"), before=h.cancelled),
        Hook(S + "managers.scheduler:Scheduler.send_abort_output", ("REQ-4",), before=h.aborted, optional=True),
        Hook(COMMON + "CommonKVReceiver._check_waiting_timeout", ("REQ-2", "SIG-4"), after=h.timed_out),
        Hook(COMMON + "CommonKVSender._check_bootstrap_timeout", ("REQ-2",), after=h.timed_out),
        Hook(S + "managers.scheduler_components.output_streamer:SchedulerOutputStreamer.stream_output", ("REQ-1", "REQ-4", "SIG-4"), around=h.streamed),
    ]
