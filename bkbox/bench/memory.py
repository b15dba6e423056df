"""Primes memory, for measurements on virtual machines.

A host may take back memory that its guest does not use. The first touch of a page then has a cost
that depends on the host's other guests, and can be ten times that of the add whose bytes go there:
the measurement would be of the host. Memory that was in use a moment ago does not have that cost,
until the host takes it back again, which it does after some seconds.
"""

from __future__ import annotations

import mmap

_CHUNK_BYTES = 128 << 20
_MADV_POPULATE_WRITE = 23
"""Needs Linux 5.14 or later."""


def prime(size: int) -> None:
    """Touches this many bytes of memory, and frees them. Raises OSError if there is not as much."""
    chunks = []
    for _ in range(size // _CHUNK_BYTES):
        chunk = mmap.mmap(-1, _CHUNK_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        chunks.append(chunk)
        chunk.madvise(mmap.MADV_HUGEPAGE)
        chunk.madvise(_MADV_POPULATE_WRITE)
    for chunk in chunks:
        chunk.close()
