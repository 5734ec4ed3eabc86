"""The spool: what it leaves is a trace, whatever happens to its process or its disk."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
import unittest
from typing import Any
from unittest import mock

from conform_probe import spool
from conform_probe.ledger import Owner, Pool
from conform_probe.spool import Lines, Spool, blocks, quoted, runs

SOURCE = '"worker":"prefill-0","role":"prefill","host":"h","clock":"c"'


def keep(case: unittest.TestCase, word: str) -> str:
    """A folder of a run: the Go test reads what is in it, and expects what the word says."""
    base = os.environ.get("CONFORM_TEST_DIR") or tempfile.mkdtemp(prefix="conform-")
    folder = os.path.join(base, f"{word}-{type(case).__name__}-{case._testMethodName}", "events")
    os.makedirs(folder)
    return folder


def content(path: str) -> bytes:
    """The lines of a spool: up to the first zero, as the harness cuts it."""
    with open(path, "rb") as file:
        return file.read().partition(b"\0")[0]


def lines(s: Spool) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content(s.path).splitlines()]


class BlocksTest(unittest.TestCase):
    def test_runs_of_numbers(self) -> None:
        self.assertEqual(blocks([]), "[]")
        self.assertEqual(blocks([3]), "[3]")
        self.assertEqual(blocks([4, 3]), "[[3,4]]")
        self.assertEqual(blocks([13, 4, 10, 11, 12, 10]), "[4,[10,13]]")

    def test_every_number_once(self) -> None:
        rng = random.Random(1)
        for _ in range(300):
            numbers = [rng.randrange(40) for _ in range(rng.randrange(30))]
            got = [n for a, b in runs(numbers) for n in range(a, b + 1)]
            self.assertEqual(got, sorted(set(numbers)))


class Kept(unittest.TestCase):
    """Spools of one kind: their files are mapped, or written to."""

    mapped: bool

    def setUp(self) -> None:
        self.enterContext(mock.patch.object(spool, "_keeps_room", lambda fd: self.mapped))

    def make(self, word: str = "good") -> Spool:
        s = Spool(keep(self, word), "prefill-0")
        s.record("source", SOURCE)
        return s


class SpoolTest(Kept):
    mapped = False

    def test_a_moment_between(self) -> None:
        s = self.make()
        since = time.monotonic_ns()
        s.record_between(since, "engine-1", [("note", '"text":"x"'), ("note", '"text":"y"')])
        s.seal()
        events = lines(s)[1:3]
        self.assertEqual([(e["t"], e["th"]) for e in events], [(since, "engine-1")] * 2)
        self.assertTrue(all(e["t2"] >= since for e in events))

    def accesses(self, s: Spool) -> tuple[Lines, Lines]:
        begins = [f'.{mode}","mode":"{mode}","target":"prefill-0","pool":"kv","blocks":[[1,2]],"via":"forward","req":"50%d%s"' for mode in "rw"]
        return Lines(s.src, "begin", begins), Lines(s.src, "end", ['.r","ok":true', '.w","ok":true'])

    def test_every_kind_of_line(self) -> None:
        s = self.make()
        pool = Pool(s, "kv", 64, 16384, "kv")
        pool.alloc([1, 2, 3, 9], Owner("r-1", "r-1", "room-7"))
        s.record("note", f'"text":{quoted(chr(0xD800) + chr(34) + chr(10) + " é " + chr(0))}')
        s.record_all([("begin", '"access":"a","mode":"r","target":"prefill-0","pool":"kv","blocks":[1],"via":"x","req":"r-1"'), ("end", '"access":"a","ok":true')])
        begins, ends = self.accesses(s)
        for name in ("f1", "f2"):
            s.record_lines(begins, name)
            self.assertEqual(s.open, 2)
            s.record_lines(ends, name)
            self.assertEqual(s.open, 0)
            s.tapped = True  # the same lines, whoever else hears of them
        pool.free([1, 2, 3, 9], "done")
        s.seal()
        s.record("note", '"text":"too late"')
        s.seal()
        got = lines(s)
        self.assertEqual([e["seq"] for e in got], list(range(len(got))))
        passes = [{k: v for k, v in e.items() if k not in ("seq", "t")} for e in got if e.get("via") == "forward" or e["k"] == "end" and e["access"][0] == "f"]
        self.assertEqual([e["access"] for e in passes], ["f1.r", "f1.w"] * 2 + ["f2.r", "f2.w"] * 2)
        self.assertEqual([{**e, "access": e["access"].replace("f1", "f2")} for e in passes[:4]], passes[4:])
        self.assertEqual([e["k"] for e in passes[:4]], ["begin"] * 2 + ["end"] * 2)
        self.assertEqual(passes[1]["req"], "50%d%s")
        with open(s.path, "rb") as file:
            whole = file.readlines()
        self.assertEqual(got[-1]["events"], len(whole) - 1)
        self.assertEqual(got[-1]["sum"], hashlib.sha256(b"".join(whole[:-1])).hexdigest())

    def test_many_threads(self) -> None:
        s = self.make()
        gate = threading.Barrier(8)

        def transfer_worker() -> None:
            gate.wait()
            for _ in range(50):
                s.record("note", f'"text":{quoted(threading.get_ident())}')

        for _ in range(3):  # dead threads' ids come back
            threads = [threading.Thread(target=transfer_worker) for _ in range(8)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        named = threading.Thread(target=lambda: s.record("note", '"text":"x"'), name='a "b"')
        named.start()
        named.join()
        s.seal()
        last: dict[str, int] = {}
        count: dict[str, int] = {}
        who: dict[str, set[str]] = {}
        for e in lines(s):
            th = e.get("th", "main")
            self.assertGreaterEqual(e["t"], last.get(th, 0))
            last[th], count[th] = e["t"], count.get(th, 0) + 1
            who.setdefault(th, set()).add(e.get("text", ""))
        names = [th for th in count if th.startswith("transfer_worker-")]
        self.assertEqual(len(names), 24, "each thread has a name of its own, also after the first have ended")
        self.assertTrue(all(count[n] == 50 and len(who[n]) == 1 for n in names))
        self.assertIn("thread-25", count)

    def test_a_forked_child_writes_nothing(self) -> None:
        s = self.make()
        s.record("note", '"text":"before"')
        pid = os.fork()
        if pid == 0:
            s.record("note", '"text":"child"')
            s.record_lines(self.accesses(s)[0], "child")
            s.seal()
            os._exit(0)
        os.waitpid(pid, 0)
        s.seal()
        self.assertEqual([e["k"] for e in lines(s)][-2:], ["note", "seal"])
        self.assertNotIn("child", [e.get("text") for e in lines(s)])
        self.assertEqual([e for e in lines(s) if e["k"] == "begin"], [])

    def test_killed_in_the_middle(self) -> None:
        s = self.make("open")
        ready, told = os.pipe()
        pid = os.fork()
        if pid == 0:
            s._sealed = False  # what a fork drops, this test writes
            while True:
                s.record("note", '"text":"' + "x" * 100 + '"')
                os.write(told, b".")
        got = 0
        while got < 500:
            got += len(os.read(ready, 4096))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(told)
        while more := os.read(ready, 4096):
            got += len(more)
        os.close(ready)
        data = content(s.path)
        self.assertTrue(data.endswith(b"}\n"), "whole lines")
        events = [json.loads(line) for line in data.splitlines()]
        self.assertEqual([e["seq"] for e in events], list(range(len(events))))
        self.assertGreaterEqual(len(events), got + 1, "what was recorded is there")

    def test_a_child_has_no_source(self) -> None:
        s = self.make()
        pid = os.fork()
        if pid == 0:
            s.record("note", '"text":"child"')
            s.record_lines(self.accesses(s)[1], "f1")
            s.seal()
            os._exit(0)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        s.seal()
        self.assertEqual([e["k"] for e in lines(s)], ["source", "seal"])

    def test_a_write_does_not_wait_for_a_thread_that_is_busy(self) -> None:
        """The interpreter is not given up for a write: a thread of the engine that polls would
        keep it for as long as it may."""
        s = self.make()
        busy = True

        def spin() -> None:
            while busy:
                pass

        before = sys.getswitchinterval()
        other = threading.Thread(target=spin)
        other.start()
        sys.setswitchinterval(1)
        try:
            began = time.perf_counter()
            for _ in range(20):
                s.record("note", '"text":"x"')
            took = time.perf_counter() - began
        finally:
            sys.setswitchinterval(before)
            busy = False
            other.join()
        s.seal()
        self.assertLess(took, 10, "else each of the 20 takes a second")

    def test_a_source_is_new(self) -> None:
        s = self.make()
        s.seal()
        with self.assertRaises(FileExistsError):
            Spool(os.path.dirname(s.path), "prefill-0")

    def test_the_harness_hears_lines_as_they_are(self) -> None:
        heard: list[tuple[str, bytes]] = []
        s = Spool(keep(self, "good"), "prefill-0", lambda kind, line: heard.append((kind, line)))
        s.record("source", SOURCE)
        s.record("note", '"text":"x"')
        s.seal()
        with open(s.path, "rb") as file:
            self.assertEqual([line for _, line in heard], file.readlines())
        self.assertEqual([kind for kind, _ in heard], ["source", "note", "seal"])

    def test_ids_are_unique(self) -> None:
        s = self.make()
        s.seal()
        got: list[str] = []
        threads = [threading.Thread(target=lambda: got.extend(s.unique("a") for _ in range(200))) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(set(got)), 800)


class AppendedTest(Kept):
    mapped = False

    def accesses(self, s: Spool) -> tuple[Lines, Lines]:
        return SpoolTest.accesses(self, s)  # type: ignore[arg-type]

    def test_a_full_disk(self) -> None:
        """What could not be written is counted; a line that was cut short is taken back."""
        s = self.make("lost")
        s.record("note", '"text":"before"')
        real, room = spool._write, 0

        def write(fd: int, data: bytes) -> int:
            nonlocal room
            if room == 0:
                raise OSError(errno.ENOSPC, "no space left")
            n = real(fd, data[: min(room, 7)])
            room -= n
            return n

        with mock.patch.object(spool, "_write", write):
            for room in (0, 3, 40):
                s.record("note", '"text":"lost"')
            s.record_lines(self.accesses(s)[1], "f1")
            self.assertTrue(content(s.path).endswith(b'"before"'), "a torn line: the loss is seen even if nothing follows")
            self.assertEqual(s.open, -2, "what is in flight is known without the disk")
        s.record("note", '"text":"after"')
        s.seal()
        got = lines(s)
        self.assertEqual([e["k"] for e in got], ["source", "note", "lost", "note", "seal"])
        self.assertEqual(got[2]["count"], 5)
        self.assertEqual([e["seq"] for e in got], list(range(5)))

    def test_a_disk_that_stays_full(self) -> None:
        s = self.make("torn")
        s.record("note", '"text":"the last"')
        with mock.patch.object(spool, "_write", side_effect=OSError(errno.ENOSPC, "no space left")):
            s.record("note", '"text":"lost"')
            s.seal()
        with open(s.path, "rb") as file:
            self.assertFalse(file.read().endswith(b"\n"))

    def test_a_disk_that_fails_altogether(self) -> None:
        s = self.make("lost")
        real = spool._write
        with mock.patch.object(spool, "_write", lambda fd, data: real(fd, data[:5]) if len(data) > 20 else (_ for _ in ()).throw(OSError(errno.EIO, "io"))):
            with mock.patch.object(spool.os, "ftruncate", side_effect=OSError(errno.EIO, "io")):
                s.record("note", '"text":"0123456789"')
                s.record("note", '"text":"0123456789"')
        s.record("note", '"text":"after"')
        s.seal()
        self.assertEqual([e["k"] for e in lines(s)], ["source", "lost", "note", "seal"])

    def test_a_real_full_disk(self) -> None:
        """The system's own words: no space, a closed file, one that may not grow."""
        with open("/dev/full", "wb", buffering=0) as file:
            with self.assertRaises(OSError) as caught:
                spool._write(file.fileno(), b"x")
        self.assertEqual(caught.exception.errno, errno.ENOSPC)
        with self.assertRaises(OSError) as caught:
            spool._write(-1, b"x")
        self.assertEqual(caught.exception.errno, errno.EBADF)
        s = self.make("lost")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(s.path) + 50, limits[1]))
            s.record("note", '"text":"' + "x" * 100 + '"')
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, before)
        s.record("note", '"text":"after"')
        s.seal()
        self.assertEqual([e["k"] for e in lines(s)], ["source", "lost", "note", "seal"])


