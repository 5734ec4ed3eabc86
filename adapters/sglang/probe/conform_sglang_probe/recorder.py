"""The recorder: what one scheduler process does, as events of its source."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass, field
from typing import Any, Iterable

from . import frames
from .config import Config
from .content import Pages
from .failpoint import FAIL, FORWARD, Failpoint
from .ledger import Owner, Pool
from .spool import Spool, quoted

FAKE_HOST = "2.2.2.2"  # such a request is served by one worker alone


@dataclass
class Known:
    """What is known of a request at this stage."""

    owner: Owner
    room: int | None
    rejected: bool = False
    cancelled: bool = False
    finished: bool = False
    told: int = 0  # tokens that left
    read: bool = False  # decode: its pages have been read once
    prefix: int = 0  # decode: pages of the prompt that were not transferred
    pages: list[int] = field(default_factory=list)  # as the last forward pass saw them
    text: str = ""  # … in the trace's notation


class Local(threading.local):
    """What a thread is in the middle of."""

    room: int | None = None
    chunk: Any = None
    reqs: list[Any] | None = None
    why: str = ""
    by: str = ""
    posted: tuple[Any, ...] | list[Any] = ()  # transfers that have not settled


class Recorder:
    """One process's source, and what its hooks need to know."""

    def __init__(self, config: Config, scheduler: Any, hooks: dict[str, Any]) -> None:
        self.config = config
        self.scheduler = scheduler
        self.pid = os.getpid()
        self.rank = tensor_rank(scheduler)
        self.worker = rank_name(config.worker, self.rank)
        self.local = Local()
        self.known: dict[str, Known] = {}
        self.uses: dict[int, list[str]] = {}  # the requests of a room, in order
        self.sent: dict[str, int] = {}  # by signal id, how often
        self.posted: dict[int, str] = {}  # by queued chunk, the signal that announces it
        self.accesses: dict[int, list[str]] = {}  # by room, this rank's accesses
        self.notices: dict[int, list[tuple[int, str, str]]] = {}  # by room: status, signal, kind
        self.seen: dict[tuple[int, str], bool] = {}  # thread and in-process signal
        self.peer: dict[int, str] = {}  # by room, the decode worker
        self.failpoint: Failpoint | None = None
        self.pools: dict[str, Pool] = {}
        if config.failpoint:  # first, so that the harness hears of the source
            self.failpoint = Failpoint(config.failpoint, self.worker, self.seal, self.load)
        self.spool = Spool(config.dir, self.worker, self._tap)
        self._open(hooks)
        self.args = kv_args(scheduler)
        self.content = Pages(self.args) if self.args is not None and config.content and config.device == "cpu" else None
        self.pools = self._pools()
        self._capacity()
        self._meet()

    def _open(self, hooks: dict[str, Any]) -> None:
        c = self.config
        self.spool.record(
            "source",
            f'"worker":{quoted(self.worker)},"role":"{c.role}","host":{quoted(c.host)},"clock":{quoted(c.clock)},'
            f'"pid":{self.pid},"probe":"conform-sglang-probe 1","engine":{quoted(c.engine)},"hooks":{json.dumps(hooks)}',
        )

    def _tap(self, kind: str, line: bytes) -> None:
        if self.failpoint is not None:
            self.failpoint.tap(kind, line)

    def _pools(self) -> dict[str, Pool]:
        s = self.scheduler
        allocator = s.token_to_kv_pool_allocator
        count = int(allocator.size) // int(allocator.page_size) + 1
        size = Pages(self.args).page_bytes if self.args is not None else 0
        pools = {"kv": Pool(self.spool, "kv", count, size, "kv")}
        pools["slot"] = Pool(self.spool, "slot", int(s.req_to_token_pool.req_to_token.shape[0]), 0, "slot")
        aux = aux_allocator(s)
        if aux is not None:
            pools["aux"] = Pool(self.spool, "aux", int(aux.size), 0, "aux")
        return pools

    @property
    def page_size(self) -> int:
        return int(self.scheduler.token_to_kv_pool_allocator.page_size)

    def _capacity(self) -> None:
        """What this stage is configured for and what it can process: the review that
        the disclosure of 2026-10-26 calls for."""
        s, role = self.scheduler, self.config.role
        model = getattr(s, "model_config", None)
        pool = int(s.max_total_num_tokens)
        prompt = int(getattr(s, "max_req_input_len", 0) or 0)
        rows = [
            ("token", prompt - 1 if prompt else pool, "longest prompt that intake lets through (max_req_input_len)"),
            ("pool token", pool, "KV pool (max_total_num_tokens)"),
            ("configured context token", int(getattr(model, "context_len", 0) or 0), "configured context length, not capacity"),
            ("chunk token", int(getattr(s, "chunked_prefill_size", 0) or 0), "prefill chunk (chunked_prefill_size)"),
            ("request", int(getattr(s, "max_running_requests", 0) or 0), "requests at once (max_running_requests)"),
        ]
        queue = getattr(s, "disagg_decode_prealloc_queue", None)
        if queue is not None:
            rows.append(("reserve token", int(queue.num_reserved_decode_tokens), "kept free for each running request (num_reserved_decode_tokens)"))
        for unit, limit, why in rows:
            if limit > 0:
                self.spool.record("capacity", f'"stage":"{role}","limit":{limit},"unit":"{unit}","why":{quoted(why)}')

    # Peers: which decode worker a transfer engine's session belongs to.

    def _meet(self) -> None:
        """Tell the peers this worker's transfer engine, by a file in the run directory."""
        manager = kv_manager(self.scheduler)
        name = session_of(manager)
        if name and self.config.role == "decode":
            folder = os.path.join(os.path.dirname(self.config.dir), "peers")
            os.makedirs(folder, exist_ok=True)
            temporary = os.path.join(folder, f".{self.worker}")
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump({"worker": self.worker, "session": name}, file)
            os.replace(temporary, os.path.join(folder, self.worker + ".json"))
        self._sessions: dict[str, str] = {}

    def worker_of(self, session: str) -> str:
        """The decode worker with that transfer engine, "" if nobody said."""
        if session not in self._sessions:
            folder = os.path.join(os.path.dirname(self.config.dir), "peers")
            try:
                for name in os.listdir(folder):
                    if name.endswith(".json"):
                        with open(os.path.join(folder, name), encoding="utf-8") as file:
                            entry = json.load(file)
                        self._sessions[entry["session"]] = entry["worker"]
            except OSError:
                pass
        return self._sessions.get(session, "")

    # Requests and handoffs.

    def handoff(self, room: int | None) -> str:
        """The handoff that a room stands for now; "" without a room."""
        if room is None:
            return ""
        n = len(self.uses.get(room, ())) - 1
        return f"room-{room}" if n <= 0 else f"room-{room}#{n}"

    def know(self, req: Any) -> Known:
        """What is known of a request; from its first sight on."""
        rid = str(req.rid)
        known = self.known.get(rid)
        if known is None:
            room = getattr(req, "bootstrap_room", None)
            if getattr(req, "bootstrap_host", None) == FAKE_HOST:
                room = None
            if room is not None:
                room = int(room)
                uses = self.uses.setdefault(room, [])
                if rid not in uses:
                    uses.append(rid)
            known = self.known[rid] = Known(Owner(rid, rid, self.handoff(room)), room)
        return known

    def of_room(self, room: int | None) -> Known | None:
        """The request that a room belongs to now, once this stage has seen it."""
        uses = self.uses.get(room or 0)
        return self.known.get(uses[-1]) if uses else None

    def named(self, room: int | None) -> str:
        """`,"handoff":…` and, where it is known, `,"req":…`."""
        known = self.of_room(room)
        if known is not None:
            return known.owner.fields()
        return f',"handoff":{quoted(self.handoff(room))}' if room is not None else ""

    # Signals.

    def emit(self, sig: str, signal: str, room: int | None, claims: str = "", more: str = "") -> str:
        """Record that a signal leaves this thread. Its id is made unique."""
        n = self.sent[sig] = self.sent.get(sig, 0) + 1
        if n > 1:
            sig = f"{sig}~{n}"
        claim = f',"claims":"{claims}"' if claims else ""
        self.spool.record("emit", f'"sig":{quoted(sig)},"signal":"{signal}"{self.named(room)}{claim}{more}')
        return sig

    def observe(self, sig: str, signal: str, room: int | None) -> None:
        """Record that this thread takes a signal in."""
        self.spool.record("observe", f'"sig":{quoted(sig)},"signal":"{signal}"{self.named(room)}')

    def sig_of(self, m: frames.Message, sender: str) -> str:
        """The id of a message between workers: made of its content, the same on both sides."""
        parts = [m.signal, self.handoff(m.room), sender]
        if m.generation:
            parts.append(m.generation)
        return ":".join(parts)

    def sending(self, message: list[Any]) -> None:
        """A ZeroMQ message is about to leave this thread."""
        m = frames.parse([bytes(f) for f in message])
        if m is None or m.to_decode != (self.config.role == "prefill"):
            return
        claims, more = m.claims, ""
        if m.signal == "METADATA":
            self._grant(m)
        elif m.signal == "ABORT":
            more = ',"asks":"ABORT_ACK"'
        elif m.signal == "STATUS/Success":
            more = f',"access":{json.dumps(self.accesses.get(m.room, []))}'
        elif claims == "drained" and self.failpoint is not None:
            self.ask("ack", "", m.room, [], "")
        self.emit(self.sig_of(m, self.worker), m.signal, m.room, claims, more)

    def received(self, message: list[Any]) -> None:
        """A ZeroMQ message has come to this thread."""
        m = frames.parse([bytes(f) for f in message])
        if m is None or m.to_decode == (self.config.role == "prefill"):
            return
        if m.to_decode:
            sender = rank_name(self._prefill_of(m.room), max(m.rank, 0) if m.rank >= 0 else self._twin())
        else:
            if m.session:
                self.peer[m.room] = self.worker_of(m.session)
            sender = self.peer.get(m.room) or rank_name("decode-0", self._twin())
        self.observe(self.sig_of(m, sender), m.signal, m.room)

    def _twin(self) -> int:
        """The rank at the peer that speaks to this one where a message does not say."""
        return self.rank if self.config.prefill_ranks == self.config.decode_ranks else 0

    def _prefill_of(self, room: int | None) -> str:
        """The prefill worker of a room, as decode's request names it by its port."""
        known = self.of_room(room)
        port = getattr(known, "bootstrap_port", None) if known else None
        table = self.config.prefills
        return table.get(str(port), next(iter(table.values()), "prefill-0"))

    def _grant(self, m: frames.Message) -> None:
        """METADATA exposes pages and a metadata slot to prefill's writes."""
        name = self._prefill_of(m.room)
        targets = [rank_name(name, self.rank)] if self._twin() or self.config.prefill_ranks == self.config.decode_ranks else [rank_name(name, r) for r in range(self.config.prefill_ranks)]
        owner = self.named(m.room)
        for target in targets:
            done = f'{m.room}>{target}'
            if done in self.sent:
                continue
            self.sent[done] = 1
            for pool, numbers in (("kv", m.pages), ("aux", [m.aux] if m.aux >= 0 else [])):
                if numbers:
                    from .spool import blocks

                    self.spool.record("grant", f'"pool":"{pool}","blocks":{blocks(numbers)},"to":{quoted(target)},"mode":"w"{owner}')

    # In-process notifications: the status of a room, written by one thread and polled by another.

    def status(self, room: int, value: int) -> None:
        """A thread is about to set a room's status."""
        name = frames._STATUS.get(value, str(value))
        claims = {"Success": "completed", "Failed": "received"}.get(name, "")
        more = ""
        if claims == "completed" and self.config.role == "prefill":
            more = f',"access":{json.dumps(self.accesses.get(room, []))}'
        sig = self.spool.unique("room")
        self.emit(sig, f"ROOM/{name}", room, claims, more)
        self.notices.setdefault(room, []).append((value, sig, f"ROOM/{name}"))

    def polled(self, room: int, value: int) -> None:
        """A thread has read a room's status: it takes in what was written before."""
        notices = self.notices.get(room)
        if not notices:
            return
        ident = threading.get_ident()
        for written, sig, signal in notices:
            if written == value and (ident, sig) not in self.seen:
                self.seen[(ident, sig)] = True
                self.observe(sig, signal, room)

    # Accesses.

    def begin(self, access: str, mode: str, target: str, pool: str, numbers: str, owner: str, via: str) -> tuple[str, str]:
        """A begin event, for record_all."""
        return "begin", f'"access":{quoted(access)},"mode":"{mode}","target":{quoted(target)},"pool":"{pool}","blocks":{numbers},"via":"{via}"{owner}'

    def ask(self, name: str, pool: str, room: int | None, numbers: list[int], target: str, access: str = "") -> int:
        """Let the harness's plan act on an access; it may hold this thread."""
        if self.failpoint is None:
            return FORWARD
        known = self.of_room(room)
        return self.failpoint.ask({
            "kind": "access", "name": name, "from": self.worker, "to": target, "pool": pool, "access": access,
            "handoff": self.handoff(room), "req": known.owner.req if known else "", "blocks": [[n, n] for n in sorted(set(numbers))],
        })

    def fails(self, answer: int) -> bool:
        """Whether a plan lets an access fail."""
        return answer == FAIL

    def digests(self, room: int | None, side: str, pages: Iterable[int], first: int) -> None:
        """The content of pages, as written or as read; first is the number of the first."""
        if self.content is None or room is None:
            return
        owner = self.named(room)
        events = []
        for i, page in enumerate(pages):
            events.append(("digest", f'"side":"{side}","part":{first + i},"sum":"{self.content.digest(int(page))}","pool":"kv","blocks":[{int(page)}]{owner}'))
        if events:
            self.spool.record_all(events)

    def load(self) -> dict[str, int]:
        """What is in flight: blocks that a request holds, accesses that are open."""
        leased = 0
        for pool in self.pools.values():
            for held in list(pool.holders.values()):
                leased += any(owner.req for owner in list(held.values()))
        return {"leased": leased, "open": self.spool.open}

    def seal(self) -> None:
        """End the source, and leave what the hooks did beside it."""
        from . import report

        self.spool.record_all(report(self))
        self.spool.seal()


