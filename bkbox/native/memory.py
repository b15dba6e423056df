"""Loads, stores, copies and the checksum: the byte operations of the rest of the kernel.

When compiled, ``memory.pxd`` has these as inline C and this file is not used. All integers are big-endian, as on the
wire and on the disk. Nothing is checked: the caller knows that the bytes are there. ``start`` and ``end`` are
offsets.
"""

from __future__ import annotations

from struct import Struct

from bkbox.native.compiled import COMPILED

if not COMPILED:  # else it is not used, and takes longer to import than the rest of the kernel
    from crc32c import crc32c as _crc32c

_U16 = Struct(">H")
_U32 = Struct(">I")
_I32 = Struct(">i")
_I64 = Struct(">q")

Data = bytes | bytearray | memoryview
Buffer = bytearray | memoryview


def u16(data: Data, at: int) -> int:
    value: int = _U16.unpack_from(data, at)[0]
    return value


def u32(data: Data, at: int) -> int:
    value: int = _U32.unpack_from(data, at)[0]
    return value


def i32(data: Data, at: int) -> int:
    value: int = _I32.unpack_from(data, at)[0]
    return value


def i64(data: Data, at: int) -> int:
    value: int = _I64.unpack_from(data, at)[0]
    return value


def put_u16(buffer: Buffer, at: int, value: int) -> None:
    _U16.pack_into(buffer, at, value)


def put_u32(buffer: Buffer, at: int, value: int) -> None:
    _U32.pack_into(buffer, at, value)


def put_i32(buffer: Buffer, at: int, value: int) -> None:
    _I32.pack_into(buffer, at, value)


def put_i64(buffer: Buffer, at: int, value: int) -> None:
    _I64.pack_into(buffer, at, value)


def copy(buffer: Buffer, at: int, data: Data, start: int, end: int) -> None:
    """Copy data[start:end] to ``buffer`` from ``at`` on; the two do not overlap."""
    buffer[at : at + end - start] = memoryview(data)[start:end]


def move(buffer: bytearray, at: int, start: int, end: int) -> None:
    """Move buffer[start:end] to ``at``; the two may overlap."""
    buffer[at : at + end - start] = buffer[start:end]


def same(one: Data, at: int, other: Data, start: int, end: int) -> bool:
    """True if ``one`` from ``at`` on equals other[start:end]."""
    return bytes(memoryview(one)[at : at + end - start]) == bytes(memoryview(other)[start:end])


def crc32c(data: Data, start: int, end: int, crc: int) -> int:
    """The CRC32C ``crc`` continued over data[start:end]."""
    value: int = _crc32c(memoryview(data)[start:end], crc)
    return value


def copy_crc32c(buffer: Buffer, at: int, data: Data, start: int, end: int, crc: int) -> int:
    """copy() and crc32c() in one pass."""
    copy(buffer, at, data, start, end)
    return crc32c(data, start, end, crc)
