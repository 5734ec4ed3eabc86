"""What the hooks make of an engine's calls, on stand-ins for its objects."""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import tempfile
import threading
import time
import unittest
from types import SimpleNamespace
from typing import Any

from conform_probe.binding import Bound, Hook, bind
from conform_probe.failpoint import DROP, DUPLICATE, FAIL, FORWARD
from conform_probe.ledger import Pool
from conform_vllm_probe.agent import Agent
from conform_vllm_probe.bindings import hooks
from conform_vllm_probe.config import Config
from conform_vllm_probe.hooks import Hooks, flat
from conform_vllm_probe.passes import Passes
from conform_vllm_probe.recorder import REMEMBERED, Read, Recorder, client_id, handoff_of


def recorder(role: str, source: str = "") -> Recorder:
    folder = tempfile.mkdtemp(prefix="good-", dir=os.environ.get("CONFORM_TEST_DIR"))
    events = os.path.join(folder, "events")
    os.makedirs(events)
    worker = role + "-0"
    return Recorder(Config(events, worker, role, "h", "c", "vllm@0.32.0"), source or worker, Bound())


def told(r: Recorder) -> list[dict[str, Any]]:
    r.seal()
    with open(r.spool.path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def kinds(events: list[dict[str, Any]], *wanted: str) -> list[dict[str, Any]]:
    return [e for e in events if e["k"] in wanted]


def block(number: int, count: int = 1, null: bool = False) -> Any:
    return SimpleNamespace(block_id=number, ref_cnt=count, is_null=null)


def request(name: str, status: str = "RUNNING", **params: Any) -> Any:
    return SimpleNamespace(request_id=f"cmpl-{name}-0-abcd1234", num_prompt_tokens=40, kv_transfer_params=params or None,
                           status=SimpleNamespace(name=status), is_finished=lambda: status.startswith("FINISHED"))


def once(function: Any = lambda *a, **k: None) -> Any:
    """The engine's function as a hook gets it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    call.guard = lambda step, otherwise=None: step()  # type: ignore[attr-defined]
    return call


class NamesTest(unittest.TestCase):
    def test_clients_names(self) -> None:
        for engine, client in {"cmpl-r-0001-0-abcd1234": "r-0001", "cmpl-r-0000-0": "r-0000", "r-0001": "r-0001", "cmpl-b-0a-0-0": "b-0a-0"}.items():
            self.assertEqual(client_id(engine), client)
        self.assertEqual(handoff_of("cmpl-r-0001-0-abcd1234"), "kv-r-0001")

    def test_blocks_of_each_version(self) -> None:
        self.assertEqual(flat([1, 2]), [1, 2])
        self.assertEqual(flat([[1, 2], [3]]), [1, 2, 3])
        self.assertEqual(flat(None), [])


class CoreTest(unittest.TestCase):
    """EngineCore of prefill."""

    def setUp(self) -> None:
        self.r = recorder("prefill")
        self.h = Hooks(lambda: self.r, self.r.config)
        pool = SimpleNamespace(num_gpu_blocks=16)
        self.h.opened(None, SimpleNamespace(kv_cache_manager=SimpleNamespace(block_pool=pool), max_model_len=512))

    def lease(self, q: Any, *numbers: int) -> None:
        self.h.for_request(once(lambda *a: self.h.allocated([block(n) for n in numbers], None)), None, q)

    def free(self, q: Any, *blocks: Any) -> None:
        self.h.for_request(once(lambda *a: self.h.freed(once(), None, iter(blocks))), None, q)

    def test_a_handoff_is_granted_and_its_blocks_come_back(self) -> None:
        q = request("r-0001", do_remote_decode=True)
        self.h.added(None, q)
        self.lease(q, 3, 4)
        q.status.name = "FINISHED_LENGTH_CAPPED"
        self.h.finished(None, q)
        self.h.finished(None, q)
        self.h.offered((True, {"remote_block_ids": [[3, 4, 9]]}), None, q)
        self.h.told(None, SimpleNamespace(finished_recving=None, finished_sending={q.request_id}))
        self.free(q, block(4), block(3))
        events = told(self.r)
        self.assertEqual([e["k"] for e in events], ["source", "pool", "capacity", "admit", "alloc", "finish", "offer", "grant", "emit", "observe", "free", "seal"])
        grant = kinds(events, "grant")[0]
        self.assertEqual((grant["blocks"], grant["mode"], grant["to"], grant["handoff"]), ([[3, 4]], "r", "*", "kv-r-0001"))
        self.assertEqual(kinds(events, "emit")[0]["sig"], "HANDOFF:kv-r-0001")
        self.assertEqual(kinds(events, "finish")[0]["outcome"], "length")
        self.assertEqual((kinds(events, "free")[0]["holder"], kinds(events, "free")[0]["why"]), ("r-0001", "done"))

    def test_without_a_delay_nothing_is_granted(self) -> None:
        self.h.offered((False, None), None, request("r-0001", do_remote_decode=True))
        self.assertEqual(kinds(told(self.r), "grant", "offer", "emit"), [])

    def test_cached_blocks_are_joined_or_leased_anew(self) -> None:
        one, two = request("r-0001"), request("r-0002")
        self.lease(one, 3, 4)
        shared, cached = block(3, 1), block(7, 0)

        def touch(pool: Any, blocks: Any) -> None:
            for b in blocks:
                b.ref_cnt += 1

        self.h.for_request(once(lambda *a: self.h.touched(once(touch), None, [shared, cached, block(0, 0, True)])), None, two)
        self.free(one, block(4), shared)
        shared.ref_cnt = 1
        self.free(two, cached, shared)
        got = [(e["k"], e["holder"], e["blocks"]) for e in kinds(told(self.r), "alloc", "hold", "drop", "free")]
        self.assertEqual(got, [
            ("alloc", "r-0001", [[3, 4]]), ("alloc", "r-0002", [7]), ("hold", "r-0002", [3]),
            ("drop", "r-0001", [3]), ("free", "r-0001", [4]), ("free", "r-0002", [3, 7]),
        ])

    def test_why_blocks_come_back(self) -> None:
        gone, pushed = request("r-0001"), request("r-0002")
        for q, n in ((gone, 1), (pushed, 2)):
            self.h.added(None, q)
            self.lease(q, n)
        aborted = SimpleNamespace(name="FINISHED_ABORTED")
        table = SimpleNamespace(requests={gone.request_id: gone})
        self.h.cancelled(table, [gone.request_id, "unknown"], aborted)
        self.h.cancelled(table, gone.request_id, aborted)
        self.free(gone, block(1))
        self.h.preempted(once(lambda s, q: self.free(q, block(2))), None, pushed)
        events = told(self.r)
        self.assertEqual(len(kinds(events, "cancel")), 1)
        self.assertEqual([e["why"] for e in kinds(events, "free")], ["cancel", "preempt"])

    def test_requests_are_forgotten(self) -> None:
        for i in range(REMEMBERED + 50):
            self.r.know(request(f"r-{i:05d}")).finished = True
        self.assertLessEqual(len(self.r.known), REMEMBERED)


class FakeNIXL:
    name = "agent-of-decode"

    def __init__(self) -> None:
        self.state = "PROC"
        self.notifs: dict[str, list[bytes]] = {}
        self.calls: list[str] = []

    def make_prepped_xfer(self, *args: Any, **kwargs: Any) -> int:
        return 77

    def transfer(self, handle: int) -> str:
        self.calls.append("transfer")
        return self.state

    def release_xfer_handle(self, handle: int) -> None:
        self.calls.append("release")

    def send_notif(self, agent: str, notif_msg: bytes = b"") -> None:
        self.calls.append("notif")

    def check_xfer_state(self, handle: int) -> str:
        return self.state

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        found, self.notifs = self.notifs, {}
        return found


class FakePlan:
    """A plan that holds each of some points until it is answered."""

    def __init__(self, *points: str) -> None:
        self._answers = {p: threading.Event() for p in points}
        self._asked = {p: threading.Event() for p in points}
        self._given: dict[str, int] = {}

    def wants(self, name: str, pool: str) -> bool:
        return name in self._answers

    def ask(self, point: dict[str, Any]) -> int:
        self._asked[point["name"]].set()
        self._answers[point["name"]].wait(10)
        return self._given[point["name"]]

    def asked(self, name: str) -> None:
        assert self._asked[name].wait(10)

    def answer(self, name: str, answer: int) -> None:
        self._given[name] = answer
        self._answers[name].set()

    def tap(self, kind: str, line: bytes) -> None:
        pass


def until(ask: Any, wanted: Any) -> Any:
    """Asks until the answer is wanted; without one, for a moment."""
    end = time.monotonic() + (10 if wanted is not None else 0.1)
    while (got := ask()) != wanted and time.monotonic() < end:
        time.sleep(0.005)
    return got


def step(new: list[Any], cached: list[Any], scheduled: dict[str, int]) -> Any:
    """What a scheduler hands to the model."""
    return SimpleNamespace(
        scheduled_new_reqs=[SimpleNamespace(req_id=n, block_ids=(b,), num_computed_tokens=c, prompt_token_ids=[0] * p) for n, b, c, p in new],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=[n for n, _, _ in cached], new_block_ids=[b for _, b, _ in cached], num_computed_tokens=[c for _, _, c in cached], resumed_req_ids=set()),
        num_scheduled_tokens=scheduled, finished_req_ids=set())


class WorkerTest(unittest.TestCase):
    """The model's process."""

    def worker(self, role: str) -> None:
        self.r = recorder(role, role + "-0.model")
        for owner, count in (("prefill", 32), ("decode", 16)):  # the pools are declared by the EngineCore of each
            core = Recorder(dataclasses.replace(self.r.config, worker=owner + "-0", role=owner), owner + "-0", Bound())
            Pool(core.spool, "kv", count, 0, "kv")
            core.seal()
        self.h = Hooks(lambda: self.r, self.r.config)
        self.nixl = FakeNIXL()
        self.w = SimpleNamespace(nixl_wrapper=self.nixl, engine_id="decode-0", dst_num_blocks={"decode-0": 16, "prefill-0": 32})
        self.h.worker_made(None, self.w)

    def test_a_read_is_two_accesses_and_a_word(self) -> None:
        self.worker("decode")
        name, there = "cmpl-r-0001-0-0000aaaa", "cmpl-r-0009-0-0000bbbb"
        self.h.loading(self.w, SimpleNamespace(reqs_to_recv={name: SimpleNamespace(remote=SimpleNamespace(request_id=there))}))
        self.r.local.read = Read("prefill-0", name, there, [2, 3], 0)
        handle = self.w.nixl_wrapper.make_prepped_xfer("READ", 1, [2, 3, 18, 19], 2, [5, 6, 37, 38], notif_msg=b"x")
        self.w.nixl_wrapper.transfer(handle)
        self.assertEqual(self.w.nixl_wrapper.check_xfer_state(handle), "PROC")
        self.assertEqual(self.r.load(), {"leased": 0, "open": 2})
        self.nixl.state = "DONE"
        self.assertEqual(self.w.nixl_wrapper.check_xfer_state(handle), "DONE")
        self.w.nixl_wrapper.check_xfer_state(handle)
        self.h.results(({}, {name}), self.w)
        events = told(self.r)
        self.assertEqual([(e["mode"], e["target"], e["blocks"], e["handoff"]) for e in kinds(events, "begin")],
                         [("r", "prefill-0", [[5, 6]], "kv-r-0009"), ("w", "decode-0", [[2, 3]], "kv-r-0009")])
        ends = kinds(events, "end")
        self.assertEqual([(e["ok"], e["th"]) for e in ends], [(True, "nixl-1")] * 2)
        self.assertTrue(all(e["t"] <= e["t2"] for e in ends), "at some moment since the post")
        self.assertEqual([(e["signal"], e.get("claims", "")) for e in kinds(events, "emit")],
                         [("READ_DONE", "completed"), ("XFER_STATE", "completed"), ("RECV", "completed")])
        self.assertEqual(kinds(events, "emit")[0]["access"], [kinds(events, "begin")[0]["access"]])

    def test_a_read_that_fails_tells_nobody_that_it_read(self) -> None:
        self.worker("decode")
        self.r.local.read = Read("prefill-0", "cmpl-r-0001-0-0000aaaa", "cmpl-r-0001-0-0000bbbb", [2], 0)
        handle = self.w.nixl_wrapper.make_prepped_xfer("READ", 1, [2], 2, [5])
        self.w.nixl_wrapper.transfer(handle)
        self.nixl.state = "ERR"
        self.w.nixl_wrapper.check_xfer_state(handle)
        self.h.results(SimpleNamespace(finished_sending=set(), finished_recving={"x"}, failed_recving={"x"}), self.w)
        events = told(self.r)
        self.assertEqual([e["ok"] for e in kinds(events, "end")], [False, False])
        self.assertEqual([(e["signal"], e.get("claims", "")) for e in kinds(events, "emit")], [("XFER_STATE", "completed"), ("RECV", "")])

    def test_what_the_prefix_cache_had_is_told_without_a_read(self) -> None:
        self.worker("decode")
        self.w.nixl_wrapper.send_notif("agent", notif_msg=b"cmpl-r-0001-0-0000aaaa:1")
        self.w.nixl_wrapper.send_notif("agent", notif_msg=b"HB:cmpl-r-0002-0-0000aaaa")
        self.assertEqual(self.nixl.calls, ["notif", "notif"])
        self.assertEqual([(e["sig"], e.get("claims", "")) for e in kinds(told(self.r), "emit")],
                         [("READ_DONE:kv-r-0001:agent-of-decode", "completed"), ("HEARTBEAT:kv-r-0002:agent-of-decode", "")])

    def test_a_plan_holds_a_read_when_it_is_posted_and_when_it_is_done(self) -> None:
        self.worker("decode")
        plan = FakePlan("r", "r.done")
        self.r.failpoint = plan  # type: ignore[assignment]
        agent = self.w.nixl_wrapper
        self.r.local.read = Read("prefill-0", "cmpl-r-0001-0-0000aaaa", "cmpl-r-0001-0-0000aaaa", [2], 0)
        handle = agent.make_prepped_xfer("READ", 1, [2], 2, [5])
        self.nixl.state = "DONE"
        seen = []
        self.assertEqual(agent.transfer(handle), "PROC")
        for point in ("r", "r.done"):
            plan.asked(point)
            seen.append((point, self.r.spool.open, list(self.nixl.calls)))
            self.assertEqual(agent.check_xfer_state(handle), "PROC")
            plan.answer(point, FORWARD)
            state = until(lambda: agent.check_xfer_state(handle), "DONE" if point == "r.done" else None)
        self.assertEqual(state, "DONE")
        self.assertEqual(seen, [("r", 2, []), ("r.done", 2, ["transfer"])])
        self.assertEqual(self.r.spool.open, 0)
        self.assertEqual([e["ok"] for e in kinds(told(self.r), "end")], [True, True])

    def test_a_plan_lets_a_read_fail(self) -> None:
        self.worker("decode")
        plan = FakePlan("r")
        self.r.failpoint = plan  # type: ignore[assignment]
        agent = self.w.nixl_wrapper
        self.r.local.read = Read("prefill-0", "cmpl-r-0001-0-0000aaaa", "cmpl-r-0001-0-0000aaaa", [2], 0)
        handle = agent.make_prepped_xfer("READ", 1, [2], 2, [5])
        agent.transfer(handle)
        plan.answer("r", FAIL)
        self.assertEqual(until(lambda: agent.check_xfer_state(handle), "ERR"), "ERR")
        self.assertEqual(self.nixl.calls, [], "it was never posted")
        self.assertEqual([e["ok"] for e in kinds(told(self.r), "end")], [False, False])

    def test_a_read_that_is_held_before_its_post_waits_with_those_without_a_handshake(self) -> None:
        self.worker("decode")
        plan, made = FakePlan("r.post"), []
        self.r.failpoint = plan  # type: ignore[assignment]
        self.w._ready_requests = queue.Queue()
        make = once(lambda w, name, meta: made.append(name))
        name = "cmpl-r-0001-0-0000aaaa"
        self.h.preparing(make, self.w, name, "meta")
        self.assertEqual((made, self.w._ready_requests.empty()), ([], True))
        plan.answer("r.post", FORWARD)
        self.h.preparing(make, self.w, *self.w._ready_requests.get(timeout=10))
        self.assertEqual(made, [name])

    def test_a_plan_drops_repeats_and_delays_what_is_told(self) -> None:
        self.worker("prefill")
        plan = FakePlan("r.word", "r.renew")
        self.r.failpoint = plan  # type: ignore[assignment]
        agent, done, beat = self.w.nixl_wrapper, b"cmpl-r-0001-0-0000aaaa:1", b"HB:cmpl-r-0001-0-0000aaaa"
        self.nixl.notifs = {"agent": [done, beat]}
        self.assertEqual(agent.get_new_notifs(), {}, "both are held")
        self.assertEqual(agent.get_new_notifs(), {})
        plan.answer("r.renew", DROP)
        plan.answer("r.word", DUPLICATE)
        self.assertEqual(until(agent.get_new_notifs, {"agent": [done, done]}), {"agent": [done, done]})
        self.assertEqual(agent.get_new_notifs(), {})
        self.assertEqual([e["sig"] for e in kinds(told(self.r), "observe")], ["READ_DONE:kv-r-0001:agent"] * 2)

    def test_no_plan_is_about_the_requests_that_warm_up(self) -> None:
        self.worker("decode")
        self.r.failpoint = FakePlan("r.post", "r", "r.done")  # type: ignore[assignment]
        self.r.local.read = Read("prefill-0", "cmpl-w-0001-0-0000aaaa", "cmpl-w-0001-0-0000aaaa", [2], 0)
        handle = self.w.nixl_wrapper.make_prepped_xfer("READ", 1, [2], 2, [5])
        self.nixl.state = "DONE"
        self.assertEqual(self.w.nixl_wrapper.transfer(handle), "DONE")

    def test_passes_follow_the_engines_table(self) -> None:
        self.worker("decode")
        self.r.content = SimpleNamespace(digest=lambda n: f"d{n}")
        passes = Passes(self.r)
        name = "cmpl-r-0001-0-0000aaaa"
        first = step([(name, [1, 2], 40, 41)], [], {name: 1})
        rows = passes.begin(first, 32)
        self.assertEqual(self.r.spool.open, 2)
        passes.end(rows)
        second = step([], [(name, None, 41), ], {name: 1})
        passes.end(passes.begin(second, 32))
        third = step([], [(name, ([7],), 64)], {name: 1})
        passes.end(passes.begin(third, 32))
        events = told(self.r)
        self.assertEqual([(e["mode"], e["blocks"]) for e in kinds(events, "begin")],
                         [("r", [[1, 2]]), ("w", [2]), ("r", [[1, 2]]), ("w", [2]), ("r", [[1, 2], 7]), ("w", [7])])
        self.assertEqual([e["sig"] for e in kinds(events, "observe")], [f"BLOCKS:decode-0:{name}", f"BLOCKS:decode-0:{name}~2"])
        self.assertEqual([e["claims"] for e in kinds(events, "emit")], ["completed"] * 3)
        self.assertEqual(kinds(events, "digest"), [], "decode reads, and is not the source")

    def test_prefill_tells_the_content_of_a_whole_prompt(self) -> None:
        self.worker("prefill")
        self.r.content = SimpleNamespace(digest=lambda n: f"d{n}")
        passes, name = Passes(self.r), "cmpl-r-0001-0-0000aaaa"
        passes.end(passes.begin(step([(name, [5], 0, 40)], [], {name: 32}), 32))
        passes.end(passes.begin(step([], [(name, ([6],), 32)], {name: 8}), 32))
        got = [(e["part"], e["sum"], e["side"], e["handoff"]) for e in kinds(told(self.r), "digest")]
        self.assertEqual(got, [(0, "d5", "source", "kv-r-0001"), (1, "d6", "source", "kv-r-0001")])

    def test_without_a_handoff_nobody_compares_the_content(self) -> None:
        self.worker("prefill")
        self.r.content = SimpleNamespace(digest=lambda n: f"d{n}")
        passes, name = Passes(self.r), "cmpl-w-0001-0-0000aaaa"
        self.r.know(SimpleNamespace(request_id=name, kv_transfer_params=None))
        passes.end(passes.begin(step([(name, [5], 0, 30)], [], {name: 30}), 32))
        self.assertEqual(kinds(told(self.r), "digest"), [])

    def test_a_lease_ends_by_word_or_by_clock(self) -> None:
        self.worker("prefill")
        self.nixl.notifs = {"agent": [b"cmpl-r-0001-0-0000aaaa:1", b"HB:cmpl-r-0001-0-0000aaaa"]}
        self.w.nixl_wrapper.get_new_notifs()
        self.h.results(({"cmpl-r-0001-0-0000aaaa"}, set()), self.w)
        self.h.results(({"cmpl-r-0002-0-0000aaaa"}, set()), self.w)
        events = told(self.r)
        self.assertEqual([e["sig"] for e in kinds(events, "observe")], ["READ_DONE:kv-r-0001:agent", "HEARTBEAT:kv-r-0001:agent"])
        self.assertEqual([(e["handoff"], e.get("claims", "")) for e in kinds(events, "emit")], [("kv-r-0001", "completed"), ("kv-r-0002", "")])
        self.assertEqual([(e["handoff"], e["req"]) for e in kinds(events, "expire")], [("kv-r-0002", "r-0002")])

    def test_errors_stay_here(self) -> None:
        self.worker("decode")
        self.r.local.read = Read("nobody", "cmpl-r-0001-0-0000aaaa", "x", [], 0)
        self.assertEqual(self.w.nixl_wrapper.make_prepped_xfer("READ", 1, [2], 2, [5]), 77)
        self.assertEqual(self.w.nixl_wrapper.check_xfer_state(77), "PROC")
        self.assertIn("nixl_agent", self.r.state.errors)
        self.assertEqual(kinds(told(self.r), "begin"), [])


class BindingTest(unittest.TestCase):
    def test_each_version_is_asked_for_one_connector(self) -> None:
        table = hooks(Hooks(lambda: None, None))  # type: ignore[arg-type,return-value]
        for version in ((0, 15, 1), (0, 32, 0)):
            state = bind([Hook(h.target.replace("vllm.", "no_vllm."), h.rules, since=h.since, until=h.until) for h in table], version, lambda: False)
            self.assertEqual((state.asked, state.bound), (21, 0))
            self.assertIn("BLK-5", state.missing)


if __name__ == "__main__":
    unittest.main()
