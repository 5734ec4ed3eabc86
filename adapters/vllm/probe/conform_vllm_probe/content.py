"""Content: digests of KV blocks, read where the transfer engine reads and writes them.

Only memory that this process can read: on a GPU there are no digests, and the level of evidence
is L2.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from typing import Any, Iterable


class Content:
    """The KV blocks of one worker: a tensor for each layer."""

    def __init__(self, layers: Iterable[Any]) -> None:
        self._layers = list(layers)
        self._sums = struct.Struct(f"<{len(self._layers)}I")
        # Older builds keep K and V apart, before the number of the block.
        self._apart = bool(self._layers) and int(self._layers[0].shape[0]) == 2 and int(self._layers[0].shape[1]) != 2
        self.count = min((int(t.shape[1 if self._apart else 0]) for t in self._layers), default=0)

    def digest(self, block: int) -> str:
        """The digest of one block over all layers. It is made to tell blocks that were mixed up or
        overwritten, not forged ones. IndexError for a block that there is not."""
        if not 0 <= block < self.count:
            raise IndexError(f"block {block} of {self.count}")
        sums = [zlib.crc32(self._bytes(t[:, block] if self._apart else t[block])) for t in self._layers]
        return hashlib.blake2b(self._sums.pack(*sums), digest_size=12).hexdigest()

    def _bytes(self, part: Any) -> Any:
        import torch  # type: ignore[import-not-found]

        return part.detach().contiguous().view(torch.uint8).numpy()
