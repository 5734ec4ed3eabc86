"""The spool: one source of a trace, written so that a killed process loses nothing.

Where the file system keeps its word about room that it gave in advance, a line is
copied into the file's mapped pages; elsewhere it is one write to a file opened for
appending. Either way it belongs to the kernel then, so SIGKILL does not take it back;
only the machine's death would. The copy costs a fifth of the write after a forward
pass, which leaves nothing of the system call's path in the processor's caches.
A spool never raises: what it can't write it counts, and says so in a ``lost`` event
when it can write again. Until then the file ends in a torn line, so that the loss
is also seen when nothing can be written any more.

A mapped file is longer than its lines while it is written: zeros follow them. The seal
cuts them off; the file of a killed process is cut at its first zero by the harness.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import mmap
import os
import re
import sys
import threading
import time
from typing import Callable, Iterable

_THREAD = re.compile(r"\(([A-Za-z_]\w{0,40})\)", re.ASCII)


def quoted(text: object) -> str:
    """A JSON string."""
    return json.dumps(str(text))


def runs(numbers: Iterable[int]) -> list[list[int]]:
    """Block numbers as the first and the last of each run of them, ascending."""
    out: list[list[int]] = []
    for n in sorted(set(numbers)):
        if out and n == out[-1][1] + 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return out


def blocks(numbers: Iterable[int]) -> str:
    """Block numbers as the trace writes them: runs become pairs."""
    return "[" + ",".join([str(a) if a == b else f"[{a},{b}]" for a, b in runs(numbers)]) + "]"


_END = b"}\n"  # of every line


def _writer() -> Callable[[int, bytes], int]:
    """What writes to a file. os.write lets other threads run meanwhile, and one of the engine's
    polls all the time: to get the interpreter back from it takes up to 5 ms, for a write that
    takes 5 µs. So this one keeps it."""
    try:
        call = ctypes.PyDLL(None, use_errno=True).write
        call.argtypes, call.restype = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t], ctypes.c_ssize_t
    except (OSError, AttributeError):
        return os.write

    def write(fd: int, data: bytes) -> int:
        done = call(fd, data, len(data))
        if done < 0:
            number = ctypes.get_errno()
            if number == errno.EINTR:
                return 0
            raise OSError(number, os.strerror(number))
        return int(done)

    return write


_write = _writer()


class _Appended:
    """A file of lines, each put there by a write."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.size = 0  # bytes of whole lines
        self._torn = False  # the end of the last line was taken off
        self._dirty = False  # lines that failed may still be there in part

    def put(self, data: bytes) -> None:
        """All of data or none. After a failure the last line lacks its end, which the next
        put gives back."""
        if self._dirty:
            self._tear()
        whole = _END + data if self._torn else data
        done = 0
        try:
            while done < len(whole):
                done += _write(self._fd, whole[done:] if done else whole)
        except OSError:
            self._dirty = True
            self._tear()
            raise
        self._torn = False
        self.size += len(data)

    def _tear(self) -> None:
        """Take off what was written of the lines that failed, and the end of the last good one."""
        os.ftruncate(self._fd, max(self.size - len(_END), 0))
        self._torn, self._dirty = self.size > 0, False

    def close(self) -> None:
        """Nothing follows."""


# What _Mapped asks of the file system at once, in bytes: room for some thousand events.
_CHUNK = 1 << 20


