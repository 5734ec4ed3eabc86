"""The probe: it is loaded into the processes of an SGLang worker, and records who
owns which block when.

SGLang loads it through the entry point group ``sglang.srt.plugins``; no file of the
engine is changed. It puts hooks round the engine's functions (bindings), turns what
they see into events of a trace (recorder, hooks, ledger), and writes them so that a
killed process loses nothing (spool). It never raises into the engine, and it blocks a
thread of it only where a fault of the harness's plan says so (failpoint).

Only scheduler processes record: they own the pools. In others the hooks do nothing.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from conform_probe.binding import Bound, Hook, bind
from conform_probe.part import complain, load

from . import cpu
from .bindings import hooks
from .config import Config
from .hooks import Hooks
from .recorder import Recorder

_SCHEDULER = "sglang.srt.managers.scheduler:Scheduler.__init__"


class _Probe:
    """The probe of one process."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.recorder: Recorder | None = None
        self.state = Bound()

    def current(self) -> Recorder | None:
        """This process's recorder."""
        return self.recorder

    def active(self) -> bool:
        return self.recorder is not None

    def _forked(self) -> None:
        """The recorder is that of the process from which this one was forked."""
        self.recorder = None

    def start(self) -> None:
        os.register_at_fork(after_in_child=self._forked)
        replaced = cpu.apply() if self.config.device == "cpu" else []
        self.state = bind(hooks(Hooks(self.current, self.config.connector)), self.config.version, self.active)
        self.state.fired.update({"cpu:" + name: 0 for name in replaced})
        if self.config.role in ("prefill", "decode"):  # a worker for reference answers is not recorded
            bind([Hook(_SCHEDULER, around=self._scheduler)], self.config.version, lambda: True)

    def _scheduler(self, function: Any, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        result = function(scheduler, *args, **kwargs)
        function.guard(lambda: self._open(scheduler))
        return result

    def _open(self, scheduler: Any) -> None:
        try:
            self.recorder = Recorder(self.config, scheduler, self.state)
        except Exception as error:
            complain(self.config, error)
            raise
        if self.config.switch:
            signal.signal(signal.SIGUSR1, self._switch)
            signal.signal(signal.SIGUSR2, self._switch)

    def _switch(self, number: int, frame: Any) -> None:
        """A signal of the benchmark, taken between two steps of the main thread."""
        on = number == signal.SIGUSR2
        self.state.switch(on)
        if self.recorder is not None:
            threading.Thread(target=self.recorder.spool.record, args=("note", f'"text":"hooks {"in" if on else "out"}"')).start()


def register() -> None:
    """The entry point. It must not fail: the engine would start without it and say so
    only in a log."""
    config: Config | None = None
    try:
        config = load(Config)
        if config is not None:
            _Probe(config).start()
    except Exception as error:  # the harness misses the source, and says so
        complain(config, error)
