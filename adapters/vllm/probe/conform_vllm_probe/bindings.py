"""The bindings: which function of which version of vLLM each hook goes round.

This is data. A row names the place, the rules that can't be judged without it, and the
versions that have it. A row that did not bind makes its rules inconclusive.
"""

from __future__ import annotations

from conform_probe.binding import ACCESS, BLOCKS, PATHS, Hook

from . import mooncake
from .hooks import Hooks
from .recorder import SPLIT

POOL = "vllm.v1.core.block_pool:BlockPool."
MANAGER = "vllm.v1.core.kv_cache_manager:KVCacheManager."
SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler."
CONNECTORS = "vllm.distributed.kv_transfer.kv_connector.v1."
NIXL = CONNECTORS + "nixl."
BASE = NIXL + "base_worker:NixlBaseConnectorWorker."
PULL = NIXL + "pull_worker:NixlPullConnectorWorker."
OLD_NIXL = CONNECTORS + "nixl_connector:NixlConnectorWorker."


def hooks(h: Hooks) -> list[Hook]:
    """All rows for the connector."""
    return [*_core(h), *(mooncake.rows(h) if isinstance(h, mooncake.Mooncake) else _nixl(h))]


def _core(h: Hooks) -> list[Hook]:
    return [
        Hook(SCHEDULER + "__init__", BLOCKS, after=h.opened),
        Hook(POOL + "get_new_blocks", BLOCKS, after=h.allocated),
        Hook(POOL + "touch", BLOCKS, around=h.touched),
        Hook(POOL + "free_blocks", BLOCKS, around=h.freed),
        Hook(MANAGER + "allocate_slots", BLOCKS, around=h.for_request),
        Hook(MANAGER + "free", BLOCKS, around=h.for_request),
        Hook(SCHEDULER + "_preempt_request", BLOCKS, around=h.preempted),
        Hook(SCHEDULER + "add_request", ("REQ-1", "REQ-5") + PATHS, before=h.added),
        Hook(SCHEDULER + "finish_requests", ("REQ-2", "REQ-3"), before=h.cancelled),
        Hook(SCHEDULER + "_free_request", ("REQ-1", "REQ-4"), before=h.finished),
        Hook(SCHEDULER + "_connector_finished", ("BLK-3",) + PATHS, after=h.offered),
        Hook(SCHEDULER + "schedule", PATHS, after=h.scheduled),
        Hook(SCHEDULER + "update_from_output", ("REQ-1",) + PATHS, before=h.stepped),
        Hook(SCHEDULER + "_update_from_kv_xfer_finished", PATHS, before=h.told),
        Hook("vllm.v1.worker.gpu_model_runner:GPUModelRunner.execute_model", ACCESS, around=h.passed),
    ]


def _nixl(h: Hooks) -> list[Hook]:
    return [
        *_worker(h, BASE, PULL, "get_transfer_results", since=(0, 32)),
        *_worker(h, BASE, PULL, "get_finished", since=SPLIT, until=(0, 32)),
        *_worker(h, OLD_NIXL, OLD_NIXL, "get_finished", until=SPLIT),
    ]


def _worker(h: Hooks, base: str, pull: str, results: str, **versions: tuple[int, ...]) -> list[Hook]:
    return [
        Hook(base + "__init__", ACCESS, after=h.worker_made, **versions),
        Hook(base + "register_kv_caches", ("DAT-1",), before=h.registered, **versions),
        Hook(pull + "start_load_kv", PATHS, before=h.loading, **versions),
        Hook(pull + "_read_blocks_for_req", around=h.preparing, **versions),
        Hook(pull + "_read_blocks", ACCESS, around=h.reading, **versions),
        Hook(base + results, PATHS, after=h.results, **versions),
    ]
