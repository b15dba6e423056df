"""Ledger, entry and bookie ids, checked once where they enter the system.

A value of these types has passed its check; nothing downstream checks it again.
"""

from __future__ import annotations

import operator
import re
from typing import NewType

from bkbox.base.text import quoted
from bkbox.errors import InvalidIdError

LedgerId = NewType("LedgerId", int)
"""0 <= id < 2**63."""

EntryId = NewType("EntryId", int)
"""0 <= id < 2**63, or -1: 'no entry' as a LAC, 'the last entry' in a read."""

BookieId = NewType("BookieId", str)
"""Name of a bookie in metadata; host:port unless the operator chose another (BookieId.java)."""

NO_ENTRY = EntryId(-1)
MAX_ID = 2**63 - 1

_DIGITS = re.compile(r"-?[0-9]{1,32}")

# ':-_' is a range in Java's expression (0x3a to 0x5f); ids accepted there have to be accepted here.
_BOOKIE_ID = re.compile(r"[a-zA-Z0-9:-_.\-]+")


def ledger_id(value: int | str) -> LedgerId:
    """Parse a ledger id. Raises InvalidIdError unless 0 <= id < 2**63."""
    number = _number("ledger", value)
    if not 0 <= number <= MAX_ID:
        raise InvalidIdError(f"ledger id {number} is outside 0..{MAX_ID}")
    return LedgerId(number)


def entry_id(value: int | str) -> EntryId:
    """Parse an entry id. Raises InvalidIdError unless 0 <= id < 2**63."""
    number = _number("entry", value)
    if not 0 <= number <= MAX_ID:
        raise InvalidIdError(f"entry id {number} is outside 0..{MAX_ID}")
    return EntryId(number)


def _number(what: str, value: int | str) -> int:
    """In ASCII digits: ``int`` accepts those of all scripts, blanks and underscores too, so that look-alike ids would
    be accepted. Nothing is rounded: 5.5 is no id, nor is True.
    """
    if isinstance(value, str):
        if not _DIGITS.fullmatch(value):
            raise InvalidIdError(f"{what} id {quoted(value[:40])} is not a number")
        return int(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InvalidIdError(f"{what} id of type {type(value).__name__} is not a number")
    return operator.index(value)


def bookie_id(text: str) -> BookieId:
    """Parse a bookie id by the rule of BookieId.java. Raises InvalidIdError."""
    if not _BOOKIE_ID.fullmatch(text) or text.lower() == "readonly":
        raise InvalidIdError(
            f"bookie id {quoted(text[:200])} is not allowed: use letters, digits and : . - _"
        )
    return BookieId(text)
