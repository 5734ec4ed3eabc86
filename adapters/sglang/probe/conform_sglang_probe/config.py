"""What the harness tells the probe, in the variable CONFORM_PROBE."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field

VARIABLE = "CONFORM_PROBE"


@dataclass(frozen=True)
class Config:
    """One worker's part in a run."""

    dir: str  # the run's events folder
    worker: str  # such as prefill-0
    role: str  # prefill or decode
    host: str
    clock: str
    engine: str  # such as sglang@0.5.23
    failpoint: str = ""  # host:port
    connector: str = "mooncake"
    device: str = "cpu"
    content: bool = True  # digests of pages
    switch: bool = False  # SIGUSR1 takes the hooks out, SIGUSR2 puts them in: a benchmark compares one worker with itself
    prefills: dict[str, str] = field(default_factory=dict)  # decode: worker by bootstrap port
    prefill_ranks: int = 1
    decode_ranks: int = 1

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
