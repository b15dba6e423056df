"""The texts of counts, rates, values and errors in messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from pathlib import PurePath

_RATE = re.compile(r"(\d+) ?([kmg]?i?b)(?:/s)?", re.IGNORECASE | re.ASCII)
_UNITS = {
    "GiB": 1 << 30,
    "GB": 1_000_000_000,
    "MiB": 1 << 20,
    "MB": 1_000_000,
    "KiB": 1 << 10,
    "kB": 1_000,
    "B": 1,
}
_SIZES = {name.lower(): size for name, size in _UNITS.items()}
UNLIMITED = "unlimited"

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
    """A number with its noun, singular for one: ``1 ledger``, ``2,000 entries``. ``verb``: the verb after it, in the
    plural: ``1 ledger is``.
    """
    if count == 1:
        return f"1 {noun} {_SINGULAR_VERBS.get(verb, verb)}".rstrip()
    return f"{count:,} {plural_of(noun)} {verb}".rstrip()


def plural_of(noun: str) -> str:
    """The plural of a noun, or of words that end with one: ``more entries``."""
    last = noun.split()[-1]
    return noun.removesuffix(last) + _IRREGULAR.get(last, f"{last}s")


def moment(wall_ms: int) -> str:
    """A point in time, in milliseconds since 1970, in the local time zone; ``never`` for 0."""
    if not wall_ms:
        return "never"
    return f"{datetime.fromtimestamp(wall_ms / 1000).astimezone():%Y-%m-%d %H:%M:%S}"


def rate_of(text: str) -> int:
    """Bytes per second of a rate as an operator types it: ``20MB/s``, ``20MiB/s``, ``20MiB``; 0 for ``unlimited`` and
    ``0``.

    Raises ValueError with what to type.
    """
    if text in (UNLIMITED, "0"):
        return 0
    found = _RATE.fullmatch(text)
    size = None if found is None else _SIZES.get(found[2].lower())
    if found is None or size is None:
        hint = f"; {text} bytes per second are {text}B/s" if text.isdecimal() else ""
        raise ValueError(
            f"{text} is not a rate: write it as 20MB/s or 20MiB/s (B, kB, MB, GB, KiB, MiB, GiB), or {UNLIMITED}{hint}"
        )
    return int(found[1]) * size


def rate_text(bytes_per_second: int) -> str:
    """A rate in its largest whole unit, as ``rate_of`` reads it: ``20MB/s``; ``unlimited`` for 0."""
    if not bytes_per_second:
        return UNLIMITED
    unit = next(name for name, size in _UNITS.items() if bytes_per_second % size == 0)
    return f"{bytes_per_second // _UNITS[unit]}{unit}/s"


def quoted(value: object) -> str:
    """A value inside a message, in its author's form: text in quotes, with control characters escaped; bytes as text,
    or in hexadecimal; None, truth values, lists and mappings as JSON has them. Never the repr of an object.
    """
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return str.__repr__(value)
        case bytes() | bytearray() | memoryview():
            return _bytes(bytes(value))
        case Enum():
            return quoted(value.value)
        case int() | float() | PurePath():
            return str(value)
        case list() | tuple():
            return f"[{', '.join(map(quoted, value))}]"
        case Mapping():
            return f"{{{', '.join(f'{quoted(k)}: {quoted(v)}' for k, v in value.items())}}}"
        case BaseException():
            return error_text(value)
    return f"a value of type {type(value).__name__}"


def _bytes(data: bytes) -> str:
    try:
        return str.__repr__(data.decode())
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def fault_text(error: Exception) -> str:
    """The text of an error that nothing in bkbox should have raised, for messages."""
    return f"a fault of bkbox: {type(error).__name__}: {error_text(error)}"


def error_text(error: BaseException) -> str:
    """The text of an error for messages: its own, else the name of its kind in words; never its repr.

    For an OSError it is the system's text, and the file; for a KeyError the missing key.
    """
    if isinstance(error, OSError) and error.filename:
        return f"{reason_of(error)}: {error.filename}"
    return reason_of(error)


def reason_of(error: BaseException) -> str:
    """The same without a file, which the caller names."""
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror
        if text.startswith("Connect call failed"):  # asyncio's text, with the address as a tuple
            return "cannot connect" if type(error) is OSError else _spaced(type(error).__name__)
        return text
    if isinstance(error, KeyError) and error.args:
        return f"{error.args[0]} is missing"  # its own text is a repr
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    return str(error).strip() or _spaced(type(error).__name__)


def _spaced(name: str) -> str:
    """``ConnectionResetError`` is 'connection reset'."""
    name = name.removesuffix("Error").removesuffix("Exception") or name
    spaced = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
    return spaced.strip()
