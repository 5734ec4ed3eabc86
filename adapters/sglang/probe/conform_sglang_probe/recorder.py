"""The recorder: what one scheduler process does, as events of its source."""

from __future__ import annotations

import collections
import json
import os
import threading
from dataclasses import dataclass, field
from typing import Any, Iterable

from . import frames
from conform_probe.binding import Bound
from .config import Config
from .content import Pages
from conform_probe.failpoint import FAIL, FORWARD, Failpoint
from conform_probe.ledger import Owner, Pool
from conform_probe.part import report
from conform_probe.peers import Peers
from conform_probe.spool import Lines, Spool, blocks, quoted, runs

RADIX = Owner("radix")  # the prefix cache, as a holder

FAKE_HOST = "2.2.2.2"  # such a request is served by one worker alone

# Requests and rooms that are remembered after their end for what may still come of
# them: far more than are in flight at once.
REMEMBERED = 4096
STALE = 3  # a request that never ended is forgotten the third time it is the oldest and holds nothing


@dataclass
class Known:
    """What is known of a request at this stage."""

    owner: Owner
    room: int | None
    rejected: bool = False
    cancelled: bool = False
    finished: bool = False
    stale: int = 0  # how often it was the oldest and had not ended
    bootstrap_port: Any = None  # decode: as the request named it
    told: int = 0  # tokens that left
    read: bool = False  # decode: its pages have been read once
    prefix: int = 0  # decode: pages of the prompt that were not transferred
    counted: int = -1  # pages, as the engine's table was last read
    begins: Lines | None = None  # what its forward passes touch
    ends: Lines | None = None

    @property
    def end(self) -> str:
        """Why its blocks come back, where nothing else was said."""
        return "reject" if self.rejected else "cancel" if self.cancelled else "done"


