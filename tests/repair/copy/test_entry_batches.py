"""What is sent of copies: frames where nobody has to promise anything, single adds that ask for a sync where somebody
has."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.client.connection.response_matcher import BATCH_ENTRIES_AT
from bkbox.errors import MetadataError
from bkbox.repair.copy.entry_batches import AddBatchBuilder, batch_bytes, batch_entries, round_robin
from bkbox.wire.digest import DigestManager
from bkbox.wire.metadata.ledger import ACK_AFTER, DigestType, Fragment, LedgerMetadata, LedgerState
from tests.jobs.works import FreeWork

METADATA = LedgerMetadata(
    LedgerId(3),
    1,
    1,
    1,
    LedgerState.CLOSED,
    (Fragment(EntryId(0), (BookieId("a:1"),)),),
    last_entry=EntryId(9),
    digest_type=DigestType.CRC32C,
)


def packer(metadata: LedgerMetadata, *, accepts_v2_adds: bool = True) -> AddBatchBuilder:
    pool: Any = SimpleNamespace(accepts_v2_adds=accepts_v2_adds)
    return AddBatchBuilder(metadata, pool)


def body(count: int) -> tuple[bytes, list[bytes]]:
    digests = DigestManager(LedgerId(3), DigestType.CRC32C, b"")
    entries = [digests.package(entry, -1, 0, b"x" * (10 + entry)) for entry in range(count)]
    parts = [len(entry).to_bytes(4, "big") + entry for entry in entries]
    return bytes(BATCH_ENTRIES_AT) + b"".join(parts), entries


def test_a_ledger_whose_entries_are_to_be_synced() -> None:
    """The bookie may have ack_after = write: who copies has to ask, as its writer did."""
    synced = replace(METADATA, custom=((ACK_AFTER, b"sync"),))
    batch, entries = body(4)
    run = packer(synced).of_batch(batch, range(10))
    assert run is not None
    assert run.frames is None
    assert [(add.entry_id, add.synced, add.recovery) for add in run.adds] == [
        (entry, True, True) for entry in range(4)
    ]
    assert [bytes(add.entry) for add in run.adds] == entries
    assert (run.size, run.largest) == (sum(map(len, entries)), len(entries[-1]))
    single = packer(synced).of_entries([2], [entries[2]])
    assert single.adds[0].synced


def test_any_other_ledger() -> None:
    batch, entries = body(4)
    run = packer(METADATA).of_batch(batch, range(10))
    assert run is not None
    assert run.frames is not None
    assert (run.entries, run.size) == (range(4), sum(map(len, entries)))
    assert run.largest == len(entries[-1])
    as_v3 = packer(METADATA, accepts_v2_adds=False).of_batch(batch, range(10))
    assert as_v3 is not None
    assert as_v3.frames is None
    assert [bytes(add.entry) for add in as_v3.adds] == entries
    assert not as_v3.adds[0].synced
    assert packer(METADATA).of_batch(batch, range(1, 5)) is None
    with pytest.raises(MetadataError, match="no digest type"):
        packer(replace(METADATA, digest_type=None))


class SlowWork(FreeWork):
    """Gives so many pieces a turn."""

    def __init__(self, given: int) -> None:
        super().__init__()
        self._given = given

    async def checkpoint(self, *, pieces: int = 1, **costs: int) -> int:
        given = min(pieces, self._given)
        await super().checkpoint(**{name: cost * given // pieces for name, cost in costs.items()})
        return given

    def allowance(self) -> int | None:
        return 1000


@pytest.mark.parametrize("as_frames", [True, False])
def test_a_run_is_sent_in_parts_as_the_rate_allows(as_frames: bool) -> None:
    batch, entries = body(7)
    run = packer(METADATA, accepts_v2_adds=as_frames).of_batch(batch, range(7))
    assert run is not None
    work = SlowWork(3)

    async def parts() -> list[Any]:
        return [part async for part in round_robin(run, work, disk=1, network=2)]

    found = asyncio.run(parts())
    assert [list(part.entries) for part in found] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [part.size for part in found] == [
        sum(map(len, entries[at : at + 3])) for at in range(0, 7, 3)
    ]
    sent = []
    pool: Any = SimpleNamespace(
        add_run=lambda _target, frames, _answered: sent.extend(
            bytes(frames.data)[start - frames.offsets[0] + 28 : stop - frames.offsets[0]]
            for start, stop in zip(frames.offsets, frames.offsets[1:], strict=False)
        ),
        add_packaged=lambda _target, adds, _answered: sent.extend(bytes(add.entry) for add in adds),
    )
    for part in found:
        part.send(pool, BookieId("a:1"), lambda *_: None)
    assert sent == entries


def test_no_more_is_asked_for_than_the_rate_gives_in_a_second() -> None:
    assert batch_bytes(FreeWork()) == 1 << 20
    assert batch_bytes(SlowWork(1)) == 1000
    assert batch_entries(FreeWork(), 300, 64) == 64
    assert batch_entries(SlowWork(1), 300, 64) == 3
    assert batch_entries(SlowWork(1), 300, 2) == 2
    assert batch_entries(SlowWork(1), 5000, 64) == 1
