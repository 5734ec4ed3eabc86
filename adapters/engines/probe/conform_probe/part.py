"""One worker's part in a run: what the harness tells a probe, and what a probe tells the harness
beside its events."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from typing import TypeVar

from .binding import Bound
from .spool import quoted

VARIABLE = "CONFORM_PROBE"


@dataclass(frozen=True)
class Part:
    """What every engine's probe is told, in the variable CONFORM_PROBE."""

    dir: str  # the run's events folder
    worker: str  # such as prefill-0
    role: str  # prefill or decode; another for a worker that is not recorded
    host: str
    clock: str
    engine: str  # such as sglang@0.5.23
    failpoint: str = ""  # host:port
    device: str = "cpu"

    @property
    def version(self) -> tuple[int, ...]:
        """The engine's version as numbers."""
        return tuple(int(n) for n in re.findall(r"\d+", self.engine.rpartition("@")[2])[:3])

    def source(self, worker: str, probe: str, state: Bound) -> str:
        """The fields of a source's first line."""
        return (
            f'"worker":{quoted(worker)},"role":"{self.role}","host":{quoted(self.host)},"clock":{quoted(self.clock)},'
            f'"pid":{os.getpid()},"probe":"{probe}","engine":{quoted(self.engine)},"hooks":{json.dumps(state.summary())}'
        )


P = TypeVar("P", bound=Part)


def load(kind: type[P]) -> P | None:
    """The configuration, or None where this process is not probed. What this kind does not know
    is ignored."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    known = kind.__dataclass_fields__
    return kind(**{k: v for k, v in json.loads(text).items() if k in known})


def complain(part: Part | None, error: Exception) -> None:
    """A probe that can't record says why where the harness looks, and in the worker's log."""
    text = f"{type(error).__name__}: {error}\n"
    try:
        sys.stderr.write("conform's probe: " + text)
        if part is not None and part.dir:
            path = os.path.join(os.path.dirname(part.dir), f"probe-{part.worker}.error")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    except (OSError, ValueError):
        pass


def report(part: Part, source: str, state: Bound) -> list[tuple[str, str]]:
    """What the hooks did, as a file beside the events; their errors as a note too."""
    errors = {name: f"{state.failures.get(name, 1)} times, first {text}" for name, text in list(state.errors.items())}
    told = json.dumps({**state.summary(), "fired": state.fired, "errors": errors}, sort_keys=True)
    try:
        folder = os.path.join(os.path.dirname(part.dir), "hooks")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, source + ".json"), "w", encoding="utf-8") as file:
            file.write(told + "\n")
    except OSError:
        pass
    return [("note", f'"text":{quoted("errors in hooks: " + json.dumps(errors))}')] if errors else []
