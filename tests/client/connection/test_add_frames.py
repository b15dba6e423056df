"""Frames of runs of adds are those that bkbox.wire makes one by one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkbox.client.connection.add_frames import AddFramer
from bkbox.wire import v2, v3
from bkbox.wire.digest import IN_KERNEL, DigestManager, master_key
from bkbox.wire.metadata.ledger import DigestType
from bkbox.wire.v3_format import Operation

KEY = master_key(b"pw")
IDS = st.integers(0, 2**40)
PAYLOADS = st.lists(st.binary(max_size=300), min_size=1, max_size=6)
DIGESTS = st.sampled_from(list(DigestType))


def framer_of(digests: DigestManager, flags: int = 0) -> AddFramer:
    digest = None if digests.digest_type in IN_KERNEL else digests.digest
    return AddFramer(digests.ledger_id, KEY, flags, digests.digest_size, digest)


def packaged(
    digests: DigestManager, first: int, lac: int, length: int, payloads: list[bytes]
) -> list[bytes]:
    entries = []
    for number, payload in enumerate(payloads):
        length += len(payload)
        entries.append(digests.package(first + number, lac, length, payload))
    return entries


@given(DIGESTS, IDS, IDS, st.integers(-1, 2**40), IDS, PAYLOADS, st.sampled_from([0, 6]))
def test_version_2(
    digest: DigestType,
    ledger: int,
    first: int,
    lac: int,
    length: int,
    payloads: list[bytes],
    flags: int,
) -> None:
    digests = DigestManager(ledger, digest, b"pw")
    framer = framer_of(digests, flags)
    frames = framer.v2(first, lac, length, payloads)
    expected = [
        v2.encode_request(v2.AddRequest(2, flags, KEY, entry))
        for entry in packaged(digests, first, lac, length, payloads)
    ]
    offsets = list(framer.offsets)
    assert [frames[a:b] for a, b in itertools.pairwise(offsets)] == expected


@given(DIGESTS, IDS, IDS, st.integers(-1, 2**40), IDS, PAYLOADS, st.integers(0, 2**50))
def test_version_3(
    digest: DigestType,
    ledger: int,
    first: int,
    lac: int,
    length: int,
    payloads: list[bytes],
    number: int,
) -> None:
    digests = DigestManager(ledger, digest, b"pw")
    framer = framer_of(digests)
    frames = framer.v3(number, first, lac, length, payloads)
    expected = [
        v3.encode_request(
            v3.AddRequest(
                v3.Header(Operation.ADD_ENTRY, number + index), ledger, first + index, KEY, entry
            )
        )
        for index, entry in enumerate(packaged(digests, first, lac, length, payloads))
    ]
    offsets = list(framer.offsets)
    assert [frames[a:b] for a, b in itertools.pairwise(offsets)] == expected


def test_what_it_cannot_write_is_refused() -> None:
    with pytest.raises(ValueError, match="20 bytes"):
        AddFramer(1, b"short", 0, 4, None)
    with pytest.raises(ValueError, match="digest"):
        AddFramer(1, KEY, 0, 8, None)
