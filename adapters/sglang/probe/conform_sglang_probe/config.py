"""What the harness tells the probe."""

from __future__ import annotations

from dataclasses import dataclass, field

from conform_probe.part import Part


@dataclass(frozen=True)
class Config(Part):
    """One SGLang worker's part in a run."""

    connector: str = "mooncake"
    content: bool = True  # digests of pages
    switch: bool = False  # SIGUSR1 takes the hooks out, SIGUSR2 puts them in: a benchmark compares one worker with itself
    prefills: dict[str, str] = field(default_factory=dict)  # decode: worker by bootstrap port
    prefill_ranks: int = 1
    decode_ranks: int = 1
