"""Stand-ins for the engine's objects, as far as the probe looks at them."""

from __future__ import annotations

import os
import tempfile
from types import SimpleNamespace
from typing import Any

from conform_probe.binding import Bound
from conform_sglang_probe.config import Config
from conform_sglang_probe.recorder import Recorder


class Tensor(list):  # type: ignore[type-arg]
    """What a row of numbers looks like."""

    def tolist(self) -> list[int]:
        return list(self)


class Table:
    """req_to_token: each slot's tokens, by [slot, :length:step]."""

    def __init__(self, slots: int) -> None:
        self.rows: dict[int, list[int]] = {}
        self.shape = (slots, 1 << 12)

    def __getitem__(self, key: Any) -> Tensor:
        slot, tokens = key
        return Tensor(self.rows[slot][tokens])


def scheduler(pages: int = 64, page: int = 16, slots: int = 64, aux: int = 32) -> Any:
    """A scheduler of rank 0."""
    return SimpleNamespace(
        ps=SimpleNamespace(tp_rank=0),
        token_to_kv_pool_allocator=SimpleNamespace(size=pages * page, page_size=page, is_not_in_free_group=True),
        req_to_token_pool=SimpleNamespace(req_to_token=Table(slots)),
        req_to_metadata_buffer_idx_allocator=SimpleNamespace(size=aux),
        max_total_num_tokens=pages * page,
        max_req_input_len=pages * page - 6,
    )


def config(folder: str, **more: Any) -> Config:
    events = os.path.join(folder, "events")
    os.makedirs(events, exist_ok=True)
    fields: dict[str, Any] = {
        "dir": events, "worker": "prefill-0", "role": "prefill", "host": "h", "clock": "c", "engine": "sglang@0.5.23",
    }
    return Config(**{**fields, **more})


def recorder(**more: Any) -> Recorder:
    """A recorder with its source in a new folder."""
    folder = more.pop("folder", None) or tempfile.mkdtemp(prefix="conform-", dir=os.environ.get("CONFORM_TEST_DIR"))
    return Recorder(config(folder, **more), more.pop("scheduler", None) or scheduler(), Bound())


def request(rid: str, room: int | None = None, tokens: int = 32, slot: int | None = None) -> Any:
    return SimpleNamespace(rid=rid, bootstrap_room=room, bootstrap_host="127.0.0.1", origin_input_ids=[1] * tokens, req_pool_idx=slot, output_ids=[])
