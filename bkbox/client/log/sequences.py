"""Which record of each writer id is the last one in the log: what makes an append that is repeated harmless. Pure.

A writer id numbers its records upwards. A number that is not above the last one in the log is a repetition. The state
is kept in the log itself: the first entry of every ledger holds it as it was then, and so does an entry now and then,
so that who opens the log reads one of those and what comes behind it.

As text: JSON, ``{"writers": [[id, sequence, ledger, entry, record], …]}``, those heard of longest ago first.
"""

from __future__ import annotations

import json

from bkbox.base.ids import EntryId, LedgerId
from bkbox.base.words import error_text
from bkbox.client.log.position import Position
from bkbox.errors import EncodingError

WRITERS_MAX = 10_000
STATE_BYTES_MAX = 4 << 20
"""Writer ids that are remembered, and bytes that they take in the log, which have to fit into an entry; then the one
that was heard of longest ago is forgotten."""
_ROW_BYTES = 80
"""Of an id's row, beside the id: numbers of 19 digits and what is between them."""


class Sequences:
    """The last sequence number of each writer id, and where that record is."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, Position]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._last)

    def last(self, writer_id: str) -> tuple[int, Position] | None:
        """None: nothing is known of it."""
        return self._last.get(writer_id)

    def note(self, writer_id: str, sequence: int, position: Position) -> None:
        """A record is in the log."""
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
        """Raises EncodingError."""
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
