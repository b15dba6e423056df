"""Entries of a batch that go on to another bookie: what counts as right, and the frames they come to."""

from __future__ import annotations

import random

import pytest

from bkbox.repair.copy.entry_relay import add_frames, count_right
from bkbox.wire import v2
from bkbox.wire.digest import DigestManager, master_key
from bkbox.wire.metadata.ledger import DigestType

LEDGER, AT = 7, 32


def entries_of(digest: DigestType, first: int, count: int) -> list[bytes]:
    digests = DigestManager(LEDGER, digest, b"secret")
    rng = random.Random(first)
    return [
        digests.package(entry, entry - 1, 100 * entry, rng.randbytes(rng.randrange(200)))
        for entry in range(first, first + count)
    ]


def body_of(entries: list[bytes]) -> bytes:
    return bytes(AT) + b"".join(len(entry).to_bytes(4, "big") + entry for entry in entries)


@pytest.mark.parametrize(("digest", "size"), [(DigestType.CRC32C, 4), (DigestType.DUMMY, 0)])
def test_it_counts_up_to_the_first_that_is_not_right(digest: DigestType, size: int) -> None:
    entries = entries_of(digest, 5, 9)

    def count(given: list[bytes], *, first: int = 5, most: int = 100) -> int:
        return count_right(body_of(given), AT, LEDGER, first, most, size)

    assert count(entries) == 9
    assert count(entries, most=4) == 4
    assert count([]) == 0
    assert count(entries, first=6) == 0
    assert count([*entries[:3], *entries[4:]]) == 3, "one is left out"
    assert count([*entries[:2], entries[2][: 31 + size], *entries[3:]]) == 2, "one is cut off"
    for place in range(len(entries[4]) if size else 16):
        rotten = bytearray(entries[4])
        rotten[place] ^= 1 << place % 8
        assert count([*entries[:4], bytes(rotten), *entries[5:]]) == 4, place


@pytest.mark.parametrize("count", [0, 1, 6])
def test_frames_are_those_of_single_adds(count: int) -> None:
    entries = entries_of(DigestType.HMAC, 0, 6)
    flags = v2.FLAG_RECOVERY_ADD | v2.FLAG_HIGH_PRIORITY
    frames, offsets = add_frames(body_of(entries), AT, count, master_key(b"secret"), flags)
    assert len(offsets) == count + 1
    assert offsets[-1] == len(frames)
    for place in range(count):
        request = v2.AddRequest(
            v2.CURRENT_VERSION, flags, master_key(b"secret"), memoryview(entries[place])
        )
        frame = bytes(frames[offsets[place] : offsets[place + 1]])
        assert frame == v2.encode_request(request)
    with pytest.raises(ValueError, match="master key"):
        add_frames(body_of(entries), AT, count, b"short", flags)
