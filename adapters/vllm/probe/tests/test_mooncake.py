"""What the hooks make of Mooncake's connector, on stand-ins for its objects."""

from __future__ import annotations

import asyncio
import dataclasses
import unittest
from types import SimpleNamespace
from typing import Any

from conform_probe.binding import Bound
from conform_probe.ledger import Pool
from conform_vllm_probe import cpu
from conform_vllm_probe.mooncake import Mooncake
from conform_vllm_probe.recorder import Recorder
from test_probe import block, kinds, once, recorder, request, told

ASKED, COMPUTED = "cmpl-r-0001-0-0000aaaa", "cmpl-r-0001-0-0000bbbb"
META = SimpleNamespace(remote_hostname="127.0.0.1", remote_port=77, req_blocks={ASKED: ("kv-r-0001", [[7, 8]])})


def response(status: int, ok: Any = None, failed: Any = None) -> Any:
    return SimpleNamespace(status=status, ok_reqs=ok, err_reqs=failed, err_msg=None)


def step(**metadata: Any) -> Any:
    """What EngineCore has the model's process do, where it is no forward pass."""
    none = SimpleNamespace(req_ids=[], new_block_ids=[])
    return SimpleNamespace(kv_connector_metadata=SimpleNamespace(**metadata), scheduled_new_reqs=[], scheduled_cached_reqs=none)


class Plain:
    """A decoder of messages that are not encoded."""

    @staticmethod
    def decode(message: Any) -> Any:
        return message


class Socket:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def send_multipart(self, parts: Any) -> None:
        self.sent.append(parts)


class CoreTest(unittest.TestCase):
    """EngineCore."""

    def core(self, role: str) -> None:
        self.r = recorder(role)
        self.h = Mooncake(lambda: self.r, self.r.config)
        self.h.opened(None, SimpleNamespace(kv_cache_manager=SimpleNamespace(block_pool=SimpleNamespace(num_gpu_blocks=16)), max_model_len=512))

    def test_decode_lets_prefill_write(self) -> None:
        self.core("decode")
        q = request("r-0001", do_remote_prefill=True, transfer_id="kv-other")
        self.h.added(None, q)
        self.h.for_request(once(lambda *a: self.h.allocated([block(7), block(8)], None)), None, q)
        pull = SimpleNamespace(local_block_ids=[[7, 8, 9]], transfer_id="kv-other")
        self.h.scheduled(step(reqs_to_recv={"prefill-0": {q.request_id: pull}}, reqs_to_send={}), None)
        events = told(self.r)
        grant = kinds(events, "grant")[0]
        self.assertEqual((grant["to"], grant["mode"], grant["blocks"], grant["handoff"]), ("prefill-0", "w", [[7, 8]], "kv-other"))
        self.assertEqual([e["signal"] for e in kinds(events, "emit", "observe")], ["LOAD"])

    def test_prefill_sends_what_it_has_computed(self) -> None:
        self.core("prefill")
        q = request("r-0001", do_remote_decode=True, transfer_id="kv-r-0001")
        self.h.added(None, q)
        self.h.offered((False, None), None, q)
        self.h.offered((True, None), None, q)
        for groups in ([], [[3, 4]]):
            send = {q.request_id: ("kv-r-0001", groups)}
            self.h.scheduled(step(reqs_to_recv={}, reqs_to_send=send), None)
        events = told(self.r)
        self.assertEqual([(e["k"], e.get("signal")) for e in kinds(events, "offer", "emit", "grant")], [("offer", None), ("emit", "SEND")])

    def test_an_errand_is_no_request(self) -> None:
        self.core("decode")
        q = request("r-0001", "FINISHED_ABORTED", do_remote_prefill=True, transfer_id="kv-r-0001")
        q.abort_immediately = True
        self.h.added(None, q)
        self.h.finished(None, q)
        self.h.cancelled(SimpleNamespace(requests={q.request_id: q}), [q.request_id], SimpleNamespace(name="FINISHED_ABORTED"))
        self.assertEqual(kinds(told(self.r), "admit", "finish", "cancel"), [])


