"""The hooks: what they see of the engine becomes events."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable

from conform_probe.ledger import Owner, Pool
from conform_probe.spool import blocks, quoted

from .agent import Agent, Transfer, hold
from .config import Config
from .content import Content
from .passes import Passes, Row
from .recorder import Known, Read, Recorder, client_id, handoff_of, nth

OUTCOMES = {"FINISHED_ABORTED": "cancelled", "FINISHED_IGNORED": "rejected", "FINISHED_ERROR": "error"}


def flat(groups: Any) -> list[int]:
    """Block numbers, which newer builds give in one list for each group."""
    return [int(n) for g in groups or [] for n in (g if isinstance(g, (list, tuple)) else [g])]


@functools.cache
def signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def errand(request: Any) -> bool:
    """Whether a request is vLLM's own word to the connector, in the name of one that ended before
    prefill's blocks were asked for: nobody waits for an answer to it."""
    return bool(getattr(request, "abort_immediately", False))


class Hooks:
    """Hook functions, bound to the recorder that the process opens later."""

    reference = True  # prefill answers with a reference, which decode is handed

    def __init__(self, recorder: Callable[[], Recorder], config: Config) -> None:
        self._get = recorder
        self.config = config
        self._passes: Passes | None = None
        self._let: set[str] = set()  # reads that a plan has let go

    @property
    def r(self) -> Recorder:
        return self._get()

    # The pool, in EngineCore.

    def opened(self, result: Any, scheduler: Any, *args: Any, **kwargs: Any) -> None:
        r = self.r
        pool = scheduler.kv_cache_manager.block_pool
        r.pool = Pool(r.spool, "kv", int(pool.num_gpu_blocks), 0, "kv")
        limit = int(scheduler.max_model_len)
        r.spool.record("capacity", f'"stage":"{self.config.role}","limit":{limit},"unit":"token","why":"longest prompt with its output (max_model_len)"')

    def allocated(self, result: Any, pool: Any, *args: Any, **kwargs: Any) -> None:
        r = self.r
        if r.pool is not None:
            r.pool.alloc([b.block_id for b in result], r.local.owner or Owner("unknown"))

    def touched(self, function: Any, pool: Any, blocks: Any, *args: Any, **kwargs: Any) -> Any:
        """touch(): a request reads cached blocks; those that nobody held are leased anew."""
        before = function.guard(lambda: {b.block_id: b.ref_cnt for b in blocks if not b.is_null}, {})
        result = function(pool, blocks, *args, **kwargs)
        function.guard(lambda: self._touched(before))
        return result

    def _touched(self, before: dict[int, int]) -> None:
        r = self.r
        owner = r.local.owner or Owner("unknown")
        if r.pool is not None:
            r.pool.alloc([n for n, count in before.items() if count == 0], owner)
            r.pool.hold([n for n, count in before.items() if count > 0], owner)

    def freed(self, function: Any, pool: Any, ordered_blocks: Any, *args: Any, **kwargs: Any) -> Any:
        """free_blocks(): a reference goes; the last one ends the lease."""
        kept = list(ordered_blocks)  # the argument may be an iterator
        function.guard(lambda: self._freeing([b for b in kept if not b.is_null]))
        return function(pool, kept, *args, **kwargs)

    def _freeing(self, blocks: list[Any]) -> None:
        r = self.r
        if r.pool is None:
            return
        self._steps_seen([b.block_id for b in blocks])
        last = [b.block_id for b in blocks if b.ref_cnt == 1]
        more = [b.block_id for b in blocks if b.ref_cnt > 1]
        if more and r.local.owner is not None:
            r.pool.drop(more, r.local.owner)
        r.pool.free(last, r.local.why or self._why(last))

    def _steps_seen(self, numbers: list[int]) -> None:
        """Before blocks go: EngineCore has the results of their holders' passes."""
        r, events = self.r, []
        for holder in {h for n in numbers for h in (r.pool.holders.get(n, {}) if r.pool else {})}:
            name = r.names.get(holder, "")
            known = r.known.get(name)
            if known is not None and known.steps > known.seen:
                known.seen = known.steps
                events.append(r.observe(nth(f"STEP:{r.worker}:{name}", known.steps), "STEP", known.owner.fields()))
        if events:
            r.spool.record_all(events)

    def _why(self, numbers: list[int]) -> str:
        r = self.r
        for n in numbers:
            for owner in (r.pool.holders.get(n, {}) if r.pool else {}).values():
                for known in list(r.known.values()):
                    if known.owner is owner:
                        return "cancel" if known.cancelled else "reject" if known.rejected else "done"
        return "done"

    def for_request(self, function: Any, manager: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        local, before = self.r.local, self.r.local.owner
        local.owner = function.guard(lambda: self.r.know(request).owner)
        try:
            return function(manager, request, *args, **kwargs)
        finally:
            local.owner = before

    def preempted(self, function: Any, scheduler: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        local, before = self.r.local, self.r.local.why
        local.why = "preempt"
        try:
            return function(scheduler, request, *args, **kwargs)
        finally:
            local.why = before

    # Requests, in EngineCore.

    def added(self, scheduler: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        if errand(request):
            return
        r = self.r
        owner = r.know(request).owner
        events = [("admit", f'"need":{int(request.num_prompt_tokens)},"unit":"token"' + owner.fields())]
        params = getattr(request, "kv_transfer_params", None) or {}
        if self.reference and params.get("do_remote_prefill") and self.config.role == "decode":
            events.insert(0, r.observe(f"HANDOFF:{owner.handoff}", "HANDOFF", owner.fields()))
        r.spool.record_all(events)

    def cancelled(self, scheduler: Any, request_ids: Any, finished_status: Any, *args: Any, **kwargs: Any) -> None:
        r = self.r
        if finished_status.name != "FINISHED_ABORTED":
            return
        for name in [request_ids] if isinstance(request_ids, str) else list(request_ids or scheduler.requests):
            request = scheduler.requests.get(name)
            if request is None or request.is_finished() or errand(request):
                continue
            known = r.know(request)
            if not known.cancelled:
                known.cancelled = True
                r.spool.record("cancel", '"why":"abort"' + known.owner.fields())

    def finished(self, scheduler: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        if errand(request):
            return
        r = self.r
        known = r.know(request)
        other = r.known.get(r.names.get(known.owner.holder, ""))
        if other is not None and other is not known and other.finished:
            known.finished = True  # a stand-in, with which a newer build tells its connector of the end
        if not known.finished:
            known.finished = True
            outcome = OUTCOMES.get(request.status.name, "length" if self.config.role == "prefill" else "ok")
            known.rejected = outcome == "rejected"
            if known.told:
                r.spool.record("output", f'"n":{known.told}' + known.owner.fields())
                known.told = 0
            r.spool.record("finish", f'"outcome":"{outcome}"' + known.owner.fields())

    def offered(self, result: Any, scheduler: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        """_connector_finished(): prefill answers with a reference, and keeps its blocks."""
        delay, params = result
        if not delay or not params or self.config.role != "prefill":
            return
        r, fields = self.r, self.r.know(request).owner.fields()
        numbers = flat(params.get("remote_block_ids"))
        held = [n for n in numbers if r.pool is not None and n in r.pool.holders]
        handoff = handoff_of(request.request_id)
        events = [("offer", fields.lstrip(","))]
        if held:
            events.append(("grant", f'"pool":"kv","blocks":{blocks(held)},"to":"*","mode":"r"{fields}'))
        events.append(r.emit(f"HANDOFF:{handoff}", "HANDOFF", fields))
        r.spool.record_all(events)

    def scheduled(self, result: Any, scheduler: Any, *args: Any, **kwargs: Any) -> None:
        """schedule(): EngineCore tells the model's process what to read and which blocks to use."""
        r, events = self.r, self.loads(getattr(result, "kv_connector_metadata", None))
        if not r.alone:
            cached = result.scheduled_cached_reqs
            new = [q.req_id for q in result.scheduled_new_reqs]
            new += [name for name, given in zip(cached.req_ids, cached.new_block_ids) if given and given[0]]
            events += [r.emit(r.sig("BLOCKS", f"{r.worker}:{name}"), "BLOCKS", r.named(name)) for name in new]
        if events:
            r.spool.record_all(events)

    def loads(self, metadata: Any) -> list[tuple[str, str]]:
        """What the connector has EngineCore say to the model's process."""
        r = self.r
        return [r.emit(r.sig("LOAD", f"{r.worker}:{name}"), "LOAD", r.named(name)) for name in getattr(metadata, "reqs_to_recv", None) or ()]

    def stepped(self, scheduler: Any, output: Any, result: Any, *args: Any, **kwargs: Any) -> None:
        """update_from_output(): EngineCore has the result of a pass, and passes tokens on."""
        r, events = self.r, []
        for name in output.num_scheduled_tokens:
            known = r.known.get(name)
            if known is None:
                continue
            known.steps += 0 if r.alone else 1
            at = result.req_id_to_index.get(name)
            got = len(result.sampled_token_ids[at]) if at is not None and result.sampled_token_ids else 0
            if not got or known.finished or self.config.role != "decode":
                continue
            if known.spoke:
                known.told += got  # recorded as one when it ends
            else:
                known.spoke = True
                events.append(("output", f'"n":{got}' + known.owner.fields()))
        if events:
            r.spool.record_all(events)

    def told(self, scheduler: Any, output: Any, *args: Any, **kwargs: Any) -> None:
        """_update_from_kv_xfer_finished(): the worker's word about transfers."""
        r, events = self.r, []
        for name in output.finished_recving or ():
            events.append(r.observe(r.sig("RECV", f"{r.worker}:{name}"), "RECV", r.named(name)))
            known = r.known.get(name)
            if known is not None and not known.finished and name not in (getattr(output, "failed_recving", None) or ()):
                events.append(("accept", known.owner.fields().lstrip(",")))
        for name in output.finished_sending or ():
            events.append(r.observe(r.sig("SENT", f"{r.worker}:{name}"), "SENT", r.named(name)))
        if events:
            r.spool.record_all(events)

    # Transfers, in the model's worker.

    def worker_made(self, result: Any, worker: Any, *args: Any, **kwargs: Any) -> None:
        worker.nixl_wrapper = Agent(worker.nixl_wrapper, worker, self.r, self._arrived)

    def registered(self, worker: Any, kv_caches: Any, *args: Any, **kwargs: Any) -> None:
        """register_kv_caches(): the tensors that hold the pool."""
        if self.config.device == "cpu":
            self.r.content = Content(kv_caches.values())

    def _arrived(self, t: Transfer) -> None:
        if t.order:
            self.r.digests("target", t.order, t.first, t.fields)

    def passed(self, function: Any, runner: Any, *args: Any, **kwargs: Any) -> Any:
        """execute_model(): a forward pass."""
        output = args[0] if args else kwargs.get("scheduler_output")
        rows: list[Row] = function.guard(lambda: self._passing(runner, output), [])
        try:
            return function(runner, *args, **kwargs)
        finally:
            if rows:
                function.guard(lambda: self._passes.end(rows))  # type: ignore[union-attr]

    def _passing(self, runner: Any, output: Any) -> list[Row]:
        if self._passes is None:
            self._passes = Passes(self.r)
        return self._passes.begin(output, int(runner.cache_config.block_size))

    def loading(self, worker: Any, metadata: Any, *args: Any, **kwargs: Any) -> None:
        r, events = self.r, []
        for name, meta in metadata.reqs_to_recv.items():
            there = getattr(getattr(meta, "remote", None), "request_id", "") or getattr(meta, "remote_request_id", "")
            known = r.known.setdefault(name, _known(name, str(there)))
            offered = getattr(getattr(meta, "remote", None), "block_ids", None) or getattr(meta, "remote_block_ids", None)
            known.remote = len(flat(offered))
            events.append(r.observe(f"LOAD:{r.worker}:{name}" if r.alone else r.sig("LOAD", f"{r.worker}:{name}"), "LOAD", r.named(name)))
        if events:
            r.spool.record_all(events)

    def preparing(self, function: Any, worker: Any, request: str, meta: Any, *args: Any, **kwargs: Any) -> Any:
        """_read_blocks_for_req(): a READ is about to be made. One that a plan holds waits where those
        wait whose handshake is not over: what the engine does meanwhile is what it does then."""
        if request not in self._let and function.guard(lambda: self._waits(worker, request, meta)):
            return None
        self._let.discard(request)
        return function(worker, request, meta, *args, **kwargs)

    def _waits(self, worker: Any, request: str, meta: Any) -> bool:
        known = self.r.known.get(request)
        handoff = known.owner.handoff if known is not None else ""

        def ready() -> None:
            self._let.add(request)
            worker._ready_requests.put((request, meta))

        return hold(self.r, "r.post", request, {"handoff": handoff}, ready) is not None

    def reading(self, function: Any, worker: Any, *args: Any, **kwargs: Any) -> Any:
        local = self.r.local
        local.read = function.guard(lambda: self._reading(type(worker), worker, args, kwargs))
        try:
            return function(worker, *args, **kwargs)
        finally:
            local.read = None

    def _reading(self, kind: Any, worker: Any, args: Any, kwargs: Any) -> Read:
        function = inspect.unwrap(kind._read_blocks)
        given = signature(function).bind_partial(worker, *args, **kwargs).arguments
        engine, name, there = (str(given[key]) for key in ("dst_engine_id", "request_id", "remote_request_id"))
        wanted = given["read_spec"].local_block_ids if "read_spec" in given else given.get("local_block_ids")
        mine = flat(wanted)
        known = self.r.known.get(name)
        return Read(engine, name, there, mine, max(known.remote - len(mine), 0) if known is not None else 0)

    def results(self, result: Any, worker: Any, *args: Any, **kwargs: Any) -> None:
        """get_transfer_results(), get_finished(): the worker tells EngineCore."""
        r, events = self.r, []
        sending, receiving = result[:2] if isinstance(result, tuple) else (result.finished_sending, result.finished_recving)
        failed = getattr(result, "failed_recving", None) or ()
        alone = r.alone  # EngineCore is this process, and counts the observations
        for name in receiving or ():
            sig = f"RECV:{r.worker}:{name}" if alone else r.sig("RECV", f"{r.worker}:{name}")
            events.append(r.emit(sig, "RECV", r.named(name), "" if name in failed else "completed"))
        for name in sending or ():
            sig = f"SENT:{r.worker}:{name}" if alone else r.sig("SENT", f"{r.worker}:{name}")
            notified = worker.nixl_wrapper.notified(name)
            if not notified:
                events.append(("expire", f'"req":{quoted(client_id(name))},"handoff":{quoted(handoff_of(name))},"why":"lease"'))
            events.append(r.emit(sig, "SENT", r.named(name), "completed" if notified else ""))
        if events:
            r.spool.record_all(events)


def _known(name: str, there: str) -> Known:
    client = client_id(name)
    return Known(Owner(client, client, handoff_of(there or name)))
