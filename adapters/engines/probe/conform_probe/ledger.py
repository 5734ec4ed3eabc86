"""The ledger: which block is leased, and who holds it, as the pools of one worker say.

It turns what the engine's allocators do into events. It does not judge: a block that
is freed twice is recorded as freed twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable

from .spool import Spool, blocks, quoted


@dataclass(frozen=True)
class Owner:
    """Who a lease is for: a request, or (without one) a cache."""

    holder: str
    req: str = ""
    handoff: str = ""

    def fields(self) -> str:
        out = ""
        if self.req:
            out += f',"req":{quoted(self.req)}'
        if self.handoff:
            out += f',"handoff":{quoted(self.handoff)}'
        return out


class Pool:
    """One pool. Only its scheduler's thread calls it."""

    def __init__(self, spool: Spool, name: str, count: int, block_bytes: int, what: str, cache: Owner | None = None) -> None:
        """cache is the holder that keeps blocks when no request does: its leases end by eviction."""
        self.spool, self.name, self.count, self.cache = spool, name, count, cache
        self.holders: dict[int, dict[str, Owner]] = {}
        self._held: dict[str, set[int]] = {}  # by holder
        size = f',"bytes":{block_bytes}' if block_bytes else ""
        spool.record("pool", f'"pool":"{name}","blocks":{count}{size},"what":"{what}"')

    def _body(self, numbers: list[int], holder: str = "") -> str:
        who = f',"holder":{quoted(holder)}' if holder else ""
        return f'"pool":"{self.name}","blocks":{blocks(numbers)}{who}'

    def alloc(self, numbers: Iterable[int], owner: Owner) -> None:
        """New leases, held by owner."""
        got = [n for n in numbers if 0 <= n < self.count]
        if not got:
            return
        for n in got:
            self._leave(n, self.holders.pop(n, {}))
            self.holders[n] = {owner.holder: owner}
        self._held.setdefault(owner.holder, set()).update(got)
        self.spool.record("alloc", self._body(got, owner.holder) + owner.fields())

    def hold(self, numbers: Iterable[int], owner: Owner) -> None:
        """owner joins those leases that it does not hold yet."""
        got = [n for n in numbers if n in self.holders and owner.holder not in self.holders[n]]
        if not got:
            return
        for n in got:
            self.holders[n][owner.holder] = owner
        self._held.setdefault(owner.holder, set()).update(got)
        self.spool.record("hold", self._body(got, owner.holder) + owner.fields())

    def drop(self, numbers: Iterable[int], owner: Owner) -> None:
        """owner leaves those leases that it holds."""
        got = [n for n in numbers if owner.holder in self.holders.get(n, {})]
        if not got:
            return
        for n in got:
            self._leave(n, [owner.holder])
            self.holders[n].pop(owner.holder, None)
        self.spool.record("drop", self._body(got, owner.holder) + owner.fields())

    def free(self, numbers: Iterable[int], why: str, by: str = "", default: Owner | None = None) -> None:
        """The leases end. Each event speaks for the blocks of one holder."""
        groups: dict[Owner | None, list[int]] = {}
        for n in numbers:
            if not 0 <= n < self.count:
                continue
            held = self.holders.pop(n, {})
            self._leave(n, held)
            owner = next(iter(held.values()), default)
            groups.setdefault(owner, []).append(n)
        tail = f',"by":{quoted(by)}' if by else ""
        for owner, got in groups.items():
            reason = "evict" if owner is not None and owner == self.cache else why
            mine = "" if owner is None else owner.holder
            more = "" if owner is None else owner.fields()
            self.spool.record("free", self._body(got, mine) + more + f',"why":"{reason}"' + tail)

    def holds(self, holder: str) -> bool:
        """Whether a holder holds any block."""
        return holder in self._held

    def held_by(self, holder: str) -> list[int]:
        """The blocks that a holder holds, ascending."""
        return sorted(self._held.get(holder, ()))

    def _leave(self, number: int, holders: Iterable[str]) -> None:
        for holder in holders:
            held = self._held.get(holder)
            if held is not None:
                held.discard(number)
                if not held:
                    del self._held[holder]
