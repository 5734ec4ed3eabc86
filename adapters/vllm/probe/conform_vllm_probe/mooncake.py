"""Mooncake's connector: decode asks, prefill writes.

Router and workers know a hand-off by the transfer_id that the router has made. Decode's worker
sends prefill's one message (PULL) that names its own blocks, which grants them to prefill; prefill
waits until it has computed the request, writes, and answers (FINISH, CONTINUE, ERROR). The write
returns when it is over, so its end is what the thread that wrote knows.

Both sides have a loop of their own for messages, beside the main thread that talks to EngineCore;
prefill has threads that write. What goes from one to another inside a process is a signal too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Iterator

from conform_probe.binding import ACCESS, PATHS, Hook
from conform_probe.failpoint import FAIL
from conform_probe.ledger import Owner
from conform_probe.peers import Peers
from conform_probe.spool import blocks, quoted, runs

from .hooks import Hooks, flat
from .recorder import Known, client_id

CONNECTOR = "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_connector:MooncakeConnectorWorker."
STATUS = {0: "FINISH", 1: "CONTINUE", 2: "ERROR"}
ERROR = 2


def rows(h: Mooncake) -> list[Hook]:
    """The bindings, in the model's process."""
    return [
        Hook(CONNECTOR + "__init__", ACCESS, after=h.made),
        Hook(CONNECTOR + "record_send_reqs", PATHS, around=h.sends),
        Hook(CONNECTOR + "send_kv_to_decode", PATHS, around=h.asked),
        Hook(CONNECTOR + "_build_transfer_params", ACCESS, around=h.planned),
        Hook(CONNECTOR + "_send_blocks", ACCESS, around=h.written),
        Hook(CONNECTOR + "receive_kv", PATHS, before=h.loads_taken),
        Hook(CONNECTOR + "receive_kv_from_single_worker", PATHS, before=h.asking),
        Hook(CONNECTOR + "process_pulling_result", PATHS, before=h.pulled),
        Hook(CONNECTOR + "_handle_failed_recv", PATHS, before=h.failed, since=(0, 32)),
        Hook(CONNECTOR + "get_finished", PATHS, after=h.finished_transfers),
    ]


@dataclass
class Write:
    """One request's blocks, on their way from prefill to decode."""

    decode_req: str
    prefill_req: str
    peer: str
    source: list[int]
    target: list[int]
    fields: str
    planned: str = ""  # the signal from the loop to the thread that writes
    read: str = ""
    write: str = ""
    done: str = ""  # the signal back


@dataclass
class Transfers:
    """What one model's process has under way, by the engine's names of requests."""

    posts: dict[int, tuple[Any, list[Write]]] = field(default_factory=dict)  # by the list of addresses, which is kept
    written: dict[str, Write] = field(default_factory=dict)  # by decode's request
    sent: dict[str, str] = field(default_factory=dict)  # by prefill's request: the signal of its last write
    told: dict[str, str] = field(default_factory=dict)  # decode: what the loop found out, as a claim
    stopped: set[str] = field(default_factory=set)  # decode: prefill has said that it won't write
    answer: Any = None  # decode: the message being looked at


