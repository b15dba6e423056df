"""The last record in the log of each writer id, which makes a repeated append idempotent. Pure.

A writer id numbers its records in ascending order. A number that is not above the last one in the log is a
repetition. The state is kept in the log itself: the first entry of every ledger holds it, and so does another entry
from time to time. A writer that opens the log reads one of those and the records behind it.

As text: JSON, ``{"writers": [[id, sequence, ledger, entry, record], …]}``, least recently used first.
"""

from __future__ import annotations

import json

from bkbox.base.ids import EntryId, LedgerId
from bkbox.base.text import error_text
from bkbox.client.log.position import Position
from bkbox.errors import EncodingError

WRITERS_MAX = 10_000
STATE_BYTES_MAX = 4 << 20
"""Writer ids that are remembered, and the bytes that they take in the log, which have to fit into an entry. Beyond
either, the least recently used one is forgotten.
"""
_ROW_BYTES = 80
"""Bytes of an id's row beside the id: numbers of 19 digits and separators."""


class Sequences:
    """The last sequence number of each writer id, and the position of that record."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, Position]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._last)

    def last(self, writer_id: str) -> tuple[int, Position] | None:
        """The last number of a writer id and its position; None if the id is unknown."""
        return self._last.get(writer_id)

    def note(self, writer_id: str, sequence: int, position: Position) -> None:
        """Note that a record is in the log."""
        known = self._last.pop(writer_id, None)
        if known is None:
            self._bytes += _row_bytes(writer_id)
        elif known[0] >= sequence:
            sequence, position = known
        self._last[writer_id] = sequence, position
        while len(self._last) > WRITERS_MAX or self._bytes > STATE_BYTES_MAX:
            oldest = next(iter(self._last))
            del self._last[oldest]
            self._bytes -= _row_bytes(oldest)

    def encode(self) -> bytes:
        rows = [[name, sequence, *position] for name, (sequence, position) in self._last.items()]
        return json.dumps({"writers": rows}, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes) -> Sequences:
        """Decode the state. Raises EncodingError."""
        found = cls()
        try:
            for name, sequence, ledger, entry, record in json.loads(data)["writers"]:
                position = Position(LedgerId(int(ledger)), EntryId(int(entry)), int(record))
                found.note(str(name), int(sequence), position)
        except (ValueError, TypeError, KeyError) as error:
            raise EncodingError(f"the state of a log cannot be read: {error_text(error)}") from None
        return found


def _row_bytes(writer_id: str) -> int:
    return len(json.dumps(writer_id, ensure_ascii=False).encode()) + _ROW_BYTES
