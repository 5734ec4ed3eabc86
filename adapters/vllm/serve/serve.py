"""Runs a vLLM server in a process that was forked with vLLM imported.

The fork server of adapters/engines/launch calls serve() in each worker. It does what
`python -m vllm.entrypoints.openai.api_server ARGV` does.
"""

from __future__ import annotations

import importlib
import multiprocessing
import runpy
import sys
import time
import warnings

MODULE = "vllm.entrypoints.openai.api_server"

# What an engine's processes import, as far as this version has it.
for name in (
    MODULE,
    "vllm.entrypoints.launchers.api_server.entry",
    "vllm.entrypoints.launchers.api_server.app",
    "vllm.v1.engine.async_llm",
    "vllm.v1.engine.core",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.attention.backends.cpu_attn",
    "vllm.model_executor.models.llama",
    "vllm.distributed.kv_transfer.kv_connector.v1.nixl_connector",
    "vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector",
    "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_connector",
    "uvloop",
):
    try:
        importlib.import_module(name)
    except ImportError:
        pass

_context = multiprocessing.get_context


def _fork(method: str | None = None):  # type: ignore[no-untyped-def]
    """vLLM asks for "spawn" on CPUs, which would import everything again in each process."""
    return _context("fork")


def _calm() -> None:
    """vLLM's processes wait for each other by calling sched_yield() for a second. On a machine with
    fewer cores than such processes they take the time from those that they wait for."""
    try:
        broadcast = importlib.import_module("vllm.distributed.device_communicators.shm_broadcast")
        broadcast.sched_yield = lambda: time.sleep(0.0002)
    except ImportError:
        pass


def serve(argv: list[str]) -> None:
    """Serves until the engine ends."""
    multiprocessing.get_context = _fork
    _calm()
    sys.argv = [MODULE, *argv]
    warnings.simplefilter("ignore", RuntimeWarning)  # the module is imported already
    runpy.run_module(MODULE, run_name="__main__", alter_sys=False)
