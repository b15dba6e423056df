"""Which test classes of a jar extend a class, read from the class files: nothing of them is run."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

ABSTRACT = 0x0400
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4}
_SIZES |= {15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
"""Bytes of a constant by its tag, but for tag 1: a string."""

TESTS = {
    "Lorg/junit/Test;",
    "Lorg/junit/jupiter/api/Test;",
    "Lorg/junit/jupiter/params/ParameterizedTest;",
}
"""Annotations that make a method a test."""


@dataclass(frozen=True)
class ClassFile:
    parent: str | None
    is_abstract: bool
    has_tests: bool


def parse(data: bytes) -> ClassFile:
    (count,) = struct.unpack_from(">H", data, 8)
    constants: dict[int, bytes] = {}
    position, index = 10, 1
    while index < count:
        tag = data[position]
        size = 2 + struct.unpack_from(">H", data, position + 1)[0] if tag == 1 else _SIZES[tag]
        constants[index] = data[position + 1 : position + 1 + size]
        position += 1 + size
        index += 2 if tag in (5, 6) else 1  # a long and a double have two numbers
    flags, _this, parent = struct.unpack_from(">HHH", data, position)

    def class_name(number: int) -> str:
        return constants[int.from_bytes(constants[number])][2:].decode()

    strings = {value[2:] for value in constants.values()}
    return ClassFile(
        class_name(parent) if parent else None,
        bool(flags & ABSTRACT),
        any(each.encode() in strings for each in TESTS),
    )


def that_extend(jar: Path, base: str) -> list[str]:
    """Names, with slashes, of the classes with tests, of their own or inherited, that can be run."""
    with ZipFile(jar) as archive:
        files = {
            name.removesuffix(".class"): parse(archive.read(name))
            for name in archive.namelist()
            if name.endswith(".class") and "$" not in name
        }

    def line(name: str) -> list[str]:
        """The class and those that it extends, as far as the jar has them."""
        found = []
        here: str | None = name
        while here is not None and here in files:
            found.append(here)
            here = files[here].parent
        return found

    return sorted(
        name
        for name, file in files.items()
        if not file.is_abstract
        and base in line(name)[1:]
        and any(files[each].has_tests for each in line(name))
    )
