"""CRC32C of contiguous bytes, for callers outside the kernel."""

from __future__ import annotations

from bkbox.native import memory


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """The CRC32C ``crc`` continued over ``data``."""
    return memory.crc32c(data, 0, len(data), crc)
