"""What the harness tells the probe, in the variable CONFORM_PROBE."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass

VARIABLE = "CONFORM_PROBE"


@dataclass(frozen=True)
class Config:
    """One worker's part in a run."""

    dir: str  # the run's events folder
    worker: str  # such as prefill-0
    role: str  # prefill or decode; "" for a worker that is not recorded
    host: str
    clock: str
    engine: str  # such as vllm@0.32.0
    failpoint: str = ""  # host:port
    connector: str = "nixl"
    device: str = "cpu"

    @property
    def version(self) -> tuple[int, ...]:
        """The engine's version as numbers."""
        return tuple(int(n) for n in re.findall(r"\d+", self.engine.rpartition("@")[2])[:3])


def load() -> Config | None:
    """The configuration, or None where this process is not probed."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    known = Config.__dataclass_fields__
    return Config(**{k: v for k, v in json.loads(text).items() if k in known})