def rank_name(worker: str, rank: int) -> str:
    """The worker that one rank of a worker is."""
    return worker if rank <= 0 else f"{worker}.r{rank}"


def tensor_rank(scheduler: Any) -> int:
    """The tensor-parallel rank of a scheduler, where each version keeps it."""
    for holder in (getattr(scheduler, "ps", None), scheduler):
        rank = getattr(holder, "tp_rank", None)
        if rank is not None:
            return int(rank)
    from sglang.srt.runtime_context import get_parallel

    return int(get_parallel().tp_rank)


def _queue(scheduler: Any) -> Any:
    return getattr(scheduler, "disagg_prefill_bootstrap_queue", None) or getattr(scheduler, "disagg_decode_prealloc_queue", None)


def kv_manager(scheduler: Any) -> Any:
    """The transfer manager of a scheduler, or None."""
    return getattr(_queue(scheduler), "kv_manager", None)


def kv_args(scheduler: Any) -> Any:
    """What the transfer engine knows about the pools, or None."""
    return getattr(kv_manager(scheduler), "kv_args", None)


def aux_allocator(scheduler: Any) -> Any:
    """The allocator of metadata slots, or None."""
    return getattr(scheduler, "req_to_metadata_buffer_idx_allocator", None) or getattr(_queue(scheduler), "req_to_metadata_buffer_idx_allocator", None)


def session_of(manager: Any) -> str:
    """How the peers' frames name this transfer engine."""
    for get in (lambda: manager.get_session_id(), lambda: manager.agent.name):
        try:
            return str(get())
        except Exception:
            continue
    return ""
