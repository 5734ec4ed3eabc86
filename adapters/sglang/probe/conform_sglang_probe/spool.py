"""The spool: one source of a trace, written so that a killed process loses nothing.

Each event is one write to a file opened for appending. What was written belongs to
the kernel, so SIGKILL does not take it back; only the machine's death would. A
spool never raises: what it can't write it counts, and says so in a ``lost`` event
when it can write again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from typing import Callable

_THREAD = re.compile(r"\(([A-Za-z_]\w*)\)")


def quoted(text: object) -> str:
    """A JSON string."""
    return json.dumps(str(text))


def blocks(numbers: list[int]) -> str:
    """A list of block numbers as the trace writes it: runs become pairs."""
    ordered = sorted(set(numbers))
    out: list[str] = []
    i = 0
    while i < len(ordered):
        j = i
        while j + 1 < len(ordered) and ordered[j + 1] == ordered[j] + 1:
            j += 1
        if j - i >= 1:
            out.append(f"[{ordered[i]},{ordered[j]}]")
        else:
            out.append(str(ordered[i]))
        i = j + 1
    return "[" + ",".join(out) + "]"


class Spool:
    """One source. Its methods may be called from many threads."""

    def __init__(self, folder: str, src: str, tap: Callable[[str, bytes], None] | None = None) -> None:
        self.src = src
        self.path = os.path.join(folder, src + ".jsonl")
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._pid = os.getpid()
        self._head = '{"src":' + quoted(src) + ',"seq":'
        self._lock = threading.Lock()
        self._seq = 0
        self._lost = 0
        self._sum = hashlib.sha256()
        self._sealed = False
        self._threads: dict[int, str] = {}
        self._next_sig = 0
        self.open = 0  # accesses that have begun and not ended
        self._tap = tap

    def thread(self) -> str:
        """What this thread is called in the trace: "main", or its function and number."""
        ident = threading.get_ident()
        name = self._threads.get(ident)
        if name is None:
            thread = threading.current_thread()
            if thread is threading.main_thread():
                name = "main"
            else:
                found = _THREAD.search(thread.name)
                name = f"{found.group(1) if found else 'thread'}-{len(self._threads) + 1}"
            self._threads[ident] = name
        return name

    def unique(self, prefix: str) -> str:
        """An id that no other source uses."""
        with self._lock:
            self._next_sig += 1
            return f"{self.src}/{prefix}{self._next_sig}"

    def record(self, kind: str, body: str = "", since: int | None = None) -> None:
        """Record one event. body is its own fields as JSON, without braces; since is
        when the effect may have come at the earliest, if that is not now."""
        self.record_all([(kind, body)], since)

    def record_all(self, events: list[tuple[str, str]], since: int | None = None) -> None:
        """Record several events of one moment with one write."""
        if self._pid != os.getpid():  # a child that was forked has no source of its own
            return
        th = self.thread()
        where = "" if th == "main" else f',"th":"{th}"'
        with self._lock:
            if self._sealed:
                return
            self._write(events, where, since)

    def _write(self, events: list[tuple[str, str]], where: str, since: int | None) -> None:
        if self._lost:
            events = [("lost", f'"count":{self._lost}'), *events]
        now = time.monotonic_ns()
        when = f'"t":{now}' if since is None or since >= now else f'"t":{since},"t2":{now}'
        lines = []
        seq = self._seq
        for kind, body in events:
            comma = "," if body else ""
            lines.append(f'{self._head}{seq},{when}{where},"k":"{kind}"{comma}{body}}}\n')
            seq += 1
        data = "".join(lines).encode()
        try:
            self._put(data)
        except OSError:
            self._lost += sum(1 for kind, _ in events if kind != "lost")
            return
        self._seq, self._lost = seq, 0
        self._sum.update(data)
        for kind, _ in events:
            self.open += (kind == "begin") - (kind == "end")
        if self._tap is not None:
            for (kind, _), line in zip(events, lines):
                self._tap(kind, line.encode())

    def _put(self, data: bytes) -> None:
        """All of data or none: a line that was cut short would end the source."""
        end = os.fstat(self._fd).st_size
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, data[done:])
        except OSError:
            os.ftruncate(self._fd, end)
            raise

    def seal(self) -> None:
        """Record the last line. What is recorded later is dropped."""
        if self._pid != os.getpid():
            return
        th = self.thread()
        where = "" if th == "main" else f',"th":"{th}"'
        with self._lock:
            if self._sealed:
                return
            if self._lost:
                self._write([], where, None)
            self._write([("seal", f'"events":{self._seq},"sum":"{self._sum.hexdigest()}"')], where, None)
            self._sealed = True
