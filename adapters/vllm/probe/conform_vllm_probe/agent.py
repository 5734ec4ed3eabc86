"""The NIXL agent of a worker, with eyes: what is posted, what has ended, what is told.

A READ is carried out by the transfer engine, on both sides' behalf. When it has ended is known
here only by asking; the engine tells the other side by itself, maybe before that. So the end,
and the notification, are recorded as of the engine's own thread, at a moment between the post and
the answer.
"""

from __future__ import annotations

import json
import time
from typing import Any

from conform_probe.spool import quoted

from .recorder import Recorder, handoff_of


class Agent:
    """Delegates to the real agent. What goes wrong here does not reach the engine."""

    def __init__(self, agent: Any, worker: Any, recorder: Recorder) -> None:
        self._agent, self._worker, self._r = agent, worker, recorder
        self._open: dict[Any, tuple[int, str, str, str, str]] = {}  # by handle: since, fields, read, write, handoff
        self._posts = 0
        self._notified: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    def notified(self, name: str) -> bool:
        """Whether a reader's word ended a lease; it is asked once."""
        found = name in self._notified
        self._notified.discard(name)
        return found

    def _guard(self, step: Any) -> None:
        try:
            step()
        except Exception as error:
            self._r.state.failed("nixl_agent", error)

    def make_prepped_xfer(self, operation: str, local: Any, local_ids: Any, remote: Any, remote_ids: Any, *args: Any, **kwargs: Any) -> Any:
        handle = self._agent.make_prepped_xfer(operation, local, local_ids, remote, remote_ids, *args, **kwargs)
        self._guard(lambda: self._prepared(handle, local_ids, remote_ids))
        return handle

    def _prepared(self, handle: Any, local_ids: Any, remote_ids: Any) -> None:
        r = self._r
        there, name, remote_name = r.local.read
        if not name:
            return
        counts = self._worker.dst_num_blocks
        mine = sorted({int(n) % int(counts[self._worker.engine_id]) for n in local_ids})
        theirs = sorted({int(n) % int(counts[there]) for n in remote_ids})
        fields = r.named(name)
        read, write = r.spool.unique("r"), r.spool.unique("w")
        self._open[handle] = (0, fields, read, write, handoff_of(remote_name))
        r.spool.record_all([
            r.begin(read, "r", there, theirs, fields, "nixl"),
            r.begin(write, "w", r.worker, mine, fields, "nixl"),
        ])

    def transfer(self, handle: Any, *args: Any, **kwargs: Any) -> Any:
        found = self._open.get(handle)
        if found is not None:
            self._open[handle] = (time.monotonic_ns(), *found[1:])
        return self._agent.transfer(handle, *args, **kwargs)

    def check_xfer_state(self, handle: Any) -> Any:
        state = self._agent.check_xfer_state(handle)
        if state != "PROC" and handle in self._open:
            self._guard(lambda: self._ended(handle, state == "DONE"))
        return state

    def _ended(self, handle: Any, ok: bool) -> None:
        r = self._r
        since, fields, read, write, handoff = self._open.pop(handle)
        self._posts += 1
        thread = f"nixl-{self._posts}"
        good = "true" if ok else "false"
        done = r.spool.unique("xfer")
        events = [("end", f'"access":{quoted(a)},"ok":{good}') for a in (read, write)]
        if ok:
            events.append(r.emit(r.sig("READ_DONE", handoff), "READ_DONE", fields, "completed", f',"access":{json.dumps([read])}'))
        events.append(r.emit(done, "XFER_STATE", fields, "completed", f',"access":{json.dumps([read, write])}'))
        r.spool.record_between(since, thread, events)
        r.spool.record_all([r.observe(done, "XFER_STATE", fields)])

    def get_new_notifs(self, *args: Any, **kwargs: Any) -> Any:
        notifs = self._agent.get_new_notifs(*args, **kwargs)
        if notifs:
            self._guard(lambda: self._heard(notifs))
        return notifs

    def _heard(self, notifs: Any) -> None:
        r, events = self._r, []
        for messages in notifs.values():
            for message in messages:
                text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
                if text.startswith("HB:"):
                    continue
                name = text.rpartition(":")[0]
                self._notified.add(name)
                handoff = handoff_of(name)
                events.append(r.observe(r.sig("READ_DONE", handoff), "READ_DONE", f',"handoff":{quoted(handoff)}'))
        if events:
            r.spool.record_all(events)