class MappedTest(SpoolTest):
    """What holds for the one kind holds for the other."""

    mapped = True

    def test_lines_longer_than_what_is_asked_for_at_once(self) -> None:
        s = self.make()
        with mock.patch.object(spool, "_CHUNK", 4096):
            for n in (10, 4096, 100, 20000, 1, 8192 - 60, 3):
                s.record("note", '"text":"' + "x" * n + '"')
        s.seal()
        self.assertEqual([len(e["text"]) for e in lines(s) if e["k"] == "note"], [10, 4096, 100, 20000, 1, 8192 - 60, 3])
        with open(s.path, "rb") as file:
            self.assertEqual(file.read()[-2:], b"}\n", "what was not used is given back")

    def test_at_every_place_of_a_page(self) -> None:
        s = self.make()
        with mock.patch.object(spool, "_CHUNK", 4096):
            for n in range(700):
                s.record("note", f'"text":"{n}"')
        s.seal()
        self.assertEqual([e["text"] for e in lines(s) if e["k"] == "note"], [str(n) for n in range(700)])

    def test_a_full_disk(self) -> None:
        """What found no room is counted, and the last line is torn until there is some again."""
        s = self.make("lost")
        full = OSError(errno.ENOSPC, "no space left")
        with mock.patch.object(spool, "_CHUNK", 4096):
            while s._file._end - s._file.size > 150:  # type: ignore[attr-defined]
                s.record("note", '"text":"before"')
            with mock.patch.object(spool, "_allocate", side_effect=full):
                for _ in range(3):
                    s.record("note", '"text":"' + "x" * 150 + '"')
                s.record_lines(self.accesses(s)[1], "f1")
                self.assertTrue(content(s.path).endswith(b'"before"'), "a torn line: the loss is seen even if nothing follows")
                self.assertEqual(s.open, -2, "what is in flight is known without the disk")
            s.record("note", '"text":"after"')
        s.seal()
        got = [e for e in lines(s) if e.get("text") != "before"]
        self.assertEqual([e["k"] for e in got], ["source", "lost", "note", "seal"])
        self.assertEqual(got[1]["count"], 5)
        self.assertEqual([e["seq"] for e in lines(s)], list(range(len(lines(s)))))

    def test_a_disk_that_stays_full(self) -> None:
        s = self.make("torn")
        with mock.patch.object(spool, "_CHUNK", 4096), mock.patch.object(spool, "_allocate", side_effect=OSError(errno.ENOSPC, "no space left")):
            s.record("note", '"text":"the last"')
            s._file._end = s._file.size  # type: ignore[attr-defined]
            s.record("note", '"text":"lost"')
            s.seal()
        with open(s.path, "rb") as file:
            self.assertFalse(file.read().endswith(b"\n"))

    def test_a_disk_that_was_always_full(self) -> None:
        with mock.patch.object(spool, "_allocate", side_effect=OSError(errno.ENOSPC, "no space left")):
            s = self.make("none")
            s.record("note", '"text":"x"')
            s.seal()
        self.assertEqual(content(s.path), b"")

    def test_a_real_limit(self) -> None:
        """The system's own word: a file that may not grow."""
        s = self.make("lost")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(s.path) + 50, limits[1]))
            s.record("note", '"text":"' + "x" * spool._CHUNK + '"')
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, before)
        s.record("note", '"text":"after"')
        s.seal()
        self.assertEqual([e["k"] for e in lines(s)], ["source", "lost", "note", "seal"])


