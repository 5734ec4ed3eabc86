"""The hooks: what each of them records. Which function each belongs to is in bindings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Callable, Iterable

from conform_probe.binding import Planned
from conform_probe.ledger import Owner
from .recorder import RADIX, Known, Recorder
from conform_probe.spool import Lines, blocks, quoted


def ints(values: Any) -> list[int]:
    """Numbers of a tensor, an array or a list."""
    return [int(v) for v in (values.tolist() if hasattr(values, "tolist") else values)]


def slot_of(req: Any) -> int | None:
    """The request slot, where each version keeps it."""
    for holder in (getattr(req, "kv", None), req):
        slot = getattr(holder, "req_pool_idx", None)
        if slot is not None:
            return int(slot)
    return None


def harmless(text: str) -> str:
    """The beginning of an engine's message, up to where it may quote what a client sent."""
    plain = re.match(r"[A-Za-z0-9 ,.()_<>=-]{0,120}", text)
    return plain.group(0).strip() if plain else ""


@dataclass
class _Plan:
    """What a pass over some requests touches, until one of them grows by a page or ends."""

    mode: Any
    rids: list[str]
    below: list[int]  # tokens before each request's last page
    page: int
    begins: Lines
    ends: Lines

    def fits(self, mode: Any, reqs: list[Any], lengths: Any) -> bool:
        if mode is not self.mode or [q.rid for q in reqs] != self.rids:
            return False
        page = self.page
        for length, below in zip(lengths.tolist(), self.below):
            if not below < length <= below + page:
                return False
        return True


