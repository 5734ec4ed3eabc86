"""The probe: it is loaded into the processes of a vLLM worker, and records who owns which
block when.

vLLM loads it through the entry point group ``vllm.general_plugins``; no file of the engine is
changed. Two processes record: EngineCore, which owns the pool and decides, and the model's
worker, which transfers. In older builds both are one process, and one source.
"""

from __future__ import annotations

import multiprocessing
import os

from conform_probe.binding import Bound, bind
from conform_probe.part import complain, load

from . import cpu
from .bindings import hooks
from .config import Config
from .hooks import Hooks
from .mooncake import Mooncake
from .recorder import Recorder


class Probe:
    """The probe of one process, and of those that are forked from it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.recorder: Recorder | None = None
        self.state = Bound()

    def current(self) -> Recorder:
        """This process's recorder; the first who asks opens it."""
        if self.recorder is None:
            try:
                self.recorder = Recorder(self.config, source_of(self.config.worker), self.state)
            except Exception as error:
                complain(self.config, error)
                raise
        return self.recorder

    def _forked(self) -> None:
        """The recorder is that of the process from which this one was forked."""
        self.recorder = None
        self.state.fired.update(dict.fromkeys(self.state.fired, 0))

    def start(self) -> None:
        os.register_at_fork(after_in_child=self._forked)
        parallel = self.config.connector == "mooncake"
        replaced = cpu.apply(self.config.device) if parallel else []
        kind = Mooncake if parallel else Hooks
        self.state = bind(hooks(kind(self.current, self.config)), self.config.version, recording)
        self.state.fired.update({"cpu:" + name: 0 for name in replaced})


def recording() -> bool:
    """Whether this is a process that owns blocks or touches them: the API's is not."""
    return multiprocessing.current_process().name != "MainProcess"


def source_of(worker: str) -> str:
    """The source of this process: EngineCore's has the worker's name."""
    name = multiprocessing.current_process().name
    return worker if name.startswith("EngineCore") else worker + ".model"


def register() -> None:
    """The entry point. It must not fail: the engine would start without it and say so only in
    a log."""
    config: Config | None = None
    try:
        config = load(Config)
        if config is not None and config.role:
            Probe(config).start()
    except Exception as error:  # the harness misses the source, and says so
        complain(config, error)
