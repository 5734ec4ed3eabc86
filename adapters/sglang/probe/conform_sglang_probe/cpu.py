"""What SGLang needs to serve prefill/decode pairs on a machine without a GPU.

None of it touches the hand-off: kernels that only exist for GPUs are replaced, memory
that is not a GPU's is not called so. Each replacement is reported with the hooks.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import Any

_PAGED = "sglang.srt.mem_cache.allocator.paged"


def apply() -> list[str]:
    """Make the replacements; the names of those that were made."""
    done: list[str] = []
    for step in (_host_indices, _page_kernels, _nixl_memory, _nixl_progress):
        try:
            if step():
                done.append(step.__name__.strip("_"))
        except Exception:  # a version without that place
            continue
    return done


def _host_indices() -> bool:
    """Indices are not copied through pinned memory, which needs CUDA (0.5.23)."""
    sender = importlib.import_module("sglang.srt.disaggregation.mooncake.conn").MooncakeKVSender
    if not hasattr(sender, "supports_host_tensor_indices"):
        return False
    sender.supports_host_tensor_indices = False
    return True


class _Launch:
    """A kernel that is called as kernel[grid](…)."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def __getitem__(self, grid: Any) -> Any:
        return self._run


def _page_kernels() -> bool:
    """The page allocator's two Triton kernels as torch operations (0.5.20 and older)."""
    import torch  # type: ignore[import-not-found]

    paged: Any = importlib.import_module(_PAGED)
    if "use_triton_kernels" in inspect.getsource(paged):
        return False

    def extend(prefix: Any, seq: Any, last: Any, free: Any, out: Any, _bound: int, page: int) -> None:
        if int(((seq + page - 1) // page - (prefix + page - 1) // page).sum()) > len(free):
            return  # the caller finds that out next, and gives up
        paged.alloc_extend_naive(prefix, seq, last, free, out, page, out.device)

    def decode(seq: Any, last: Any, free: Any, out: Any, _bound: int, page: int) -> None:
        fresh = ((seq - 1) % page == 0).to(torch.int64)
        needed = int(fresh.sum())
        if needed > len(free):
            return  # the caller finds that out next, and gives up
        if needed == 0:
            out.copy_(last + 1)
            return
        rank = (torch.cumsum(fresh, 0) - fresh).clamp(max=len(free) - 1)
        out.copy_(torch.where(fresh.bool(), free[rank] * page, last + 1))

    paged.alloc_extend_kernel = _Launch(extend)
    paged.alloc_decode_kernel = _Launch(decode)
    return True


def _nixl_memory() -> bool:
    """NIXL is told that KV is in DRAM, not VRAM."""
    agent = importlib.import_module("nixl._api").nixl_agent

    def plain(value: Any) -> Any:
        return "DRAM" if isinstance(value, str) and value == "VRAM" else value

    def wrap(function: Any) -> Any:
        @functools.wraps(function)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            return function(self, *[plain(a) for a in args], **{k: plain(v) for k, v in kwargs.items()})

        return call

    for name in ("register_memory", "get_reg_descs", "get_xfer_descs", "prep_xfer_dlist"):
        if hasattr(agent, name):
            setattr(agent, name, wrap(getattr(agent, name)))
    return True


# Microseconds that NIXL's progress thread sleeps at most; it wakes up for what arrives.
_PROGRESS_DELAY = 1000


def _nixl_progress() -> bool:
    """NIXL's progress thread sleeps while nothing arrives.

    NIXL's Python API lets it poll without a pause, which is a core for each worker: on
    two cores a pair then leaves nothing to compute with.
    """
    bindings: Any = importlib.import_module("nixl._bindings")
    make = bindings.nixlAgent

    @functools.wraps(make, updated=())
    def agent(name: str, config: Any) -> Any:
        config.pthrDelay = _PROGRESS_DELAY
        return make(name, config)

    bindings.nixlAgent = agent
    return True
