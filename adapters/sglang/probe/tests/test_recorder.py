"""The recorder and its hooks, with stand-ins for the engine's objects."""

from __future__ import annotations

import json
import os
import random
import struct
import sys
import threading
import time
import types
import unittest
import unittest.mock
from types import SimpleNamespace
from typing import Any, Callable

import conform_sglang_probe
from conform_sglang_probe import recorder as module
from conform_probe.binding import Hook, _Once, bind
from conform_probe.spool import blocks
from conform_sglang_probe.hooks import Hooks
from conform_sglang_probe.recorder import RADIX, Recorder
from fakes import Tensor, config, recorder, request
from test_spool import keep


def events(r: Recorder) -> list[dict[str, Any]]:
    with open(r.spool.path, "rb") as file:  # zeros follow the last line until it is sealed
        return [json.loads(line) for line in file.read().partition(b"\0")[0].splitlines()]


def metadata(room: int, pages: list[int], aux: int) -> list[bytes]:
    return [str(room).encode(), b"127.0.0.1", b"1", b"session", struct.pack(f"<{len(pages)}i", *pages), str(aux).encode(), b"", b"1", b"0", b""]


class RecorderTest(unittest.TestCase):
    def make(self, word: str = "good", **more: Any) -> tuple[Recorder, Hooks]:
        r = recorder(folder=os.path.dirname(keep(self, word)), **more)
        return r, Hooks(lambda: r)

    def once(self, function: Callable[..., Any]) -> Any:
        self.errors: list[BaseException] = []
        return _Once(function, self.errors.append)

    def test_names_of_handoffs(self) -> None:
        r, _ = self.make()
        self.assertEqual((r.handoff(None), r.handoff(7), r.named(None)), ("", "room-7", ""))
        self.assertEqual(r.know(request("r-1", 7)).owner.handoff, "room-7")
        self.assertEqual(r.know(request("r-1", 7)).owner.handoff, "room-7", "known already")
        self.assertEqual(r.know(request("r-2", 7)).owner.handoff, "room-7#1")
        self.assertEqual(r.know(request("r-3", 0)).owner.handoff, "room-0")
        self.assertIsNone(r.of_room(None), "no room is not room 0")
        fill = request("f-1", 5)
        fill.bootstrap_host = "2.2.2.2"
        self.assertEqual(r.know(fill).owner.handoff, "")
        r.seal()

    def test_a_grant_for_each_use_of_a_key(self) -> None:
        r, _ = self.make(worker="decode-0", role="decode")
        for rid in ("r-1", "r-2"):
            owner = r.know(request(rid, 7)).owner
            r.pools["kv"].alloc([1, 2], owner)
            r.pools["aux"].alloc([0], owner)
            for _ in range(2):  # to each rank of prefill, or again
                r.sending(metadata(7, [1, 2], 0))
            r.pools["kv"].free([1, 2], "done")
            r.pools["aux"].free([0], "done")
        r.seal()
        got = events(r)
        self.assertEqual([(e["handoff"], e["pool"]) for e in got if e["k"] == "grant"],
                         [("room-7", "kv"), ("room-7", "aux"), ("room-7#1", "kv"), ("room-7#1", "aux")])
        sigs = [e["sig"] for e in got if e["k"] == "emit"]
        self.assertEqual(len(set(sigs)), 4)

    def test_both_sides_name_a_message_alike(self) -> None:
        p, _ = self.make()
        d = recorder(folder=os.path.dirname(os.path.dirname(p.spool.path)), worker="decode-0", role="decode", prefills={"1": "prefill-0"})
        for r in (p, d):
            r.know(request("r-1", 7))
        d.sending(metadata(7, [1], 0))
        p.received(metadata(7, [1], 0))
        d.sending([b"ABORT", b"7", b"ip", b"1", b"3"])
        p.received([b"ABORT", b"7", b"ip", b"9", b"3"])
        p.sending([b"ABORT_ACK", b"7", b"0", b"3"])
        d.received([b"ABORT_ACK", b"7", b"0", b"3"])
        p.sending([b"7", b"4", b"0"])
        d.received([b"7", b"4", b"0"])
        for r in (p, d):
            r.seal()
        sent = {e["sig"] for r in (p, d) for e in events(r) if e["k"] == "emit"}
        came = {e["sig"] for r in (p, d) for e in events(r) if e["k"] == "observe"}
        self.assertEqual(len(sent), 4)
        self.assertEqual(sent, came)

    def test_a_late_acknowledgement_is_about_the_use_that_it_answers(self) -> None:
        p, _ = self.make()
        d = recorder(folder=os.path.dirname(os.path.dirname(p.spool.path)), worker="decode-0", role="decode", prefills={"1": "prefill-0"})
        ack = [b"ABORT_ACK", b"7", b"0", b"3"]
        for rid in ("r-1", "r-2"):  # the room is used again before the acknowledgement comes, and comes again
            for r in (p, d):
                r.know(request(rid, 7))
            if rid == "r-1":
                d.sending([b"ABORT", b"7", b"ip", b"1", b"3"])
                p.received([b"ABORT", b"7", b"ip", b"9", b"3"])
        p.sending(ack)
        d.received(ack)
        d.received(ack)
        p.seal()
        d.seal()
        sent = [e for e in events(p) if e["k"] == "emit"]
        seen = [e for e in events(d) if e["k"] == "observe"]
        self.assertEqual([e["handoff"] for e in sent + seen], ["room-7"] * 3)
        self.assertEqual({e["sig"] for e in seen}, {sent[0]["sig"]})

    def test_an_abort_asks_where_an_answer_can_come(self) -> None:
        for connector, more, asks in (("mooncake", [], "ABORT_ACK"), ("mooncake", [b"3"], "ABORT_ACK"), ("nixl", [], None), ("nixl", [b"3"], "ABORT_ACK")):
            with self.subTest(connector=connector, generation=more):
                r, _ = self.make(f"good-{connector}{len(more)}", role="decode", worker="decode-0", connector=connector)
                r.sending([b"ABORT", b"7", b"ip", b"1", *more])
                r.seal()
                self.assertEqual([e.get("asks") for e in events(r) if e["k"] == "emit"], [asks])

    def test_a_release_without_its_acknowledgement_is_reported(self) -> None:
        for asked, acked, expires in ((True, False, 1), (True, True, 0), (False, False, 0)):
            with self.subTest(asked=asked, acked=acked):
                r, hooks = self.make(f"good-{asked}-{acked}", role="decode", worker="decode-0")
                r.know(request("r-1", 7))
                if asked:
                    r.sending([b"ABORT", b"7", b"ip", b"1", b"3"])
                if acked:
                    hooks.ack_noted(None, 7)
                    hooks.ack_checked(True, None, 7)
                hooks.do_release(self.once(lambda queue, item: None), None, SimpleNamespace(req=request("r-1", 7)))
                self.assertEqual(self.errors, [])
                r.seal()
                self.assertEqual([e["handoff"] for e in events(r) if e["k"] == "expire"], ["room-7"] * expires)

    def test_messages_that_are_none(self) -> None:
        r, h = self.make()
        for message in ([], [b"7"], [5, 1 << 60, b"x"], ["7", "4", "0"], [None] * 10, [b"ABORT", b"x"]):
            r.sending(message)  # type: ignore[arg-type]
            r.received(message)  # type: ignore[arg-type]
        h.zmq_send(None, b"one part")
        h.zmq_recv(None, None)
        r.seal()
        self.assertEqual({e["k"] for e in events(r)} & {"emit", "observe"}, set())

    def test_statuses_are_taken_in_once_by_each_thread(self) -> None:
        r, _ = self.make()
        r.know(request("r-1", 7))
        r.status(7, 1)
        r.status(7, 4)
        for _ in range(3):
            r.polled(7, 1)
            r.polled(7, 4)
        other = threading.Thread(target=lambda: r.polled(7, 4), name="Thread-1 (transfer_worker)")
        other.start()
        other.join()
        r.polled(8, 4)
        r.seal()
        self.assertEqual([(e.get("th", "main"), e["signal"]) for e in events(r) if e["k"] == "observe"],
                         [("main", "ROOM/Bootstrapping"), ("main", "ROOM/Success"), ("transfer_worker-1", "ROOM/Success")])

    def test_a_transfer(self) -> None:
        r, h = self.make()
        owner = r.know(request("r-1", 7)).owner
        r.pools["kv"].alloc([1, 2], owner)
        chunk = SimpleNamespace(room=7)
        h.queued(None, chunk)
        h.dequeued(chunk, None)
        function = self.once(lambda *args: 0)
        self.assertEqual(h.send_kv(function, None, "session", Tensor([1, 2]), [], Tensor([8, 9])), 0)

        def fails(*args: Any) -> int:
            raise OSError("the engine's own")

        with self.assertRaisesRegex(OSError, "own"):
            h.send_aux(self.once(fails), None, SimpleNamespace(mooncake_session_id="s", dst_aux_index=3), 0)
        r.sending([b"7", b"4", b"0"])
        r.pools["kv"].free([1, 2], "done")
        r.seal()
        got = events(r)
        ends = {e["access"]: e["ok"] for e in got if e["k"] == "end"}
        self.assertEqual(sorted(ends.values()), [False, False, True, True])
        success = [e for e in got if e.get("signal") == "STATUS/Success"]
        self.assertEqual(sorted(success[0]["access"]), sorted(ends))
        self.assertEqual([e["k"] for e in got if e["k"] in ("offer", "alloc", "free")], ["alloc", "offer", "free"])

    def test_nixl_ends_what_has_settled_and_no_more(self) -> None:
        r, h = self.make()
        r.know(request("r-1", 7))
        r.know(request("r-2", 8))
        for room, settled in ((7, None), (8, (True, False))):
            h.dequeued(SimpleNamespace(room=room), None)
            h.post_kv(self.once(lambda *args: object()), None, "agent", Tensor([1]), [], Tensor([2]))
            if settled is not None:  # the wait for room 7 raised
                h.settled(settled, None, [])
        r.seal()
        got = events(r)
        open_ = {e["access"] for e in got if e["k"] == "begin"} - {e["access"] for e in got if e["k"] == "end"}
        self.assertEqual({e["handoff"] for e in got if e.get("access") in open_}, {"room-7"})
        self.assertEqual(r.load()["open"], 2)

    def test_a_request_that_comes_back_has_other_pages(self) -> None:
        """Decode gives a request up and takes it in again: its passes are of its present pages."""
        r, h = self.make(worker="decode-0", role="decode")
        table = r.scheduler.req_to_token_pool.req_to_token
        req = request("r-1", 7, slot=1)
        batch = SimpleNamespace(forward_mode=SimpleNamespace(is_idle=bool, is_prebuilt=bool, is_extend=bool), reqs=[req], seq_lens_cpu=Tensor([20]), prefix_lens=None)
        table.rows[1] = [*range(16, 32), *range(48, 64)]
        r.pools["kv"].alloc([1, 3], r.know(req).owner)
        h.forward(self.once(lambda *args: None), r.scheduler, batch)
        h.released(self.once(lambda req: r.pools["kv"].free([1, 3], "preempt")), req)
        table.rows[1] = [*range(80, 96), *range(96, 112)]
        r.pools["kv"].alloc([5, 6], r.know(req).owner)
        h.forward(self.once(lambda *args: None), r.scheduler, batch)
        r.pools["kv"].free([5, 6], "done")
        r.seal()
        got = [(e["mode"], e["blocks"]) for e in events(r) if e["k"] == "begin"]
        self.assertEqual(got, [("r", [1, 3]), ("w", [3]), ("r", [[5, 6]]), ("w", [6])])

    def test_every_pass_touches_what_the_engines_table_says(self) -> None:
        """Requests grow, come, go and move between passes: each pass is recorded as if it were the first."""
        rng = random.Random(3)
        r, h = self.make("open", worker="decode-0", role="decode")
        h.r.scheduler.token_to_kv_pool_allocator.size = 1 << 14
        table, page, passes = r.scheduler.req_to_token_pool.req_to_token, 16, []
        mode = SimpleNamespace(is_idle=bool, is_prebuilt=bool, is_extend=bool)
        lengths: dict[int, int] = {}
        reqs = {i: request(f"r-{i}", i + 1, 40, slot=i) for i in range(6)}

        def settle(i: int) -> None:  # in pages of its own, which are others each time
            first = 1 + rng.randrange(50)
            table.rows[i] = [t for n in range(8) for t in range(16 * ((first + n) % 60), 16 * ((first + n) % 60) + 16)]

        for i in reqs:
            settle(i)
        for _ in range(400):
            if not lengths or rng.random() < 0.1:
                lengths[rng.randrange(6)] = rng.randrange(41, 60)
            for i in [i for i, n in lengths.items() if n > 100 or rng.random() < 0.02]:
                del lengths[i]
                h.released(self.once(lambda req: None), reqs[i])
                settle(i)
            if rng.random() < 0.05 and lengths:
                moved = rng.choice(sorted(lengths))
                settle(moved)
                h.cached(None, None, SimpleNamespace(rid=f"r-{moved}", req_pool_idx=moved, cache_protected_len=16, bootstrap_room=moved + 1))
            order = sorted(lengths, key=lambda i: rng.random() if rng.random() < 0.1 else i)
            if not order:
                continue
            batch = SimpleNamespace(forward_mode=mode, reqs=[reqs[i] for i in order], seq_lens_cpu=Tensor([lengths[i] for i in order]), prefix_lens=None)
            h.forward(self.once(lambda *args: None), r.scheduler, batch)
            passes.append([(f"r-{i}", mode, blocks([t // page for t in table.rows[i][: lengths[i] : page]][0 if mode == "r" else -1 :])) for i in order for mode in "rw"])
            for i in order:
                lengths[i] += 1
        got = events(r)
        begins = [e for e in got if e.get("via") == "forward"]
        self.assertEqual([(e["req"], e["mode"], json.dumps(e["blocks"], separators=(",", ":"))) for e in begins], [line for each in passes for line in each])
        ids = [e["access"] for e in begins]
        self.assertEqual(len(set(ids)), len(ids))
        self.assertEqual([e["access"] for e in got if e["k"] == "end"], ids)
        self.assertLess(h.looked, len(ids) / 8, "most passes are recorded from the lines of the one before")

    def test_new_pages_among_an_extends_tokens(self) -> None:
        """They are found by slices: as many, and the same, as a look at each token finds."""
        rng = random.Random(5)
        for case in range(200):
            r, h = self.make(f"none-{case}") if case == 0 else (r, h)
            got: list[tuple[str, list[int]]] = []
            reqs = [request(f"r-{case}-{i}", None) for i in range(rng.randrange(1, 4))]
            prefixes = [rng.choice([0, 16, 32, rng.randrange(60)]) for _ in reqs]
            lengths = [p + rng.randrange(1, 70) for p in prefixes]
            tokens, want, page = [], [], 1
            for req, prefix, length in zip(reqs, prefixes, lengths):
                start, fresh = 16 * page, []
                page += 6
                for at in range(prefix, length):
                    token = start + at - prefix // 16 * 16
                    if token % 16 == 0:
                        fresh.append(token // 16)
                    tokens.append(token)
                want += [(req.rid, fresh)] if fresh else []
            allocator = r.scheduler.token_to_kv_pool_allocator
            r.local.reqs = reqs
            with unittest.mock.patch.object(r.pools["kv"], "alloc", lambda pages, owner: got.append((owner.req, list(pages)))):
                h.kv_alloc_extend(Tensor(tokens), allocator, None, Tensor(prefixes), None, Tensor(lengths))
            self.assertEqual(got, want)

    def test_a_forward_pass_that_fails(self) -> None:
        r, h = self.make()
        batch = SimpleNamespace(forward_mode=SimpleNamespace(is_idle=bool, is_prebuilt=bool, is_extend=bool))

        def fails(*args: Any) -> None:
            raise ValueError("the engine's own")

        with self.assertRaisesRegex(ValueError, "own"):
            h.forward(self.once(fails), r.scheduler, batch)
        self.assertEqual([type(e) for e in self.errors], [AttributeError])
        r.seal()

    def test_no_words_of_a_client(self) -> None:
        r, h = self.make()
        h.refused(request("r-1", 7), "Bad grammar: 'the secret prompt'")
        h.refused(request("r-2"), ["the secret prompt"])
        h.r.state.failed("t", KeyError("the secret prompt"))
        r.seal()
        with open(r.spool.path, encoding="utf-8") as file:
            text = file.read()
        self.assertNotIn("secret", text)
        self.assertIn('"why":"Bad grammar"', text)
        folder = os.path.join(os.path.dirname(r.config.dir), "hooks")
        with open(os.path.join(folder, "prefill-0.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["errors"], {"t": "1 times, first KeyError"})

    def test_a_recorder_that_can_not_open(self) -> None:
        folder = keep(self, "none")
        probe = conform_sglang_probe._Probe(config(os.path.dirname(folder)))
        function = self.once(lambda s: "built")
        self.assertEqual(probe._scheduler(function, SimpleNamespace()), "built")
        self.assertIsNone(probe.recorder)
        self.assertEqual(len(self.errors), 1)
        with open(os.path.join(os.path.dirname(folder), "probe-prefill-0.error"), encoding="utf-8") as file:
            self.assertRegex(file.read(), "^[A-Za-z]+Error: ")

    def test_register_never_fails(self) -> None:
        for text in ("{", "[]", "{}", '{"dir":"/nowhere/events","worker":"w","role":"prefill","host":"","clock":"","engine":"x"}'):
            with unittest.mock.patch.dict(os.environ, {"CONFORM_PROBE": text}), unittest.mock.patch("sys.stderr"):
                conform_sglang_probe.register()


def resident() -> float:
    """MB of memory that this process has; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return round(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)
    except OSError:
        return 0.0


class MemoryTest(unittest.TestCase):
    def serve(self, r: Recorder, h: Hooks, i: int) -> None:
        """What one request makes a prefill worker do."""
        req = request(f"r-{i:06d}", i + 1)
        known = r.know(req)
        r.pools["kv"].alloc([1 + i % 60], known.owner)
        r.status(i + 1, 1)
        r.polled(i + 1, 1)
        r.received(metadata(i + 1, [1, 2], 0))
        chunk = SimpleNamespace(room=i + 1)
        h.queued(None, chunk)
        h.dequeued(chunk, None)
        h.send_kv(_Once(lambda *args: 0, print), None, "session", Tensor([1]), [], Tensor([2]))
        r.status(i + 1, 4)
        r.sending([str(i + 1).encode(), b"4", b"0"])
        r.polled(i + 1, 4)
        if i % 50 == 0:
            h.cancelled(None, SimpleNamespace(rid=req.rid, abort_all=False))
        if i % 100 != 7:  # some never end, as far as is seen
            known.finished = True
        r.pools["kv"].hold([1 + i % 60], RADIX)
        r.pools["kv"].drop([1 + i % 60], known.owner)
        r.pools["kv"].free([1 + i % 60], "done")
        fill = request(f"f-{i:06d}")
        r.know(fill).finished = True

    def test_what_has_ended_is_forgotten(self) -> None:
        r = recorder(folder=os.path.dirname(keep(self, "open")))
        h = Hooks(lambda: r)
        held = request("r-held", 1 << 50)
        r.pools["kv"].alloc([62], r.know(held).owner)
        sizes = []
        for i in range(20000):
            self.serve(r, h, i)
            if i % 5000 == 4999:
                sizes.append(resident())
        print("\n  MB resident after each 5000 requests:", sizes)
        self.assertLess(len(r.rooms), module.REMEMBERED + 1200)
        self.assertLess(len(r.known), 2 * module.REMEMBERED)
        self.assertEqual(r.posted, {})
        self.assertLess(len(r._order), module.REMEMBERED + 1200)
        self.assertEqual(r.known["r-held"].owner.handoff, f"room-{1 << 50}", "it holds a block")
        self.assertNotIn("r-000000", r.known)
        late = r.spool._seq
        r.sending([b"1", b"4", b"0"])  # of a room that is forgotten
        line = events(r)[late]
        self.assertIn("~", line["sig"], "its id is new: the old one is in the trace")


class Scheduler:
    """The engine's functions that are called in each pass of a decode worker, without what they do."""

    @staticmethod
    def alloc_for_decode(batch: Any, token_per_req: int) -> Any:
        return batch.slots

    def run_batch(self, batch: Any) -> None:
        pass

    def stream_output(self, reqs: Any) -> None:
        pass

    def decode(self, batch: Any) -> None:
        self.alloc_for_decode(batch, 1)
        self.run_batch(batch)
        self.stream_output(batch.reqs)


class CostTest(unittest.TestCase):
    def test_cost_of_a_pass(self) -> None:
        """Not judged: what the hooks add to each pass of a decode worker with three requests
        of 200 to 264 tokens is for a person who looks at the test's output."""
        r = recorder(folder=os.path.dirname(keep(self, "open")), worker="decode-0", role="decode")
        h = Hooks(lambda: r)
        s = r.scheduler
        reqs = [request(f"req-{i:03d}", i + 1, 200, slot=i) for i in range(3)]
        for i, req in enumerate(reqs):
            req.finished_output, req.finished_reason, req.stream = None, None, False
            s.req_to_token_pool.req_to_token.rows[i] = [t for p in range(20) for t in range(16 * (1 + 20 * i + p), 16 * (2 + 20 * i + p))]
            r.pools["kv"].alloc([1 + 20 * i + p for p in range(20)], r.know(req).owner)
        batch = SimpleNamespace(forward_mode=SimpleNamespace(is_idle=bool, is_prebuilt=bool, is_extend=bool), reqs=reqs, seq_lens_cpu=None, prefix_lens=None, slots=Tensor([33, 401, 803]))
        module = types.ModuleType("sglang.cost")
        module.Scheduler = Scheduler  # type: ignore[attr-defined]
        with unittest.mock.patch.dict(sys.modules, {"sglang.cost": module}):
            took = []
            for probed in (False, True):
                if probed:
                    state = bind([
                        Hook("sglang.cost:Scheduler.alloc_for_decode", after=h.decode_allocated),
                        Hook("sglang.cost:Scheduler.run_batch", around=h.forward),
                        Hook("sglang.cost:Scheduler.stream_output", around=h.streamed),
                    ], (0, 5, 23), lambda: True)
                engine = Scheduler()
                began = time.perf_counter()
                for n in range(6400):
                    batch.seq_lens_cpu = Tensor([200 + n % 64, 203 + n % 64, 210 + n % 64])
                    engine.decode(batch)
                took.append((time.perf_counter() - began) / 6400)
        self.assertEqual(state.errors, {})
        print(f"\n  a pass takes {(took[1] - took[0]) * 1e6:.1f} µs more")
