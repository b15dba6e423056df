"""Memory that costs what memory costs, for measurements on virtual machines.

A host may take back the memory that its guest does not use. The guest then pays for the first touch
of a page at a price that depends on the host's other guests, and can be ten times that of the add
whose bytes go there: what is measured is the host. Memory that was in use a moment ago does not have
that price, until the host takes it back again, which it does after some seconds.
"""

from __future__ import annotations

import mmap

_CHUNK_BYTES = 128 << 20
_MADV_POPULATE_WRITE = 23
"""Linux 5.14 and later."""


def prime(size: int) -> None:
    """Touch so many bytes of memory, and give them back. Raises OSError where there are not as many."""
    chunks = []
    for _ in range(size // _CHUNK_BYTES):
        chunk = mmap.mmap(-1, _CHUNK_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        chunks.append(chunk)
        chunk.madvise(mmap.MADV_HUGEPAGE)
        chunk.madvise(_MADV_POPULATE_WRITE)
    for chunk in chunks:
        chunk.close()