class RoomTest(unittest.TestCase):
    def test_which_file_systems_keep_their_word(self) -> None:
        with tempfile.TemporaryFile(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as file:
            if os.path.isdir("/dev/shm"):
                self.assertTrue(spool._keeps_room(file.fileno()), "tmpfs does")
            with mock.patch.object(spool, "_KEEPING", frozenset()):
                self.assertFalse(spool._keeps_room(file.fileno()))
        self.assertFalse(spool._keeps_room(-1))


class CostTest(unittest.TestCase):
    def test_cost_of_an_event(self) -> None:
        """Not judged: the figure is for a person who looks at the test's output."""
        s = Spool(keep(self, "open"), "prefill-0")
        s.record("source", SOURCE)
        n = 2000
        began = time.perf_counter()
        for _ in range(n):
            s.record("note", '"text":"0123456789"')
        each = (time.perf_counter() - began) / n
        Pool(s, "kv", 64, 0, "kv").alloc(range(1, 21), Owner("r-0"))
        began = time.perf_counter()
        begins = Lines(s.src, "begin", [f'.{i}r","mode":"r","target":"prefill-0","pool":"kv","blocks":[[1,20]],"req":"r-{i:05d}"' for i in range(8)])
        for i in range(n):
            s.record_lines(begins, f"f{i}")
        print(f"\n  one event alone {each * 1e6:.1f} µs, in a batch of 8 {(time.perf_counter() - began) / n / 8 * 1e6:.1f} µs")
