"""Binds every hook of one installed engine and prints, as JSON, what became of them.

Run with the engine's own Python: selfcheck.py VERSION CONNECTOR. Under "renamed" is what
became of the same table with one target renamed.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

from conform_sglang_probe import bindings, cpu
from conform_probe.binding import Bound, bind
from conform_sglang_probe.hooks import Hooks

RENAMED = ":Scheduler.run_batch"


def told(state: Bound) -> dict[str, Any]:
    return {"asked": state.asked, "bound": state.bound, "missing": state.missing, "places": sorted(state.fired)}


def main() -> None:
    version = tuple(int(n) for n in sys.argv[1].split("."))
    table = bindings.hooks(Hooks(lambda: None, sys.argv[2]))
    replaced = cpu.apply()
    out = told(bind(table, version, lambda: False))
    renamed = [dataclasses.replace(h, target=h.target + "_renamed") if h.target.endswith(RENAMED) else h for h in table]
    out["renamed"] = told(bind(renamed, version, lambda: False))
    out["replaced"] = replaced
    print("SELFCHECK " + json.dumps(out))


if __name__ == "__main__":
    main()