@dataclass
class Room:
    """What is known of a bootstrap room."""

    uses: list[str] = field(default_factory=list)  # its requests, in order
    sent: dict[str, int] = field(default_factory=dict)  # by signal id, how often
    grants: set[str] = field(default_factory=set)  # whom the present use was granted to
    aborts: dict[str, str] = field(default_factory=dict)  # by generation, the request that an abort was about
    accesses: list[str] | None = None  # this rank's, once a transfer was offered
    notices: list[tuple[int, str, str]] = field(default_factory=list)  # status, signal, kind
    seen: dict[str, set[int]] = field(default_factory=dict)  # by in-process signal, the threads that took it in
    taken: dict[int, tuple[int, int]] = field(default_factory=dict)  # by thread: what it has looked at
    peer: str = ""  # the decode worker
    prefill: str = ""  # decode: the prefill worker that serves the present use


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

    def __init__(self, config: Config, scheduler: Any, state: Bound) -> None:
        self.config = config
        self.scheduler = scheduler
        self.state = state  # what became of the hooks
        self.rank = tensor_rank(scheduler)
        self.worker = rank_name(config.worker, self.rank)
        self.local = Local()
        self.known: dict[str, Known] = {}
        self.rooms: dict[int, Room] = {}
        self._order: collections.deque[int | str] = collections.deque()  # rooms, and requests without one, oldest first
        self._remembering = threading.Lock()
        self._forgot = False
        self.posted: dict[int, str] = {}  # by queued chunk, the signal that announces it
        self.failpoint: Failpoint | None = None
        self.pools: dict[str, Pool] = {}
        self.peers = Peers(config.dir)
        self.spool = Spool(config.dir, self.worker, self._tap)
        if config.failpoint:  # before the first line, so that the harness hears of the source
            self.failpoint = Failpoint(config.failpoint, self.worker, self.seal, self.load)
        self.spool.tapped = self.failpoint is not None and self.failpoint.hears("begin", "end")
        self.spool.record("source", config.source(self.worker, "conform-sglang-probe 1", state))
        self.args = kv_args(scheduler)
        self.content = Pages(self.args) if self.args is not None and config.content and config.device == "cpu" else None
        self.pools = self._pools()
        self._capacity()
        self._meet()

    def _tap(self, kind: str, line: bytes) -> None:
        if self.failpoint is not None:
            self.failpoint.tap(kind, line)

    def _pools(self) -> dict[str, Pool]:
        s = self.scheduler
        allocator = s.token_to_kv_pool_allocator
        count = int(allocator.size) // int(allocator.page_size) + 1
        size = Pages(self.args).page_bytes if self.args is not None else 0
        pools = {"kv": Pool(self.spool, "kv", count, size, "kv", RADIX)}
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
            self.peers.meet(self.worker, name)
        first, _, again = self.config.worker.partition(".")
        if again and self.rank == 0:  # a further incarnation, under the earlier one's address
            self.peers.tell(first + ".now", self.config.worker)

    # Requests and handoffs.

    def handoff(self, room: int | None) -> str:
        """The handoff that a room stands for now; "" without a room."""
        if room is None:
            return ""
        known = self.rooms.get(room)
        n = len(known.uses) - 1 if known is not None else 0
        return f"room-{room}" if n <= 0 else f"room-{room}#{n}"

    def room(self, number: int) -> Room:
        """What is known of a room; from its first sight on."""
        room = self.rooms.get(number)
        if room is None:
            with self._remembering:
                room = self.rooms.get(number)
                if room is None:
                    room = self.rooms[number] = Room()
                    self._remember(number)
        return room

    def _remember(self, what: int | str) -> None:
        """Note a room, or a request without one, and forget the oldest if it has ended."""
        self._order.append(what)
        for _ in range(min(len(self._order) - REMEMBERED, 2)):  # two for one: it shrinks again
            oldest = self._order.popleft()
            room = self.rooms.get(oldest) if isinstance(oldest, int) else None
            rids = list(room.uses) if room is not None else [oldest] if isinstance(oldest, str) else []
            if any([self._busy(rid) for rid in rids]):
                self._order.append(oldest)
                continue
            for rid in rids:
                self.known.pop(rid, None)
            if isinstance(oldest, int):
                self.rooms.pop(oldest, None)
                self._forgot = True

    def _busy(self, rid: str) -> bool:
        """Whether events of a request may still come that need what is known of it."""
        known = self.known.get(rid)
        if known is None:
            return False
        if any(pool.holds(known.owner.holder) for pool in self.pools.values()):
            return True
        known.stale += 1
        return not known.finished and known.stale < STALE

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
                use = self.room(room)
                if rid not in use.uses:
                    use.uses.append(rid)
                    use.grants.clear()
                    use.accesses = None
                    use.prefill = ""
            else:
                with self._remembering:
                    self._remember(rid)
            known = self.known[rid] = Known(Owner(rid, rid, self.handoff(room)), room)
        return known

    def of_room(self, room: int | None) -> Known | None:
        """The request that a room belongs to now, once this stage has seen it."""
        use = self.rooms.get(room) if room is not None else None
        return self.known.get(use.uses[-1]) if use is not None and use.uses else None

    def accesses(self, room: int) -> list[str]:
        """This rank's accesses under a room."""
        use = self.rooms.get(room)
        return use.accesses or [] if use is not None else []

    def named(self, room: int | None) -> str:
        """`,"handoff":…` and, where it is known, `,"req":…`."""
        known = self.of_room(room)
        if known is not None:
            return known.owner.fields()
        return f',"handoff":{quoted(self.handoff(room))}' if room is not None else ""

    # Signals.

    def emit(self, sig: str, signal: str, room: int | None, claims: str = "", more: str = "", about: Known | None = None, first: list[tuple[str, str]] | None = None) -> str:
        """Record that a signal leaves this thread. Its id is one that no other has. It is
        about the present use of its room, unless about names another. first are events that
        come with it."""
        claim = f',"claims":"{claims}"' if claims else ""
        named = about.owner.fields() if about is not None else self.named(room)
        self.spool.record_all([*(first or []), ("emit", f'"sig":{quoted(sig)},"signal":"{signal}"{named}{claim}{more}')])
        return sig

    def observe(self, sig: str, signal: str, room: int | None, about: Known | None = None) -> None:
        """Record that this thread takes a signal in."""
        named = about.owner.fields() if about is not None else self.named(room)
        self.spool.record("observe", f'"sig":{quoted(sig)},"signal":"{signal}"{named}')

    def about(self, m: frames.Message) -> Known | None:
        """The request that a message is about. Where it names a generation, that is the one
        of the abort of this generation, though its room may have a new use by now."""
        use = self.of_room(m.room)
        if not m.generation:
            return use
        aborts = self.room(m.room).aborts
        if m.signal == "ABORT" and use is not None:
            aborts.setdefault(m.generation, use.owner.req)
        return self.known.get(aborts.get(m.generation, ""), use)

    def sig_of(self, m: frames.Message, sender: str, about: Known | None) -> str:
        """The id of a message between workers: made of its content, the same on both sides."""
        parts = [m.signal, about.owner.handoff if about is not None else self.handoff(m.room), sender]
        if m.generation:
            parts.append(m.generation)
        return ":".join(parts)

    def sending(self, message: list[Any]) -> None:
        """A ZeroMQ message is about to leave this thread."""
        m = frames.parse(_bytes(message))
        if m is None or m.to_decode != (self.config.role == "prefill"):
            return
        claims, more = m.claims, ""
        grants: list[tuple[str, str]] = []
        if m.signal == "METADATA":
            grants = self._grants(m)
        elif m.signal == "ABORT":
            # With a generation decode waits for the answer; Mooncake gives one to any.
            # NIXL without deferred release has nobody who would take one in.
            if m.generation or self.config.connector == "mooncake":
                more = ',"asks":"ABORT_ACK"'
        elif m.signal == "STATUS/Success":
            more = f',"access":{json.dumps(self.accesses(m.room))}'
        elif claims == "drained" and self.failpoint is not None:
            self.ask("ack", "", m.room, [], "")
        about = self.about(m)
        sig, sent = self.sig_of(m, self.worker, about), self.room(m.room).sent
        n = sent[sig] = sent.get(sig, 0) + 1
        if n > 1:
            sig = f"{sig}~{n}"
        elif self._forgot and about is None:  # its room may have had that id already
            sig = f"{sig}~{self.spool.unique('late')}"
        self.emit(sig, m.signal, m.room, claims, more, about, grants)

    def received(self, message: list[Any]) -> None:
        """A ZeroMQ message has come to this thread."""
        m = frames.parse(_bytes(message))
        if m is None or m.to_decode == (self.config.role == "prefill"):
            return
        if m.to_decode:
            sender = rank_name(self._prefill_of(m.room), max(m.rank, 0) if m.rank >= 0 else self._twin())
        else:
            if m.session:
                self.room(m.room).peer = self.peers.worker_of(m.session)
            sender = self.room(m.room).peer or rank_name("decode-0", self._twin())
        about = self.about(m)
        self.observe(self.sig_of(m, sender, about), m.signal, m.room, about)

    def _twin(self) -> int:
        """The rank at the peer that speaks to this one where a message does not say."""
        return self.rank if self.config.prefill_ranks == self.config.decode_ranks else 0

    def _prefill_of(self, room: int) -> str:
        """The prefill worker of a room, as decode's request names it by its port. A room has
        one for each use: a further incarnation knows nothing of it."""
        use = self.rooms.get(room)
        if use is not None and use.prefill:
            return use.prefill
        known = self.of_room(room)
        port = known.bootstrap_port if known is not None else None
        table = self.config.prefills
        name = table.get(str(port), next(iter(table.values()), "prefill-0"))
        try:
            with open(os.path.join(os.path.dirname(self.config.dir), "peers", name + ".now"), encoding="utf-8") as file:
                name = file.read()
        except OSError:  # still the first
            pass
        if use is not None and port is not None:
            use.prefill = name
        return name

    def _grants(self, m: frames.Message) -> list[tuple[str, str]]:
        """METADATA exposes pages and a metadata slot to prefill's writes."""
        name = self._prefill_of(m.room)
        targets = [rank_name(name, self.rank)] if self._twin() or self.config.prefill_ranks == self.config.decode_ranks else [rank_name(name, r) for r in range(self.config.prefill_ranks)]
        owner = self.named(m.room)
        grants = []
        for target in targets:
            granted = self.room(m.room).grants
            if target in granted:
                continue
            granted.add(target)
            for pool, numbers in (("kv", m.pages), ("aux", [m.aux] if m.aux >= 0 else [])):
                if numbers:
                    grants.append(("grant", f'"pool":"{pool}","blocks":{blocks(numbers)},"to":{quoted(target)},"mode":"w"{owner}'))
        return grants

    # In-process notifications: the status of a room, written by one thread and polled by another.

    def status(self, room: int, value: int) -> None:
        """A thread is about to set a room's status."""
        name = frames.STATUS.get(value, str(value))
        claims = {"Success": "completed", "Failed": "received"}.get(name, "")
        more = ""
        if claims == "completed" and self.config.role == "prefill":
            more = f',"access":{json.dumps(self.accesses(room))}'
        sig = self.spool.unique("room")
        self.emit(sig, f"ROOM/{name}", room, claims, more)
        self.room(room).notices.append((value, sig, f"ROOM/{name}"))

    def polled(self, room: int, value: int) -> None:
        """A thread has read a room's status: it takes in what was written before."""
        use = self.rooms.get(room)
        if use is None or not use.notices:
            return
        ident = threading.get_ident()
        last = (len(use.notices), value)
        if use.taken.get(ident) == last:
            return
        use.taken[ident] = last
        for written, sig, signal in list(use.notices):
            if written == value and ident not in use.seen.setdefault(sig, set()):
                use.seen[sig].add(ident)
                self.observe(sig, signal, room)

    # Accesses.

    def begin(self, access: str, mode: str, target: str, pool: str, numbers: str, owner: str, via: str) -> tuple[str, str]:
        """A begin event, for record_all."""
        return "begin", f'"access":{quoted(access)},"mode":"{mode}","target":{quoted(target)},"pool":"{pool}","blocks":{numbers},"via":"{via}"{owner}'

    def ask(self, name: str, pool: str, room: int | None, numbers: list[int], target: str, access: str = "") -> int:
        """Let the harness's plan act on an access; it may hold this thread."""
        if self.failpoint is None or not self.failpoint.wants(name, pool):
            return FORWARD
        known = self.of_room(room)
        return self.failpoint.ask({
            "kind": "access", "name": name, "from": self.worker, "to": target, "pool": pool, "access": access,
            "handoff": self.handoff(room), "req": known.owner.req if known else "", "blocks": runs(numbers),
        })

    def fails(self, answer: int) -> bool:
        """Whether a plan lets an access fail."""
        return answer == FAIL

    def digests(self, room: int | None, side: str, pages: Iterable[int], first: int) -> None:
        """The content of pages, as written or as read; first is the number of the first.
        Each rank has other heads of the same page: its parts have numbers of their own."""
        if self.content is None or room is None:
            return
        owner = self.named(room)
        events = []
        for i, page in enumerate(pages):
            if not 0 <= int(page) < self.content.count:
                continue
            events.append(("digest", f'"side":"{side}","part":{(self.rank << 20) + first + i},"sum":"{self.content.digest(int(page))}","pool":"kv","blocks":[{int(page)}]{owner}'))
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
        silent = sorted(name for name, n in self.state.fired.items() if n == 0 and not name.startswith("cpu:"))
        note = ("note", f'"text":{quoted("hooks that never fired: " + (", ".join(silent) or "none"))}')
        self.spool.record_all([note, *report(self.config, self.worker, self.state)])
        self.spool.seal()


def _bytes(message: list[Any]) -> list[bytes]:
    """A message's parts; none if it has only one, or what are no parts."""
    parts = [getattr(f, "bytes", f) for f in message] if len(message) > 1 else []
    return [bytes(p) for p in parts] if all(isinstance(p, (bytes, bytearray, memoryview)) for p in parts) else []


def rank_name(worker: str, rank: int) -> str:
    """The worker that one rank of a worker is."""
    return worker if rank <= 0 else f"{worker}.r{rank}"


def tensor_rank(scheduler: Any) -> int:
    """The tensor-parallel rank of a scheduler, where each version keeps it."""
    for holder in (getattr(scheduler, "ps", None), scheduler):
        rank = getattr(holder, "tp_rank", None)
        if rank is not None:
            return int(rank)
    from sglang.srt.runtime_context import get_parallel  # type: ignore[import-not-found]

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
    try:
        return str(manager.get_session_id())
    except Exception:
        return str(getattr(getattr(manager, "agent", None), "name", ""))
