"""What the interpreted kernel makes by itself, and the entries that either kernel makes of a response."""

from __future__ import annotations

import gc
from typing import NamedTuple

from bkbox.native import objects
from bkbox.native.compiled import COMPILED
from bkbox.wire.batch_reads import largest_payload, verified

LEDGER = 7


class Read(NamedTuple):
    ledger: int
    entry: int
    lac: int
    length: int
    payload: bytes


def response(*payloads: bytes) -> bytes:
    """Entries from 0 on, without a digest."""
    found = b""
    for entry, payload in enumerate(payloads):
        header = b"".join(value.to_bytes(8, "big") for value in (LEDGER, entry, entry, 9))
        found += len(header + payload).to_bytes(4, "big") + header + payload
    return found


def test_parts_records_and_fields() -> None:
    assert objects.part(b"abcdef", 2, 4) == b"cd"
    assert objects.part(b"abcdef", 6, 6) == b""
    made = objects.record(Read, (1, 2, 3, 4, b"five"))
    assert type(made) is Read
    assert made == Read(1, 2, 3, 4, b"five")
    assert objects.field(made, 4) == b"five"


def test_entries_of_a_response_are_as_any_named_tuple() -> None:
    payloads = b"", b"x", b"y" * 5_000
    entries = verified(response(*payloads), 0, LEDGER, 0, 9, 0, Read)
    expected = [Read(LEDGER, entry, entry, 9, payload) for entry, payload in enumerate(payloads)]
    assert entries == expected
    assert [type(entry) for entry in entries] == [Read] * 3
    assert [hash(entry) for entry in entries] == [hash(entry) for entry in expected]
    assert entries[2]._replace(lac=1).lac == 1
    assert gc.is_tracked(entries[2]) is not COMPILED
    gc.collect()
    assert entries == expected
    assert largest_payload(entries) == 5_000
    assert largest_payload([]) == 0
