"""Content: digests of KV pages, read where the transfer engine reads and writes them.

Only memory that this process can read: on a GPU there are no digests, and the level
of evidence is L2.
"""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any


class Pages:
    """The KV pages of one worker as its transfer engine knows them: a pointer and a
    length per layer and kind (K, V)."""

    def __init__(self, args: Any) -> None:
        self._regions = list(zip([int(p) for p in args.kv_data_ptrs], [int(n) for n in args.kv_item_lens]))

    @property
    def page_bytes(self) -> int:
        return sum(n for _, n in self._regions)

    def digest(self, page: int) -> str:
        """The digest of one page over all layers. Linear in its bytes."""
        h = hashlib.blake2b(digest_size=12)
        for pointer, size in self._regions:
            h.update(ctypes.string_at(pointer + page * size, size))
        return h.hexdigest()
