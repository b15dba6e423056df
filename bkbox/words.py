"""Counts and errors in the words of a message."""

from __future__ import annotations

_IRREGULAR = {"entry": "entries", "copy": "copies", "copies": "copies", "directory": "directories"}


def counted(count: int, noun: str) -> str:
    """A number with its noun, singular for one: ``1 ledger``, ``2,000 entries``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {_IRREGULAR.get(noun, f'{noun}s')}"


def error_text(error: BaseException) -> str:
    """What an error says, for people: its text, else the name of its kind in words; never its repr.

    An OSError says what the system says, and about which file.
    """
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error).strip() or _in_words(type(error).__name__)


def _in_words(name: str) -> str:
    """``ConnectionResetError`` is 'connection reset'."""
    name = name.removesuffix("Error").removesuffix("Exception") or name
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
    return words.strip()
