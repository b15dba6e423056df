"""What bkbox asks of Apache's bookies beyond the protocol: they do not mind, and what they cannot say is unknown."""

from __future__ import annotations

import asyncio

import pytest

from bkbox.base.ids import LedgerId
from bkbox.client import connect
from bkbox.errors import NotDurableError
from bkbox.protocol.diagnosis import RecoveryOutlook
from bkbox.wire.metadata.ledger import ACK_AFTER, LedgerState
from tests.interop.conftest import MakeCluster
from tests.interop.interopcluster import InteropCluster


@pytest.fixture(scope="module")
def mixed(make_cluster: MakeCluster) -> InteropCluster:
    """Two of Apache's bookies, of which the second lists entries, and one of bkbox's."""
    return make_cluster("survey", java=2, bkbox=1)


async def written(uri: str, entries: int, **options: object) -> LedgerId:
    """An open ledger over all three without a writer, each copy written."""
    async with connect(uri) as client:
        writer = await client.create_ledger(3, 3, 2, **options)  # type: ignore[arg-type]
        for entry in range(entries):
            await writer.append(b"%d" % entry)
        while writer._driver.in_flight_bytes:
            await asyncio.sleep(0.01)
        await writer.abort()
        return writer.ledger_id


def test_a_ledger_on_bookies_of_both_kinds_is_explained_and_recovered(
    mixed: InteropCluster,
) -> None:
    async def go() -> None:
        ledger = await written(mixed.uri, 8)
        unlisting, listing, ours = (each.bookie_id for each in mixed.bookies)
        async with connect(mixed.uri, read_timeout_s=3.0) as client:
            found = await client.inspect_ledger(ledger)
            said = {str(name): each for name, each in found.reports.items()}
            assert [said[name].limbo for name in (unlisting, listing, ours)] == [False] * 3
            assert [said[name].fenced for name in (unlisting, listing, ours)] == [None, None, False]
            assert said[unlisting].listed is None
            for name in (unlisting, listing, ours):
                assert [said[name].describe_entry(entry) for entry in (0, 7, 8)] == [
                    "has it",
                    "has it",
                    "does not have it",
                ]
            assert (found.diagnosis.prospect, found.diagnosis.end) == (RecoveryOutlook.CLOSES, 7)
            assert (await client.metadata(ledger)).state is LedgerState.OPEN
            assert (await client.recover(ledger)).last_entry == 7

    asyncio.run(asyncio.wait_for(go(), 120))


def test_apaches_bookies_pass_over_what_is_ours(mixed: InteropCluster) -> None:
    """Adds that ask for a sync, persisted questions and a durable close."""

    async def go() -> None:
        async with connect(mixed.uri, read_timeout_s=3.0) as client:
            writer = await client.create_ledger(3, 3, 2, custom={ACK_AFTER: b"sync"})
            for entry in range(5):
                await writer.append(b"%d" % entry)
            reader = await client.open_ledger(writer.ledger_id, recovery=False)
            while writer._driver.in_flight_bytes:
                await asyncio.sleep(0.01)
            assert await reader.read_last_add_confirmed(persisted=True) == 3
            assert (await writer.close(durable=True)).last_entry == 4, "two of three list and sync"
            assert [entry.payload async for entry in reader.read()] == [
                b"0",
                b"1",
                b"2",
                b"3",
                b"4",
            ]
            three = await client.create_ledger(3, 3, 3)
            await three.append(b"x")
            with pytest.raises(NotDurableError, match="3 bookies"):
                await three.close(durable=True)
            assert (await three.close()).last_entry == 0

    asyncio.run(asyncio.wait_for(go(), 120))
