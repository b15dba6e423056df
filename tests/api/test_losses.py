"""Ledgers that were ended with loss accepted, as the status document lists them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bkbox.api.status.cached_status import losses_in
from bkbox.metadata import create
from bkbox.wire.metadata.loss import LossRecord, with_loss
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
            assert (await losses_in(store)).ledgers == 0
            for number in range(102):
                found = await store.create_ledger(ledger_of(number))
                lost = LossRecord(at_ms=1, end=7, lost="3-5", by="op@a", lost_entries=3)
                await store.write_ledger(with_loss(found.value, lost), found.version)
            found = await store.read_ledger(ledger_of(101).ledger_id)
            long = LossRecord(at_ms=2, end=7, lost=", ".join(map(str, range(0, 2_000, 2))))
            await store.write_ledger(with_loss(found.value, long), found.version)
            losses = await losses_in(store)
            assert (losses.ledgers, len(losses.listed)) == (102, 100)
            assert losses.listed[0].ledger == 2
            assert "by op@a: lost: entries 3-5" in losses.listed[0].records[0]
            assert [len(each) <= 300 for each in losses.listed[-1].records] == [True, True]
            await store.delete_ledger(ledger_of(0).ledger_id)
            await store.delete_ledger(ledger_of(1).ledger_id)
            left = await losses_in(Forgetful(store, [500]))  # type: ignore[arg-type]
            assert left.ledgers == 100

    asyncio.run(scenario())
