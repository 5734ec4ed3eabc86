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

REMEMBERED = 4096  # requests: far more than are in flight at once

_CLIENT = re.compile(r"(?:cmpl-|chatcmpl-)?(.+?)-0(?:-[0-9a-f]{8})?$")


def client_id(engine_id: str) -> str:
    """A request as its client named it: vLLM puts words before and after."""
    found = _CLIENT.match(engine_id)
    return found.group(1) if found else engine_id


def handoff_of(engine_id: str) -> str:
    """The handoff of a request at prefill: its blocks are named by the request."""
    return "kv-" + client_id(engine_id)


@dataclass
class Known:
    """What is known of a request at this stage."""

    owner: Owner
    cancelled: bool = False
    finished: bool = False
    rejected: bool = False


class Local(threading.local):
    """What a thread is in the middle of."""

    owner: Owner | None = None  # whose blocks are allocated or freed
    why: str = ""
    read: tuple[str, str, str] = ("", "", "")  # the engine read from, the request here, the request there


class Recorder:
    """One process's source, and what its hooks need to know."""

    def __init__(self, config: Config, source: str, state: Bound) -> None:
        self.config, self.source, self.state = config, source, state
        self.worker = config.worker
        self.local = Local()
        self.known: dict[str, Known] = {}  # by the engine's id
        self.pool: Pool | None = None
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
            client = client_id(request.request_id)
            known = self.known[request.request_id] = Known(Owner(client, client, handoff))
            self._forget()
        return known

    def _forget(self) -> None:
        """Of many requests, the oldest are forgotten once they have ended and hold nothing."""
        if len(self.known) <= REMEMBERED:
            return
        for name, known in list(self.known.items())[:8]:
            if known.finished and not (self.pool is not None and self.pool.holds(known.owner.holder)):
                del self.known[name]

    def named(self, engine_id: str) -> str:
        """`,"req":…,"handoff":…` of a request that this process knows by its id alone."""
        known = self.known.get(engine_id)
        if known is not None:
            return known.owner.fields()
        return f',"req":{quoted(client_id(engine_id))},"handoff":{quoted(handoff_of(engine_id))}'

    def sig(self, name: str, about: str) -> str:
        """The id of a signal between processes, made of its content, the same on both sides: the
        nth emission here is the nth observation there."""
        base = f"{name}:{about}"
        n = self.sent[base] = self.sent.get(base, 0) + 1
        return base if n == 1 else f"{base}~{n}"

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
