"""What is fuzzed: a function that takes any bytes, and the bytes to begin with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

VECTORS = Path(__file__).parents[1] / "wire" / "vectors"
T = TypeVar("T")

_HEX = re.compile("(?:[0-9a-f]{2})+")

KEY = bytes(range(100, 120))
"""The master key that ledgers of targets have."""


@dataclass(frozen=True, slots=True)
class Target:
    """``check`` returns what became of an input, the same for inputs that went the same way; whatever it raises is a
    finding. ``part``: how much of the usual number of inputs the quick test gives it, as it is slow.
    """

    name: str
    about: str
    seeds: Callable[[], list[bytes]]
    check: Callable[[bytes], object]
    part: float = 1.0


def hex_in(content: object, *keys: str) -> Iterator[bytes]:
    """Every value of one of these keys, anywhere in a JSON document, as the bytes that it says in hex."""
    if isinstance(content, dict):
        for key, value in content.items():
            if key in keys and isinstance(value, str) and _HEX.fullmatch(value):
                yield bytes.fromhex(value)
            else:
                yield from hex_in(value, *keys)
    elif isinstance(content, list):
        for item in content:
            yield from hex_in(item, *keys)


def vectors(name: str) -> object:
    """One of the project's files of golden vectors."""
    return json.loads((VECTORS / name).read_text(encoding="utf-8"))


class Choices:
    """Bytes as a sequence of decisions, for targets that make something of them that is nearly right.

    Where the bytes end every further choice is the first one, so that short inputs are simple cases.
    """

    IDS = (0, 1, 2, 3, 5, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 2, (1 << 63) - 1)

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def more(self) -> bool:
        return self._at < len(self._data)

    def below(self, bound: int) -> int:
        """0 .. bound - 1; ``bound`` is 256 at most."""
        if not self.more:
            return 0
        self._at += 1
        return self._data[self._at - 1] % bound

    def one_of(self, values: Sequence[T]) -> T:
        return values[self.below(len(values))]

    def number(self, size: int) -> int:
        """Unsigned, of so many bytes."""
        return int.from_bytes(self.some(size).ljust(size, b"\0"))

    def id(self) -> int:
        """An entry or ledger id: near the ends of its range, or one after the other."""
        kind = self.below(32)
        return self.IDS[kind] if kind < len(self.IDS) else kind

    def some(self, size: int) -> bytes:
        """Up to so many bytes."""
        found = self._data[self._at : self._at + size]
        self._at += len(found)
        return found

    def rest(self) -> bytes:
        return self.some(len(self._data))
