"""Content: digests of KV pages, read where the transfer engine reads and writes them.

Only memory that this process can read: on a GPU there are no digests, and the level
of evidence is L2.
"""

from __future__ import annotations

import ctypes
import hashlib
import struct
import zlib
from typing import Any


class Pages:
    """The KV pages of one worker as its transfer engine knows them: a pointer and a
    length per layer and kind (K, V)."""

    def __init__(self, args: Any) -> None:
        self._regions = [(int(p), int(n)) for p, n in zip(args.kv_data_ptrs, args.kv_item_lens)]
        self._views = [(p, n, ctypes.c_char * n) for p, n in self._regions]
        self._sums = struct.Struct(f"<{len(self._regions)}I")
        sizes = [int(n) for n in getattr(args, "kv_data_lens", [])]
        self.count = min((size // n for size, (_, n) in zip(sizes, self._regions) if n > 0), default=0)

    @property
    def page_bytes(self) -> int:
        return sum(n for _, n in self._regions)

    def digest(self, page: int) -> str:
        """The digest of one page over all layers: of a CRC-32 of each region, which costs a
        third of a cryptographic digest of the bytes. It is made to tell pages that were mixed
        up or overwritten, not forged ones: of two that differ in one region only, one pair in
        2**32 looks alike. Linear in its bytes. IndexError for a page that there is not: a read
        beyond the pool could end the process."""
        if not 0 <= page < self.count:
            raise IndexError(f"page {page} of {self.count}")
        sums = [zlib.crc32(view.from_address(pointer + page * size)) for pointer, size, view in self._views]
        return hashlib.blake2b(self._sums.pack(*sums), digest_size=12).hexdigest()
