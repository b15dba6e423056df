"""Planted faults in their full numbers, in a cluster of Apache's bookies and bkbox's, with a bookie in limbo and one
that never answers: all are found and none invented, by both engines alike; repaired; and the second audit is clean."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from bkbox.audit.engine import LocalEngine
from bkbox.audit.execute import Outcome, RepairJob, chunks_of
from bkbox.audit.job import TABLES
from bkbox.audit.plan import Action, Step, plan_of
from bkbox.audit.run import FINDINGS, SUMS, Summary, plan_audit, run_audit
from bkbox.audit.tables import read_table, rows_of
from tests.audit.forging import Forge, forge, silent_bookie
from tests.audit.tableplaces import places
from tests.harness.cluster import pretend_a_failed_sync
from tests.harness.java import CHECKOUT
from tests.harness.processes import bkbox
from tests.harness.progress import NoProgress
from tests.harness.waiting import wait_for
from tests.interop.conftest import MakeCluster
from tests.interop.interopcluster import BkboxBookie, InteropCluster
from tests.interop.javaparts import JavaBookie

pytestmark = [
    pytest.mark.skipif(os.environ.get("AUDIT_FAULTS") != "all", reason="AUDIT_FAULTS=all"),
    pytest.mark.timeout(1_200),
]

LEDGERS = 100
"""With 10 missing entries, 10 flipped and a divergent one in each, and so many orphans."""

QUICK = {"read_timeout_s": 2.0}
GONE = "127.0.0.1:1"


def audited(engine: Any, uri: str, folder: Path, *, orphans: bool) -> Summary:
    plan = asyncio.run(
        plan_audit(uri, read_all=True, orphans=orphans, client=QUICK, chunk_ledgers=40)
    )
    return run_audit(
        engine, plan, folder, NoProgress(), wall_ms=lambda: time.time_ns() // 1_000_000
    )


async def plant(uri: str, names: list[str], lossy: str, silent: str) -> tuple[Forge, int]:
    async with forge(uri) as found:
        for number in range(LEDGERS):
            await found.faulty(names[number % 3 :] + names[: number % 3])
            await found.orphan([names[number % 3]])
        for _ in range(5):
            await found.ledger([names[0], names[1], silent], 5, silent=[silent])
        # Nobody else has it, so this one cannot find out what it had. With its last entry it would have all.
        place = (7, lossy)
        limbo = await found.ledger([lossy, GONE], 8, ack_quorum=1, missing=[place], silent=[GONE])
        found.missing.discard((limbo, *place))
        return found, limbo


def repaired(uri: str, steps: list[Step]) -> list[Outcome]:
    job = RepairJob(uri, client=QUICK)
    return [each for some in LocalEngine().map(job, chunks_of(steps)) for each in some]


def test_all_of_it(
    make_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(CHECKOUT / "spark"), str(CHECKOUT)]))
    from pyspark_bookkeeper.engine import SparkEngine

    calm = {
        "repair_retry_initial_s": 600,
        "repair_retry_max_s": 600,
        "gc_interval_s": 86_400,
        "gc_confirm_s": 1,
    }
    cluster = make_cluster("faults", bkbox=2, ack_after="write", gc_trash_s=0, **calm)
    keeper, lossy = cluster.bookies
    assert isinstance(keeper, BkboxBookie)
    assert isinstance(lossy, BkboxBookie)
    javas: list[JavaBookie] = [
        cluster.add_java(flushInterval="1000", gcWaitTime="600000").start() for _ in range(2)
    ]
    assert {java.lists_entries for java in javas} == {True, False}
    names = [keeper.bookie_id, *(java.bookie_id for java in javas)]
    spark = SparkEngine("local[2]", **{"spark.driver.host": "127.0.0.1"})
    try:
        with silent_bookie(cluster.uri) as silent:
            planted, limbo = asyncio.run(plant(cluster.uri, names, lossy.bookie_id, silent))
            lossy.kill()
            pretend_a_failed_sync(lossy.disks)
            lossy.start()
            wait_for(lambda: lossy.status()["limbo"]["ledgers"], "the ledger to be in limbo")
            for engine in (LocalEngine(), spark):
                summary = audited(engine, cluster.uri, tmp_path / engine.name, orphans=True)
                check(tmp_path / engine.name, summary, planted, limbo, lossy.bookie_id, silent)
            for table in (*TABLES, *SUMS):
                ours = read_table(tmp_path / "local", table)
                theirs = read_table(tmp_path / "spark", table)
                if table == "unknown":  # after three time-outs a bookie is not waited for any more
                    ours, theirs = ours.drop_columns("why"), theirs.drop_columns("why")
                assert ours == theirs, table
        repair(cluster, tmp_path / "spark", planted, keeper, limbo)
        replace_the_silent(cluster, tmp_path / "between", limbo)
        collect(cluster, keeper)
        for engine in (LocalEngine(), spark):
            folder = tmp_path / f"second-{engine.name}"
            second = audited(engine, cluster.uri, folder, orphans=True)
            left = {name: second.rows[name] for name in FINDINGS}
            # The ledger in limbo names a bookie that is gone; nothing has its entries.
            assert left == {**dict.fromkeys(FINDINGS, 0), "under_replicated": 1}
            assert {
                row.ledger_id
                for row in rows_of("under_replicated", read_table(folder, "under_replicated"))
            } == {limbo}
    finally:
        spark.close()


def check(
    folder: Path, summary: Summary, planted: Forge, limbo: int, lossy: str, silent: str
) -> None:
    """All that was planted, and nothing else."""
    assert (len(planted.missing), len(planted.flipped)) == (10 * LEDGERS, 10 * LEDGERS)
    assert places(folder, "missing") == planted.missing
    assert places(folder, "corrupt") == planted.flipped
    divergent = rows_of("divergent", read_table(folder, "divergent"))
    wrong = {
        (row.ledger_id, row.entry_id, row.bookie) for row in divergent if row.verdict == "wrong"
    }
    assert len(planted.divergent) == LEDGERS
    assert wrong == planted.divergent
    orphans = rows_of("orphaned", read_table(folder, "orphaned"))
    assert {(row.ledger_id, row.bookie) for row in orphans} == planted.orphaned
    assert len(planted.orphaned) == LEDGERS
    assert {row.bookie for row in rows_of("unknown", read_table(folder, "unknown"))} == {silent}
    in_limbo = rows_of("limbo", read_table(folder, "limbo"))
    assert [(row.ledger_id, row.bookie) for row in in_limbo] == [(limbo, lossy)]
    assert summary.rows["unreadable"] == 0
    assert summary.entries == planted.entries


def repair(
    cluster: InteropCluster, folder: Path, planted: Forge, keeper: BkboxBookie, limbo: int
) -> None:
    """By the plan. Apache's bookies may show what they had before, now or later: others take their places."""
    outcomes = repaired(cluster.uri, plan_of(folder))
    failed = [each for each in outcomes if not each.done and not each.unshown]
    assert {each.ledger_id for each in failed} <= {limbo}, failed
    for _ in range(2):
        cluster.add_bkbox().start()
    bad = {(ledger, bookie) for ledger, _, bookie in planted.flipped | planted.divergent}
    moves = [
        Step(Action.MOVE, ledger, bookie, 0, -1, 0, "", "")
        for ledger, bookie in sorted(bad)
        if bookie != keeper.bookie_id
    ]
    outcomes = repaired(cluster.uri, moves)
    assert all(each.done for each in outcomes), outcomes


def replace_the_silent(cluster: InteropCluster, folder: Path, limbo: int) -> None:
    """It is gone by now, which the first plan could not know."""
    audited(LocalEngine(), cluster.uri, folder, orphans=False)
    failed = [each for each in repaired(cluster.uri, plan_of(folder)) if not each.done]
    assert {each.ledger_id for each in failed} <= {limbo}, failed


def collect(cluster: InteropCluster, keeper: BkboxBookie) -> None:
    """Orphans; what Apache's bookies have of ledgers that moved away counts as such for them."""
    for java in cluster.of_kind("java"):
        assert isinstance(java, JavaBookie)
        java.stop()
        text = java.configuration.read_text()
        text = text.replace("gcWaitTime=600000", "gcWaitTime=1000")
        java.configuration.write_text(f"{text}\ngcOverreplicatedLedgerWaitTime=1000\n")
        java.start()
    config = ("--config", str(keeper.config))
    for _ in range(2):  # into the trash, and out of it
        bkbox("gc", "run", *config)
        bkbox("job", "watch", *config)
    time.sleep(10)
