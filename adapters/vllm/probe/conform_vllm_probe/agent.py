"""The NIXL agent of a worker, with eyes and hands: what is posted, what has ended, what is told,
and where a fault plan acts on it.

A READ is carried out by the transfer engine, on both sides' behalf. When it has ended is known
here only by asking; the engine tells the other side by itself, maybe before that. So the end,
and the notification, are recorded as of the engine's own thread, at a moment between the post and
the answer.

A plan's rules reach a READ at two points here, each by the name of an access: "r", when it is posted
and no byte has moved; and "r.done", when it has ended and the engine is not told yet. While one is
held the engine is told that it runs. (A third, "r.post", is before the agent: see hooks.) What comes from other agents passes "r.word" (a reader's word) or "r.renew" (a heartbeat) before the engine
gets it. No point blocks the engine's thread: a thread of its own asks.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Generator, Iterator

from conform_probe.failpoint import DROP, DUPLICATE, FAIL, FORWARD
from conform_probe.spool import quoted, runs

from .recorder import WARM, Recorder, client_id, handoff_of

HEARTBEAT = "HB:"


class Held:
    """A question to the plan. It is answered when what it is about may go on."""

    def __init__(self, ask: Callable[[], int], then: Callable[[], None]) -> None:
        self.answer: int | None = None
        self._ask, self._then = ask, then
        threading.Thread(target=self._run, name="conform (held)", daemon=True).start()

    def _run(self) -> None:
        answer = FORWARD
        try:
            answer = self._ask()
        finally:
            self.answer = answer
            self._then()


def hold(r: Recorder, name: str, request: str, more: dict[str, Any], then: Callable[[], None] = lambda: None) -> Held | None:
    """Asks the plan about an access; None where no rule can be about it. then is done, by another
    thread, when it may go on."""
    failpoint, client = r.failpoint, client_id(request)
    if failpoint is None or not failpoint.wants(name, "kv") or client.startswith(WARM):
        return None
    point = {"kind": "access", "name": name, "from": r.worker, "to": r.worker, "pool": "kv", "req": client, **more}
    return Held(lambda: failpoint.ask(point), then)


@dataclass
class Transfer:
    """One READ, from its preparation on."""

    there: str  # the worker that is read
    theirs: list[int]
    mine: list[int]
    request: str  # as the engine names it
    fields: str
    remote: str  # … and as prefill names it
    first: int  # the number of its first block among prefill's of the request
    order: list[int]  # its blocks here, in order
    read: str  # the accesses' ids
    write: str
    run: Generator[Any, None, Any] | None = None
    state: Any = None  # once it is over
    since: int = 0  # when it was posted
    begun: bool = False


@dataclass
class Word:
    """What another agent says."""

    agent: str
    message: Any
    events: list[tuple[str, str]]  # that it was taken in
    name: str = ""  # of the request whose lease it ends
    held: Held | None = None


class Agent:
    """Delegates to the real agent. What goes wrong here does not reach the engine."""

    def __init__(self, agent: Any, worker: Any, recorder: Recorder, digest: Callable[[Transfer], None] = lambda t: None) -> None:
        self._agent, self._worker, self._r, self._digest = agent, worker, recorder, digest
        self._transfers: dict[Any, Transfer] = {}  # by handle
        self._posts = 0
        self._notified: set[str] = set()
        self._late: list[Word] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    def notified(self, name: str) -> bool:
        """Whether a reader's word ended a lease; it is asked once."""
        found = name in self._notified
        self._notified.discard(name)
        return found

    def _guard(self, step: Callable[[], Any], otherwise: Any = None) -> Any:
        try:
            return step()
        except Exception as error:
            self._r.state.failed("nixl_agent", error)
            return otherwise

    # A READ.

    def make_prepped_xfer(self, operation: str, local: Any, local_ids: Any, remote: Any, remote_ids: Any, *args: Any, **kwargs: Any) -> Any:
        handle = self._agent.make_prepped_xfer(operation, local, local_ids, remote, remote_ids, *args, **kwargs)
        self._guard(lambda: self._prepared(handle, local_ids, remote_ids))
        return handle

    def _prepared(self, handle: Any, local_ids: Any, remote_ids: Any) -> None:
        r = self._r
        told = r.local.read
        if told is None:
            return
        there = told.engine
        counts = self._worker.dst_num_blocks
        mine = sorted({int(n) % int(counts[self._worker.engine_id]) for n in local_ids})
        theirs = sorted({int(n) % int(counts[there]) for n in remote_ids})
        self._transfers[handle] = Transfer(
            there, theirs, mine, told.request, r.named(told.request), told.remote, told.first, told.blocks, r.spool.unique("r"), r.spool.unique("w"))

    def transfer(self, handle: Any, *args: Any, **kwargs: Any) -> Any:
        found = self._transfers.get(handle)
        if found is None:
            return self._agent.transfer(handle, *args, **kwargs)
        found.run = self._carry(found, handle, args, kwargs)
        return self._step(found)

    def check_xfer_state(self, handle: Any) -> Any:
        found = self._transfers.get(handle)
        if found is None or found.run is None:
            return self._agent.check_xfer_state(handle)
        return self._step(found)

    def release_xfer_handle(self, handle: Any, *args: Any, **kwargs: Any) -> Any:
        found = self._transfers.pop(handle, None)
        if found is not None and found.begun and not found.since:
            self._guard(lambda: self._ended(found, False))  # nobody will post it any more
        return self._agent.release_xfer_handle(handle, *args, **kwargs)

    def _step(self, t: Transfer) -> Any:
        """Goes on with a READ as far as it can; the answer is its state."""
        if t.state is not None or t.run is None:
            return t.state
        try:
            return next(t.run)
        except StopIteration as end:
            t.state = end.value
            return t.state
        except Exception:
            t.state = "ERR"  # the engine gets the agent's error, and asks no more
            self._guard(lambda: self._ended(t, False))
            raise

    def _carry(self, t: Transfer, handle: Any, args: Any, kwargs: Any) -> Generator[Any, None, Any]:
        self._guard(lambda: self._begun(t))
        if (yield from self._ask(t, "r")) == FAIL:
            self._guard(lambda: self._ended(t, False))
            return "ERR"
        t.since = time.monotonic_ns()
        state = self._agent.transfer(handle, *args, **kwargs)
        while state == "PROC":
            yield state
            state = self._agent.check_xfer_state(handle)
        yield from self._ask(t, "r.done")
        self._guard(lambda: self._ended(t, state == "DONE"))
        return state

    def _ask(self, t: Transfer, name: str) -> Generator[Any, None, int]:
        held = hold(self._r, name, t.request, {"to": t.there, "access": t.read, "handoff": handoff_of(t.remote), "blocks": runs(t.theirs)})
        if held is None:
            return FORWARD
        while held.answer is None:
            yield "PROC"
        return held.answer

    def _begun(self, t: Transfer) -> None:
        r, t.begun = self._r, True
        r.spool.record_all([
            r.begin(t.read, "r", t.there, t.theirs, t.fields, "nixl"),
            r.begin(t.write, "w", r.worker, t.mine, t.fields, "nixl"),
        ])

    def _ended(self, t: Transfer, ok: bool) -> None:
        if not t.begun:
            return
        r, t.begun = self._r, False
        self._posts += 1
        good = "true" if ok else "false"
        done = r.spool.unique("xfer")
        events = [("end", f'"access":{quoted(a)},"ok":{good}') for a in (t.read, t.write)]
        if ok:
            events.append(r.emit(self._sig("READ_DONE", t.remote), "READ_DONE", t.fields, "completed", f',"access":[{quoted(t.read)}]'))
        events.append(r.emit(done, "XFER_STATE", t.fields, "completed", f',"access":[{quoted(t.read)},{quoted(t.write)}]'))
        if t.since:
            r.spool.record_between(t.since, f"nixl-{self._posts}", events)
        else:
            r.spool.record_all(events)
        r.spool.record_all([r.observe(done, "XFER_STATE", t.fields)])
        if ok:
            self._digest(t)

    # What agents tell each other.

    def send_notif(self, agent: Any, notif_msg: Any = b"", *args: Any, **kwargs: Any) -> Any:
        self._guard(lambda: self._telling(_text(notif_msg)))
        return self._agent.send_notif(agent, notif_msg, *args, **kwargs)

    def _telling(self, text: str) -> None:
        r = self._r
        if text.startswith(HEARTBEAT):
            r.spool.record_all([r.emit(self._sig("HEARTBEAT", name), "HEARTBEAT", about(name)) for name in _renewed(text)])
        elif name := text.rpartition(":")[0]:  # all of it was in the prefix cache: nothing is read
            r.spool.record_all([r.emit(self._sig("READ_DONE", name), "READ_DONE", about(name), "completed")])

    def _sig(self, signal: str, name: str, sender: str = "") -> str:
        """The id of what an agent says about a request, the same on both sides."""
        return self._r.sig(signal, f"{handoff_of(name)}:{sender or getattr(self._agent, 'name', '')}")

    def get_new_notifs(self, *args: Any, **kwargs: Any) -> Any:
        notifs = self._agent.get_new_notifs(*args, **kwargs)
        if not notifs and not self._late:
            return notifs
        return self._guard(lambda: self._heard(notifs), notifs)

    def _heard(self, notifs: Any) -> Any:
        """What the engine is told of what has come: what the plan lets through by now."""
        out: dict[Any, list[Any]] = {}
        waiting: list[Word] = []
        for word in [*self._late, *self._words(notifs)]:
            answer = word.held.answer if word.held is not None else FORWARD
            if answer is None:
                waiting.append(word)
                continue
            if answer == DROP:
                continue
            if word.name:
                self._notified.add(word.name)
            for _ in range(2 if answer == DUPLICATE else 1):
                out.setdefault(word.agent, []).append(word.message)
                self._r.spool.record_all(word.events)
        self._late = waiting
        return out

    def _words(self, notifs: Any) -> Iterator[Word]:
        for agent, messages in notifs.items():
            for message in messages:
                word = Word(agent, message, [])
                text = _text(message)
                if text.startswith(HEARTBEAT):
                    self._guard(lambda: self._renewal(word, text))
                else:
                    self._guard(lambda: self._done(word, text))
                yield word

    def _renewal(self, word: Word, text: str) -> None:
        names = _renewed(text)
        word.events += [self._r.observe(self._sig("HEARTBEAT", name, str(word.agent)), "HEARTBEAT", about(name)) for name in names]
        word.held = hold(self._r, "r.renew", names[0], {"handoff": handoff_of(names[0])}) if names else None

    def _done(self, word: Word, text: str) -> None:
        word.name = text.rpartition(":")[0]
        if not word.name:
            return
        sig = self._sig("READ_DONE", word.name, str(word.agent))
        word.events.append(self._r.observe(sig, "READ_DONE", about(word.name)))
        word.held = hold(self._r, "r.word", word.name, {"handoff": handoff_of(word.name)})


def about(name: str) -> str:
    """`,"handoff":…` of a request at prefill."""
    return f',"handoff":{quoted(handoff_of(name))}'


def _text(message: Any) -> str:
    return message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)


def _renewed(text: str) -> list[str]:
    """The requests whose leases a heartbeat renews."""
    return [name for name in text[len(HEARTBEAT):].split(",") if name]
