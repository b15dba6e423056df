"""Both engines come to the same tables; and ledgers go out to Parquet and come back."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark_bookkeeper.engine import SparkEngine

from bkbox.audit.engine import LocalEngine
from bkbox.audit.execute import RepairJob, chunks_of
from bkbox.audit.export import ExportJob, ledgers_in, parts_in, parts_of
from bkbox.audit.imports import ImportJob
from bkbox.audit.job import TABLES
from bkbox.audit.metadata_scan import gather
from bkbox.audit.plan import plan_of
from bkbox.audit.run import SUMS, plan_audit, run_audit
from bkbox.audit.tables import read_table
from bkbox.errors import BkboxError
from tests.audit.forging import forge
from tests.harness.java import CHECKOUT
from tests.harness.progress import NoProgress
from tests.repair.copies import Cluster, Hands, payload
from tests.spark.sparkledgers import closed, in_cluster


@pytest.fixture
def engine(spark: Any) -> SparkEngine:
    return SparkEngine()


@pytest.fixture
def sound(tmp_path: Path) -> Iterator[Cluster]:
    """Three bookies that no other test has damaged anything on."""
    root = tmp_path / "cluster"
    root.mkdir()
    found = Cluster(root)
    found.start(3)
    yield found
    found.close()


def test_both_engines_come_to_the_same_tables(
    sound: Cluster, engine: SparkEngine, tmp_path: Path
) -> None:
    cluster = sound
    names = [bookie.bookie_id for bookie in cluster.bookies]

    async def plant() -> None:
        async with forge(cluster.uri) as found:
            for number in range(12):
                bookie = names[number % 3]
                await found.ledger(
                    names,
                    20,
                    missing=[(entry, bookie) for entry in range(3, 6)],
                    flipped=[(0, bookie)],
                    divergent=[(19, bookie)],
                )
                await found.orphan([bookie])

    asyncio.run(plant())
    plan = asyncio.run(plan_audit(cluster.uri, read_all=True, orphans=True, chunk_ledgers=5))
    for name, each in (("local", LocalEngine()), ("spark", engine)):
        summary = run_audit(each, plan, tmp_path / name, NoProgress(), wall_ms=lambda: 0)
        assert summary.rows["missing"] == summary.rows["corrupt"] == 12
    for table in (*TABLES, *SUMS):
        assert read_table(tmp_path / "local", table) == read_table(tmp_path / "spark", table), table
    steps = plan_of(tmp_path / "local")
    outcomes = [
        each for some in engine.map(RepairJob(cluster.uri), chunks_of(steps)) for each in some
    ]
    assert all(each.done for each in outcomes), outcomes
    again = asyncio.run(plan_audit(cluster.uri, read_all=True, orphans=False))
    summary = run_audit(engine, again, tmp_path / "again", NoProgress(), wall_ms=lambda: 0)
    assert summary.is_clean, summary.rows
    local = gather(LocalEngine(), cluster.uri, again.chunks, 5, NoProgress())
    assert gather(engine, cluster.uri, again.chunks, 5, NoProgress()) == local


def test_an_error_in_a_task_is_told_in_words(engine: SparkEngine, tmp_path: Path) -> None:
    with pytest.raises(BkboxError, match=r"nowhere\.db"):
        list(engine.map(RepairJob(f"sqlite:{tmp_path}/nowhere.db"), [[]]))


@pytest.mark.parametrize("name", ["local", "spark"])
def test_ledgers_go_out_and_come_back(
    name: str, cluster: Cluster, engine: SparkEngine, tmp_path: Path
) -> None:
    chosen: Any = engine if name == "spark" else LocalEngine()
    ledgers = [
        closed(cluster.uri, 30, custom={"owner": name.encode()}, password=b"p") for _ in range(4)
    ]
    ledgers.append(closed(cluster.uri, 0, custom={"owner": name.encode()}))
    folder = tmp_path / "out"
    select = f"owner = {name}"
    runs = [range(min(ledgers), max(ledgers) + 1)]

    def export() -> int:
        parts = parts_of(runs, ledgers_in(folder), f"{time.time_ns()}", 2)
        job = ExportJob(cluster.uri, folder, select)
        found = [each for some in chosen.map(job, parts) for each in some]
        assert not [each for each in found if each.why]
        return len(found)

    assert export() == 5
    assert ledgers_in(folder) == set(ledgers)
    assert export() == 0, "incremental"

    ids = ImportJob(cluster.uri, folder, True, tmp_path / "ids")
    back = [each for some in chosen.map(ids, parts_in(folder)) for each in some]
    assert not [each for each in back if each.why]
    again = [each for some in chosen.map(ids, parts_in(folder)) for each in some]
    assert back == again, "given again, nothing is made again"

    async def check(ours: Hands) -> None:
        for each in back:
            before = await ours.client.metadata(each.ledger_id)
            after = await ours.client.metadata(each.new_id)
            assert (after.custom, after.password) == (before.custom, before.password)
            assert (after.last_entry, after.length) == (before.last_entry, before.length)
            reader = await ours.client.open_ledger(each.new_id, None)
            found = [entry.payload async for entry in reader.read()]
            count = before.last_entry + 1
            assert found == [payload(each.ledger_id, entry) for entry in range(count)]

    in_cluster(cluster.uri, check)
    # Under their own ids they are found to be there.
    same = [
        each
        for some in chosen.map(ImportJob(cluster.uri, folder), parts_in(folder))
        for each in some
    ]
    assert [(each.ledger_id, each.why) for each in same] == [(each, "") for each in sorted(ledgers)]


WITHOUT_SPARK = """
from pyspark_bookkeeper.engine import SparkEngine
from bkbox.errors import OperatorError

def told(call):
    try:
        call()
    except OperatorError as error:
        print("TOLD", error)

told(lambda: SparkEngine("nowhere:1"))
engine = SparkEngine("local[1]")
engine.close()
told(lambda: list(engine.map(None, [1])))
"""


def test_spark_that_does_not_start_or_has_ended_is_an_error_in_words() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{CHECKOUT}/spark"},
    )
    assert done.returncode == 0, done.stderr
    first, second = (line for line in done.stdout.splitlines() if line.startswith("TOLD"))
    assert "Spark does not start" in first
    assert "nowhere:1" in first
    assert "Spark could not carry it out" in second
