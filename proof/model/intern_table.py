"""Interning: each distinct value gets a number, counted from 1."""

from __future__ import annotations

from typing import Generic, TypeVar

from bkbox.errors import ModelTooLargeError

T = TypeVar("T")


class InternTable(Generic[T]):
    """Values and their numbers."""

    __slots__ = ("_limit", "_numbers", "_values")

    def __init__(self, bits: int) -> None:
        self._limit = 1 << bits
        self._numbers: dict[T, int] = {}
        self._values: list[T] = []

    def __len__(self) -> int:
        return len(self._values)

    def number(self, item: T) -> int:
        """The number of a value; a new one if necessary. Raises ModelTooLargeError if there is none left."""
        number = self._numbers.get(item)
        if number is None:
            number = len(self._values) + 1
            if number >= self._limit:
                raise ModelTooLargeError(
                    f"it has more than {number - 1} different parts of one kind"
                )
            self._values.append(item)
            self._numbers[item] = number
        return number

    def __getitem__(self, number: int) -> T:
        return self._values[number - 1]
