"""Write traces that Conform judges, from Python 3.10 or later, standard library only.

One process is one source, one file:

    with Source("run/events", "decode-0") as s:
        s.record("source", worker="decode-0", role="decode", host="h", clock="h/boot")
        s.record("pool", pool="kv", blocks=1024, what="kv")
        s.record("alloc", pool="kv", blocks=[4, 5, 6, 9], holder="r1", req="r1")

Events may be recorded by many threads: the order of a thread's records is program
order. An event is one write: what was recorded outlives a kill of the process. Nothing
here raises into its caller but what opens the file: what can't be written is counted,
and said in a ``lost`` event once it can be; until then the file ends in a torn line,
so that the loss is seen in any case. docs/writing-traces.md tells which event belongs
where.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from typing import Any, Iterable

__all__ = ["Source", "now"]

_END = b"}\n"


def now() -> int:
    """Nanoseconds, on the clock of every source of this machine since its start."""
    return time.monotonic_ns()


def _pairs(numbers: Iterable[int]) -> list[Any]:
    """Block numbers as a trace writes them: runs, in the order given, become pairs."""
    out: list[Any] = []
    for n in map(int, numbers):
        last = out[-1] if out else None
        if isinstance(last, int) and n == last + 1:
            out[-1] = [last, n]
        elif isinstance(last, list) and n == last[1] + 1:
            last[1] = n
        else:
            out.append(n)
    return out


class Source:
    """The source src: the file FOLDER/SRC.jsonl, which must be new. A restarted process
    is a new source with a new name."""

    def __init__(self, folder: str, src: str) -> None:
        self.path = os.path.join(folder, src + ".jsonl")
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o644)
        self._src = src
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._seq = self._lost = self._size = self._threads = 0
        self._torn = self._dirty = self._sealed = False
        self._sum = hashlib.sha256()
        self._names = threading.local()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.seal()

    def record(self, kind: str, *, since: int | None = None, **fields: Any) -> None:
        """Record an event of this moment, or of one between since (of now()) and this call.
        A field that is None is left out: no field of a trace is null."""
        try:
            body = {key: value for key, value in fields.items() if value is not None}
            if kind != "pool" and "blocks" in body:
                body["blocks"] = _pairs(body["blocks"])
            text = json.dumps(body, allow_nan=False)[1:-1]
        except (TypeError, ValueError, RecursionError):
            text = None
        with self._lock:
            if self._sealed or os.getpid() != self._pid:  # a forked child has no source of its own
                return
            if not self._losses() or text is None or not self._line(kind, text, since):
                self._lost += 1

    def seal(self) -> None:
        """End the source in good order: its last line. What is recorded later is dropped."""
        with self._lock:
            if self._sealed or os.getpid() != self._pid:
                return
            if self._losses():
                self._line("seal", f'"events": {self._seq}, "sum": "{self._sum.hexdigest()}"')
            self._sealed = True
            os.close(self._fd)

    def _losses(self) -> bool:
        """Say how much was lost, if any. False if that can't be said."""
        if self._lost and self._line("lost", f'"count": {self._lost}'):
            self._lost = 0
        return not self._lost

    def _thread(self) -> str:
        """"main", or a name that no other thread of this source has, dead ones included."""
        name: str | None = getattr(self._names, "name", None)
        if name is None:
            if threading.current_thread() is threading.main_thread():
                name = "main"
            else:
                self._threads += 1
                name = f"{threading.current_thread().name}-{self._threads}"
            self._names.name = name
        return name

    def _line(self, kind: str, body: str, since: int | None = None) -> bool:
        moment = now()
        head = {"src": self._src, "seq": self._seq, "t": moment if since is None else since, "th": self._thread(), "k": kind}
        if since is not None:
            head["t2"] = moment
        line = (json.dumps(head)[:-1] + (", " + body if body else "")).encode() + _END
        try:
            if self._dirty:
                self._tear()
            whole = _END + line if self._torn else line
            while whole:
                whole = whole[os.write(self._fd, whole) :]
        except OSError:
            self._dirty = True
            try:
                self._tear()
            except OSError:
                pass  # the next line tries again
            return False
        self._torn = False
        self._seq += 1
        self._size += len(line)
        self._sum.update(line)
        return True

    def _tear(self) -> None:
        """Take off what was written of a line that failed, and the end of the last good one."""
        os.ftruncate(self._fd, max(self._size - len(_END), 0))
        self._torn, self._dirty = self._size > 0, False
