"""Answers to batch reads: what is verified is what the digest manager verifies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkbox.errors import DigestError, FrameError
from bkbox.wire.batch_reads import check_sizes
from bkbox.wire.digest import IN_KERNEL, DigestManager, EntryColumns, VerifiedEntry
from bkbox.wire.metadata.ledger import DigestType

HEAD = 5


def body_of(entries: list[bytes]) -> bytes:
    return bytes(HEAD) + b"".join(len(entry).to_bytes(4, "big") + entry for entry in entries)


def one_by_one(
    digests: DigestManager, entries: list[bytes], first: int, count: int
) -> list[VerifiedEntry]:
    found: list[VerifiedEntry] = []
    for entry in entries[:count]:
        try:
            found.append(digests.verify(entry, first + len(found)))
        except DigestError:
            break
    return found


@given(
    st.sampled_from(list(DigestType)),
    st.lists(st.binary(max_size=50), max_size=6),
    st.integers(0, 7),
    st.none() | st.tuples(st.integers(0, 5), st.integers(0, 90)),
    st.none() | st.tuples(st.integers(0, 5), st.integers(0, 60)),
)
def test_up_to_the_first_that_is_not_right(
    digest: DigestType,
    payloads: list[bytes],
    count: int,
    damage: tuple[int, int] | None,
    cut: tuple[int, int] | None,
) -> None:
    digests = DigestManager(7, digest, b"pw")
    entries = [digests.package(10 + n, 3, 100 + n, each) for n, each in enumerate(payloads)]
    if damage is not None and damage[0] < len(entries):
        entry = bytearray(entries[damage[0]])
        entry[damage[1] % len(entry)] ^= 1
        entries[damage[0]] = bytes(entry)
    if cut is not None and cut[0] < len(entries):
        entries[cut[0]] = entries[cut[0]][: cut[1]]
    body = body_of(entries)
    check_sizes(body, HEAD)
    expected = one_by_one(digests, entries, 10, count)
    assert digests.verify_batch(body, HEAD, 10, count) == expected
    if digest in IN_KERNEL:
        assert rows(digests.verify_columns(body, HEAD, 10, count)) == expected


def rows(found: EntryColumns) -> list[tuple[int, int, int, int, bytes]]:
    return [
        (
            found.ledger_id,
            found.entry_ids[at],
            found.lacs[at],
            found.lengths[at],
            bytes(found.values[found.offsets[at] : found.offsets[at + 1]]),
        )
        for at in range(len(found))
    ]


def test_sizes_that_do_not_fit() -> None:
    body = body_of([b"abc", b"de"])
    check_sizes(body, HEAD)
    check_sizes(body[:HEAD], HEAD)
    for end in range(HEAD + 1, len(body)):
        if end != HEAD + 7:
            with pytest.raises(FrameError):
                check_sizes(body[:end], HEAD)
    with pytest.raises(FrameError):
        check_sizes(bytes(HEAD) + b"\xff\xff\xff\xff", HEAD)
