"""The recorder: what one process of a worker does, as events of its source."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import Any

from conform_probe.binding import Bound
from conform_probe.failpoint import Failpoint
from conform_probe.ledger import Owner, Pool
from conform_probe.part import report
from conform_probe.spool import Spool, blocks, quoted

from .config import Config
from .content import Content

SPLIT = (0, 29)  # from here on NIXL's connector is a package, and the model runs in a process of its own

WARM = "w-"  # how the requests begin that warm a pair of workers up: no plan is about them

REMEMBERED = 4096  # requests: far more than are in flight at once

_CLIENT = re.compile(r"(?:cmpl-|chatcmpl-)?(.+?)-0(?:-[0-9a-f]{8})?$")


def client_id(engine_id: str) -> str:
    """A request as its client named it: vLLM puts words before and after."""
    found = _CLIENT.match(engine_id)
    return found.group(1) if found else engine_id


def handoff_of(engine_id: str) -> str:
    """The handoff of a request at prefill: its blocks are named by the request."""
    return "kv-" + client_id(engine_id)


def nth(sig: str, n: int) -> str:
    """The id of the nth signal of one content."""
    return sig if n == 1 else f"{sig}~{n}"


@dataclass
class Known:
    """What is known of a request at this stage."""

    owner: Owner
    cancelled: bool = False
    finished: bool = False
    rejected: bool = False
    told: int = 0  # tokens that left this stage and are not recorded yet
    spoke: bool = False  # a token has left
    steps: int = 0  # forward passes whose result EngineCore has
    seen: int = 0  # … and that it has recorded having it
    remote: int = 0  # decode's model process: how many blocks prefill offered


@dataclass
class Read:
    """What is being read when the NIXL agent is called."""

    engine: str  # the worker that is read
    request: str  # as this worker names it
    remote: str  # as that one does
    blocks: list[int]  # here, in order
    first: int  # the number of the first of them among those that were offered


class Local(threading.local):
    """What a thread is in the middle of."""

    owner: Owner | None = None  # whose blocks are allocated or freed
    why: str = ""
    read: Read | None = None


class Recorder:
    """One process's source, and what its hooks need to know."""

    def __init__(self, config: Config, source: str, state: Bound) -> None:
        self.config, self.source, self.state = config, source, state
        self.worker = config.worker
        self.local = Local()
        self.known: dict[str, Known] = {}  # by the engine's id
        self.names: dict[str, str] = {}  # the engine's ids, by holder
        self.pool: Pool | None = None
        self.content: Content | None = None
        self.sent: dict[str, int] = {}  # by signal, how often it was emitted or observed here
        self.failpoint: Failpoint | None = None
        self.spool = Spool(config.dir, source, self._tap)
        if config.failpoint:  # before the first line, so that the harness hears of the source
            self.failpoint = Failpoint(config.failpoint, source, self.seal, self.load)
            self.spool.tapped = self.failpoint.hears("begin", "end")
        self.spool.record("source", config.source(self.worker, "conform-vllm-probe 1", state))

    def _tap(self, kind: str, line: bytes) -> None:
        if self.failpoint is not None:
            self.failpoint.tap(kind, line)

    def know(self, request: Any) -> Known:
        """What is known of a request; from its first sight on."""
        known = self.known.get(request.request_id)
        if known is None:
            params = getattr(request, "kv_transfer_params", None) or {}
            there = str(params.get("remote_request_id") or "")
            handoff = handoff_of(there or request.request_id) if params else ""
            handoff = str(params.get("transfer_id") or "") or handoff
            client = client_id(request.request_id)
            known = self.known[request.request_id] = Known(Owner(client, client, handoff))
            self.names.setdefault(client, request.request_id)
            self._forget()
        return known

    def _forget(self) -> None:
        """Of many requests, the oldest are forgotten once they have ended and hold nothing."""
        if len(self.known) <= REMEMBERED:
            return
        for name, known in list(self.known.items())[:8]:
            if known.finished and not (self.pool is not None and self.pool.holds(known.owner.holder)):
                del self.known[name]
                self.names.pop(known.owner.holder, None)

    def named(self, engine_id: str) -> str:
        """`,"req":…,"handoff":…` of a request that this process knows by its id alone."""
        known = self.known.get(engine_id)
        if known is not None:
            return known.owner.fields()
        return f',"req":{quoted(client_id(engine_id))},"handoff":{quoted(handoff_of(engine_id))}'

    @property
    def alone(self) -> bool:
        """Whether EngineCore and the model share this process, and its one thread: what one
        does next to the other needs no signals."""
        return self.config.version < SPLIT

    def digests(self, side: str, numbers: list[int], first: int, fields: str) -> None:
        """The content of blocks, as written or as read; first is the number of the first."""
        if self.content is None:
            return
        self.spool.record_all([
            ("digest", f'"side":"{side}","part":{first + i},"sum":"{self.content.digest(n)}","pool":"kv","blocks":[{n}]{fields}')
            for i, n in enumerate(numbers)
        ])

    def sig(self, name: str, about: str) -> str:
        """The id of a signal between processes, made of its content, the same on both sides: the
        nth emission here is the nth observation there."""
        base = f"{name}:{about}"
        n = self.sent[base] = self.sent.get(base, 0) + 1
        return nth(base, n)

    def emit(self, sig: str, signal: str, fields: str, claims: str = "", more: str = "") -> tuple[str, str]:
        """An emit event, for record_all."""
        claim = f',"claims":"{claims}"' if claims else ""
        return "emit", f'"sig":{quoted(sig)},"signal":"{signal}"{fields}{claim}{more}'

    def observe(self, sig: str, signal: str, fields: str) -> tuple[str, str]:
        return "observe", f'"sig":{quoted(sig)},"signal":"{signal}"{fields}'

    def begin(self, access: str, mode: str, target: str, numbers: list[int], fields: str, via: str) -> tuple[str, str]:
        """A begin event, for record_all."""
        return "begin", f'"access":{quoted(access)},"mode":"{mode}","target":{quoted(target)},"pool":"kv","blocks":{blocks(numbers)},"via":"{via}"{fields}'

    def load(self) -> dict[str, int]:
        """What is in flight: blocks that a request holds, accesses that are open."""
        leased = len(self.pool.holders) if self.pool is not None else 0
        return {"leased": leased, "open": self.spool.open}

    def seal(self) -> None:
        """End the source, and leave what the hooks did beside it."""
        self.spool.record_all(report(self.config, self.source, self.state))
        self.spool.seal()