class Mooncake(Hooks):
    """The hooks where decode asks and prefill writes."""

    reference = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.t = Transfers()
        self.peers = Peers(self.config.dir)

    # EngineCore.

    def offered(self, result: Any, scheduler: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        """_connector_finished(): prefill keeps its blocks until they are written."""
        if result[0] and self.config.role == "prefill":
            self.r.spool.record("offer", self.r.know(request).owner.fields().lstrip(","))

    def loads(self, metadata: Any) -> list[tuple[str, str]]:
        """What EngineCore tells the model's process: decode, what to ask for; prefill, what to send."""
        r, events = self.r, []
        for engine, pulls in (getattr(metadata, "reqs_to_recv", None) or {}).items():
            for name, pull in pulls.items():
                held = [n for n in flat(pull.local_block_ids) if r.pool is not None and n in r.pool.holders]
                if held:
                    events.append(("grant", f'"pool":"kv","blocks":{blocks(held)},"to":{quoted(engine)},"mode":"w"{r.named(name)}'))
                events.append(r.emit(f"LOAD:{r.worker}:{name}", "LOAD", r.named(name)))
        for name, (_, groups) in (getattr(metadata, "reqs_to_send", None) or {}).items():
            if flat(groups):
                events.append(r.emit(f"SEND:{r.worker}:{name}", "SEND", r.named(name)))
        return events

    # The model's process, both sides.

    def made(self, result: Any, worker: Any, *args: Any, **kwargs: Any) -> None:
        r = self.r  # which opens this process's source
        if self.config.role == "decode":
            self.peers.meet(r.worker, f"{worker.hostname}:{worker.rpc_port}")
            worker._xfer_resp_decoder = _Decoder(worker._xfer_resp_decoder, self.t)

    def _named(self, name: str, transfer: str) -> str:
        """The fields of a request that this process hears of by a transfer_id."""
        client = client_id(name)
        return self.r.known.setdefault(name, Known(Owner(client, client, transfer))).owner.fields()

    def finished_transfers(self, result: Any, worker: Any, *args: Any, **kwargs: Any) -> None:
        """get_finished(): the main thread learns from the loops, and tells EngineCore."""
        r, events = self.r, []
        sending, receiving = result
        for name in receiving or ():
            claim = self.t.told.pop(name, None)
            if claim is not None:
                events.append(r.observe(f"PULLED:{r.worker}:{name}", "PULLED", r.named(name)))
            events.append(r.emit(r.sig("RECV", f"{r.worker}:{name}"), "RECV", r.named(name), claim or ""))
        for name in sending or ():
            done = self.t.sent.pop(name, None)
            fields = r.named(name)
            if done is None:
                events.append(("expire", fields.lstrip(",") + ',"why":"timeout"'))
            elif done:
                events.append(r.observe(done, "WRITTEN", fields))
            events.append(r.emit(r.sig("SENT", f"{r.worker}:{name}"), "SENT", fields, "" if done is None else "completed"))
        if events:
            r.spool.record_all(events)

    # Prefill.

    def sends(self, function: Any, worker: Any, metadata: Any, *args: Any, **kwargs: Any) -> Any:
        """record_send_reqs(): the loop hears which requests are computed."""

        async def run() -> Any:
            function.guard(lambda: self._sends(metadata))
            return await function(worker, metadata, *args, **kwargs)

        return run()

    def _sends(self, metadata: Any) -> None:
        r, events = self.r, []
        for name, (transfer, groups) in metadata.reqs_to_send.items():
            if flat(groups):
                events.append(r.observe(f"SEND:{r.worker}:{name}", "SEND", self._named(name, transfer)))
        if events:
            r.spool.record_all(events)

    def asked(self, function: Any, worker: Any, identity: Any, sock: Any, meta: Any, *args: Any, **kwargs: Any) -> Any:
        """send_kv_to_decode(): one PULL, until it is answered."""

        async def run() -> Any:
            answers = function.guard(lambda: self._asked(worker, sock, meta))
            try:
                return await function(worker, identity, answers or sock, meta, *args, **kwargs)
            except Exception:
                if answers is not None:
                    function.guard(answers.failed)
                raise

        return run()

    def _asked(self, worker: Any, sock: Any, meta: Any) -> _Answers:
        r = self.r
        fields = {name: self._named(name, pull[0]) for name, pull in meta.req_blocks.items()}
        r.spool.record_all([r.observe(f"PULL:{name}", "PULL", f) for name, f in fields.items()])
        return _Answers(self, worker, sock, fields)

    def planned(self, function: Any, worker: Any, ready: Any, meta: Any, *args: Any, **kwargs: Any) -> Any:
        """_build_transfer_params(): which blocks are to be written where."""

        async def run() -> Any:
            result = await function(worker, ready, meta, *args, **kwargs)
            function.guard(lambda: self._planned(result, ready, meta))
            return result

        return run()

    def _planned(self, result: Any, ready: Any, meta: Any) -> None:
        r, addresses, refused = self.r, result[0], set(result[3] or ())
        if not addresses:
            return
        peer = self.peers.worker_of(f"{meta.remote_hostname}:{meta.remote_port}")
        if not peer:
            raise LookupError("no worker has said that this transfer engine is its own")
        writes = []
        for name, send in ready:
            pairs = list(_pairs(send.local_block_ids, meta.req_blocks[name][1]))
            if name in refused or not pairs:
                continue
            fields = self._named(name, send.transfer_id)
            writes.append(Write(name, send.p_req_id, peer, [a for a, _ in pairs], [b for _, b in pairs], fields, r.spool.unique("plan")))
        r.spool.record_all([r.emit(w.planned, "WRITE", w.fields) for w in writes])
        self.t.posts[id(addresses)] = (addresses, writes)

    def written(self, function: Any, worker: Any, session: Any, addresses: Any, *args: Any, **kwargs: Any) -> Any:
        """_send_blocks(): the write, by a thread that waits until it is over."""
        writes: list[Write] = function.guard(lambda: self._begin(addresses), [])
        ok = False
        try:
            if any(function.guard(lambda w=w: self._ask("w", w), 0) == FAIL for w in writes):
                return -1
            result = function(worker, session, addresses, *args, **kwargs)
            ok = result == 0
            return result
        finally:
            for w in writes:
                function.guard(lambda w=w: self._ask("w.done", w))
            function.guard(lambda: self._end(writes, ok))

    def _begin(self, addresses: Any) -> list[Write]:
        r, events = self.r, []
        _, writes = self.t.posts.pop(id(addresses), (None, []))
        for w in writes:
            w.read, w.write = r.spool.unique("r"), r.spool.unique("w")
            events += [
                r.observe(w.planned, "WRITE", w.fields),
                r.begin(w.read, "r", r.worker, w.source, w.fields, "mooncake"),
                r.begin(w.write, "w", w.peer, w.target, w.fields, "mooncake"),
            ]
        if events:
            r.spool.record_all(events)
        return writes

    def _ask(self, name: str, w: Write) -> int:
        """Let the harness's plan act on a write; it may hold this thread."""
        point = self.r.failpoint
        if point is None or not point.wants(name, "kv"):
            return 0
        owner = self.r.known[w.decode_req].owner
        return point.ask({
            "kind": "access", "name": name, "from": self.r.worker, "to": w.peer, "pool": "kv", "access": w.write,
            "handoff": owner.handoff, "req": owner.req, "blocks": runs(w.target),
        })

    def _end(self, writes: list[Write], ok: bool) -> None:
        r, events = self.r, []
        good = "true" if ok else "false"
        for w in writes:
            done = r.spool.unique("done")
            events += [("end", f'"access":{quoted(a)},"ok":{good}') for a in (w.read, w.write)]
            events.append(r.emit(done, "WRITTEN", w.fields, "completed", f',"access":{json.dumps([w.read, w.write])}'))
            w.done = done
            self.t.written[w.decode_req] = w
        if events:
            r.spool.record_all(events)

    # Decode.

    def loads_taken(self, worker: Any, engine: Any, pulls: Any, *args: Any, **kwargs: Any) -> None:
        """receive_kv(): the loop hears what to ask for, and whom."""
        r = self.r
        r.spool.record_all([r.observe(f"LOAD:{r.worker}:{name}", "LOAD", self._named(name, p.transfer_id)) for name, p in pulls.items()])

    def asking(self, worker: Any, address: Any, pulls: Any, *args: Any, **kwargs: Any) -> None:
        """receive_kv_from_single_worker(): one PULL for all of these."""
        r = self.r
        r.spool.record_all([r.emit(f"PULL:{name}", "PULL", self._named(name, p.transfer_id)) for name, p in pulls.items()])

    def pulled(self, worker: Any, response: Any, pulls: Any, *args: Any, **kwargs: Any) -> None:
        """process_pulling_result(): prefill's answer about some or all of them."""
        self.t.answer = None
        r, events, word = self.r, [], STATUS[int(response.status)]
        for name in response.ok_reqs or ():
            events.append(r.observe(f"RESULT:{name}", word, r.named(name)))
            pull = pulls[name]
            if not getattr(pull, "failed", False) and pull.pull_tasks_count == 1 and any(pull.local_block_ids):
                events.append(self._tell(name, "completed"))
        for name in response.err_reqs or ():
            events.append(r.observe(f"RESULT:{name}", word + "/failed", r.named(name)))
            self.t.stopped.add(name)
        if events:
            r.spool.record_all(events)

    def failed(self, worker: Any, pulls: Any, names: Any, *args: Any, **kwargs: Any) -> None:
        """_handle_failed_recv(): what was asked for won't come. Only a word of prefill's proves
        that it won't be written any more."""
        r, events = self.r, []
        answer, self.t.answer = self.t.answer, None
        refused = answer is not None and int(answer.status) == ERROR
        for name in names:
            if refused:
                events.append(r.observe(f"RESULT:{name}", "ERROR", r.named(name)))
            pull = pulls.get(name)
            if pull is not None and not pull.failed and any(pull.local_block_ids):
                events.append(self._tell(name, "stopped" if refused or name in self.t.stopped else ""))
            self.t.stopped.discard(name)
        if events:
            r.spool.record_all(events)

    def _tell(self, name: str, claim: str) -> tuple[str, str]:
        """The loop leaves a word for the main thread."""
        self.t.told[name] = claim
        return self.r.emit(f"PULLED:{self.r.worker}:{name}", "PULLED", self.r.named(name), claim)


def _pairs(local: Any, remote: Any) -> Iterator[tuple[int, int]]:
    """Which block is written to which: of prefill's the last, since decode may have the first."""
    for mine, theirs in zip(local, remote):
        if theirs:
            yield from zip(list(mine)[-len(theirs):], theirs)


class _Decoder:
    """Decode's decoder of answers, which remembers the last one."""

    def __init__(self, decoder: Any, t: Transfers) -> None:
        self._decoder, self._t = decoder, t

    def decode(self, message: Any, *args: Any, **kwargs: Any) -> Any:
        self._t.answer = self._decoder.decode(message, *args, **kwargs)
        return self._t.answer


class _Answers:
    """Prefill's socket, for the answers to one PULL. What goes wrong here does not reach the engine."""

    def __init__(self, hooks: Mooncake, worker: Any, sock: Any, fields: dict[str, str]) -> None:
        self._hooks, self._worker, self._sock = hooks, worker, sock
        self._open = fields  # by decode's request, those that are not answered

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def send_multipart(self, parts: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            self._answering(self._worker._xfer_resp_decoder.decode(parts[-1]))
        except Exception as error:
            self._hooks.r.state.failed("mooncake_answer", error)
        return self._sock.send_multipart(parts, *args, **kwargs)

    def failed(self) -> None:
        """An error came up: prefill answers ERROR for what is left."""
        self._record([(name, "ERROR", "stopped") for name in list(self._open)])

    def _answering(self, response: Any) -> None:
        word = STATUS[int(response.status)]
        answers = [(name, word, "completed") for name in response.ok_reqs or ()]
        answers += [(name, word + "/failed", "stopped") for name in response.err_reqs or ()]
        if int(response.status) == ERROR and not answers:
            answers = [(name, "ERROR", "stopped") for name in list(self._open)]
        self._record(answers)

    def _record(self, answers: list[tuple[str, str, str]]) -> None:
        r, t, events = self._hooks.r, self._hooks.t, []
        for name, word, claim in answers:
            fields = self._open.pop(name, None)
            if fields is None:
                continue
            w, more = t.written.pop(name, None), ""
            if w is not None:
                events.append(r.observe(w.done, "WRITTEN", fields))
                more = f',"access":{json.dumps([w.write])}' if claim == "completed" else ""
            if claim == "completed":
                t.sent[self._prefill_request(name, w)] = w.done if w is not None else ""
            events.append(r.emit(f"RESULT:{name}", word, fields, claim, more))
        if events:
            r.spool.record_all(events)

    def _prefill_request(self, name: str, w: Write | None) -> str:
        """Prefill's name of a request that is answered: without a write, by its transfer_id."""
        if w is not None:
            return w.prefill_req
        transfer = self._hooks.r.known[name].owner.handoff
        return next((q for q, known in self._hooks.r.known.items() if known.owner.handoff == transfer and q != name), "")
