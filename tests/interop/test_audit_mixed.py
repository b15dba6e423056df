"""The audit of a cluster of Apache's bookies and bkbox's: planted faults are found, all of them and no others, and
repaired; the last audit is clean. One of Apache's bookies cannot list its entries, and is read. Both go on showing
copies that were written over, which is said, and ends as other bookies take their places."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from bkbox.audit.engine import LocalEngine
from bkbox.audit.execute import Outcome, RepairJob, chunks_of
from bkbox.audit.plan import BY_PERSONS, Action, Step, plan_of
from bkbox.audit.run import Summary, plan_audit, run_audit
from bkbox.audit.tables import read_table, rows_of
from tests.audit.forging import Forge, forge, silent_bookie
from tests.audit.tableplaces import places
from tests.harness.progress import NoProgress
from tests.interop.conftest import MakeCluster

LEDGERS = 6
QUICK = {"read_timeout_s": 2.0}


def audited(uri: str, folder: Path, *, orphans: bool) -> Summary:
    plan = asyncio.run(plan_audit(uri, read_all=True, orphans=orphans, client=QUICK))
    return run_audit(
        LocalEngine(),
        plan,
        folder,
        NoProgress(),
        wall_ms=lambda: time.time_ns() // 1_000_000,
    )


async def plant(uri: str, names: list[str], silent: str) -> Forge:
    async with forge(uri) as found:
        for number in range(LEDGERS):
            one, other, third = (names[(number + turn) % 3] for turn in range(3))
            await found.ledger(
                names,
                40,
                missing=[(entry, one) for entry in (0, 7, 8, 39)],
                flipped=[(entry, other) for entry in (3, 20)],
                divergent=[(30, third)],
            )
            striped = [one, other, third]  # entry 3n is on the first two, 3n + 1 on the last two
            await found.ledger(striped, 30, write_quorum=2, missing=[(3, one), (4, third)])
            await found.orphan([names[number % 3]])
        await found.ledger([names[0], names[1], silent], 5, silent=[silent])
        return found


def repaired(uri: str, steps: list[Step]) -> list[Outcome]:
    job = RepairJob(uri, client=QUICK)
    return [each for some in LocalEngine().map(job, chunks_of(steps)) for each in some]


def test_planted_faults_in_a_mixed_cluster(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = make_cluster("audited", bkbox=1)
    for _ in range(2):
        cluster.add_java(flushInterval="1000").start()
    apaches = {each.bookie_id for each in cluster.of_kind("java")}
    (sorts,) = (each for each in cluster.of_kind("java") if each.lists_entries)
    names = [bookie.bookie_id for bookie in cluster.bookies]
    assert {bookie.lists_entries for bookie in cluster.bookies} == {True, False}
    with silent_bookie(cluster.uri) as silent:
        planted = asyncio.run(plant(cluster.uri, names, silent))
        first = tmp_path / "first"
        summary = audited(cluster.uri, first, orphans=True)
        assert places(first, "missing") == planted.missing
        assert places(first, "corrupt") == planted.flipped
        divergent = rows_of("divergent", read_table(first, "divergent"))
        wrong = {
            (row.ledger_id, row.entry_id, row.bookie) for row in divergent if row.verdict == "wrong"
        }
        assert wrong == planted.divergent
        orphans = rows_of("orphaned", read_table(first, "orphaned"))
        assert {(row.ledger_id, row.bookie) for row in orphans} == planted.orphaned
        assert {row.bookie for row in rows_of("unknown", read_table(first, "unknown"))} == {silent}
        assert summary.rows["unreadable"] == summary.rows["limbo"] == 0
        assert summary.entries == planted.entries

        able = [step for step in plan_of(first) if step.action not in BY_PERSONS]
        bad = planted.flipped | planted.divergent
        outcomes = repaired(cluster.uri, able)
        unshown = {each.ledger_id for each in outcomes if each.unshown}
        assert unshown >= {ledger for ledger, _, bookie in bad if bookie == sorts.bookie_id}
        assert unshown <= {ledger for ledger, _, bookie in bad if bookie in apaches}
        assert all(each.done for each in outcomes if not each.unshown), outcomes

        # What was missing is there, and what was wrong is right, but for what Apache's bookies go on showing.
        second = tmp_path / "second"
        audited(cluster.uri, second, orphans=False)
        assert places(second, "missing") == set()
        assert places(second, "corrupt") <= {each for each in planted.flipped if each[2] in apaches}
        assert any(row[2] == sorts.bookie_id for row in places(second, "corrupt"))

        for _ in range(2):
            cluster.add_bkbox().start()
        moves = {(ledger, bookie) for ledger, _, bookie in bad if bookie in apaches}
        outcomes = repaired(
            cluster.uri,
            [Step(Action.MOVE, ledger, bookie, 0, -1, 0, "", "") for ledger, bookie in moves],
        )
        assert all(each.done for each in outcomes), outcomes
        assert not any(each.unshown for each in outcomes)
        third = audited(cluster.uri, tmp_path / "third", orphans=False)
        assert third.is_clean, third.rows
