"""What vLLM's Mooncake connector needs to run on a machine without a GPU, and on loopback alone.

None of it touches the hand-off: the connector asks torch which accelerator it is on, where there
is none, and its bootstrap server listens on every interface, whatever it is told. Each
replacement is reported with the hooks.
"""

from __future__ import annotations

import importlib
from typing import Any


def apply(device: str) -> list[str]:
    """Make the replacements; the names of those that were made."""
    done: list[str] = []
    for step in (_loopback, _accelerator) if device == "cpu" else (_loopback,):
        try:
            step()
            done.append(step.__name__.strip("_"))
        except Exception:  # a version without that place
            continue
    return done


def _accelerator() -> None:
    """The connector is on device 0, and to choose it does nothing."""
    torch: Any = importlib.import_module("torch")
    torch.accelerator.current_device_index = lambda: 0
    platform: Any = importlib.import_module("vllm.platforms.cpu").CpuPlatform
    platform.set_device = classmethod(lambda cls, device: None)


def _loopback() -> None:
    """The bootstrap server listens on loopback."""
    server: Any = importlib.import_module("vllm.distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_utils").MooncakeBootstrapServer
    make = server.__init__

    def init(self: Any, host: str, port: int) -> None:
        make(self, "127.0.0.1", port)

    server.__init__ = init
