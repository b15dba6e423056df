"""The loads and stores that the kernel uses when it is interpreted; the compiled ones are tested by what uses them."""

from __future__ import annotations

import pytest

from bkbox.native import memory
from bkbox.native.checksum import crc32c


def test_the_checksum_is_that_of_the_standard() -> None:
    # RFC 3720, B.4
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(bytes(range(32))) == 0x46DD794E


def test_the_checksum_can_be_continued() -> None:
    data = bytes(range(256))
    assert crc32c(data[100:], crc32c(data[:100])) == crc32c(data)


@pytest.mark.parametrize("value", [0, 1, -1, 2**63 - 1, -(2**63)])
def test_ids_are_signed(value: int) -> None:
    room = bytearray(10)
    memory.put_i64(room, 1, value)
    assert memory.i64(room, 1) == value


def test_copies_and_comparisons() -> None:
    data, room = bytes(range(50)), bytearray(60)
    memory.copy(room, 5, data, 10, 50)
    assert room == bytes(5) + data[10:] + bytes(15)
    assert memory.same(room, 5, data, 10, 50)
    assert not memory.same(room, 4, data, 10, 50)
    memory.move(room, 0, 5, 45)
    assert room == data[10:] + data[45:] + bytes(15)
