"""Entries in the format of the wire and the disk, and the keys derived from a ledger's password.

==========  ====  =========================================
offset      size  field
==========  ====  =========================================
0           8     ledger id
8           8     entry id
16          8     LAC: last add confirmed of the writer when it made this entry, -1 for the first
24          8     length: payload bytes of the ledger up to and with this entry
32          d     digest over header and payload
32 + d      rest  payload
==========  ====  =========================================

d is 8 for CRC32 (four zero bytes, then the sum), 20 for HMAC (SHA-1), 4 for CRC32C, 0 for DUMMY. An explicit LAC
packet is ledger id, LAC and a digest over those 16 bytes. Bookies never check digests: readers do. Source:
DigestManager.java, MacDigestManager.java, CRC32DigestManager.java, CRC32CDigestManager.java.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from bkbox.base.ids import EntryId, LedgerId
from bkbox.errors import DigestError
from bkbox.native.checksum import crc32c
from bkbox.wire import arrow_columns, batch_reads
from bkbox.wire.metadata.ledger import DigestType

HEADER = Struct(">qqqq")
HEADER_BYTES = HEADER.size
DIGEST_BYTES = {DigestType.CRC32: 8, DigestType.HMAC: 20, DigestType.CRC32C: 4, DigestType.DUMMY: 0}

IN_KERNEL = (DigestType.CRC32C, DigestType.DUMMY)
"""The digests that compiled code makes and verifies for whole batches of entries."""

_SIZE = Struct(">i")
_LAC = Struct(">qq")
_CRC32 = Struct(">Q")
_CRC32C = Struct(">I")

Buffer = bytes | bytearray | memoryview
_Digest = Callable[[Buffer, Buffer], bytes]


def master_key(password: bytes) -> bytes:
    """The 20-byte key that bookies require of a client that adds or fences."""
    return hashlib.sha1(b"ledger" + password, usedforsecurity=False).digest()


def hmac_key(password: bytes) -> bytes:
    """The 20-byte key of HMAC digests; it is never sent."""
    return hashlib.sha1(b"mac" + password, usedforsecurity=False).digest()


class VerifiedEntry(NamedTuple):
    """An entry whose digest and ids are valid; the payload is a copy, ``length`` is in bytes."""

    ledger_id: LedgerId
    entry_id: EntryId
    lac: EntryId
    length: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class EntryColumns:
    """``count`` consecutive entries of one ledger whose digests and ids are valid, as columns. ``offsets``: the start
    of each payload in ``values``, and the end of the last one. All columns may be longer than needed.
    """

    ledger_id: int
    count: int
    entry_ids: array[int]
    lacs: array[int]
    lengths: array[int]
    offsets: array[int]
    values: bytearray

    def __len__(self) -> int:
        return self.count


class DigestManager:
    """Makes and verifies the entries of one ledger."""

    __slots__ = ("digest", "digest_size", "digest_type", "ledger_id")

    def __init__(self, ledger_id: int, digest_type: DigestType, password: bytes) -> None:
        self.ledger_id = ledger_id
        self.digest_type = digest_type
        self.digest_size = DIGEST_BYTES[digest_type]
        self.digest = _digest_of(digest_type, password)
        """The digest over a header and the bytes after it."""

    def package(self, entry_id: int, lac: int, length: int, payload: Buffer) -> bytes:
        """The entry as sent and stored. ``length`` includes this payload."""
        header = HEADER.pack(self.ledger_id, entry_id, lac, length)
        return b"".join((header, self.digest(header, payload), payload))

    def verify(self, entry: Buffer, entry_id: int | None) -> VerifiedEntry:
        """Check digest and ids.

        ``entry_id`` None accepts any entry of the ledger, for a read of the last one. Raises DigestError.
        """
        view = memoryview(entry)
        start = HEADER_BYTES + self.digest_size
        if len(view) < start:
            raise DigestError(
                f"entry of {len(view)} bytes where header and digest alone have {start} "
                f"(ledger {self.ledger_id}, entry {entry_id})"
            )
        header = view[:HEADER_BYTES]
        payload = view[start:]
        if not hmac.compare_digest(view[HEADER_BYTES:start], self.digest(header, payload)):
            raise DigestError(
                f"{self.digest_type.name} digest is wrong "
                f"(ledger {self.ledger_id}, entry {entry_id})"
            )
        ledger, entry_found, lac, length = HEADER.unpack(header)
        if ledger != self.ledger_id or entry_id not in (None, entry_found):
            raise DigestError(
                f"asked for ledger {self.ledger_id}, entry {entry_id}, "
                f"got ledger {ledger}, entry {entry_found}"
            )
        return VerifiedEntry(ledger, entry_found, lac, length, bytes(payload))

    def verify_batch(self, body: bytes, start: int, first: int, count: int) -> list[VerifiedEntry]:
        """The entries ``first``, ``first`` + 1, …, at most ``count``, of the response to a batch read, up to the
        first invalid one. ``start``: the offset of the first entry in its body.
        """
        if self.digest_type in IN_KERNEL:
            return batch_reads.verified(
                body, start, self.ledger_id, first, count, self.digest_size, VerifiedEntry
            )
        entries: list[VerifiedEntry] = []
        view = memoryview(body)
        while start < len(body) and len(entries) < count:
            end = start + _SIZE.size + _SIZE.unpack_from(body, start)[0]
            try:
                entries.append(self.verify(view[start + _SIZE.size : end], first + len(entries)))
            except DigestError:
                break
            start = end
        return entries

    def verify_columns(self, body: bytes, start: int, first: int, count: int) -> EntryColumns:
        """The same as columns; only for digests in IN_KERNEL."""
        found = arrow_columns.columns(body, start, self.ledger_id, first, count, self.digest_size)
        return EntryColumns(self.ledger_id, *found)

    def package_lac(self, lac: int) -> bytes:
        """An explicit LAC packet."""
        header = _LAC.pack(self.ledger_id, lac)
        return header + self.digest(header, b"")

    def verify_lac(self, packet: Buffer) -> EntryId:
        """The LAC of an explicit LAC packet. Raises DigestError."""
        view = memoryview(packet)
        if len(view) != _LAC.size + self.digest_size:
            raise DigestError(f"LAC packet of ledger {self.ledger_id} has {len(view)} bytes")
        header = view[: _LAC.size]
        if not hmac.compare_digest(view[_LAC.size :], self.digest(header, b"")):
            raise DigestError(f"{self.digest_type.name} digest of a LAC packet is wrong")
        ledger, lac = _LAC.unpack(header)
        if ledger != self.ledger_id:
            raise DigestError(f"asked for the LAC of ledger {self.ledger_id}, got that of {ledger}")
        return EntryId(lac)


def _digest_of(digest_type: DigestType, password: bytes) -> _Digest:
    if digest_type is DigestType.CRC32C:
        return lambda header, payload: _CRC32C.pack(crc32c(payload, crc32c(header)))
    if digest_type is DigestType.CRC32:
        return lambda header, payload: _CRC32.pack(zlib.crc32(payload, zlib.crc32(header)))
    if digest_type is DigestType.DUMMY:
        return lambda header, payload: b""
    prepared = hmac.new(hmac_key(password), digestmod=hashlib.sha1)

    def keyed(header: Buffer, payload: Buffer) -> bytes:
        mac = prepared.copy()
        mac.update(header)
        mac.update(payload)
        return mac.digest()

    return keyed
