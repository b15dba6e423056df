"""Frames of adds for batches of consecutive entries: written once, the same bytes for every bookie.

An entry is header (ledger, entry, LAC, length), digest and payload (wire/digest.py). Around it version 2 puts the
length of the frame, the packet header and the master key (wire/v2.py), version 3 the head of a plain add
(v3_fast_path.py).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from bkbox.native import memory
from bkbox.wire import v3_fast_path

_PREFIX = 4
_V2_HEAD = 28  # length 4, packet header 4, master key 20
_V2_ADD = 0x02010000
_KEY_BYTES = 20
_HEADER = 32
_CRC32C = 4  # bytes of that digest


class AddFramer:
    """Writes the adds of one ledger.

    ``flags``: those of version 2. ``digest`` computes the ``digest_size`` bytes from header and payload; None if the
    digest is a CRC32C or there is none.
    """

    __slots__ = ("_digest", "_digest_size", "_flags", "_key", "_ledger", "offsets")

    def __init__(
        self,
        ledger: int,
        key: bytes,
        flags: int,
        digest_size: int,
        digest: Callable[[bytes, bytes], bytes] | None,
    ) -> None:
        if len(key) != _KEY_BYTES or (digest is None and digest_size not in (0, _CRC32C)):
            raise ValueError("a master key of 20 bytes and a digest are needed")
        self._ledger = ledger
        self._key = key
        self._flags = flags
        self._digest_size = digest_size
        self._digest = digest
        self.offsets = array("q")
        """Offsets of the frames of the last batch, and the end of the last frame."""

    def v2(self, first: int, lac: int, length: int, payloads: list[bytes]) -> bytearray:
        """The frames of the entries from ``first`` on. ``length``: payload bytes of the ledger before them."""
        extra = _V2_HEAD + _HEADER + self._digest_size
        size = 0
        for payload in payloads:
            size += extra + len(payload)
        offsets = self._new_offsets(len(payloads))
        frames = bytearray(size)
        buffer = frames
        at = 0
        number = 0
        for payload in payloads:
            offsets[number] = at
            memory.put_i32(buffer, at, extra + len(payload) - _PREFIX)
            memory.put_i32(buffer, at + 4, _V2_ADD | self._flags)
            memory.copy(buffer, at + 8, self._key, 0, _KEY_BYTES)
            length += len(payload)
            at = self._put_entry(buffer, at + _V2_HEAD, first + number, lac, length, payload)
            number += 1
        offsets[number] = at
        return frames

    def v3(self, txn: int, first: int, lac: int, length: int, payloads: list[bytes]) -> bytearray:
        """The same batch as plain adds of version 3, with the transaction ids from ``txn`` on."""
        extra = _HEADER + self._digest_size
        size = 0
        number = 0
        for payload in payloads:
            entry_bytes = extra + len(payload)
            size += entry_bytes + v3_fast_path.add_head_size(
                txn + number, self._ledger, first + number, entry_bytes
            )
            number += 1
        offsets = self._new_offsets(number)
        frames = bytearray(size)
        buffer = frames
        at = 0
        number = 0
        for payload in payloads:
            offsets[number] = at
            length += len(payload)
            at = v3_fast_path.put_add_head(
                buffer,
                at,
                txn + number,
                self._ledger,
                first + number,
                self._key,
                extra + len(payload),
            )
            at = self._put_entry(buffer, at, first + number, lac, length, payload)
            number += 1
        offsets[number] = at
        return frames

    def _new_offsets(self, count: int) -> array[int]:
        offsets = array("q", bytes(8 * (count + 1)))
        self.offsets = offsets
        return offsets

    def _put_entry(
        self,
        buffer: bytearray,
        at: int,
        entry: int,
        lac: int,
        length: int,
        payload: bytes,
    ) -> int:
        memory.put_i64(buffer, at, self._ledger)
        memory.put_i64(buffer, at + 8, entry)
        memory.put_i64(buffer, at + 16, lac)
        memory.put_i64(buffer, at + 24, length)
        body = at + _HEADER + self._digest_size
        data = payload
        if self._digest is not None:
            digest = self._digest(bytes(buffer[at : at + _HEADER]), payload)
            memory.copy(buffer, at + _HEADER, digest, 0, self._digest_size)
            memory.copy(buffer, body, data, 0, len(payload))
        elif self._digest_size == 0:
            memory.copy(buffer, body, data, 0, len(payload))
        else:
            crc = memory.crc32c(buffer, at, at + _HEADER, 0)
            crc = memory.copy_crc32c(buffer, body, data, 0, len(payload), crc)
            memory.put_u32(buffer, at + _HEADER, crc)
        return body + len(payload)
