"""Forward passes, in the process that runs the model: which blocks each reads and writes.

What a pass is to do comes from EngineCore as the difference to the last one; the table of each
request's blocks is kept here as the engine keeps its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from conform_probe.spool import quoted

from .recorder import Recorder, client_id

BlockTable = list[int]


@dataclass
class Row:
    """One request in a pass."""

    name: str
    fields: str
    read: list[int]
    written: list[int]
    new: bool  # it was given blocks since the last pass
    whole: bool  # its prompt is computed with this pass
    access: str = ""


class Passes:
    """The passes of one process."""

    def __init__(self, recorder: Recorder) -> None:
        self._r = recorder
        self._tables: dict[str, BlockTable] = {}
        self._prompts: dict[str, int] = {}  # their lengths
        self._count = 0

    def begin(self, output: Any, size: int) -> list[Row]:
        """A pass over what a scheduler's output names begins. size is tokens of a block."""
        r, events = self._r, []
        rows = self._rows(output, size)
        for row in rows:
            self._count += 1
            row.access = f"{r.source}/f{self._count}"
            if row.new and not r.alone:
                events.append(r.observe(r.sig("BLOCKS", f"{r.worker}:{row.name}"), "BLOCKS", row.fields))
            for mode, numbers in (("r", row.read), ("w", row.written)):
                events.append(r.begin(row.access + mode, mode, r.worker, numbers, row.fields, "forward"))
        if events:
            r.spool.record_all(events)
        for name in output.finished_req_ids:
            self._tables.pop(name, None)
            self._prompts.pop(name, None)
        return rows

    def end(self, rows: list[Row]) -> None:
        """That pass is over."""
        r, events = self._r, []
        for row in rows:
            events += [("end", f'"access":{quoted(row.access + mode)},"ok":true') for mode in "rw"]
            if not r.alone:
                events.append(r.emit(r.sig("STEP", f"{r.worker}:{row.name}"), "STEP", row.fields, "completed"))
        if events:
            r.spool.record_all(events)
        for row in rows:
            handed = '"handoff"' in row.fields and not client_id(row.name).startswith("f-")
            if row.whole and handed and r.config.role == "prefill":
                r.digests("source", row.read, 0, row.fields)

    def _rows(self, output: Any, size: int) -> list[Row]:
        done, fresh = {}, set()
        for new in output.scheduled_new_reqs:
            self._tables[new.req_id] = _first(new.block_ids)
            self._prompts[new.req_id] = len(new.prompt_token_ids or ())
            done[new.req_id] = int(new.num_computed_tokens)
            fresh.add(new.req_id)
        cached = output.scheduled_cached_reqs
        for i, name in enumerate(cached.req_ids):
            blocks = _first(cached.new_block_ids[i])
            if name in cached.resumed_req_ids or name not in self._tables:
                self._tables[name] = blocks
            else:
                self._tables[name] += blocks
            if blocks:
                fresh.add(name)
            done[name] = int(cached.num_computed_tokens[i])
        return [self._row(name, n, int(output.num_scheduled_tokens[name]), size, name in fresh) for name, n in done.items()]

    def _row(self, name: str, done: int, more: int, size: int, new: bool) -> Row:
        last = -(-(done + more) // size)
        table = self._tables[name]
        prompt = self._prompts.get(name, 0)
        return Row(name, self._r.named(name), table[:last], table[done // size:last], new, done < prompt <= done + more)


def _first(groups: Any) -> BlockTable:
    """The blocks of the first group: models that are driven here have one."""
    return [int(n) for n in groups[0]] if groups else []
