"""What the checks of all kinds of vectors share: comparing values, and what a check looks like."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bkbox.errors import BkboxError
from bkbox.wire.metadata.ledger import DigestType

Case = Mapping[str, Any]
"""One vector, as it is in the file."""

Check = Callable[[Case], Iterator[str]]
"""Gives one text per mismatch of a case; raises BkboxError where a decoder or encoder refused."""

_SHOWN = 160


def differ(what: str, expected: Any, found: Any) -> Iterator[str]:
    """A mismatch unless the values are equal; types count, so that 1 is not True."""
    if expected != found or isinstance(expected, bool) != isinstance(found, bool):
        yield f"{what}: expected {_short(expected)}, found {_short(found)}"


def differ_fields(expected: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    """One mismatch per field that differs, is missing or is there for no reason."""
    for name in {**expected, **found}:
        if name not in expected or name not in found:
            yield f"field {name} is {'expected' if name in expected else 'not expected'}"
        else:
            yield from differ(name, expected[name], found[name])


def must_fail(
    what: str,
    error: type[BkboxError] | tuple[type[BkboxError], ...],
    action: Callable[[], object],
) -> Iterator[str]:
    """A mismatch unless the action raises this error, or one of these."""
    try:
        result = action()
    except error:
        return
    yield f"{what}: expected to be refused, found {_short(result)}"


def digest_type(name: str) -> DigestType:
    """By either of its names."""
    return DigestType["HMAC" if name == "MAC" else name]


def _short(value: Any) -> str:
    text = value.hex() if isinstance(value, bytes) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
