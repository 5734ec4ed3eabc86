"""Frames: which protocol message a ZeroMQ message is. The full table, with what each
claims, is the harness's (adapters/sglang/wire); the probe needs the kinds, the room
and the fields that make a message's id."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

STATUS = {0: "Failed", 1: "Bootstrapping", 2: "WaitingForInput", 3: "Transferring", 4: "Success"}
_CLAIMS = {"ABORT_ACK/2": "received", "ABORT_ACK/3": "drained", "ABORT_ACK/4": "drained", "STATUS/Success": "completed", "STATUS/Failed": "received"}
_GUARD = b"NixlMsgGuard"
_MAX_PAGES = 1 << 20


@dataclass
class Message:
    """One message between prefill and decode."""

    signal: str
    room: int
    to_decode: bool
    rank: int = -1  # of the prefill rank that it is from; -1 if it does not say
    generation: str = ""
    session: str = ""  # METADATA: decode's transfer engine
    pages: list[int] = field(default_factory=list)
    aux: int = -1

    @property
    def claims(self) -> str:
        return _CLAIMS.get(self.signal, "")


def _number(frame: bytes) -> int:
    """A decimal number below 2**64; ValueError for anything else."""
    if len(frame) > 20 or not frame.isdigit() or (n := int(frame)) >= 1 << 64:
        raise ValueError("no number")
    return n


def _pages(frame: bytes) -> list[int]:
    n, rest = divmod(len(frame), 4)
    if rest or n > _MAX_PAGES:
        raise ValueError("no list of pages")
    return list(struct.unpack(f"<{n}i", frame))


def _status(frame: bytes) -> str:
    n = _number(frame)
    return "STATUS/" + STATUS.get(n, str(n))


def _metadata(room: bytes, rest: list[bytes], dummy: bytes = b"") -> Message | None:
    # rest: session, pages, aux index, …; ip and port come before
    if _number(dummy) if dummy else not rest[1] and not rest[2]:
        return None  # a dummy rank: nothing is granted
    aux = _number(rest[2]) if rest[2] else -1
    return Message("METADATA", _number(room), False, session=rest[0].decode("ascii", "replace")[:200], pages=_pages(rest[1]), aux=aux)


def parse(frames: list[bytes]) -> Message | None:
    """The message that these frames are, or None if it is no message of the hand-off."""
    if len(frames) < 2:
        return None
    try:
        return _parse(frames)
    except (ValueError, LookupError, struct.error):
        return None


def _parse(frames: list[bytes]) -> Message | None:
    tag, n = frames[0], len(frames)
    if tag == b"ABORT" and n in (2, 4, 5):
        return Message("ABORT", _number(frames[1]), False, generation=str(_number(frames[4])) if n == 5 else "")
    if tag == b"ABORT_ACK" and n in (2, 3, 4):
        rank = _number(frames[2]) if n > 2 else -1
        return Message(f"ABORT_ACK/{n}", _number(frames[1]), True, rank=rank, generation=str(_number(frames[3])) if n == 4 else "")
    if tag == b"KV_STATUS" and n in (4, 5):
        return Message(_status(frames[2]), _number(frames[1]), True, rank=_number(frames[3]))
    if tag == _GUARD and n == 11:
        return _metadata(frames[1], frames[4:], frames[10])
    if tag.isdigit() and n in (3, 4):
        return Message(_status(frames[1]), _number(tag), True, rank=_number(frames[2]))
    if tag.isdigit() and n == 10:
        return _metadata(tag, frames[3:])
    return None
