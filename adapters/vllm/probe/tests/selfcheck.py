"""Binds every hook of one installed engine and prints, as JSON, what became of them.

Run with the engine's own Python: selfcheck.py VERSION.
"""

from __future__ import annotations

import json
import sys

from conform_probe.binding import bind
from conform_vllm_probe.bindings import hooks
from conform_vllm_probe.hooks import Hooks

state = bind(hooks(Hooks(None, None)), tuple(int(n) for n in sys.argv[1].split(".")), lambda: False)  # type: ignore[arg-type]
print("SELFCHECK " + json.dumps({"asked": state.asked, "bound": state.bound, "missing": state.missing}))
