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

import json
import os
import signal
import sys
import threading
from typing import Any

from . import config as configuration
from . import cpu
from conform_probe.binding import Bound, Hook, bind
from .bindings import hooks
from .hooks import Hooks
from .recorder import Recorder
from conform_probe.spool import quoted

_SCHEDULER = "sglang.srt.managers.scheduler:Scheduler.__init__"


class _Probe:
    """The probe of one process."""

    def __init__(self, config: configuration.Config) -> None:
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
        summary = {"asked": self.state.asked, "bound": self.state.bound, "missing": self.state.missing}
        try:
            self.recorder = Recorder(self.config, scheduler, summary)
        except Exception as error:
            self._complain(error)
            raise
        self.recorder.state = self.state
        if self.config.switch:
            signal.signal(signal.SIGUSR1, self._switch)
            signal.signal(signal.SIGUSR2, self._switch)

    def _switch(self, number: int, frame: Any) -> None:
        """A signal of the benchmark, taken between two steps of the main thread."""
        on = number == signal.SIGUSR2
        self.state.switch(on)
        if self.recorder is not None:
            threading.Thread(target=self.recorder.spool.record, args=("note", f'"text":"hooks {"in" if on else "out"}"')).start()

    def _complain(self, error: Exception) -> None:
        complain(self.config, error)


def complain(config: configuration.Config | None, error: Exception) -> None:
    """A probe that can't record says why where the harness looks, and in the worker's log."""
    text = f"{type(error).__name__}: {error}\n"
    try:
        sys.stderr.write("conform's probe: " + text)
        if config is not None and config.dir:
            path = os.path.join(os.path.dirname(config.dir), f"probe-{config.worker}.error")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    except (OSError, ValueError):
        pass


def report(recorder: Recorder) -> list[tuple[str, str]]:
    """What the hooks did, as notes, and as a file beside the events."""
    state: Bound = recorder.state
    silent = sorted(name for name, n in state.fired.items() if n == 0 and not name.startswith("cpu:"))
    errors = {name: f"{state.failures.get(name, 1)} times, first {text}" for name, text in list(state.errors.items())}
    text = json.dumps({"asked": state.asked, "bound": state.bound, "missing": state.missing, "fired": state.fired, "errors": errors}, sort_keys=True)
    try:
        folder = os.path.join(os.path.dirname(recorder.config.dir), "hooks")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, recorder.worker + ".json"), "w", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError:
        pass
    notes = [("note", f'"text":{quoted("hooks that never fired: " + (", ".join(silent) or "none"))}')]
    if errors:
        notes.append(("note", f'"text":{quoted("errors in hooks: " + json.dumps(errors))}'))
    return notes


def register() -> None:
    """The entry point. It must not fail: the engine would start without it and say so
    only in a log."""
    config: configuration.Config | None = None
    try:
        config = configuration.load()
        if config is not None:
            _Probe(config).start()
    except Exception as error:  # the harness misses the source, and says so
        complain(config, error)
