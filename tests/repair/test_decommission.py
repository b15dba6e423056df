"""A bookie leaves the cluster: what is copied, what is refused, and when its cookie goes."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import time

import pytest

from bkbox.base.ids import BookieId, LedgerId
from bkbox.errors import JobCancelledError, OperatorError
from bkbox.repair.decommission import Decommission
from bkbox.repair.replication.replication_worker import ReplicationSettings
from tests.harness.cluster import bookies_of
from tests.harness.processes import BKBOX, BookieProcess, bkbox
from tests.harness.waiting import wait_for
from tests.jobs.works import FreeWork
from tests.repair.copies import Cluster, Hands, hands


def leaving(our: Hands, bookie: str, work: FreeWork | None = None) -> Decommission:
    return Decommission(
        work or FreeWork(),
        our.store,
        our.client,
        BookieId(bookie),
        ReplicationSettings(grace_s=0.0, retry_initial_s=0.05, retry_max_s=0.2),
        me=None,
        host="test",
        rng=random.Random(4),
        wall_ms=lambda: time.time_ns() // 1_000_000,
        monotonic_s=time.monotonic,
    )


@pytest.fixture
def cluster_of_three(cluster: Cluster) -> Cluster:
    """Three; a fourth one comes when a test wants it."""
    cluster.start(3)
    return cluster


def make_read_only(bookie: BookieProcess) -> None:
    bkbox("bookie", "read-only", "on", "--config", str(bookie.config))


async def is_named(our: Hands, bookie: BookieProcess) -> bool:
    async for page in our.store.ledger_ranges():
        for ledger in page:
            if bookie.bookie_id in (await our.metadata(ledger)).bookies():
                return True
    return False


def test_a_living_bookie_leaves(cluster_of_three: Cluster) -> None:
    """Also the last copy of an entry goes, as it is there to be read; open ledgers are closed."""

    async def scenario() -> None:
        leaver = cluster_of_three.bookies[0]
        async with hands(cluster_of_three.uri) as our:
            ledgers = {await our.closed(60): 60, await our.closed(61, 3, 2, 2): 61}
            single = [await our.closed(10, 1, 1, 1) for _ in range(6)]
            ledgers |= dict.fromkeys(single, 10)
            idle = await our.write(20)
            ledgers[idle.ledger_id] = 20
            cluster_of_three.start(1)
            job = leaving(our, leaver.bookie_id)
            survey = await job.scan()
            assert (survey.mode, survey.has_cookie, survey.refusal) == ("writable", True, "")
            assert [each.ledger for each in survey.ledgers if each.must_close] == [idle.ledger_id]
            with pytest.raises(OperatorError, match="Make it read-only first"):
                await job.run(delete_cookie=True)
            make_read_only(leaver)
            assert (await job.scan()).mode == "read-only"
            with pytest.raises(OperatorError, match="it is running: stop it"):
                await job.run(delete_cookie=True)
            assert not await is_named(our, leaver)
            assert await our.store.under_replication.count() == 0
            for ledger, entries in ledgers.items():
                await our.assert_whole(ledger, entries)
            leaver.stop()
            work = FreeWork()
            other = cluster_of_three.bookies[1].bookie_id
            await our.mark(leaver, idle.ledger_id)  # as where one died before it took the mark away
            await our.store.under_replication.mark(single[0], [leaver.bookie_id, other], 1)
            await leaving(our, leaver.bookie_id, work).run(delete_cookie=True)
            assert [each async for each in our.store.under_replication.ledgers()] == [single[0]]
            assert await our.store.read_cookie(BookieId(leaver.bookie_id)) is None
            assert work.done["entries"] == 0
            with pytest.raises(OperatorError, match="nothing to decommission"):
                await leaving(our, leaver.bookie_id).scan()

    asyncio.run(scenario())


def test_a_bookie_that_is_gone_leaves_and_the_last_copy_is_refused(
    cluster_of_three: Cluster,
) -> None:
    async def scenario() -> None:
        leaver = cluster_of_three.bookies[0]
        async with hands(cluster_of_three.uri) as our:
            ledger = await our.closed(30)
            single = {await our.closed(5, 1, 1, 1) for _ in range(8)}
            only_there = {
                each for each in single if leaver.bookie_id in (await our.metadata(each)).bookies()
            }
            assert only_there, "by chance"
            cluster_of_three.start(1)
            leaver.kill()
            await our.wait_gone(leaver)
            before = [await our.store.read_ledger(each) for each in sorted(single | {ledger})]
            with pytest.raises(OperatorError) as refusal:
                await leaving(our, leaver.bookie_id).run(delete_cookie=True)
            for each in only_there:
                assert f"ledger {each}: it may have the last copy" in str(refusal.value)
            after = [await our.store.read_ledger(each) for each in sorted(single | {ledger})]
            assert after == before, "nothing was touched"
            assert await our.store.under_replication.count() == 0
            assert await our.store.read_cookie(BookieId(leaver.bookie_id)) is not None
            for each in only_there:
                await our.store.delete_ledger(each)
            await leaving(our, leaver.bookie_id).run(delete_cookie=True)
            await our.assert_whole(ledger, 30)
            assert await our.store.read_cookie(BookieId(leaver.bookie_id)) is None

    asyncio.run(scenario())


def test_too_few_bookies_are_refused(cluster_of_three: Cluster) -> None:
    async def scenario() -> None:
        async with hands(cluster_of_three.uri) as our:
            wide, narrow = await our.closed(5), await our.closed(5, 2, 2, 2)
            with pytest.raises(OperatorError) as refusal:
                await leaving(our, cluster_of_three.bookies[0].bookie_id).run(delete_cookie=False)
            text = str(refusal.value)
            assert f"ledger {wide}: its ensembles have 3 bookies, and 2 other" in text
            assert f"ledger {narrow}:" not in text
            await our.store.under_replication.set_enabled(False)
            await our.store.delete_ledger(wide)
            with pytest.raises(OperatorError, match="disabled"):
                await leaving(our, cluster_of_three.bookies[0].bookie_id).run(delete_cookie=False)

    asyncio.run(scenario())


def test_cancelled_anywhere_it_goes_on_where_it_was(cluster_of_three: Cluster) -> None:
    async def scenario() -> None:
        leaver = cluster_of_three.bookies[0]
        async with hands(cluster_of_three.uri) as our:
            ledgers = [await our.closed(20) for _ in range(4)]
            cluster_of_three.start(1)
            make_read_only(leaver)
            turn, cancelled = 3, 0
            while await is_named(our, leaver):
                work = FreeWork(cancel_at=turn)
                try:
                    await leaving(our, leaver.bookie_id, work).run(delete_cookie=False)
                except JobCancelledError:
                    cancelled += 1
                assert not await our.store.under_replication.locked()
                turn += 2
            assert cancelled > 3
            for ledger in ledgers:
                await our.assert_whole(ledger, 20)

    asyncio.run(scenario())


def test_the_command(cluster_of_three: Cluster) -> None:
    leaver = cluster_of_three.bookies[0]

    async def write() -> list[int]:
        async with hands(cluster_of_three.uri) as our:
            return [await our.closed(20), await our.closed(20)]

    ledgers = asyncio.run(write())
    command = ["decommission", leaver.bookie_id, "--metadata", cluster_of_three.uri]
    refused = bkbox(*command, "--dry-run", "-o", "json", check=False)
    assert refused.returncode == 4
    assert "none of them free" in refused.stderr
    assert [each["ledger"] for each in json.loads(refused.stdout)["problems"]] == ledgers
    (newcomer,) = cluster_of_three.start(1)
    shown = json.loads(bkbox(*command, "--dry-run", "-o", "json").stdout)
    assert (shown["ledgers"], shown["copies"], shown["problems"]) == (2, 40, [])
    leaver.kill()
    by_job = ["decommission", leaver.bookie_id, "--config", str(newcomer.config)]
    done = bkbox(*by_job, "--delete-cookie", "--yes", timeout=120)
    assert f"no ledger names bookie {leaver.bookie_id} any more" in done.stderr

    async def look() -> None:
        async with hands(cluster_of_three.uri) as our:
            for ledger in ledgers:
                await our.assert_whole(ledger, 20)
            assert await our.store.read_cookie(BookieId(leaver.bookie_id)) is None

    asyncio.run(look())
    (job,) = json.loads(bkbox("job", "list", "--config", str(newcomer.config), "-o", "json").stdout)
    assert (job["kind"], job["state"], job["done"]["ledgers"]) == ("decommission", "done", 2)
    unknown = bkbox("decommission", "nobody:1", "--metadata", cluster_of_three.uri, check=False)
    assert unknown.returncode == 1
    assert "nothing to decommission" in unknown.stderr


def test_a_bookie_takes_itself_out(cluster_of_three: Cluster) -> None:
    """Read-only first, then everything is copied, then it is looked whether that is so; cancelled, all is as before."""
    leaver = cluster_of_three.bookies[0]
    cluster_of_three.start(1)

    async def write() -> list[LedgerId]:
        async with hands(cluster_of_three.uri) as our:
            return [await our.closed(40) for _ in range(6)]

    ledgers = asyncio.run(write())
    here = ["--config", str(leaver.config)]
    bkbox("job", "rate", "--all", "20KiB", *here)
    with subprocess.Popen(
        [*BKBOX, "decommission", leaver.bookie_id, *here, "--yes"],
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        wait_for(
            lambda: leaver.status()["read_only_reasons"] == ["decommission"], "it to be read-only"
        )
        wait_for(
            lambda: bookies_of(cluster_of_three.uri)[leaver.bookie_id], "it to be registered so"
        )
        [job] = [
            each["id"]
            for each in json.loads(bkbox("job", "list", *here, "-o", "json").stdout)
            if each["kind"] == "decommission"
        ]
        bkbox("job", "cancel", str(job), *here)
        _, said = command.communicate(timeout=60)
    assert command.returncode == 1
    assert "error: cancelled" in said
    wait_for(lambda: leaver.status()["writable"], "it to take entries again")
    other = bkbox(
        "decommission", cluster_of_three.bookies[1].bookie_id, *here, "--yes", check=False
    )
    assert other.returncode == 4
    assert "Make it read-only first" in other.stderr
    bkbox("job", "rate", "--all", "unlimited", *here)
    done = bkbox("decommission", leaver.bookie_id, *here, "--yes", timeout=120)
    assert f"no ledger names bookie {leaver.bookie_id} any more" in done.stderr
    assert leaver.status()["read_only_reasons"] == ["decommission"], "until it is stopped"

    async def look() -> None:
        async with hands(cluster_of_three.uri) as our:
            for ledger in ledgers:
                assert leaver.bookie_id not in (await our.assert_whole(ledger, 40)).bookies()

    asyncio.run(look())
    bkbox("bookie", "read-only", "off", *here)
    assert leaver.status()["writable"], "it stays after all"
