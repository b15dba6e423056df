"""Ledgers that were ended with loss accepted, as the status document lists them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bkbox.api.status.ended_ledgers import EndedLedgers
from bkbox.metadata import create
from bkbox.wire.metadata.loss import LossRecord, lost_entries, with_loss
from tests.metadata.metadata_peer import ledger_of


class Forgetful:
    """A store that still lists a ledger that other software has deleted."""

    def __init__(self, store: object, gone: list[int]) -> None:
        self._store, self._gone = store, gone

    async def ended_ledgers(self) -> list[int]:
        return sorted([*self._gone, *await self._store.ended_ledgers()])

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


def test_the_last_hundred_are_listed_with_what_each_lost_and_all_are_counted(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with await create(f"sqlite:{tmp_path}/cluster.db") as store:
            ended = EndedLedgers(store)
            none = await ended.inspect()
            assert (none.ledgers, none.entries) == (0, 0)
            for number in range(102):
                found = await store.create_ledger(ledger_of(number))
                lost = LossRecord(at_ms=1, end=7, lost="3-5", by="op@a", lost_entries=3)
                await store.write_ledger(with_loss(found.value, lost), found.version)
            found = await store.read_ledger(ledger_of(101).ledger_id)
            long = LossRecord(
                at_ms=2, end=7, lost=", ".join(map(str, range(0, 2_000, 2))), lost_entries=1_000
            )
            await store.write_ledger(with_loss(found.value, long), found.version)
            losses = await ended.inspect()
            assert (losses.ledgers, len(losses.listed)) == (102, 100)
            assert losses.entries == 101 * 3 + 1_002, "of ledger 101 what either record names"
            assert losses.listed[0].ledger == 2
            assert "by op@a: lost: entries 3-5" in losses.listed[0].records[0]
            assert [len(each) <= 300 for each in losses.listed[-1].records] == [True, True]
            await store.delete_ledger(ledger_of(0).ledger_id)
            await store.delete_ledger(ledger_of(1).ledger_id)
            left = await EndedLedgers(Forgetful(store, [500])).inspect()  # type: ignore[arg-type]
            assert left.ledgers == 100
            assert (await ended.inspect()).entries == 99 * 3 + 1_002

    asyncio.run(scenario())


def test_entries_are_counted_once_all_records_were_read(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with await create(f"sqlite:{tmp_path}/cluster.db") as store:
            for number in range(250):
                found = await store.create_ledger(ledger_of(number))
                lost = LossRecord(at_ms=1, end=7, lost="3", lost_entries=1)
                await store.write_ledger(with_loss(found.value, lost), found.version)
            ended = EndedLedgers(store)
            assert [(await ended.inspect()).entries for _ in range(2)] == [None, 250]
            first = await store.read_ledger(ledger_of(0).ledger_id)
            again = LossRecord(at_ms=2, end=7, lost="5-6", lost_entries=2)
            await store.write_ledger(with_loss(first.value, again), first.version)
            seen = [(await ended.inspect()).entries for _ in range(2)]
            assert seen[-1] == 252, "a ledger that was ended again is read again"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("lost", "counts", "expected"),
    [
        (["3-5, 9", "4-6, 9, 12"], [4, 5], 6),
        (["", "7"], [0, 1], 1),
        (["1 and 40 more ranges", "1-2"], [90, 2], 90),
        (["nonsense"], [3], 3),
        ([], [], 0),
    ],
)
def test_an_entry_in_two_records_counts_once(
    lost: list[str], counts: list[int], expected: int
) -> None:
    records = [
        LossRecord(at_ms=1, end=20, lost=text, lost_entries=count)
        for text, count in zip(lost, counts, strict=True)
    ]
    assert lost_entries(records) == expected
