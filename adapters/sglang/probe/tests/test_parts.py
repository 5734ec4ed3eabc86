"""Ledger, frames, content and configuration."""

from __future__ import annotations

import ctypes
import json
import os
import random
import struct
import sys
import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

from conform_sglang_probe import config, cpu, frames
from conform_sglang_probe.content import Pages
from conform_sglang_probe.hooks import harmless
from conform_sglang_probe.recorder import RADIX
from conform_probe import part
from conform_probe.ledger import Owner, Pool

ONE, TWO = Owner("r-1", "r-1", "room-7"), Owner("r-2", "r-2")
CAPTURED = os.path.join(os.path.dirname(__file__), "..", "..", "wire", "testdata", "captured.jsonl")


class Lines:
    """A spool that keeps what it is given."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def record(self, kind: str, body: str = "") -> None:
        self.events.append((kind, json.loads("{" + body + "}")))

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        taken, self.events = self.events, []
        return taken


class LedgerTest(unittest.TestCase):
    def setUp(self) -> None:
        self.lines = Lines()
        self.pool = Pool(self.lines, "kv", 16, 0, "kv", RADIX)  # type: ignore[arg-type]
        self.lines.take()

    def test_a_lease(self) -> None:
        self.pool.alloc([1, 2, 3], ONE)
        self.pool.hold([2, 3, 9], RADIX)
        self.pool.drop([1, 2, 3, 9], ONE)
        self.assertEqual(self.pool.held_by("radix"), [2, 3])
        self.assertFalse(self.pool.holds("r-1"))
        self.pool.free([1, 2, 3], "done", "sig-1")
        self.assertEqual(self.lines.take(), [
            ("alloc", {"pool": "kv", "blocks": [[1, 3]], "holder": "r-1", "req": "r-1", "handoff": "room-7"}),
            ("hold", {"pool": "kv", "blocks": [[2, 3]], "holder": "radix"}),
            ("drop", {"pool": "kv", "blocks": [[1, 3]], "holder": "r-1", "req": "r-1", "handoff": "room-7"}),
            ("free", {"pool": "kv", "blocks": [1], "why": "done", "by": "sig-1"}),
            ("free", {"pool": "kv", "blocks": [[2, 3]], "holder": "radix", "why": "evict", "by": "sig-1"}),
        ])
        self.assertEqual(self.pool.holders, {})

    def test_each_event_speaks_for_one_holder(self) -> None:
        self.pool.alloc([1, 5], ONE)
        self.pool.alloc([2], TWO)
        self.lines.take()
        self.pool.free([5, 2, 1], "cancel")
        self.assertEqual([(e["holder"], e["blocks"]) for _, e in self.lines.take()], [("r-1", [1, 5]), ("r-2", [2])])

    def test_defects_are_recorded_not_hidden(self) -> None:
        self.pool.alloc([1], ONE)
        self.pool.alloc([1], TWO)  # while it is leased
        self.assertFalse(self.pool.holds("r-1"))
        self.pool.free([1], "done")
        self.pool.free([1], "done")  # twice
        self.pool.free([4, 4], "done")  # never leased, and twice
        got = self.lines.take()
        self.assertEqual([k for k, _ in got], ["alloc", "alloc", "free", "free", "free"])
        self.assertNotIn("holder", got[3][1])

    def test_blocks_that_there_are_not(self) -> None:
        self.pool.alloc([-1, 16, 99], ONE)
        self.pool.hold([-1, 99, 3], ONE)
        self.pool.drop([-1, 99, 3], ONE)
        self.pool.free([-1, 99], "done")
        self.assertEqual(self.lines.take(), [])

    def test_the_index_is_the_ledger(self) -> None:
        rng = random.Random(3)
        owners = [ONE, TWO, RADIX]
        for _ in range(2000):
            numbers = [rng.randrange(16) for _ in range(rng.randrange(5))]
            step = rng.choice([self.pool.alloc, self.pool.hold, self.pool.drop, None])
            if step is None:
                self.pool.free(numbers, "done")
            else:
                step(numbers, rng.choice(owners))
            for owner in owners:
                linear = sorted(n for n, held in self.pool.holders.items() if owner.holder in held)
                self.assertEqual(self.pool.held_by(owner.holder), linear)
                self.assertEqual(self.pool.holds(owner.holder), bool(linear))


class FramesTest(unittest.TestCase):
    def corpus(self) -> list[dict[str, Any]]:
        with open(CAPTURED, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def test_real_messages(self) -> None:
        """The same as package wire says: its test judges the same file."""
        kinds = set()
        for c in self.corpus():
            m = frames.parse([bytes.fromhex(f) for f in c["Frames"]])
            if not c["Signal"].startswith(("METADATA", "ABORT", "STATUS")) or c["Signal"].endswith("/dummy"):
                self.assertIsNone(m, c)
                continue
            assert m is not None, c
            kinds.add(m.signal)
            self.assertEqual(m.signal, c["Signal"])
            self.assertEqual(m.to_decode, c["Direction"] == "prefill->decode")
            sig = [m.signal, str(m.room), *([str(m.rank)] if m.rank >= 0 else []), *([m.generation] if m.generation else [])]
            self.assertEqual(":".join(sig), c["Sig"])
            self.assertEqual(m.pages or None, c["Pages"])
        self.assertGreaterEqual(len(kinds), 5, kinds)

    def test_what_is_no_message(self) -> None:
        pages = struct.pack("<2i", 1, 2)
        good = [b"7", b"ip", b"1", b"session", pages, b"0", b"", b"1", b"0", b""]
        self.assertIsNotNone(frames.parse(good))
        nixl = [b"NixlMsgGuard", b"7", b"ip", b"1", b"agent", b"", b"5", b"1", b"", b"0", b"1"]
        self.assertIsNone(frames.parse(nixl), "a dummy rank grants nothing, its slot neither")
        self.assertIsNotNone(frames.parse([*nixl[:-1], b"0"]))
        for bad in (
            [], [b"x"], [b"", b""], [b"7", b"9x", b"0"], [b"7", b"4", b"-1"], [b"7", b" 4", b"0"], [b"99999999999999999999", b"4", b"0"],
            [b"ABORT", b"room"], [b"ABORT_ACK", b"7", b"1_0"], [b"ABORT_ACK", "٣".encode(), b"0"], [b"ABORT", b"7", b"ip", b"1", b"x"],
            [*good[:4], pages[:-1], *good[5:]], [*good[:5], b"x", *good[6:]], good[:9], [b"NixlMsgGuard", b"None", *good],
        ):
            self.assertIsNone(frames.parse(bad), bad)
        status = frames.parse([b"7", b"9", b"0"])
        assert status is not None
        self.assertEqual((status.signal, status.claims), ("STATUS/9", ""))

    def test_mutations_never_raise(self) -> None:
        rng = random.Random(7)
        corpus = [[bytes.fromhex(f) for f in c["Frames"]] for c in self.corpus()]
        for _ in range(20000):
            message = list(rng.choice(corpus))
            for _ in range(rng.randrange(1, 4)):
                i = rng.randrange(len(message)) if message else 0
                what = rng.randrange(5)
                if what == 0 and message:
                    del message[i]
                elif what == 1:
                    message.insert(i, rng.choice(rng.choice(corpus)))
                elif what == 2 and message:
                    message[i] = bytes(rng.randrange(256) for _ in range(rng.randrange(9)))
                elif what == 3 and message:
                    message[i] = message[i][: rng.randrange(len(message[i]) + 1)]
                elif message:
                    message[i] += rng.choice([b"\xff", b"0", b"-", b" "])
            frames.parse(message)


class ContentTest(unittest.TestCase):
    def test_digests_are_of_the_bytes(self) -> None:
        regions = [ctypes.create_string_buffer(bytes(range(64)), 64), ctypes.create_string_buffer(b"k" * 32, 32)]
        args = SimpleNamespace(kv_data_ptrs=[ctypes.addressof(r) for r in regions], kv_item_lens=[16, 8], kv_data_lens=[64, 32])
        pages = Pages(args)
        self.assertEqual((pages.page_bytes, pages.count), (24, 4))
        before = [pages.digest(i) for i in range(4)]
        self.assertEqual(len(set(before)), 4)
        regions[1][31] = b"x"
        after = [pages.digest(i) for i in range(4)]
        self.assertEqual(before[:3], after[:3])
        self.assertNotEqual(before[3], after[3])
        for beyond in (-1, 4, 1 << 40):
            with self.assertRaises(IndexError):
                pages.digest(beyond)
        self.assertEqual(Pages(SimpleNamespace(kv_data_ptrs=[], kv_item_lens=[], kv_data_lens=[])).count, 0)


class ConfigTest(unittest.TestCase):
    def load(self, text: str) -> config.Config | None:
        with mock.patch.dict(os.environ, {part.VARIABLE: text}):
            return part.load(config.Config)

    def test_fields(self) -> None:
        c = self.load(json.dumps({
            "dir": "/run/events", "worker": "decode-0", "role": "decode", "host": "h", "clock": "c", "engine": "sglang@0.5.20.post1",
            "failpoint": "", "prefills": {"1": "prefill-0"}, "later": 1,
        }))
        assert c is not None
        self.assertEqual((c.version, c.connector, c.prefills), ((0, 5, 20), "mooncake", {"1": "prefill-0"}))

    def test_not_probed(self) -> None:
        self.assertIsNone(self.load(""))
        with mock.patch.dict(os.environ):
            os.environ.pop(part.VARIABLE, None)
            self.assertIsNone(part.load(config.Config))

    def test_nonsense(self) -> None:
        for text in ("{", "[]", "{}", "null"):
            with self.assertRaises((ValueError, TypeError, AttributeError)):
                self.load(text)


class HarmlessTest(unittest.TestCase):
    def test_no_words_of_a_client(self) -> None:
        self.assertEqual(harmless("Input length (400 tokens) exceeds the maximum (256)."), "Input length (400 tokens) exceeds the maximum (256).")
        self.assertEqual(harmless("Failed to compile: 'my secret'"), "Failed to compile")
        self.assertEqual(harmless("Bad ids [4711, 4712]"), "Bad ids")
        self.assertEqual(harmless("x" * 500), "x" * 120)
        self.assertEqual(harmless('"'), "")


class ProgressTest(unittest.TestCase):
    def test_nixl_sleeps_while_nothing_arrives(self) -> None:
        made: list[tuple[str, int]] = []
        bindings = SimpleNamespace(nixlAgent=lambda name, config: made.append((name, config.pthrDelay)))
        with mock.patch.dict(sys.modules, {"nixl._bindings": bindings}):
            self.assertIn("nixl_progress", cpu.apply())
        bindings.nixlAgent("a", SimpleNamespace(pthrDelay=0))
        self.assertEqual(made, [("a", 1000)])

    def test_without_nixl_there_is_nothing_to_do(self) -> None:
        self.assertNotIn("nixl_progress", cpu.apply())
