"""Start and end of reading: ``startingOffsets`` and ``endingOffsets``, with Kafka's rules.

``earliest`` is the first entry, ``latest`` the end as far as it is known; or JSON, ``{"LEDGER": ENTRY}``: the first
entry to be read, and for the end the first one that is not. -2 stands for earliest, -1 for latest. A ledger that is
not named begins at the earliest and ends at the latest. A batch cannot begin at the latest nor end at the earliest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from bkbox.base.text import quoted
from bkbox.errors import ConfigError

EARLIEST, LATEST = -2, -1


def parse_offsets(option: str, text: str) -> Mapping[int, int] | int:
    """EARLIEST, LATEST, or an entry for each ledger named. Raises ConfigError."""
    if text in ("earliest", "latest"):
        return EARLIEST if text == "earliest" else LATEST
    try:
        return {int(ledger): _entry(entry) for ledger, entry in json.loads(text).items()}
    except (ValueError, AttributeError) as error:
        raise ConfigError(
            [
                f'option {option} = {quoted(text)} is not earliest, latest or JSON as {{"7": 100}}: {error}'
            ]
        ) from None


def starting(text: str, *, streaming: bool) -> Mapping[int, int] | int:
    """Parses ``startingOffsets``. Raises ConfigError, also for a batch that begins at its end."""
    offsets = parse_offsets("startingOffsets", text)
    values = [offsets] if isinstance(offsets, int) else offsets.values()
    if not streaming and LATEST in values:
        raise ConfigError(["option startingOffsets: a batch cannot begin at the latest entry"])
    return offsets


def ending(text: str) -> Mapping[int, int] | int:
    """Parses ``endingOffsets``. Raises ConfigError, also for an end at the beginning."""
    offsets = parse_offsets("endingOffsets", text)
    values = [offsets] if isinstance(offsets, int) else offsets.values()
    if EARLIEST in values:
        raise ConfigError(["option endingOffsets: a batch cannot end at the earliest entry"])
    return offsets


def first_of(offsets: Mapping[int, int] | int, ledger: int, stop: int) -> int:
    """The first entry to be read of a ledger that ends before ``stop``."""
    value = offsets if isinstance(offsets, int) else offsets.get(ledger, EARLIEST)
    return {EARLIEST: 0, LATEST: stop}.get(value, value)


def stop_of(offsets: Mapping[int, int] | int, ledger: int, stop: int) -> int:
    """The first entry that is no longer read."""
    value = offsets if isinstance(offsets, int) else offsets.get(ledger, LATEST)
    return stop if value == LATEST else value


def _entry(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < EARLIEST:
        raise ValueError(f"{quoted(value)} is not the id of an entry, -1 or -2")
    return value
