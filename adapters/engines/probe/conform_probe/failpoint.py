"""The harness's end of a wire: faults are decided there, recordings end when it says so.

The protocol is that of the harness's package faults/failpoint: lines, each a letter
and JSON, over a loopback connection. Without a harness every question is answered
"go on" at once, also those that wait for an answer when it goes away.
"""

from __future__ import annotations

import collections
import json
import socket
import threading
from typing import Any, Callable

_PROTOCOL = "conform-failpoint/1"
_MAX_QUEUE = 8192  # lines
_MAX_LINE = 1 << 20  # bytes, either way

FORWARD, DROP, DUPLICATE, FAIL = 0, 1, 2, 3


class Failpoint:
    """A connection to the harness. ask() blocks its caller as long as a fault says."""

    def __init__(self, address: str, worker: str, on_seal: Callable[[], None], load: Callable[[], dict[str, int]]) -> None:
        self._worker = worker
        self._on_seal = on_seal
        self._load = load
        self._open: dict[int, tuple[threading.Event, list[int]]] = {}
        self._next = 0
        self._lock = threading.Lock()
        self._queue: collections.deque[bytes] = collections.deque()
        self._work = threading.Semaphore(0)
        self._dropped = 0  # lines for which there was no room; only tap() counts it up
        self._told = 0  # of those, how many the harness knows of; only the sender's
        self._gone = False
        self._interests: list[dict[str, str]] = []
        self._events: frozenset[str] = frozenset()
        host, _, port = address.rpartition(":")
        self._sock = socket.create_connection((host, int(port)), timeout=10)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._sock.makefile("rb")
        try:
            self._greet()
            self._sock.settimeout(None)
        except BaseException:
            self._file.close()
            self._sock.close()
            raise
        for run in (self._read, self._send_all):
            threading.Thread(target=run, name=f"conform ({run.__name__.strip('_')})", daemon=True).start()

    def _greet(self) -> None:
        hello = {"protocol": _PROTOCOL, "worker": self._worker, "seals": True}
        self._sock.sendall(json.dumps(hello).encode() + b"\n")
        answer = json.loads(self._file.readline(_MAX_LINE))
        if not isinstance(answer, dict) or answer.get("protocol") != _PROTOCOL:
            raise ValueError("the harness speaks another protocol")
        self._interests = [i for i in answer.get("interests") or [] if isinstance(i, dict)]
        self._events = frozenset(["source", *(e for e in answer.get("events") or [] if isinstance(e, str))])

    def wants(self, mode: str, pool: str) -> bool:
        """Whether a rule of the plan can be about such an access."""
        if self._gone:
            return False
        return any(i.get("mode", mode) in ("", mode) and i.get("pool", pool) in ("", pool) for i in self._interests)

    def hears(self, *kinds: str) -> bool:
        """Whether the harness wants to hear of events of one of these kinds."""
        return any(kind in self._events for kind in kinds)

    def ask(self, point: dict[str, Any]) -> int:
        """What is to happen to an access. It returns when it is to happen."""
        if not self.wants(point.get("name", ""), point.get("pool", "")):
            return FORWARD
        done: tuple[threading.Event, list[int]] = (threading.Event(), [FORWARD])
        with self._lock:
            self._next += 1
            number = self._next
            self._open[number] = done
        line = b"Q" + json.dumps({"id": number, "p": point}).encode() + b"\n"
        if len(line) <= _MAX_LINE:
            self._put(line)
            while not done[0].wait(1.0):
                if self._gone:
                    break
        with self._lock:
            self._open.pop(number, None)
        return done[1][0]

    def tap(self, kind: str, line: bytes) -> None:
        """Hand a recorded line over, if the plan looks at such events. It never waits."""
        if kind not in self._events or self._gone:
            return
        if len(self._queue) >= _MAX_QUEUE or len(line) >= _MAX_LINE:
            self._dropped += 1
            return
        self._put(b"T" + line)

    def _put(self, line: bytes) -> None:
        self._queue.append(line)
        self._work.release()

    def _read(self) -> None:
        try:
            while (line := self._file.readline(_MAX_LINE)).endswith(b"\n"):
                self._heard(line)
        except Exception:  # whatever it is: nobody may wait for this thread any more
            pass
        self._end()
        self._file.close()

    def _heard(self, line: bytes) -> None:
        if line[:1] == b"S":
            self._on_seal()
            self._put(b"D\n")
        elif line[:1] == b"I":
            self._put(b"I" + json.dumps(self._load()).encode() + b"\n")
        elif line[:1] == b"A":
            self._answered(json.loads(line[1:]))
        else:
            raise ValueError("a line of no known kind")

    def _end(self) -> None:
        """The harness is gone, or makes no sense: whoever waits goes on."""
        self._gone = True
        try:
            self._sock.shutdown(socket.SHUT_RDWR)  # a blocked sender ends, and the harness sees it
        except OSError:
            pass
        with self._lock:
            waiting = list(self._open.values())
        for event, _ in waiting:
            event.set()
        self._queue.clear()
        self._work.release()

    def _answered(self, answer: dict[str, Any]) -> None:
        with self._lock:
            done = self._open.pop(int(answer.get("id", 0)), None)
        if done is not None:
            done[1][0] = int(answer.get("do", FORWARD))
            done[0].set()

    def _send_all(self) -> None:
        while True:
            self._work.acquire()
            if self._gone:
                self._sock.close()
                return
            try:
                line = self._queue.popleft()
            except IndexError:
                continue
            dropped = self._dropped - self._told
            if dropped:
                line = b"L%d\n" % dropped + line
                self._told += dropped
            try:
                self._sock.sendall(line)
            except OSError:
                self._end()  # which lets this loop end