class _Mapped:
    """A file of lines, each copied into the file's pages. Room is asked for before it is used:
    a copy to where there is none would end the process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.size = 0  # bytes of whole lines
        self._torn = False  # the end of the last line was taken off
        self._start = self._end = 0  # of the part of the file that is mapped
        self._map: mmap.mmap | None = None

    def put(self, data: bytes) -> None:
        """All of data or none. After a failure the last line lacks its end, which the next
        put gives back."""
        if not data:
            return
        after = self.size + len(data)
        if after > self._end:
            try:
                self._reach(after)
            except (OSError, ValueError, OverflowError) as error:
                self._tear()
                raise OSError(error.errno if isinstance(error, OSError) else 0, "no room for the spool") from error
        pages, at = self._map, self.size - self._start
        assert pages is not None
        # The first byte comes last: without it a reader takes the rest for nothing.
        pages[at + 1 : after - self._start] = data[1:]
        pages[at] = data[0]
        if self._torn:
            pages[at - len(_END) : at] = _END
            self._torn = False
        self.size = after

    def _reach(self, after: int) -> None:
        """Have room up to there, and the end of the last line in reach."""
        start = max(self.size - len(_END), 0) // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        end = start + max(_CHUNK, -(-(after - start) // _CHUNK) * _CHUNK)
        _allocate(self._fd, self._end, end - self._end)
        pages = mmap.mmap(self._fd, end - start, offset=start)
        if self._map is not None:
            self._map.close()
        self._map, self._start, self._end = pages, start, end

    def _tear(self) -> None:
        if self._map is not None and self.size and not self._torn:
            at = self.size - self._start
            self._map[at - len(_END) : at] = bytes(len(_END))
            self._torn = True

    def close(self) -> None:
        """Nothing follows: the file ends with its last line."""
        if self._map is not None:
            self._map.close()
            self._map = None
        os.ftruncate(self._fd, self.size - (len(_END) if self._torn else 0))


def _allocate(fd: int, start: int, count: int) -> None:
    os.posix_fallocate(fd, start, count)


# File systems on which room that was given can be used without fail: ext2 to ext4, XFS, tmpfs.
# Those that write elsewhere than where they gave the room may have none when it is used.
_KEEPING = frozenset({0xEF53, 0x58465342, 0x01021994})


def _keeps_room(fd: int) -> bool:
    """Whether a file is on one of these."""
    try:
        call = ctypes.CDLL(None).fstatfs
        answer = ctypes.create_string_buffer(512)
        if sys.platform != "linux" or call(fd, answer) != 0:
            return False
        word = ctypes.sizeof(ctypes.c_long)
        return int.from_bytes(answer.raw[:word], sys.byteorder) in _KEEPING
    except (OSError, AttributeError):
        return False


class Lines:
    """Accesses of one moment that begin or end again and again, such as those of each pass
    over the same pages: all of their events but number, time and pass is made once."""

    __slots__ = ("kind", "rests", "text")

    def __init__(self, src: str, kind: str, rests: list[str]) -> None:
        """kind is begin or end. A rest is what follows in a line after the pass's name:
        what makes the id one of the pass's own, the quote that ends it, further fields."""
        self.kind, self.rests = kind, rests
        head = _head(src).replace("%", "%%")
        self.text = "".join([f"{head}%d%b{rest.replace('%', '%%')}}}\n" for rest in rests]).encode()

    @classmethod
    def joined(cls, parts: list[Lines]) -> Lines:
        """The lines of several, which are of one kind and source."""
        if len(parts) == 1:
            return parts[0]
        all_of_them = cls.__new__(cls)
        all_of_them.kind = parts[0].kind
        all_of_them.rests = [rest for part in parts for rest in part.rests]
        all_of_them.text = b"".join([part.text for part in parts])
        return all_of_them


def _head(src: str) -> str:
    """How each line of a source begins."""
    return '{"src":' + quoted(src) + ',"seq":'


class _Name(threading.local):
    """What a thread is called in the trace."""

    text = ""
    where = ""


