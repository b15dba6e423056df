"""Python objects that compiled code makes in large numbers.

When compiled, ``objects.pxd`` has these as inline C and this file is not used.
"""

from __future__ import annotations

from typing import Any, TypeVar

Record = TypeVar("Record", bound=tuple[Any, ...])


def part(data: bytes, start: int, end: int) -> bytes:
    """data[start:end]; nothing is checked."""
    return data[start:end]


def record(kind: type[Record], fields: tuple[object, ...]) -> Record:
    """The named tuple of class ``kind``, which has no ``__new__`` of its own, with these fields. They lead to no other
    object: the garbage collector does not look at it.
    """
    return tuple.__new__(kind, fields)


def field(record: tuple[Any, ...], number: int) -> Any:
    """A field of a named tuple; nothing is checked."""
    return record[number]