class PrefillTest(unittest.TestCase):
    """The model's process of prefill."""

    def setUp(self) -> None:
        self.r = recorder("prefill", "prefill-0.model")
        for owner in ("prefill", "decode"):
            core = Recorder(dataclasses.replace(self.r.config, worker=owner + "-0", role=owner), owner + "-0", Bound())
            Pool(core.spool, "kv", 16, 0, "kv")
            core.seal()
        self.h = Mooncake(lambda: self.r, self.r.config)
        self.h.peers.meet("decode-0", "127.0.0.1:77")
        self.w = SimpleNamespace(_xfer_resp_decoder=Plain)
        self.sock = Socket()

    def serve(self, result: int, answer: Any) -> None:
        """One PULL as the engine serves it."""

        async def serving(worker: Any, identity: Any, sock: Any, meta: Any) -> None:
            send = SimpleNamespace(local_block_ids=[[2, 3, 4]], transfer_id="kv-r-0001", p_req_id=COMPUTED)
            addresses = [1, 2]

            async def plan(*args: Any) -> Any:
                return addresses, [], [], [], None

            await self.h.planned(once(plan), worker, [(ASKED, send)], meta, [], [])
            self.h.written(once(lambda *a: result), worker, "127.0.0.1:77", addresses, [], [])
            if isinstance(answer, Exception):
                raise answer
            await sock.send_multipart((identity, answer))

        async def note(worker: Any, metadata: Any) -> None:
            pass

        async def run() -> None:
            await self.h.sends(once(note), self.w, SimpleNamespace(reqs_to_send={COMPUTED: ("kv-r-0001", [[2, 3, 4]])}))
            await self.h.asked(once(serving), self.w, b"id", self.sock, META)

        asyncio.run(run())

    def test_a_write_is_two_accesses_with_a_way_to_each_release(self) -> None:
        self.serve(0, response(0, [ASKED]))
        self.h.finished_transfers(({COMPUTED}, None), self.w)
        events = told(self.r)
        self.assertEqual([(e["mode"], e["target"], e["blocks"], e["handoff"]) for e in kinds(events, "begin")],
                         [("r", "prefill-0", [[3, 4]], "kv-r-0001"), ("w", "decode-0", [[7, 8]], "kv-r-0001")], "decode had the first block")
        self.assertEqual([e["ok"] for e in kinds(events, "end")], [True, True])
        self.assertEqual([(e["k"], e["signal"], e.get("claims", "")) for e in kinds(events, "emit", "observe")], [
            ("observe", "SEND", ""), ("observe", "PULL", ""), ("emit", "WRITE", ""), ("observe", "WRITE", ""), ("emit", "WRITTEN", "completed"),
            ("observe", "WRITTEN", ""), ("emit", "FINISH", "completed"), ("observe", "WRITTEN", ""), ("emit", "SENT", "completed"),
        ])
        finish = [e for e in kinds(events, "emit") if e["signal"] == "FINISH"][0]
        self.assertEqual((finish["sig"], finish["access"]), ("RESULT:" + ASKED, [kinds(events, "begin")[1]["access"]]))
        self.assertEqual(len(self.sock.sent), 1)
        self.assertEqual((self.h.t.posts, self.h.t.written, self.h.t.sent), ({}, {}, {}))

    def test_a_write_that_fails_is_told_so(self) -> None:
        self.serve(-1, response(0, None, [ASKED]))
        events = told(self.r)
        self.assertEqual([e["ok"] for e in kinds(events, "end")], [False, False])
        self.assertEqual([(e["signal"], e["claims"]) for e in kinds(events, "emit")[-2:]], [("WRITTEN", "completed"), ("FINISH/failed", "stopped")])

    def test_an_error_answers_what_is_left(self) -> None:
        with self.assertRaises(ValueError):
            self.serve(0, ValueError("x"))
        self.assertEqual([(e["signal"], e["claims"]) for e in kinds(told(self.r), "emit")[-1:]], [("ERROR", "stopped")])

    def test_a_clock_is_no_word(self) -> None:
        self.h.finished_transfers(({COMPUTED}, None), self.w)
        events = told(self.r)
        self.assertEqual([e["why"] for e in kinds(events, "expire")], ["timeout"])
        self.assertEqual([e.get("claims", "") for e in kinds(events, "emit")], [""])

    def test_a_stranger_is_not_written_to(self) -> None:
        wrong = SimpleNamespace(**{**vars(META), "remote_port": 78})
        with self.assertRaises(LookupError):
            self.h._planned(([1], [], [], [], None), [], wrong)


