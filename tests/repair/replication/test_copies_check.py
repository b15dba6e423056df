"""A bookie that was away finds what was written without it, and brings it here, without an operator."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bkbox.api.admin import client as admin
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.api.admin.status import Copies
from bkbox.base.ids import LedgerId
from bkbox.client import LedgerWriter
from bkbox.config import load
from bkbox.jobs.job import Job, JobKind, JobState, from_json
from tests.harness.cluster import pretend_a_failed_sync
from tests.harness.processes import BookieProcess, bkbox, put_keys
from tests.harness.waiting import wait_for
from tests.harness.zookeeper import ZooKeeper
from tests.repair.copies import Cluster, Hands, hands

WAIT_S = 90.0


@pytest.fixture(params=["sqlite", "zookeeper"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster on either kind of metadata store."""
    uri = None
    if request.param == "zookeeper":
        zookeeper: ZooKeeper = request.getfixturevalue("zookeeper")
        uri = zookeeper.uri(zookeeper.new_root())
        bkbox("cluster", "init", "--metadata", uri)
    found = Cluster(tmp_path, uri)
    yield found
    found.close()


def socket(bookie: BookieProcess) -> Path:
    return admin_socket_path(load.load(bookie.config, os.environ))


def copies(bookie: BookieProcess) -> Copies:
    return admin.fetch_status(socket(bookie), WAIT_S).copies


def jobs(bookie: BookieProcess, kind: JobKind = JobKind.CHECK) -> list[Job]:
    found = admin.ask(socket(bookie), "GET", admin.JOBS_URL, timeout=WAIT_S)
    assert isinstance(found, list)
    return [job for job in map(from_json, found) if job.kind is kind]


def wait_checked(bookie: BookieProcess, after_ms: int = 0) -> Copies:
    """Until everything was compared, after ``after_ms``, and nothing is missing."""

    def found() -> Copies | None:
        now = copies(bookie)
        is_whole = now.job and not now.checking and not now.short
        return now if is_whole and now.checked_ms > after_ms else None

    return wait_for(found, "a complete check", timeout=WAIT_S, pause=0.2)


def wait_done(bookie: BookieProcess) -> None:
    """Until no ledger is followed any more."""
    wait_for(
        lambda: {job.state for job in jobs(bookie)} == {JobState.DONE},
        "the check to end",
        timeout=WAIT_S,
        pause=0.2,
    )


def drained(bookie: BookieProcess) -> bool:
    return [job.state for job in jobs(bookie, JobKind.DRAIN)] == [JobState.DONE]


@asynccontextmanager
async def under_load(our: Hands, writers: list[LedgerWriter]) -> AsyncIterator[None]:
    """All writers go on meanwhile."""
    over = asyncio.Event()

    async def write(writer: LedgerWriter) -> None:
        while not over.is_set():
            await our.append(writer, 10)
            await asyncio.sleep(0.02)

    tasks = [asyncio.ensure_future(write(each)) for each in writers]
    try:
        yield
    finally:
        over.set()
        await asyncio.gather(*tasks)


async def grown(writers: list[LedgerWriter], entries: int) -> None:
    """Each of them has written so many more."""
    ends = [each.last_add_confirmed + entries for each in writers]
    async with asyncio.timeout(WAIT_S):
        while any(each.last_add_confirmed < end for each, end in zip(writers, ends, strict=True)):
            await asyncio.sleep(0.05)


async def assert_nothing_lacks(our: Hands, ledgers: list[LedgerId]) -> None:
    for ledger in ledgers:
        assert await our.lacking(ledger) == {}, f"ledger {ledger}"


@pytest.mark.slow
def test_what_was_written_while_it_was_killed_is_brought_here(stored: Cluster) -> None:
    """With ledgers that are closed, deleted, recovered, or written to for longer."""
    stored.start(3)
    victim = stored.bookies[0]

    async def go() -> None:
        async with hands(stored.uri) as our:
            before = await our.closed(40)
            writers = [await our.write(20) for _ in range(5)]
            idle = await our.write(20)
            async with under_load(our, writers):
                await asyncio.to_thread(victim.kill)
                await our.append(idle, 30)
                await grown(writers, 60)
            closed, deleted, left, *longer = writers
            await closed.close()
            await our.store.delete_ledger(deleted.ledger_id)
            await left.abort()
            await our.client.recover(left.ledger_id)
            async with under_load(our, longer):
                await asyncio.to_thread(victim.start)
                found = await asyncio.to_thread(wait_checked, victim)
            assert found.mended >= 60
            open_ones = [*longer, idle]
            await assert_nothing_lacks(our, [each.ledger_id for each in open_ones])
            for each in open_ones:
                await each.close()
            await asyncio.to_thread(wait_done, victim)
            ledgers = [before, closed.ledger_id, left.ledger_id]
            ledgers += [each.ledger_id for each in open_ones]
            await assert_nothing_lacks(our, ledgers)
            for ledger in ledgers:
                await our.assert_whole(ledger)
            assert copies(victim).short == 0

    asyncio.run(go())


