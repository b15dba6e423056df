"""``<disk>/TAIL``: how far the log was durable, written beside the log, so that a truncated log is noticed.

A log proves with SYNCED records that the bytes before them were durable. Cut off behind one, it looks like a log that
was never longer. The tail mark is the witness: at most a second after a sync, and when the log is idle, a mark is
appended here and synced. If a start finds that the log, or the journal, ends before the last mark, data was lost.

In between a mark is written, but not synced, every 10 ms and with each state of a ledger: after a process crash it is
there. If it says of the log only that it was *written* so far, it is void after a host crash.

Marks have 48 bytes each. The last good one counts: one that is not synced lies behind the others, where the next one
will. Losing this file costs the witness, never data.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path

from bkbox.base.values import frozen_struct
from bkbox.errors import DiskError
from bkbox.native.checksum import crc32c
from bkbox.storage.files import AppendFile, Files, write_atomic

TAIL_NAME = "TAIL"
_FILE_BYTES_MAX = 64 << 10
_MARK = struct.Struct(">4sIQIQQQ")
_DURABLE, _WRITTEN = b"TAL1", b"TALW"
_CRC = struct.Struct(">I")
_MARK_BYTES = _MARK.size + _CRC.size


@frozen_struct
class TailMark:
    """The entry log was durable up to (segment, offset), and the journal, in use or not (0), up to (journal_segment,
    journal_offset), by a sync that began at ``ms`` since 1970; ``generation`` of the start that wrote it. The entry log
    was only written, if the mark is not ``durable``.
    """

    segment: int
    offset: int
    journal_segment: int
    journal_offset: int
    ms: int
    generation: int
    durable: bool = True

    def reaches(self, segment: int) -> int:
        """The offset up to which a segment of the entry log has to be there: 0 if the mark says nothing of it."""
        return self.offset if segment == self.segment else 0


def read_tail(files: Files, disk: Path, *, written: bool = False) -> TailMark | None:
    """The last mark, None if there is none that can be read; also of what was only ``written``. DiskError."""
    data = files.read_bytes(disk / TAIL_NAME) or b""
    for end in range(len(data) - len(data) % _MARK_BYTES, 0, -_MARK_BYTES):
        mark = _decoded(data[end - _MARK_BYTES : end])
        if mark is not None and (mark.durable or written):
            return mark
    return None


class TailFile:
    """Appends marks. ``write`` may run on any thread, one call at a time."""

    def __init__(self, files: Files, disk: Path) -> None:
        self._files = files
        self._path = disk / TAIL_NAME
        self._file: AppendFile | None = None
        self._bytes = 0
        self.last: TailMark | None = None

    def replace(self, mark: TailMark | None) -> None:
        """Make this the only mark, durably: also for a log that begins anew behind a loss. DiskError."""
        self.close()
        write_atomic(self._files, self._path, b"" if mark is None else _encoded(mark))
        self.last = mark

    def write(self, mark: TailMark) -> None:
        """Append a mark, durably. DiskError."""
        file = self._opened()
        if not _MARK_BYTES <= self._bytes <= _FILE_BYTES_MAX - _MARK_BYTES:
            self.replace(mark)
            return
        file.append(_encoded(mark))
        file.fdatasync()
        self._bytes += _MARK_BYTES
        self.last = mark

    def write_unsynced(self, mark: TailMark) -> None:
        """Write a mark where the next one will be, which no host crash need leave there. DiskError."""
        self._opened().fill(self._bytes, _encoded(mark))

    def _opened(self) -> AppendFile:
        if self._file is None:
            self._file = self._files.open_append(self._path)
            size = self._file.size()
            self._bytes = size - size % _MARK_BYTES
            self._file.seek(self._bytes)
        return self._file

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(DiskError):
                file.close()


def _encoded(mark: TailMark) -> bytes:
    data = _MARK.pack(
        _DURABLE if mark.durable else _WRITTEN,
        mark.segment,
        mark.offset,
        mark.journal_segment,
        mark.journal_offset,
        mark.ms,
        mark.generation,
    )
    return data + _CRC.pack(crc32c(data))


def _decoded(data: bytes) -> TailMark | None:
    fields, checksum = data[: _MARK.size], data[_MARK.size :]
    if _CRC.unpack(checksum)[0] != crc32c(fields):
        return None
    magic, *values = _MARK.unpack(fields)
    return TailMark(*[*values, magic == _DURABLE]) if magic in (_DURABLE, _WRITTEN) else None