class DecodeTest(unittest.TestCase):
    """The model's process of decode."""

    def setUp(self) -> None:
        self.r = recorder("decode", "decode-0.model")
        self.h = Mooncake(lambda: self.r, self.r.config)
        self.w = SimpleNamespace(hostname="127.0.0.1", rpc_port=77, _xfer_resp_decoder=Plain)
        self.h.made(None, self.w)
        self.pulls = {ASKED: SimpleNamespace(transfer_id="kv-r-0001", failed=False, pull_tasks_count=1, local_block_ids=[[7, 8]])}
        self.h.loads_taken(self.w, "prefill-0", self.pulls)
        self.h.asking(self.w, "tcp://x", self.pulls)

    def words(self) -> list[tuple[str, str, str]]:
        return [(e["k"], e["signal"], e.get("claims", "")) for e in kinds(told(self.r), "emit", "observe")][2:]

    def test_an_answer_reaches_enginecore(self) -> None:
        self.assertEqual(self.h.peers.worker_of("127.0.0.1:77"), "decode-0")
        self.h.pulled(self.w, self.w._xfer_resp_decoder.decode(response(0, [ASKED])), self.pulls)
        self.h.finished_transfers((None, {ASKED}), self.w)
        self.assertEqual(self.words(), [("observe", "FINISH", ""), ("emit", "PULLED", "completed"), ("observe", "PULLED", ""), ("emit", "RECV", "completed")])

    def test_of_several_ranks_the_last_counts(self) -> None:
        self.pulls[ASKED].pull_tasks_count = 2
        self.h.pulled(self.w, response(0, [ASKED]), self.pulls)
        self.assertEqual(self.words(), [("observe", "FINISH", "")])

    def test_prefill_will_not_write(self) -> None:
        for name, answer, tell in (("FINISH/failed", response(0, None, [ASKED]), True), ("ERROR", response(2), False)):
            with self.subTest(name):
                self.setUp()
                answer = self.w._xfer_resp_decoder.decode(answer)
                if tell:
                    self.h.pulled(self.w, answer, self.pulls)
                self.h.failed(self.w, self.pulls, [ASKED], "x")
                self.h.finished_transfers((None, {ASKED}), self.w)
                self.assertEqual(self.words(), [("observe", name, ""), ("emit", "PULLED", "stopped"), ("observe", "PULLED", ""), ("emit", "RECV", "stopped")])

    def test_silence_proves_nothing(self) -> None:
        self.w._xfer_resp_decoder.decode(response(1, []))
        self.h.pulled(self.w, response(1, []), self.pulls)
        self.h.failed(self.w, self.pulls, [ASKED], "timed out")
        self.h.finished_transfers((None, {ASKED}), self.w)
        self.assertEqual(self.words(), [("emit", "PULLED", ""), ("observe", "PULLED", ""), ("emit", "RECV", "")])


class ReplacementsTest(unittest.TestCase):
    def test_an_engine_that_is_not_there_needs_none(self) -> None:
        self.assertEqual((cpu.apply("cpu"), cpu.apply("cuda")), ([], []))


if __name__ == "__main__":
    unittest.main()