class Spool:
    """One source. Its methods may be called from many threads."""

    def __init__(self, folder: str, src: str, tap: Callable[[str, bytes], None] | None = None) -> None:
        self.src = src
        self.path = os.path.join(folder, src + ".jsonl")
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._file = _Mapped(fd) if _keeps_room(fd) else _Appended(fd)
        self._head = _head(src)
        self._lock = threading.Lock()
        self._seq = 0
        self._lost = 0
        self._sealed = False
        self._name = _Name()
        self._threads = 0
        self._next_sig = 0
        self.open = 0  # accesses that have begun and not ended
        self._tap = tap
        self.tapped = False  # whether the harness wants to hear of accesses
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """A child that was forked has no source of its own."""
        self._lock = threading.Lock()  # another thread may have held it
        self._sealed = True

    def thread(self) -> str:
        """What this thread is called in the trace: "main", or its function and a number
        that no other thread of this source has, dead ones included."""
        name = self._name
        if not name.text:
            thread = threading.current_thread()
            if thread is threading.main_thread():
                name.text = "main"
            else:
                found = _THREAD.search(thread.name)
                with self._lock:
                    self._threads += 1
                    name.text = f"{found.group(1) if found else 'thread'}-{self._threads}"
                name.where = f',"th":"{name.text}"'
        return name.text

    def unique(self, prefix: str) -> str:
        """An id that no other source uses."""
        with self._lock:
            self._next_sig += 1
            return f"{self.src}/{prefix}{self._next_sig}"

    def record(self, kind: str, body: str = "") -> None:
        """Record one event. body is its own fields as JSON, without braces."""
        self.record_all([(kind, body)])

    def record_all(self, events: list[tuple[str, str]]) -> None:
        """Record several events of one moment with one write."""
        self.thread()
        with self._lock:
            if not self._sealed:
                self._write(events, self._name.where)

    def record_between(self, since: int, thread: str, events: list[tuple[str, str]]) -> None:
        """Record what happened outside of the program's threads, such as in a transfer engine,
        at a moment between since (ns on this clock) and now. thread names a thread of its own."""
        with self._lock:
            if not self._sealed:
                self._write(events, f',"th":"{thread}"', since)

    def record_lines(self, lines: Lines, name: str) -> None:
        """Record the accesses of one pass, which has that name, with one write and as
        cheaply as can be: this is done twice in each pass of the engine."""
        where = self._name.where
        if not where:  # that of the main thread stays empty
            self.thread()
            where = self._name.where
        with self._lock:
            if self._sealed:
                return
            kind, rests = lines.kind, lines.rests
            if self._lost or self.tapped:
                self._write([(kind, f'"access":"{name}{rest}') for rest in rests], where)
                return
            n, seq = len(rests), self._seq
            self.open += n if kind == "begin" else -n
            moment = f',"t":{time.monotonic_ns()}{where},"k":"{kind}","access":"{name}'.encode()
            try:
                if n == 2:  # the reads and the writes of one request: the most common pass
                    self._file.put(lines.text % (seq, moment, seq + 1, moment))
                else:
                    self._file.put(lines.text % tuple([x for i in range(seq, seq + n) for x in (i, moment)]))
            except OSError:
                self._lost += n
                return
            self._seq = seq + n

    def _write(self, events: list[tuple[str, str]], where: str, since: int = 0) -> None:
        for kind, _ in events:  # what is open is so whether it can be written or not
            self.open += (kind == "begin") - (kind == "end")
        if self._lost:
            events = [("lost", f'"count":{self._lost}'), *events]
        now = time.monotonic_ns()
        when = f'"t":{since},"t2":{now}' if since else f'"t":{now}'
        lines = []
        seq = self._seq
        for kind, body in events:
            comma = "," if body else ""
            lines.append(f'{self._head}{seq},{when}{where},"k":"{kind}"{comma}{body}}}\n')
            seq += 1
        data = "".join(lines).encode()
        try:
            self._file.put(data)
        except OSError:
            self._lost += sum(1 for kind, _ in events if kind != "lost")
            return
        self._seq, self._lost = seq, 0
        if self._tap is not None:
            for (kind, _), line in zip(events, lines):
                self._tap(kind, line.encode())

    def seal(self) -> None:
        """Record the last line. What is recorded later is dropped."""
        self.thread()
        where = self._name.where
        with self._lock:
            if self._sealed:
                return
            if self._lost:
                self._write([], where)
            if not self._lost:
                self._write_seal(where)
            self._sealed = True
            try:
                self._file.close()
            except OSError:  # zeros follow the seal: the harness cuts them off
                pass

    def _write_seal(self, where: str) -> None:
        try:
            total = self._digest()
        except OSError:  # without a seal, the harness says that the source ends early
            return
        self._write([("seal", f'"events":{self._seq},"sum":"{total}"')], where)

    def _digest(self) -> str:
        """The digest of what was written: taken once, at the end, when no thread of the engine waits for it."""
        h, left = hashlib.sha256(), self._file.size
        with open(self.path, "rb") as file:
            while part := file.read(min(left, 1 << 20)):
                h.update(part)
                left -= len(part)
        return h.hexdigest()