def test_a_healthy_cluster_lacks_nothing(stored: Cluster) -> None:
    """Stopped and started again: all is compared, nothing is copied; the second time only what has changed, where the
    store counts changes."""
    stored.start(3)
    victim = stored.bookies[0]

    async def write() -> None:
        async with hands(stored.uri) as our:
            for sizes in ((3, 3, 2), (3, 2, 2), (2, 2, 2)):
                await our.closed(30, *sizes)
            await our.store.delete_ledger(await our.closed(10))

    assert copies(victim) == Copies(), "a bookie's first start follows no absence"
    asyncio.run(write())
    found = Copies()
    for _ in range(2):
        victim.stop()
        victim.start()
        found = wait_checked(victim, after_ms=found.checked_ms)
        assert (found.short, found.mended) == (0, 0)
        wait_done(victim)
        assert jobs(victim)[-1].done.ledgers == 3
    assert (
        f"{found.short}; last complete check"
        in bkbox("status", "--config", str(victim.config)).stdout
    )


def test_a_ledger_in_limbo_is_waited_for(cluster: Cluster) -> None:
    cluster.start(3, ack_after="write")
    victim = cluster.bookies[0]

    async def write() -> list[LedgerId]:
        async with hands(cluster.uri) as our:
            writer = await our.write(30)
            await asyncio.to_thread(victim.kill)
            await our.append(writer, 30)
            await writer.close()
            return [writer.ledger_id]

    ledgers = asyncio.run(write())
    pretend_a_failed_sync(victim.disks)
    victim.start()
    wait_checked(victim)

    async def judge() -> None:
        async with hands(cluster.uri) as our:
            await assert_nothing_lacks(our, ledgers)

    asyncio.run(judge())


@pytest.mark.parametrize("killed", ["repair", "bookie"])
def test_killed_during_the_comparison(cluster: Cluster, killed: str) -> None:
    cluster.start(3)
    victim = cluster.bookies[0]

    async def write() -> list[LedgerId]:
        async with hands(cluster.uri) as our:
            writers = [await our.write(5) for _ in range(8)]
            await asyncio.to_thread(victim.kill)
            for each in writers:
                await our.append(each, 60)
                await each.close()
            return [each.ledger_id for each in writers]

    ledgers = asyncio.run(write())
    put_keys(victim, jobs_network_bytes_per_second=4_096)
    victim.start()
    wait_for(lambda: copies(victim).short, "the first copies", WAIT_S)
    assert copies(victim).checking
    assert "copies are short" in bkbox("health", "--config", str(victim.config), check=False).stdout
    if killed == "repair":
        (repair,) = victim.children("repair")
        os.kill(repair.pid, signal.SIGKILL)
    else:
        victim.kill()
        victim.start()
    lifted = {"bytes_per_second": 0}
    admin.ask(socket(victim), "POST", f"{admin.JOBS_URL}/all/rate", lifted, timeout=WAIT_S)
    wait_checked(victim)

    async def judge() -> None:
        async with hands(cluster.uri) as our:
            await assert_nothing_lacks(our, ledgers)

    asyncio.run(judge())
    assert [job.state for job in jobs(victim)] == [JobState.DONE]


@pytest.mark.parametrize("killed", ["worker", pytest.param("frontend", marks=pytest.mark.slow)])
def test_a_process_that_was_away(cluster: Cluster, killed: str) -> None:
    """What is written while a disk has no worker is missing on that disk alone; without a front-end, on all."""
    cluster.start(2)
    victim = BookieProcess(cluster.root, cluster.uri, name="two-disks")
    cluster.bookies.append(victim)
    victim.init(disks=2, restart_backoff_initial_s=3, restart_backoff_max_s=3).start()

    async def go() -> None:
        async with hands(cluster.uri) as our:
            writers = [await our.write(5) for _ in range(6)]
            async with under_load(our, writers):
                gone = victim.worker(0) if killed == "worker" else victim.children("frontend")[0]
                gone.kill()
                await grown(writers, 60)
                await asyncio.to_thread(
                    wait_for, lambda: jobs(victim), "the disk to be back", WAIT_S
                )
                await asyncio.to_thread(wait_checked, victim)
            for each in writers:
                await each.close()
            await asyncio.to_thread(wait_done, victim)
            await assert_nothing_lacks(our, [each.ledger_id for each in writers])

    asyncio.run(go())
    assert copies(victim).mended, "the killed process has missed something"


def test_a_drained_disk_and_a_read_only_bookie(cluster: Cluster) -> None:
    cluster.start(2)
    victim = BookieProcess(cluster.root, cluster.uri, name="two-disks")
    cluster.bookies.append(victim)
    victim.init(disks=2).start()

    async def write() -> list[LedgerId]:
        async with hands(cluster.uri) as our:
            writers = [await our.write(5) for _ in range(6)]
            await asyncio.to_thread(
                bkbox, "disk", "drain", str(victim.disks[0]), "--config", str(victim.config)
            )
            await asyncio.to_thread(wait_for, lambda: drained(victim), "the drain to end", WAIT_S)
            bkbox("bookie", "read-only", "on", "--config", str(victim.config))
            await asyncio.to_thread(victim.kill)
            for each in writers:
                await our.append(each, 60)
                await each.close()
            return [each.ledger_id for each in writers]

    ledgers = asyncio.run(write())
    victim.start()
    assert wait_checked(victim).mended == 360

    async def judge() -> None:
        async with hands(cluster.uri) as our:
            await assert_nothing_lacks(our, ledgers)

    asyncio.run(judge())
    assert not admin.fetch_status(socket(victim), WAIT_S).writable
