"""Entries, digests and keys beyond the golden vectors."""

from __future__ import annotations

import zlib

import pytest
from crc32c import crc32c

from bkbox.errors import DigestError
from bkbox.wire.digest import DigestManager
from bkbox.wire.metadata.ledger import DigestType

ALL = pytest.mark.parametrize("digest_type", list(DigestType))
CHECKED = pytest.mark.parametrize("digest_type", sorted({*DigestType} - {DigestType.DUMMY}))


def test_the_check_values_of_the_sums() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert zlib.crc32(b"123456789") == 0xCBF43926


@ALL
def test_any_buffer_is_packaged_and_verified(digest_type: DigestType) -> None:
    digests = DigestManager(7, digest_type, b"pw")
    made = {digests.package(4, 3, 99, kind(b"payload")) for kind in (bytes, bytearray, memoryview)}
    assert len(made) == 1
    (entry,) = made
    for buffer in (entry, bytearray(entry), memoryview(entry)):
        found = digests.verify(buffer, 4)
        assert (found.ledger_id, found.entry_id, found.lac, found.length) == (7, 4, 3, 99)
        assert found.payload == b"payload"
    assert digests.verify(entry, None) == digests.verify(entry, 4)


@CHECKED
def test_every_flipped_bit_is_noticed(digest_type: DigestType) -> None:
    digests = DigestManager(7, digest_type, b"pw")
    entry = digests.package(4, 3, 99, b"ab")
    for bit in range(len(entry) * 8):
        wrong = bytearray(entry)
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DigestError):
            digests.verify(wrong, None)


@ALL
def test_lac_packets(digest_type: DigestType) -> None:
    digests = DigestManager(7, digest_type, b"pw")
    packet = digests.package_lac(41)
    assert digests.verify_lac(packet) == 41
    with pytest.raises(DigestError):
        DigestManager(8, digest_type, b"pw").verify_lac(packet)
    with pytest.raises(DigestError):
        digests.verify_lac(packet[:-1])


def test_another_password_is_noticed_by_hmac_alone() -> None:
    entry = DigestManager(7, DigestType.HMAC, b"pw").package(0, -1, 1, b"a")
    with pytest.raises(DigestError):
        DigestManager(7, DigestType.HMAC, b"other").verify(entry, 0)
    entry = DigestManager(7, DigestType.CRC32C, b"pw").package(0, -1, 1, b"a")
    assert DigestManager(7, DigestType.CRC32C, b"other").verify(entry, 0).payload == b"a"
