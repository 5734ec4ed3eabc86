"""The harness's end of the wire, against harnesses that make sense and that do not.

With CONFORM_TEST_FAILPOINT set, the harness's real server is asked too; its plan is that
of the Go test.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import unittest
from typing import Any, Callable

from conform_probe import failpoint
from conform_probe.failpoint import DROP, FAIL, FORWARD, Failpoint
from fakes import recorder, request

HELLO = b'{"protocol":"conform-failpoint/1","interests":[{"mode":"w"}],"events":["alloc"]}\n'


class Harness:
    """A server for one worker that says what a test wants it to say."""

    def __init__(self, hello: bytes = HELLO) -> None:
        self.hello = hello
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self.ready = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        self.conn, _ = self._listener.accept()
        self._listener.close()
        self.lines = self.conn.makefile("rb")
        self.greeting = json.loads(self.lines.readline())
        self.conn.sendall(self.hello)
        self.ready.set()

    def read(self) -> bytes:
        self.ready.wait(10)
        try:
            return self.lines.readline()
        except ConnectionError:  # the probe ended it with lines of ours unread
            return b""

    def send(self, data: bytes) -> None:
        self.ready.wait(10)
        try:
            self.conn.sendall(data)
        except ConnectionError:
            pass

    def die(self) -> None:
        self.ready.wait(10)
        try:
            self.conn.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the probe was first
        self.lines.close()
        self.conn.close()


def point(**more: Any) -> dict[str, Any]:
    return {"kind": "access", "name": "w", "pool": "kv", "handoff": "room-7", "blocks": [[1, 2]], **more}


class FailpointTest(unittest.TestCase):
    def client(self, harness: Harness, seal: Callable[[], None] = lambda: None, load: Callable[[], dict[str, int]] = lambda: {"leased": 0, "open": 0}) -> Failpoint:
        return Failpoint(harness.address, "prefill-0", seal, load)

    def asking(self, client: Failpoint) -> tuple[threading.Thread, list[int]]:
        answers: list[int] = []
        thread = threading.Thread(target=lambda: answers.append(client.ask(point())))
        thread.start()
        return thread, answers

    def released(self, thread: threading.Thread, answers: list[int]) -> None:
        thread.join(20)
        self.assertEqual(answers, [FORWARD], "a thread of the engine goes on")

    def test_questions_and_answers(self) -> None:
        h = Harness()
        client = self.client(h)
        thread, answers = self.asking(client)
        asked = h.read()
        self.assertEqual(asked[:1], b"Q")
        question = json.loads(asked[1:])
        self.assertEqual(question["p"]["blocks"], [[1, 2]])
        h.send(b"A" + json.dumps({"id": 99, "do": FAIL}).encode() + b"\n")  # nobody's
        h.send(b"A" + json.dumps({"id": question["id"], "do": FAIL}).encode() + b"\n")
        thread.join(20)
        self.assertEqual(answers, [FAIL])
        self.assertEqual(client._open, {})
        self.assertEqual(h.greeting, {"protocol": "conform-failpoint/1", "worker": "prefill-0", "seals": True})
        h.die()

    def test_what_no_rule_is_about_is_not_asked(self) -> None:
        h = Harness()
        client = self.client(h)
        self.assertEqual(client.ask(point(name="r")), FORWARD)
        self.assertTrue(client.hears("alloc", "begin") and client.hears("source") and not client.hears("begin"))
        client.tap("free", b"{}\n")
        client.tap("alloc", b"{1}\n")
        self.assertEqual(h.read(), b"T{1}\n")
        h.die()

    def test_the_harness_dies_in_mid_question(self) -> None:
        h = Harness()
        client = self.client(h)
        thread, answers = self.asking(client)
        h.read()
        h.die()
        self.released(thread, answers)
        self.assertEqual(client.ask(point()), FORWARD)
        client.tap("alloc", b"{}\n")
        self.assertEqual(len(client._queue), 0, "nothing is kept for nobody")

    def test_garbage(self) -> None:
        for garbage in (b"A[]\n", b"A{\n", b'A{"id":[]}\n', b"nonsense\n", b"\n", b"A" + b"x" * (1 << 20) + b"\n", b"\xff\xfe\n"):
            h = Harness()
            client = self.client(h)
            thread, answers = self.asking(client)
            h.read()
            h.send(garbage)
            self.released(thread, answers)
            self.assertEqual(h.read(), b"", "the connection has ended")
            h.die()

    def test_hooks_of_it_that_fail(self) -> None:
        def fails() -> Any:
            raise RuntimeError("no")

        for letter in (b"S\n", b"I\n"):
            h = Harness()
            client = self.client(h, fails, fails)
            thread, answers = self.asking(client)
            h.read()
            h.send(letter)
            self.released(thread, answers)
            h.die()

    def test_other_protocols(self) -> None:
        for hello in (b'{"protocol":"x"}\n', b"[]\n", b"\n", b"{\n", b"1\n", b"null\n"):
            h = Harness(hello)
            with self.assertRaises(ValueError):
                self.client(h)
            self.assertEqual(h.read(), b"")
            h.die()

    def test_nobody_there(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as gone:
            address = "127.0.0.1:%d" % gone.getsockname()[1]
        with self.assertRaises(OSError):
            Failpoint(address, "prefill-0", lambda: None, dict)

    def test_a_harness_that_does_not_read(self) -> None:
        """Taps never wait: what there is no room for is counted, and told."""
        h = Harness()
        client = self.client(h)
        line = b'{"x":"' + b"y" * 8000 + b'"}\n'
        n = failpoint._MAX_QUEUE + 4000
        for _ in range(n):
            client.tap("alloc", line)
        client.tap("alloc", b"z" * (1 << 20) + b"\n")
        came = lost = 0
        while len(client._queue) > 0:  # the sender is at work, for us to read
            came, lost = self.count(h.read(), came, lost)
        client.tap("alloc", b"last\n")  # the last count goes with a later line
        while (got := h.read()) != b"Tlast\n":
            came, lost = self.count(got, came, lost)
        self.assertEqual(came + lost, n + 1)
        self.assertEqual(lost, client._dropped)
        self.assertGreater(lost, 1)
        h.die()

    def count(self, got: bytes, came: int, lost: int) -> tuple[int, int]:
        if got[:1] == b"L":
            return came, lost + int(got[1:])
        self.assertEqual(got[:8], b'T{"x":"y')
        return came + 1, lost

    def test_seal_and_load(self) -> None:
        h = Harness()
        sealed = threading.Event()
        self.client(h, sealed.set, lambda: {"leased": 3, "open": 1})
        h.send(b"I\nS\n")
        self.assertEqual(json.loads(h.read()[1:]), {"leased": 3, "open": 1})
        self.assertEqual(h.read(), b"D\n")
        self.assertTrue(sealed.is_set())
        h.die()


@unittest.skipUnless(os.environ.get("CONFORM_TEST_FAILPOINT"), "the Go test starts the server")
class RealServerTest(unittest.TestCase):
    """One worker's whole life: the Go test asks and judges at the other end."""

    def test_a_life(self) -> None:
        base = os.environ["CONFORM_TEST_DIR"]
        r = recorder(folder=os.path.join(base, "good-life"), failpoint=os.environ["CONFORM_TEST_FAILPOINT"])
        assert r.failpoint is not None
        owner = r.know(request("r-1", 7)).owner
        self.assertEqual(r.ask("w", "kv", 7, [1, 2, 5], "decode-0", "a1"), FAIL, "the first of room-7")
        self.assertEqual(r.ask("w", "kv", 7, [1], "decode-0", "a2"), FORWARD)
        self.assertEqual(r.ask("r", "kv", 7, [1], "decode-0", "a3"), FORWARD, "no rule is about it")
        self.assertEqual(r.ask("w", "aux", 7, [1], "decode-0", "a4"), DROP)
        held: list[int] = []
        thread = threading.Thread(target=lambda: held.append(r.ask("w", "kv", 9, [3], "prefill-0", "a5")))
        thread.start()
        self.assertEqual(os.read(0, 1), b"1", "the Go test has seen it held")
        r.pools["kv"].alloc([2], owner)  # another block
        self.assertEqual(held, [])
        r.pools["kv"].alloc([3], owner)
        thread.join(20)
        self.assertEqual(held, [FORWARD])
        os.write(1, b"held\n")
        self.assertEqual(os.read(0, 1), b"2", "the Go test has asked what is in flight")
        r.pools["kv"].free([2, 3], "done")
        os.write(1, b"freed\n")
        self.assertEqual(os.read(0, 1), b"3", "and has sealed the source")
        r.spool.record("note", '"text":"too late"')
        thread = threading.Thread(target=lambda: held.append(r.ask("w", "kv", 11, [3], "decode-0", "a6")))
        thread.start()
        thread.join(60)  # held until the server closes
        self.assertEqual(held, [FORWARD, FORWARD])