class Hooks:
    """Hook functions, bound to the recorder that the process opens later."""

    def __init__(self, recorder: Callable[[], Recorder | None], connector: str = "mooncake") -> None:
        self._get = recorder
        self.connector = connector
        self.passes = 0  # forward passes, and looks at what a request has them touch: they number its accesses
        self.looked = 0
        self._page = 0
        self._plan: _Plan | None = None  # of the last pass, while it may be that of the next
        self.pending: set[int] = set()  # pages that the allocator collects before it frees them

    @property
    def r(self) -> Recorder:
        recorder = self._get()
        if recorder is None:
            raise RuntimeError("no recorder")
        return recorder

    @property
    def page(self) -> int:
        """Tokens of a page."""
        if not self._page:
            self._page = self.r.page_size
        return self._page

    # KV pages.

    def mine(self, allocator: Any) -> bool:
        """Whether an allocator is the scheduler's own."""
        return allocator is self.r.scheduler.token_to_kv_pool_allocator

    def kv_alloc_extend(self, result: Any, allocator: Any, prefix_lens: Any, prefix_lens_cpu: Any, seq_lens: Any, seq_lens_cpu: Any, *args: Any, **kwargs: Any) -> None:
        if result is None or not self.mine(allocator):
            return
        page, reqs, at = self.page, self.r.local.reqs or [], 0
        for i, (prefix, length) in enumerate(zip(ints(prefix_lens_cpu), ints(seq_lens_cpu))):
            end = at + length - prefix
            # Those before it are in a page that the request has already.
            self._new(result[at + -prefix % page : end : page], reqs[i] if i < len(reqs) else None)
            at = end

    def decode_allocated(self, result: Any, batch: Any, *args: Any, **kwargs: Any) -> None:
        """alloc_for_decode(batch, …): each request got room for one token more, most of them in
        the page that they write to already."""
        page = self.page
        for i, token in enumerate(result.tolist()):
            if not token % page:
                self._new([token], batch.reqs[i])

    def kv_alloc(self, result: Any, allocator: Any, *args: Any, **kwargs: Any) -> None:
        """alloc(): whole pages."""
        if result is not None and self.mine(allocator):
            reqs = self.r.local.reqs
            self._new(result[:: self.page], reqs[0] if reqs else None)

    def _new(self, firsts: Any, req: Any) -> None:
        """A request has new pages, with these first tokens."""
        r, page = self.r, self.page
        pages = [t // page for t in ints(firsts)]
        if pages:
            r.pools["kv"].alloc(pages, r.know(req).owner if req is not None else Owner("unknown"))

    def kv_collect(self, allocator: Any, index: Any, *args: Any, **kwargs: Any) -> None:
        """free() and free_segment() inside a group: the pages are still leased."""
        if self.mine(allocator) and self._in_group(allocator):
            page = int(allocator.page_size)
            self.pending.update(t // page for t in ints(index))

    def kv_collect_pages(self, allocator: Any, pages: Any, *args: Any, **kwargs: Any) -> None:
        if self.mine(allocator) and self._in_group(allocator):
            self.pending.update(ints(pages))

    def _in_group(self, allocator: Any) -> bool:
        free = getattr(allocator, "is_not_in_free_group", None)
        return allocator.free_group is not None if free is None else not free

    def kv_free(self, allocator: Any, *page_ids: Any, **kwargs: Any) -> None:
        if not self.mine(allocator):
            return
        pages = [p for ids in page_ids for p in ints(ids)]
        self.pending.difference_update(pages)
        self.r.pools["kv"].free(pages, self.r.local.why or self._why(pages), self.r.local.by)

    def _why(self, pages: list[int]) -> str:
        """Why pages come back, by what became of the request that held them."""
        for page in pages:
            for owner in self.r.pools["kv"].holders.get(page, {}).values():
                known = self.r.known.get(owner.req)
                if known is not None:
                    return known.end
        return "done"

    def kv_clear(self, result: Any, allocator: Any, *args: Any, **kwargs: Any) -> None:
        """A flush: every page is free."""
        pool = self.r.pools.get("kv")
        if pool is not None and pool.holders and self.mine(allocator):
            pool.free(list(pool.holders), "evict")

    def row(self, req: Any, length: int) -> list[int]:
        """The pages that the engine's own table gives a request."""
        slot, page = slot_of(req), self.r.page_size
        if slot is None or length <= 0:
            return []
        return [t // page for t in ints(self.r.scheduler.req_to_token_pool.req_to_token[slot, :length:page])]

    def with_requests(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """alloc_for_extend(batch): the pages are for these requests."""
        batch = args[0] if args else kwargs.get("batch")
        local, before = self.r.local, self.r.local.reqs
        local.reqs = list(getattr(batch, "reqs", []))
        try:
            result = function(*args, **kwargs)
        finally:
            reqs, local.reqs = local.reqs, before
        if getattr(batch, "prefix_lens", None):
            function.guard(lambda: self._hold_prefixes(batch, reqs))
        return result

    def _hold_prefixes(self, batch: Any, reqs: list[Any]) -> None:
        """Pages that a request reads from the prefix cache get it as a holder."""
        for req, prefix in zip(reqs, batch.prefix_lens):
            if prefix:
                self.r.pools["kv"].hold(self.row(req, int(prefix)), self.r.know(req).owner)

    def with_request(self, function: Any, queue: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        """_pre_alloc(req), ensure_metadata_buffer(req): what is allocated is for this request."""
        local = self.r.local
        local.reqs = [req]
        function.guard(lambda: self.r.know(req))
        result = function(queue, req, *args, **kwargs)
        # Decode takes the metadata slot right after it; the thread keeps the request until then.
        return result

    # The prefix cache.

    def inserted(self, result: Any, cache: Any, params: Any, *args: Any, **kwargs: Any) -> None:
        """insert(): the cache joins the pages that it took over."""
        value = getattr(params, "value", None)
        if value is None or not len(value) or getattr(result, "rotation_tail_declined", False):
            return
        page = self.page
        kept = value[int(result.prefix_len) :: page] if int(result.prefix_len) % page == 0 else value[::page]
        pages = [t // page for t in ints(kept)]
        self.r.pools["kv"].hold([p for p in pages if p not in self.pending], RADIX)

    def cached(self, result: Any, cache: Any, req: Any, *args: Any, **kwargs: Any) -> None:
        """A request goes on with the cache's pages in place of its own copies."""
        kv = getattr(req, "kv", None)
        length = getattr(kv, "cache_protected_len", None)
        if length is None:
            length = getattr(req, "cache_protected_len", 0)
        if slot_of(req) is not None and length:
            self._moved(self.r.know(req))
            self.r.pools["kv"].hold(self.row(req, int(length)), self.r.know(req).owner)

    def released(self, function: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        """release_kv_cache(): the request leaves every lease that it still has."""
        local, before = self.r.local, self.r.local.why
        function.guard(lambda: self._decide(req))
        try:
            return function(req, *args, **kwargs)
        finally:
            function.guard(lambda: self._leave(req))
            local.why = before

    def _decide(self, req: Any) -> None:
        r, known = self.r, self.r.know(req)
        r.ask("release", "kv", known.room, [], r.worker)
        if not r.local.why and getattr(req, "finished_reason", None) is None and not known.cancelled:
            r.local.why = "preempt"

    def _leave(self, req: Any) -> None:
        known = self.r.know(req)
        self._moved(known)  # if it comes back, it has other pages
        pool, owner = self.r.pools["kv"], known.owner
        pool.drop([p for p in pool.held_by(owner.holder) if p not in self.pending], owner)

    # Request slots and metadata slots.

    def slot_alloc(self, result: Any, pool: Any, reqs: Any, *args: Any, **kwargs: Any) -> None:
        for req, slot in zip(reqs, result or []):
            if int(slot) not in self.r.pools["slot"].holders:
                self.r.pools["slot"].alloc([int(slot)], self.r.know(req).owner)

    def slot_free(self, pool: Any, req: Any, *args: Any, **kwargs: Any) -> None:
        slot = slot_of(req)
        if slot is not None:
            self.r.pools["slot"].free([slot], self.r.local.why or self.r.know(req).end)

    def aux_alloc(self, result: Any, allocator: Any, *args: Any, **kwargs: Any) -> None:
        if result is not None:
            reqs = self.r.local.reqs or []
            self.r.pools["aux"].alloc([int(result)], self.r.know(reqs[-1]).owner if reqs else Owner("unknown"))

    def aux_free(self, allocator: Any, index: Any, *args: Any, **kwargs: Any) -> None:
        if index is not None:
            r = self.r
            why = r.local.why
            for owner in r.pools["aux"].holders.get(int(index), {}).values():
                known = r.known.get(owner.req)
                if not why and known is not None:
                    why = known.end
            r.pools["aux"].free([int(index)], why or "done", r.local.by)

    def aux_set(self, function: Any, buffers: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        """set_buf(): prefill writes a request's metadata."""
        index = getattr(req, "metadata_buffer_index", None)
        if index is None or int(index) < 0:
            return function(buffers, req, *args, **kwargs)
        return self.local_access(function, "w", "aux", [int(index)], req, "set_buf", buffers, req, *args, **kwargs)

    def local_access(self, function: Any, mode: str, pool: str, numbers: list[int], req: Any, via: str, *args: Any, **kwargs: Any) -> Any:
        """A read or write of this worker's own blocks by this thread."""
        r = self.r
        access = r.spool.unique("a")
        function.guard(lambda: r.spool.record_all([r.begin(access, mode, r.worker, pool, blocks(numbers), r.know(req).owner.fields(), via)]))
        try:
            return function(*args, **kwargs)
        finally:
            function.guard(lambda: r.spool.record("end", f'"access":{quoted(access)},"ok":true'))

    # Transfers, in prefill's transfer threads.

    def queued(self, queue: Any, chunk: Any, *args: Any, **kwargs: Any) -> None:
        room = getattr(chunk, "room", None)
        if room is None:
            return
        r = self.r
        known = r.of_room(room)
        use = r.room(room)
        if use.accesses is None:
            if known is not None:
                r.spool.record("offer", f'"req":{quoted(known.owner.req)},"handoff":{quoted(r.handoff(room))}')
            use.accesses = []
        r.posted[id(chunk)] = r.emit(r.spool.unique("xfer"), "XFER_POST", room)

    def dequeued(self, result: Any, queue: Any, *args: Any, **kwargs: Any) -> None:
        room = getattr(result, "room", None)
        local = self.r.local
        local.room, local.chunk, local.posted = room, result, []  # what has not settled by now was given up
        sig = self.r.posted.pop(id(result), None)
        if sig is not None:
            self.r.observe(sig, "XFER_POST", room)

    def send_kv(self, function: Any, manager: Any, session: Any, source: Any, pointers: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        """send_kvcache(), send_kvcache_slice(): one chunk, from pages to pages."""
        r = self.r
        plan = function.guard(lambda: self._transfer(str(session), "kv", ints(source), ints(target)))
        if plan is None:
            return function(manager, session, source, pointers, target, *args, **kwargs)
        return self._carry(function, plan, manager, session, source, pointers, target, *args, **kwargs)

    def send_aux(self, function: Any, manager: Any, info: Any, index: Any, *args: Any, **kwargs: Any) -> Any:
        session = getattr(info, "mooncake_session_id", None) or getattr(info, "agent_name", "")
        plan = function.guard(lambda: self._transfer(str(session), "aux", [int(index)], [int(info.dst_aux_index)]))
        if plan is None:
            return function(manager, info, index, *args, **kwargs)
        return self._carry(function, plan, manager, info, index, *args, **kwargs)

    def _transfer(self, session: str, pool: str, source: list[int], target: list[int]) -> dict[str, Any] | None:
        """Record that a transfer is posted: a read here and a write there."""
        r, room = self.r, self.r.local.room
        if room is None:
            return None
        use = r.room(room)
        peer = r.peers.worker_of(session) or use.peer or "decode-0"
        read, write = r.spool.unique("r"), r.spool.unique("w")
        use.accesses = [*(use.accesses or []), read, write]
        owner = r.named(room)
        r.spool.record_all([
            r.begin(read, "r", r.worker, pool, blocks(source), owner, "transfer"),
            r.begin(write, "w", peer, pool, blocks(target), owner, "transfer"),
        ])
        return {"room": room, "pool": pool, "read": read, "write": write, "peer": peer, "source": source, "target": target}

    def _carry(self, function: Any, plan: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        r = self.r
        answer = function.guard(lambda: r.ask("w", plan["pool"], plan["room"], plan["target"], plan["peer"], plan["write"]), 0)
        result, ok = -1, False
        try:
            if not r.fails(answer):
                if plan["pool"] == "kv":
                    function.guard(lambda: self._source_digests(plan))
                result = function(*args, **kwargs)
                ok = result == 0
            return result
        finally:
            function.guard(lambda: r.ask("w.done", plan["pool"], plan["room"], plan["target"], plan["peer"], plan["write"]))
            function.guard(lambda: self._carried(plan, ok))

    def post_kv(self, function: Any, manager: Any, session: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
        """NIXL's send_kvcache(peer, source, pointers, target, …) and send_kvcache_slice(peer,
        source, target): the write is posted; it is over when its handles have settled."""
        target = args[1] if len(args) > 1 else args[0]
        plan = function.guard(lambda: self._transfer(str(session), "kv", ints(source), ints(target)))
        return self._post(function, plan, manager, session, source, *args, **kwargs)

    def post_aux(self, function: Any, manager: Any, session: Any, index: Any, pointers: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        plan = function.guard(lambda: self._transfer(str(session), "aux", [int(index)], [int(target)]))
        return self._post(function, plan, manager, session, index, pointers, target, *args, **kwargs)

    def _post(self, function: Any, plan: dict[str, Any] | None, *args: Any, **kwargs: Any) -> Any:
        if plan is None:
            return function(*args, **kwargs)
        r = self.r
        answer = function.guard(lambda: r.ask("w", plan["pool"], plan["room"], plan["target"], plan["peer"], plan["write"]), 0)
        if r.fails(answer):
            function.guard(lambda: self._carried(plan, False))
            raise Planned("the harness's plan lets this transfer fail")
        if plan["pool"] == "kv":
            function.guard(lambda: self._source_digests(plan))
        result = function(*args, **kwargs)
        r.local.posted = [*r.local.posted, plan]
        return result

    def settled(self, result: Any, manager: Any, *args: Any, **kwargs: Any) -> None:
        """_await_handles(): every handle has settled, or the wait was given up."""
        done, failed = result if isinstance(result, tuple) else (bool(result), False)
        plans, self.r.local.posted = self.r.local.posted, []
        if done:
            for plan in plans:
                self.r.ask("w.done", plan["pool"], plan["room"], plan["target"], plan["peer"], plan["write"])
                self._carried(plan, not failed)

    def _source_digests(self, plan: dict[str, Any]) -> None:
        part = getattr(getattr(self.r.local.chunk, "index_slice", None), "start", 0) or 0
        if self.r.config.prefill_ranks == self.r.config.decode_ranks:
            self.r.digests(plan["room"], "source", plan["source"], int(part))

    def _carried(self, plan: dict[str, Any], ok: bool) -> None:
        good = "true" if ok else "false"
        self.r.spool.record_all([("end", f'"access":{quoted(plan[a])},"ok":{good}') for a in ("read", "write")])

    # Messages and notifications.

    def zmq_send(self, socket: Any, message: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(message, (list, tuple)):
            self.r.sending(list(message))

    def zmq_recv(self, result: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(result, list):
            self.r.received([getattr(f, "bytes", f) for f in result])

    def status(self, manager: Any, room: Any, value: Any, *args: Any, **kwargs: Any) -> None:
        self.r.status(int(room), int(value))

    def polled(self, result: Any, manager: Any, room: Any, *args: Any, **kwargs: Any) -> None:
        self.r.polled(int(room), int(result))

    def ack_noted(self, manager: Any, room: Any, *args: Any, **kwargs: Any) -> None:
        """The control thread notes a drain acknowledgement for the scheduler."""
        r = self.r
        sig = r.emit(r.spool.unique("ack"), "ACK_NOTED", int(room), "drained")
        r.room(int(room)).notices.append((-1, sig, "ACK_NOTED"))

    def ack_checked(self, result: Any, manager: Any, room: Any = None, *args: Any, **kwargs: Any) -> None:
        if result and room is not None:
            self.r.polled(int(room), -1)

    def do_release(self, function: Any, queue: Any, item: Any, *args: Any, **kwargs: Any) -> Any:
        """A deferred release: with every acknowledgement, or because its time is over."""
        r = self.r
        before = r.local.why
        function.guard(lambda: self._settled(item.req))
        try:
            return function(queue, item, *args, **kwargs)
        finally:
            r.local.why = before

    def _settled(self, req: Any) -> None:
        r = self.r
        room = r.know(req).room
        use = r.rooms.get(room) if room is not None else None
        proved = use is not None and any(kind == "ACK_NOTED" and sig in use.seen for _, sig, kind in use.notices)
        r.local.why = "cancel" if proved else "timeout"
        if not proved and use is not None and any(sig.startswith("ABORT:") for sig in use.sent):
            # The engine's log says that it waited for the acknowledgement in vain.
            r.spool.record("expire", f'"handoff":{quoted(r.handoff(room))},"why":"no drain acknowledgement"')

    # Forward passes.

    def forward(self, function: Any, scheduler: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """run_batch(): each request's pages are read, and the new ones written."""
        ends = function.guard(lambda: self._pass(batch))
        try:
            return function(scheduler, batch, *args, **kwargs)
        finally:
            if ends is not None:
                self.r.spool.record_lines(*ends)

    def _pass(self, batch: Any) -> tuple[Lines, str] | None:
        """Record what begins; the answer is what ends with the pass. Most passes of a decode
        worker touch the pages of the last one: then only the numbers are new."""
        mode, plan = batch.forward_mode, self._plan
        lengths = batch.seq_lens_cpu if getattr(batch, "seq_lens_cpu", None) is not None else batch.seq_lens
        if plan is None or not plan.fits(mode, batch.reqs, lengths):
            plan = self._planned(batch, mode, lengths)
            if plan is None:
                return None
        self.passes += 1
        name = f"{self.r.worker}/f{self.passes}"
        self.r.spool.record_lines(plan.begins, name)
        return plan.ends, name

    def _planned(self, batch: Any, mode: Any, lengths: Any) -> _Plan | None:
        """What a pass touches. It is kept for the next one, if that may be the same."""
        self._plan = None
        if mode.is_idle() or mode.is_prebuilt():
            return None
        r, page = self.r, self.page
        prefixes = list(getattr(batch, "prefix_lens", None) or []) if mode.is_extend() else []
        begins: list[Lines] = []
        ends: list[Lines] = []
        below: list[int] = []
        for i, (req, length) in enumerate(zip(batch.reqs, lengths.tolist())):
            known = r.known.get(req.rid) or r.know(req)
            count = -(-length // page)
            if prefixes or count != known.counted:
                self._look(known, req, length, int(prefixes[i]) // page if i < len(prefixes) else count - 1)
            below.append((count - 1) * page)
            if known.begins is not None:
                begins.append(known.begins)
                ends.append(known.ends)
        if not begins:
            return None
        plan = _Plan(mode, [q.rid for q in batch.reqs], below, page, Lines.joined(begins), Lines.joined(ends))
        if r.config.role == "decode" and not prefixes:
            self._plan = plan
        return plan

    def _look(self, known: Known, req: Any, length: int, first: int) -> None:
        """Read a request's pages from the engine's own table: they change at the page
        boundaries of a decode, and with each prefill."""
        r = self.r
        pages = self.row(req, length)
        if not known.read and r.config.role == "decode":
            known.read = True
            self._first_read(known, req, pages)
        known.counted = len(pages) if r.config.role == "decode" else -1
        touched = [(mode, which) for mode, which in (("r", pages), ("w", pages[first:])) if which]
        if not touched:
            known.begins = known.ends = None
            return
        self.looked += 1  # a name for them among those of a pass
        src, owner = r.spool.src, known.owner.fields()
        fields = f'"target":{quoted(r.worker)},"pool":"kv","blocks":'
        known.begins = Lines(src, "begin", [f'.{self.looked}{mode}","mode":"{mode}",{fields}{blocks(which)},"via":"forward"{owner}' for mode, which in touched])
        known.ends = Lines(src, "end", [f'.{self.looked}{mode}","ok":true' for mode, _ in touched])

    def _moved(self, known: Known) -> None:
        """A request has other pages from now on."""
        known.counted = -1
        self._plan = None

    def _first_read(self, known: Any, req: Any, pages: list[int]) -> None:
        """The content that decode is about to compute from."""
        n = -(-len(req.origin_input_ids) // self.r.page_size)
        if known.room is not None and not self._other_shape():
            self.r.digests(known.room, "target", pages[known.prefix : n], 0)

    def _other_shape(self) -> bool:
        return self.r.config.prefill_ranks != self.r.config.decode_ranks

    # Requests.

    def prefill_added(self, function: Any, queue: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        function.guard(lambda: self.r.know(req))
        need = len(req.origin_input_ids)
        result = function(queue, req, *args, **kwargs)
        function.guard(lambda: self._admitted(req, need, any(q is req for q in queue.queue)))
        return result

    def decode_added(self, function: Any, queue: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        function.guard(lambda: self._learn(req))
        need = len(req.origin_input_ids)
        result = function(queue, req, *args, **kwargs)
        lists = [queue.queue, getattr(queue, "pending_reqs", [])]
        function.guard(lambda: self._admitted(req, need, any(getattr(q, "req", q) is req for q in [*lists[0], *lists[1]])))
        return result

    def _learn(self, req: Any) -> None:
        known = self.r.know(req)
        known.bootstrap_port = getattr(req, "bootstrap_port", None)

    def _admitted(self, req: Any, need: int, queued: bool) -> None:
        if queued:
            known = self.r.know(req)
            self.r.spool.record("admit", f'"req":{quoted(known.owner.req)},"need":{need},"unit":"token"' + self._handoff(known))

    def _handoff(self, known: Any) -> str:
        return f',"handoff":{quoted(known.owner.handoff)}' if known.owner.handoff else ""

    def refused(self, req: Any, message: Any = "", *args: Any, **kwargs: Any) -> None:
        """set_finish_with_abort(): intake refuses the request."""
        self._reject(req, message if isinstance(message, str) else type(message).__name__)

    def over_capacity(self, result: Any, queue: Any, req: Any, *args: Any, **kwargs: Any) -> None:
        if result:
            self._reject(req, "exceeds the KV pool")

    def _reject(self, req: Any, why: str) -> None:
        known = self.r.know(req)
        if not known.rejected:
            known.rejected = True
            self.r.spool.record("reject", f'"req":{quoted(known.owner.req)}{self._handoff(known)},"why":{quoted(harmless(why))},"status":400')

    def cancelled(self, scheduler: Any, message: Any, *args: Any, **kwargs: Any) -> None:
        """abort_request(): this stage's deciding thread takes a cancellation in."""
        everything = bool(getattr(message, "abort_all", False))
        for rid, known in list(self.r.known.items()):
            if (everything or rid.startswith(str(message.rid))) and not known.finished and not known.cancelled:
                known.cancelled = True
                self.r.spool.record("cancel", f'"req":{quoted(rid)}{self._handoff(known)},"why":"abort"')

    def timed_out(self, result: Any, party: Any, *args: Any, **kwargs: Any) -> None:
        if result is None:
            return
        known = self.r.of_room(int(party.bootstrap_room))
        if known is not None:
            after = int(float(getattr(party.kv_mgr, "waiting_timeout" if self.r.config.role == "decode" else "bootstrap_timeout", 0)) * 1e9)
            self.r.spool.record("expire", f'"req":{quoted(known.owner.req)}{self._handoff(known)},"why":"{self.r.config.role} timeout","after":{after}')

    def committed(self, function: Any, queue: Any, item: Any, *args: Any, **kwargs: Any) -> Any:
        """_commit_transfer_to_req(): decode takes the handed-over state for valid."""
        req, index = item.req, int(item.metadata_buffer_index)
        result = self.local_access(function, "r", "aux", [index], req, "commit", queue, item, *args, **kwargs)
        function.guard(lambda: self._accepted(req))
        return result

    def _accepted(self, req: Any) -> None:
        known = self.r.know(req)
        if known.room is None or type(getattr(req, "finished_reason", None)).__name__ == "FINISH_ABORT":
            return
        self.r.spool.record("accept", f'"req":{quoted(known.owner.req)},"handoff":{quoted(known.owner.handoff)}')
        n = -(-len(req.origin_input_ids) // self.r.page_size)
        if not self._other_shape():
            self.r.digests(known.room, "target", self.row(req, len(req.origin_input_ids))[known.prefix : n], 0)

    def streamed(self, function: Any, streamer: Any, reqs: Any, *args: Any, **kwargs: Any) -> Any:
        """stream_output(): tokens and outcomes leave the stage."""
        for req in reqs:
            if req.finished_reason is not None or req.stream:
                break
        else:  # nothing leaves before the end: so in nearly every pass
            return function(streamer, reqs, *args, **kwargs)
        before = function.guard(lambda: [q for q in reqs if q.finished_output], [])
        try:
            return function(streamer, reqs, *args, **kwargs)
        finally:
            function.guard(lambda: self._told(reqs, before))

    def _told(self, reqs: Iterable[Any], before: list[Any]) -> None:
        for req in reqs:
            done = bool(req.finished_output) and not any(q is req for q in before)
            if not done and not req.stream:  # nothing leaves before the end
                continue
            known = self.r.know(req)
            count = len(req.output_ids)
            if self.r.config.role == "decode" and count > known.told:
                self.r.spool.record("output", f'"req":{quoted(known.owner.req)},"n":{count - known.told}' + self._handoff(known))
                known.told = count
            if done:
                self._finished(known, req)

    def aborted(self, scheduler: Any, message: Any, req: Any = None, *args: Any, **kwargs: Any) -> None:
        """send_abort_output(): a request that waited is told that it was aborted."""
        rid = str(getattr(req, "rid", None) or getattr(message, "rid", ""))
        known = self.r.known.get(rid)
        if known is not None and not known.finished:
            known.finished = True
            self.r.spool.record("finish", f'"req":{quoted(rid)},"outcome":"cancelled"' + self._handoff(known))

    def _finished(self, known: Any, req: Any) -> None:
        reason = getattr(req, "finished_reason", None)
        kind = type(reason).__name__
        known.finished = True
        status = ""
        if kind == "FINISH_ABORT":
            outcome = "rejected" if known.rejected else "cancelled" if known.cancelled else "error"
            code = getattr(reason, "status_code", None)
            status = f',"status":{int(code)}' if code is not None else ""
        else:
            outcome = "length" if self.r.config.role == "prefill" else "ok"
        self.r.spool.record("finish", f'"req":{quoted(known.owner.req)},"outcome":"{outcome}"{status}' + self._handoff(known))
