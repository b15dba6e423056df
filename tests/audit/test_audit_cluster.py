"""The audit of real bookies: planted faults are found, all of them and nothing else, and repaired by a plan."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from bkbox.audit.engine import LocalEngine
from bkbox.audit.execute import RepairJob, chunks_of
from bkbox.audit.plan import Action, Step, plan_of
from bkbox.audit.report import write_report
from bkbox.audit.run import Summary, plan_audit, run_audit
from bkbox.audit.tables import read_table, rows_of
from bkbox.base.ids import LedgerId
from tests.audit.forging import Forge, forge, silent_bookie
from tests.audit.tableplaces import places
from tests.harness.cluster import pretend_a_failed_sync
from tests.harness.processes import bkbox
from tests.harness.progress import NoProgress
from tests.harness.waiting import wait_for
from tests.repair.copies import Cluster

SCALE = 20 if os.environ.get("AUDIT_FAULTS") == "all" else 1
"""Of the planted faults: 50, 50, 5 and 5 times this."""

QUICK = {"read_timeout_s": 1.0}


def audited(
    uri: str, folder: Path, *, read: bool = True, orphans: bool = False, **client: Any
) -> Summary:
    plan = asyncio.run(
        plan_audit(uri, read_all=read, orphans=orphans, client={**QUICK, **client}, chunk_ledgers=7)
    )
    summary = run_audit(
        LocalEngine(),
        plan,
        folder,
        NoProgress(),
        wall_ms=lambda: time.time_ns() // 1_000_000,
    )
    write_report(folder)
    return summary


async def plant(uri: str, names: list[str]) -> Forge:
    async with forge(uri) as found:
        for number in range(5 * SCALE):
            await found.faulty(names[number % 3 :] + names[: number % 3])
            await found.ledger(names, 25)
            await found.orphan([names[number % 3]])
        return found


def differing(folder: Path, verdict: str) -> set[tuple[int, int, str]]:
    return {
        (row.ledger_id, row.entry_id, row.bookie)
        for row in rows_of("divergent", read_table(folder, "divergent"))
        if row.verdict == verdict
    }


def repaired(uri: str, steps: Iterable[Step]) -> list[Any]:
    job = RepairJob(uri, client=QUICK)
    return [each for some in LocalEngine().map(job, chunks_of(steps)) for each in some]


def test_planted_faults_are_found_repaired_and_gone(cluster: Cluster, tmp_path: Path) -> None:
    names = [bookie.bookie_id for bookie in cluster.bookies]
    planted = asyncio.run(plant(cluster.uri, names))
    first = tmp_path / "first"
    summary = audited(cluster.uri, first, orphans=True)

    assert places(first, "missing") == planted.missing
    assert places(first, "corrupt") == planted.flipped
    assert differing(first, "wrong") == planted.divergent
    orphans = rows_of("orphaned", read_table(first, "orphaned"))
    since = min(ledger for ledger, _, _ in planted.missing)
    found = {(row.ledger_id, row.bookie) for row in orphans if row.ledger_id >= since}
    assert found == planted.orphaned
    assert summary.entries == planted.entries
    assert summary.is_certain
    assert not summary.is_clean
    assert summary.rows["unreadable"] == summary.rows["limbo"] == 0
    assert summary.rows["under_replicated"] == 5 * SCALE
    for name in ("summary.md", "summary.html", "summary.svg", "metrics.prom"):
        assert (first / name).stat().st_size > 100

    steps = plan_of(first)
    assert {step.action for step in steps} == {Action.COPY, Action.OVERWRITE, Action.COLLECT}
    half = chunks_of(steps)[0][: len(steps) // 2]
    assert all(each.done for each in repaired(cluster.uri, half))
    outcomes = repaired(cluster.uri, steps)  # as after an interruption
    assert all(each.done for each in outcomes), outcomes
    for bookie in cluster.bookies:
        bkbox("gc", "run", "--config", str(bookie.config), "--yes", check=False)

    assert sum(each.copies for each in repaired(cluster.uri, steps)) == 0
    second = audited(cluster.uri, tmp_path / "second")
    kinds = ("missing", "corrupt", "divergent", "unreadable", "under_replicated", "unknown")
    assert {name: second.rows[name] for name in kinds} == dict.fromkeys(kinds, 0)


def test_lists_alone_show_what_is_missing(cluster: Cluster, tmp_path: Path) -> None:
    names = [bookie.bookie_id for bookie in cluster.bookies]

    async def plant_one() -> Forge:
        async with forge(cluster.uri) as found:
            await found.ledger(
                names,
                30,
                write_quorum=2,
                missing=[(0, names[0]), (3, names[0]), (4, names[1]), (29, names[2])],
            )
            return found

    planted = asyncio.run(plant_one())
    summary = audited(cluster.uri, tmp_path, read=False)
    rows = rows_of("missing", read_table(tmp_path, "missing"))
    ledger = next(iter(planted.missing))[0]
    # Entries 0 and 3 are next to each other among those that the first bookie has to hold: 0, 2, 3, 5, …
    assert [(row.bookie, row.first_entry, row.last_entry, row.entries) for row in rows] == sorted(
        [
            (names[0], 0, 0, 1),
            (names[0], 3, 3, 1),
            (names[1], 4, 4, 1),
            (names[2], 29, 29, 1),
        ]
    )
    assert {row.ledger_id for row in rows} == {ledger}
    assert summary.copies_read == 0
    assert summary.rows["under_replicated"] == 1


def test_a_bookie_that_never_answers_is_unknown(cluster: Cluster, tmp_path: Path) -> None:
    names = [bookie.bookie_id for bookie in cluster.bookies]
    with silent_bookie(cluster.uri) as silent:

        async def plant_some() -> None:
            async with forge(cluster.uri) as found:
                for _ in range(10):
                    await found.ledger([*names[:2], silent], 5, silent=[silent])

        asyncio.run(plant_some())
        summary = audited(cluster.uri, tmp_path)
        unknown = rows_of("unknown", read_table(tmp_path, "unknown"))
        assert {(row.bookie, row.entries) for row in unknown} == {(silent, 5)}
        assert len(unknown) == 10
        assert summary.is_clean
        assert not summary.is_certain
        assert plan_of(tmp_path) == []


def test_a_bookie_that_is_gone_is_replaced(cluster: Cluster, tmp_path: Path) -> None:
    names = [bookie.bookie_id for bookie in cluster.bookies]
    gone = "127.0.0.1:1"

    async def plant_one() -> LedgerId:
        async with forge(cluster.uri) as found:
            return await found.ledger([names[0], gone], 20, ack_quorum=1, silent=[gone])

    ledger = asyncio.run(plant_one())
    audited(cluster.uri, tmp_path / "before")
    steps = plan_of(tmp_path / "before")
    assert [(step.action, step.bookie) for step in steps] == [(Action.REPLACE, gone)]
    (outcome,) = repaired(cluster.uri, steps)
    assert (outcome.done, outcome.copies) == (True, 20)
    after = audited(cluster.uri, tmp_path / "after")
    assert after.rows["under_replicated"] == after.rows["missing"] == 0

    async def look() -> frozenset[str]:
        async with forge(cluster.uri) as found:
            return (await found.client.metadata(ledger)).bookies()

    assert gone not in asyncio.run(look())
    assert repaired(cluster.uri, steps)[0].copies == 0


def test_a_bookie_in_limbo(cluster: Cluster, tmp_path: Path) -> None:
    """It lost its host, and nobody else has the ledger: it does not know what it had, and says so."""
    calm = {"repair_retry_initial_s": 600, "repair_retry_max_s": 600}
    (lossy,) = cluster.start(1, ack_after="write", **calm)
    gone = "127.0.0.1:1"

    async def plant_one() -> LedgerId:
        async with forge(cluster.uri) as found:
            place = (7, lossy.bookie_id)  # without this one it would find that it has all
            return await found.ledger(
                [lossy.bookie_id, gone], 8, ack_quorum=1, missing=[place], silent=[gone]
            )

    ledger = asyncio.run(plant_one())
    lossy.kill()
    pretend_a_failed_sync(lossy.disks)
    lossy.start()
    wait_for(lambda: lossy.status()["limbo"]["ledgers"], "the ledger to be in limbo")
    try:
        for read in (False, True):
            audited(cluster.uri, tmp_path, read=read)
            limbo = rows_of("limbo", read_table(tmp_path, "limbo"))
            assert [tuple(row) for row in limbo] == [(lossy.bookie_id, ledger, 8)]
            assert read_table(tmp_path, "missing").num_rows == 0
    finally:
        lossy.kill()
        cluster.bookies.remove(lossy)


def test_the_command(cluster: Cluster, tmp_path: Path) -> None:
    names = [bookie.bookie_id for bookie in cluster.bookies]

    async def plant_one() -> None:
        async with forge(cluster.uri) as found:
            await found.ledger(names, 12, missing=[(5, names[1])], custom={"owner": b"billing"})

    asyncio.run(plant_one())
    folder = tmp_path / "audit"
    done = bkbox("audit", "--metadata", cluster.uri, "-o", str(folder), "--no-orphans", check=False)
    assert done.returncode == 1
    assert "found rows: 1 missing, 1 under_replicated" in done.stderr
    plan = tmp_path / "plan.csv"
    given = ["repair", "--metadata", cluster.uri]
    bkbox(*given, "--from-audit", str(folder), "--write-plan", str(plan))
    assert len(plan.read_text().splitlines()) == 2
    assert "1 copy" in bkbox(*given, "--plan", str(plan), "--dry-run").stdout
    told = bkbox(*given, "--plan", str(plan), "--yes").stderr
    assert "1 ledger is as planned, 1 copy was made" in told
    done = bkbox("audit", "--metadata", cluster.uri, "-o", str(folder), "--no-orphans", "--read")
    assert "nothing is wrong" in done.stderr
    assert "billing" in bkbox("top", "--metadata", cluster.uri, "--by", "owner").stdout


def test_only_ledgers_whose_metadata_fit(tmp_path: Path, cluster: Cluster) -> None:
    from tests.spark.sparkledgers import closed

    mine = [closed(cluster.uri, 3, custom={"owner": b"select-me"}) for _ in range(3)]
    closed(cluster.uri, 3, custom={"owner": b"other"})
    plan = asyncio.run(
        plan_audit(
            cluster.uri, read_all=True, orphans=True, client=QUICK, select="owner = select-me"
        )
    )
    folder = tmp_path / "selected"
    summary = run_audit(LocalEngine(), plan, folder, NoProgress(), wall_ms=lambda: 0)
    assert (summary.ledgers, summary.entries, summary.ids_probed) == (3, 9, 0)
    found = rows_of("ledgers", read_table(folder, "ledgers"))
    assert [row.ledger_id for row in found] == mine
    arguments = ("audit", "--metadata", cluster.uri, "-o", str(tmp_path / "cli"))
    done = bkbox(*arguments, "--select", "owner = select-me")
    assert "3 ledgers, 9 entries" in done.stdout
    refused = bkbox(*arguments, "--select", "owner is me", check=False)
    assert "is no condition" in refused.stderr
