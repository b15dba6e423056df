"""Counts, rates and errors in the words of a message."""

from __future__ import annotations

import re

_RATE = re.compile(r"(\d+)(B|KiB|MiB|GiB)(/s)?", re.IGNORECASE | re.ASCII)
_SHIFTS = {"B": 0, "KIB": 10, "MIB": 20, "GIB": 30}

_IRREGULAR = {"entry": "entries", "copy": "copies"}


_SINGULAR_VERBS = {
    "are": "is",
    "that are": "that is",
    "were": "was",
    "have": "has",
    "differ": "differs",
    "lack": "lacks",
    "lie": "lies",
}


def counted(count: int, noun: str, verb: str = "") -> str:
    """A number with its noun, singular for one: ``1 ledger``, ``2,000 entries``. ``verb``: what follows, in the plural:
    ``1 ledger is``."""
    if count == 1:
        return f"1 {noun} {_SINGULAR_VERBS.get(verb, verb)}".rstrip()
    return f"{count:,} {plural_of(noun)} {verb}".rstrip()


def plural_of(noun: str) -> str:
    """Of a noun, or of words that end with one: ``more entries``."""
    last = noun.split()[-1]
    return noun.removesuffix(last) + _IRREGULAR.get(last, f"{last}s")


def rate_of(text: str) -> int:
    """Bytes per second of a rate as a person types it: ``50MiB``; 0 for ``none`` and ``0``, which are no limit.

    Raises ValueError, which says what to type.
    """
    if text in ("none", "0"):
        return 0
    found = _RATE.fullmatch(text)
    if found is None:
        hint = f"; {text} bytes per second are {text}B" if text.isdecimal() else ""
        raise ValueError(
            f"{text} is not a rate: write it as 50MiB or 800KiB (per second), or none for no limit{hint}"
        )
    return int(found[1]) << _SHIFTS[found[2].upper()]


def error_text(error: BaseException) -> str:
    """What an error says, for people: its text, else the name of its kind in words; never its repr.

    An OSError says what the system says, and about which file; a KeyError what is missing.
    """
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if isinstance(error, KeyError) and error.args:
        return f"{error.args[0]} is missing"  # its own text is a repr
    return str(error).strip() or _in_words(type(error).__name__)


def _in_words(name: str) -> str:
    """``ConnectionResetError`` is 'connection reset'."""
    name = name.removesuffix("Error").removesuffix("Exception") or name
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
    return words.strip()
