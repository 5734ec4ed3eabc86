"""Binds every hook of one installed engine and prints, as JSON, what became of them.

Run with the engine's own Python: selfcheck.py VERSION.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

from conform_probe.binding import bind
from conform_vllm_probe import mooncake
from conform_vllm_probe.bindings import hooks
from conform_vllm_probe.hooks import Hooks

version = tuple(int(n) for n in sys.argv[1].split("."))
rows = hooks(Hooks(None, None))  # type: ignore[arg-type]
if version >= (0, 29):  # from here on there is a Mooncake connector that is recorded
    rows += mooncake.rows(mooncake.Mooncake(None, SimpleNamespace(dir="run/events")))
state = bind(rows, version, lambda: False)
print("SELFCHECK " + json.dumps({"asked": state.asked, "bound": state.bound, "missing": state.missing}))
