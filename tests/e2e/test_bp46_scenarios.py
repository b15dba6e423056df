"""The two ways to lose data without a journal that BP-46 describes, on real bookies.

Each runs twice: with all measures on nothing is lost; with the one measure switched off (tests/harness/unsafe) the same
steps lose an acknowledged entry. A test that cannot fail would prove nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.client.client import connect
from bkbox.errors import BkboxError, RecoveryAbortedError
from bkbox.metadata import connect as connect_store
from bkbox.wire.metadata.ledger import Fragment, LedgerMetadata, LedgerState
from tests.harness import raw
from tests.harness.processes import BookieProcess, bkbox, unsafe_environment

LEDGER = 1


@pytest.fixture
def bookies(tmp_path: Path) -> Iterator[list[BookieProcess]]:
    uri = f"sqlite:{tmp_path}/metadata.db"
    found = [BookieProcess(tmp_path, uri, name=f"bookie{number}") for number in range(3)]
    # A repair that recovered the ledger by itself would hide what a recovering client finds.
    for bookie in found:
        bookie.init(disks=1, ack_after="write", repair_retry_initial_s=300, repair_retry_max_s=300)
    for bookie in found:
        bookie.start(wait=False)
    for bookie in found:
        bookie.wait_ready()
    yield found
    for bookie in found:
        bookie.ensure_gone()


def create_ledger(bookies: list[BookieProcess]) -> None:
    """E = 3, WQ = 3, AQ = 2 over the three bookies in their order, CRC32 digests, no password."""
    from bkbox.wire.metadata.ledger import DigestType

    async def create() -> None:
        ensemble = tuple(BookieId(bookie.bookie_id) for bookie in bookies)
        metadata = LedgerMetadata(
            LedgerId(LEDGER),
            3,
            3,
            2,
            LedgerState.OPEN,
            (Fragment(EntryId(0), ensemble),),
            digest_type=DigestType.CRC32,
        )
        async with await connect_store(bookies[0].metadata) as store:
            await store.create_ledger(metadata)

    asyncio.run(create())


def write(bookie: BookieProcess, entry: int) -> int:
    with raw.RawClient(bookie.port) as client:
        return client.add(LEDGER, entry, b"entry %d" % entry)


def lose_disk(bookie: BookieProcess, *, unsafe: str) -> None:
    """The host dies and its disk is empty when it comes back."""
    bookie.kill()
    shutil.rmtree(bookie.disks[0])
    bookie.disks[0].mkdir()
    bkbox("cookie", "repair", "--config", str(bookie.config), "--yes")
    bookie.start(environment=unsafe_environment(unsafe))


def recover(uri: str) -> LedgerMetadata:
    async def run() -> LedgerMetadata:
        async with connect(uri, read_timeout_s=2.0, add_timeout_s=2.0) as client:
            return await client.recover(LEDGER)

    return asyncio.run(run())


def readable(uri: str) -> list[bytes]:
    async def run() -> list[bytes]:
        async with connect(uri) as client:
            reader = await client.open_ledger(LEDGER)
            return [entry.payload async for entry in reader.read()]

    return asyncio.run(run())


@pytest.mark.parametrize("unsafe", ["", "no-fence-on-boot"])
def test_scenario_1_a_fence_is_lost(bookies: list[BookieProcess], unsafe: str) -> None:
    """A recovery fences two of three bookies and closes the ledger; one of them forgets; the old writer goes on."""
    first, _second, third = bookies
    create_ledger(bookies)
    assert [write(bookie, 0) for bookie in bookies] == [raw.EOK] * 3
    third.kill()  # the recovery does not reach it, so it stays unfenced
    closed = recover(first.metadata)
    third.start()
    assert closed.state is LedgerState.CLOSED
    assert closed.last_entry == 0
    assert write(first, 1) == raw.EFENCED
    lose_disk(first, unsafe=unsafe)
    acknowledged = sum(write(bookie, 1) == raw.EOK for bookie in bookies) >= 2
    if unsafe:
        assert acknowledged, (
            "without the fence on boot the old writer must get its two acknowledgements"
        )
        assert b"entry 1" not in readable(first.metadata), (
            "and the entry is lost: the ledger is closed"
        )
    else:
        assert not acknowledged
        assert readable(first.metadata) == [b"entry 0"]


@pytest.mark.parametrize("unsafe", ["", "no-limbo"])
def test_scenario_2_a_recovery_truncates(bookies: list[BookieProcess], unsafe: str) -> None:
    """An entry is acknowledged by two of three; one forgets it, one is slow: the recovery must not end before it."""
    first, second, _third = bookies
    create_ledger(bookies)
    assert [write(first, 0), write(second, 0)] == [raw.EOK] * 2
    lose_disk(first, unsafe=unsafe)
    with second.paused():
        if unsafe:
            closed = recover(first.metadata)
            assert closed.state is LedgerState.CLOSED
            assert closed.last_entry == -1, "without limbo the acknowledged entry must be cut off"
        else:
            with pytest.raises(RecoveryAbortedError):
                recover(first.metadata)
    if unsafe:
        assert readable(first.metadata) == []
        return
    assert readable_after_retries(first.metadata) == [b"entry 0"]


def readable_after_retries(uri: str) -> list[bytes]:
    """A recovery that was aborted may be tried again, once the slow bookie answers."""
    for _ in range(10):
        with contextlib.suppress(BkboxError):
            return readable(uri)
    return readable(uri)
