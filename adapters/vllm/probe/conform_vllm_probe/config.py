"""What the harness tells the probe."""

from __future__ import annotations

from dataclasses import dataclass

from conform_probe.part import Part


@dataclass(frozen=True)
class Config(Part):
    """One vLLM worker's part in a run; with no role it is not recorded."""

    connector: str = "nixl"
