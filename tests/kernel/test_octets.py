"""The loads and stores that the kernel uses when it is interpreted; the compiled ones are tested by what uses them."""

from __future__ import annotations

import pytest

from bkbox.kernel import octets


def test_the_checksum_is_that_of_the_standard() -> None:
    # RFC 3720, B.4
    assert octets.crc32c(bytes(32), 0, 32, 0) == 0x8A9136AA
    assert octets.crc32c(bytes(range(32)), 0, 32, 0) == 0x46DD794E


def test_the_checksum_can_be_continued() -> None:
    data = bytes(range(256))
    assert octets.crc32c(data, 100, 256, octets.crc32c(data, 0, 100, 0)) == octets.crc32c(
        data, 0, 256, 0
    )


@pytest.mark.parametrize("value", [0, 1, -1, 2**63 - 1, -(2**63)])
def test_ids_are_signed(value: int) -> None:
    room = bytearray(10)
    octets.put_i64(room, 1, value)
    assert octets.i64(room, 1) == value


def test_copy_and_checksum_in_one_pass() -> None:
    data, room = bytes(range(50)), bytearray(60)
    assert octets.copy_crc32c(room, 5, data, 10, 50, 7) == octets.crc32c(data, 10, 50, 7)
    assert room == bytes(5) + data[10:] + bytes(15)
    assert octets.same(room, 5, data, 10, 50)
    assert not octets.same(room, 4, data, 10, 50)
