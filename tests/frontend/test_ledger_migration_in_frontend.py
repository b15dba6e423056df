"""The front-end's part in moves: requests for a held ledger wait, then go to its home; disks join and leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from bkbox.ipc.messages.frontend import DiskJoins, DiskLeaves, NewLedgers
from bkbox.ipc.messages.migration import PauseLedger, PlaceLedger
from bkbox.storage.log.records import LedgerRecord, entry_record
from tests.frontend.inprocess import InProcessBookie, InProcessDisk
from tests.frontend.test_frontend import aside, run
from tests.harness import raw
from tests.harness.raw3 import EIO, ENOENTRY, ENOLEDGER, EOK
from tests.harness.waiting import until


async def ledger_on(bookie: InProcessBookie, disk: int) -> int:
    """A new ledger on this disk, with one entry."""
    client = await bookie.client()
    for ledger in range(1, 10):
        assert await aside(client.add3, ledger, 0) == EOK
        if bookie.disks[disk].bookie.ledgers.record(ledger) is not None:
            return ledger
    raise AssertionError("no ledger has come to the disk")


def carry_over(bookie: InProcessBookie, ledger: int, source: int, target: int) -> None:
    """What the workers do in a move."""
    left, right = bookie.disks[source].bookie, bookie.disks[target].bookie
    state = left.ledgers.record(ledger)
    assert state is not None
    right.set_states({ledger: LedgerRecord(state.master_key, state.fenced)})
    for entry in range(left.store.last_entry_id(ledger) + 1):
        data = left.store.read_entry(ledger, entry)
        assert data is not None
        right.store.write([entry_record(data)], durable=True)
    left.forget(ledger)


async def hold(bookie: InProcessBookie, ledger: int) -> None:
    await bookie.control.call(PauseLedger(ledger=ledger))


async def place(bookie: InProcessBookie, ledger: int, disk: int) -> None:
    await bookie.control.call(PlaceLedger(ledger=ledger, disk=f"disk {disk}"))


def test_requests_wait_for_a_held_ledger_and_find_it_elsewhere(tmp_path: Path) -> None:
    async def story(bookie: InProcessBookie) -> None:
        ledger = await ledger_on(bookie, 0)
        add, read, old, other = [await bookie.client() for _ in range(4)]
        await hold(bookie, ledger)
        waiting = [
            asyncio.ensure_future(aside(add.add3, ledger, 1)),
            asyncio.ensure_future(aside(read.read3, ledger, 0)),
            asyncio.ensure_future(aside(old.add, ledger, 2, b"x")),
        ]
        await asyncio.sleep(0.2)
        assert not any(task.done() for task in waiting)
        assert await aside(other.add3, 20, 0) == EOK, "nobody else waits"
        carry_over(bookie, ledger, 0, 1)
        await place(bookie, ledger, 1)
        first, second, third = await asyncio.gather(*waiting)
        assert (first, second.status, third) == (EOK, EOK, raw.EOK)
        assert bookie.disks[1].store.last_entry_id(ledger) == 2
        assert bookie.disks[0].bookie.ledgers.record(ledger) is None

    run(tmp_path, story, disks=2)


def test_what_came_before_a_hold_is_with_the_worker(tmp_path: Path) -> None:
    async def story(bookie: InProcessBookie) -> None:
        ledger = await ledger_on(bookie, 0)
        client = await bookie.client()
        bookie.disks[0].hold()
        added = asyncio.ensure_future(aside(client.add3, ledger, 1))
        await asyncio.sleep(0.2)
        await hold(bookie, ledger)
        bookie.disks[0].resume()
        assert await added == EOK
        assert bookie.disks[0].store.has_entry(ledger, 1)
        await place(bookie, ledger, 0)

    run(tmp_path, story, disks=2)


def test_a_hold_that_lasts_too_long_is_answered_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bkbox.frontend.server.MIGRATION_PAUSE_MAX_S", 0.2)

    async def story(bookie: InProcessBookie) -> None:
        ledger = await ledger_on(bookie, 0)
        client = await bookie.client()
        await hold(bookie, ledger)
        assert await aside(client.add3, ledger, 1) == EIO
        assert (await aside(client.read3, ledger, 0)).status == EIO, "at once, by now"
        assert (await aside(client.fence3, ledger)).status == EIO
        await place(bookie, ledger, 0)
        assert await aside(client.add3, ledger, 1) == EOK

    run(tmp_path, story, disks=2)


def test_a_force_after_a_move_is_true_and_after_a_lost_worker_it_is_not(tmp_path: Path) -> None:
    """A commit makes durable what deferred adds left unsynced; a worker that died may have lost it."""

    async def story(bookie: InProcessBookie) -> None:
        ledger = await ledger_on(bookie, 0)
        client = await bookie.client()
        assert await aside(client.add3, ledger, 1, deferred=True) == EOK
        await hold(bookie, ledger)
        carry_over(bookie, ledger, 0, 1)
        await place(bookie, ledger, 1)
        assert await aside(client.force, ledger) == EOK
        bookie.disks[1].detach()
        await bookie.disks[1].attach(bookie.control, "disk 1")
        await until(lambda: bookie.disks[1].link is not None, "the next worker")
        assert await settled(lambda: client.force(ledger)) == EIO

    run(tmp_path, story, disks=2)


async def settled(ask: Callable[[], int]) -> int:
    await asyncio.sleep(0.2)
    return await aside(ask)


def test_a_move_that_came_to_nothing_changes_nothing(tmp_path: Path) -> None:
    async def story(bookie: InProcessBookie) -> None:
        ledger = await ledger_on(bookie, 0)
        client = await bookie.client()
        assert await aside(client.add3, ledger, 1, deferred=True) == EOK
        await hold(bookie, ledger)
        await hold(bookie, ledger)
        waiting = asyncio.ensure_future(aside(client.force, ledger))
        await asyncio.sleep(0.1)
        await place(bookie, ledger, 0)
        assert await waiting == EOK
        assert await aside(client.add3, ledger, 2) == EOK

    run(tmp_path, story, disks=2)


def test_a_disk_joins_gets_new_ledgers_and_leaves(tmp_path: Path) -> None:
    async def story(bookie: InProcessBookie) -> None:
        client = await bookie.client()
        joined = InProcessDisk(tmp_path / "joined")
        bookie.disks.append(joined)
        join = DiskJoins(disk="disk 1", path=str(joined.path))
        await bookie.control.call(join)
        await bookie.control.call(join)
        assert (await aside(client.read3, 99)).status == ENOLEDGER, "it holds nothing: no wait"
        assert await aside(client.add3, 1, 0) == EOK
        await joined.attach(bookie.control, "disk 1")
        await asyncio.sleep(0.1)
        news = NewLedgers(allowed=True, free={"disk 0": 1, "disk 1": 1_000}, closed=["disk 0"])
        await bookie.control.call(news)
        for ledger in range(2, 6):
            assert await aside(client.add3, ledger, 0) == EOK
            assert joined.bookie.ledgers.record(ledger) is not None
        assert await aside(client.add3, 1, 1) == EOK, "a closed disk goes on with what it has"
        for ledger in range(2, 6):
            await hold(bookie, ledger)
            carry_over(bookie, ledger, 1, 0)
            await place(bookie, ledger, 0)
        await bookie.control.call(NewLedgers(allowed=True))
        await bookie.control.call(DiskLeaves(disk="disk 1"))
        for ledger in range(1, 6):
            assert (await aside(client.read3, ledger)).status == EOK
            assert (await aside(client.read3, ledger, 5)).status == ENOENTRY
        for ledger in range(11, 14):
            assert await aside(client.add3, ledger, 0) == EOK

    run(tmp_path, story, disks=1)


def test_a_disk_stands_in_for_another(tmp_path: Path) -> None:
    async def story(bookie: InProcessBookie) -> None:
        ledger = await ledger_on(bookie, 0)
        client = await bookie.client()
        bookie.disks[0].detach()
        new = InProcessDisk(tmp_path / "new")
        bookie.disks.append(new)
        await bookie.control.call(DiskJoins(disk="new", path=str(new.path), replaces="disk 0"))
        assert (await aside(client.read3, ledger)).status == EIO
        assert (await aside(client.read3, 99)).status == EIO, "it may have been on the old one"
        key = raw.master_key()
        new.bookie.set_states({ledger: LedgerRecord(key, fenced=True, limbo=True)})
        await new.attach(bookie.control, "new")
        await asyncio.sleep(0.1)
        assert (await aside(client.read3, ledger, 0)).status == 507, "in limbo"
        assert (await aside(client.read3, 99)).status == ENOLEDGER

    run(tmp_path, story, disks=2)
