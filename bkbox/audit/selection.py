"""Selection of ledgers: lists and ranges of ids, and conditions on the metadata."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from bkbox.base.ids import ledger_id
from bkbox.base.text import counted, quoted
from bkbox.errors import ConfigError, InvalidIdError
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from bkbox.wire.metadata.owner import owner_of

RANGE_MAX = 10_000_000
"""Maximum number of ledgers in a list; a longer one is a mistake."""

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def parse_ledgers(text: str, option: str = "ledgers") -> list[int]:
    """Parses ``1,2,5-9`` into ids, ascending, each once. Raises ConfigError."""
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ConfigError(
                [f"option {option}: {quoted(part.strip())} is neither an id nor a range as 5-9"]
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ConfigError([f"option {option}: the range {part.strip()} goes backwards"])
        if last - first + len(found) >= RANGE_MAX:
            raise ConfigError(
                [f"option {option}: stands for more than {counted(RANGE_MAX, 'ledger')}"]
            )
        try:
            found.update(range(ledger_id(first), ledger_id(last) + 1))
        except InvalidIdError as error:
            raise ConfigError([f"option {option}: {error}"]) from None
    return sorted(found)


def format_ledgers(ledgers: Iterable[int]) -> str:
    """Formats ids as a list that ``parse_ledgers`` takes."""
    parts: list[list[int]] = []
    for ledger in ledgers:
        if parts and parts[-1][-1] + 1 == ledger:
            parts[-1][1:] = [ledger]
        else:
            parts.append([ledger])
    return ",".join("-".join(map(str, part)) for part in parts)


def parse_assign(text: str) -> dict[int, tuple[int, int]]:
    """Parses ``{"7": [first, last]}``, both included. Raises ConfigError."""
    try:
        given = json.loads(text)
        found = {int(ledger): (int(first), int(last)) for ledger, (first, last) in given.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(
            [f'option assign = {quoted(text)} is not JSON as {{"7": [0, 99]}}: {error}']
        ) from None
    for ledger, (first, last) in found.items():
        if ledger < 0 or not 0 <= first <= last:
            raise ConfigError(
                [f"option assign: entries {first} to {last} of ledger {ledger} are none"]
            )
    return found


Condition = Callable[[LedgerMetadata], bool]

_CONDITION = re.compile(r"\s*([A-Za-z][\w.]*)\s*(>=|<=|!=|=|<|>)\s*('[^']*'|\S+)\s*")
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def _closed(metadata: LedgerMetadata, value: int) -> int | None:
    return value if metadata.state is LedgerState.CLOSED else None


_FIELDS: dict[str, tuple[Callable[[LedgerMetadata], Any], Callable[[str], Any]]] = {
    "ledger_id": (lambda found: found.ledger_id, int),
    "owner": (owner_of, str),
    "state": (lambda found: found.state.name, str.upper),
    "ctime": (
        lambda found: found.ctime_ms if found.ctime_ms >= 0 else None,
        lambda text: _time_ms(text),
    ),
    "entries": (lambda found: _closed(found, found.last_entry + 1), int),
    "bytes": (lambda found: _closed(found, found.length), int),
}


def parse_select(text: str) -> Condition:
    """Parses ``owner = billing and state = CLOSED and ctime >= 2026-01-31`` into a predicate; ``custom.KEY`` is a key
    of the custom metadata. A field that the metadata do not have fulfils no condition. Raises ConfigError."""
    conditions = [
        _condition(part) for part in re.split(r"\s+and\s+", text.strip(), flags=re.IGNORECASE)
    ]
    return lambda metadata: all(condition(metadata) for condition in conditions)


def _condition(text: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    known = ", ".join([*_FIELDS, "custom.KEY"])
    if match is None:
        raise ConfigError(
            [
                f"option select: {quoted(text)} is no condition: write FIELD = VALUE with one of {known}, joined by "
                "'and'"
            ]
        )
    get: Callable[[LedgerMetadata], Any]
    parse: Callable[[str], Any]
    name, compare, value = match[1], _OPERATORS[match[2]], match[3].strip("'")
    if name.startswith("custom."):
        key = name.removeprefix("custom.")
        get = partial(_custom, key)
        parse = str
    elif name.lower() in _FIELDS:
        get, parse = _FIELDS[name.lower()]
    else:
        raise ConfigError([f"option select: {quoted(name)} is not one of {known}"])
    try:
        bound = parse(value)
    except ValueError as error:
        raise ConfigError([f"option select: {quoted(text.strip())}: {error}"]) from None

    def matches(metadata: LedgerMetadata) -> bool:
        found = get(metadata)
        return found is not None and compare(found, bound)

    return matches


def _custom(key: str, metadata: LedgerMetadata) -> str | None:
    value = dict(metadata.custom).get(key)
    return None if value is None else value.decode(errors="replace")


def _time_ms(text: str) -> int:
    if text.isdigit():
        return int(text)
    found = datetime.fromisoformat(text)
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
