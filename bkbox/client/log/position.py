"""The position of a record in a log. Positions sort as the records do, and never change."""

from __future__ import annotations

import re
from typing import NamedTuple

from bkbox.base.ids import MAX_ID, EntryId, LedgerId
from bkbox.client import arguments
from bkbox.errors import InvalidIdError

_TEXT = re.compile(r"([0-9]{1,19}):([0-9]{1,19})(?:\.([0-9]{1,9}))?")


class Position(NamedTuple):
    """Ledger, entry, and index of the record in the entry, from 0; as text ``LEDGER:ENTRY`` or
    ``LEDGER:ENTRY.RECORD``.
    """

    ledger_id: LedgerId
    entry_id: EntryId
    record: int = 0

    def __str__(self) -> str:
        text = f"{self.ledger_id}:{self.entry_id}"
        return f"{text}.{self.record}" if self.record else text

    @property
    def after(self) -> Position:
        """The first position behind this one; the log may hold no record there."""
        return Position(self.ledger_id, self.entry_id, self.record + 1)

    @classmethod
    def parse(cls, text: str) -> Position:
        """Parse the text form. Raises InvalidIdError."""
        found = _TEXT.fullmatch(text) if isinstance(text, str) else None
        numbers = [int(number or 0) for number in found.groups()] if found else [MAX_ID + 1]
        if found is None or max(numbers) > MAX_ID:
            raise InvalidIdError(
                f"{arguments.shown(text)} is no position in a log: write LEDGER:ENTRY or LEDGER:ENTRY.RECORD, such as "
                "7:12.3"
            )
        return cls(LedgerId(numbers[0]), EntryId(numbers[1]), numbers[2])


BEGINNING = Position(LedgerId(0), EntryId(0))
"""The position before every record."""


def checked(name: str, position: Position) -> Position:
    """Check a position given as an argument. Raises InvalidArgumentError, InvalidIdError."""
    arguments.instance(
        name, position, Position, "a Position, as of a Record or Position.parse(text)"
    )
    arguments.ledger(position.ledger_id)
    arguments.entry(position.entry_id)
    arguments.integer("record", position.record, 0)
    return position
