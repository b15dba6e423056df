"""A stream that is ended again and again while its log is written, rolls over, and loses a bookie: every record is in
its output once.

``SPARK_KILLS=all``: the query is a process of its own that is killed twenty times, driver, JVM and workers at once.
Without, the query is stopped three times, in the middle of what it does.
"""

from __future__ import annotations

import asyncio
import os
import queue
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from bkbox.client.log import Log
from bkbox.client.log.options import LogOptions
from bkbox.client.log.stored import StoredList
from tests.harness.java import CHECKOUT
from tests.harness.waiting import wait_for
from tests.repair.copies import Cluster, Hands, hands
from tests.spark.follower import following, kill_all
from tests.spark.sparkledgers import in_cluster, reader
from tests.spark.test_spark_stream import finished

ALL = os.environ.get("SPARK_KILLS") == "all"
KILLS = 20 if ALL else 3
BURST = 200_000 if ALL else 4_000
"""Records that are written during each life of the query, as fast as it goes."""

ENTRIES = 200 if ALL else 5
"""Of a batch."""

OPTIONS = LogOptions(roll_bytes=BURST * 6, batch_bytes=8 << 10)
"""Two ledgers or three for each life; an entry has a few hundred records."""


class Writer:
    """Writes bursts of records, each its number, on a thread of its own."""

    def __init__(self, uri: str, log: str) -> None:
        self.written = 0
        self._orders: queue.Queue[tuple[int, Future[None]] | None] = queue.Queue()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(uri, log)))
        self._thread.start()

    def burst(self, count: int) -> Future[None]:
        """Done when all are acknowledged."""
        done: Future[None] = Future()
        self._orders.put((count, done))
        return done

    def close(self) -> None:
        self._orders.put(None)
        self._thread.join(120)

    async def _run(self, uri: str, log: str) -> None:
        async with hands(uri) as ours, await Log(ours.client, log).open_writer(OPTIONS) as writer:
            while (order := await asyncio.to_thread(self._orders.get)) is not None:
                count, done = order
                numbers = range(self.written, self.written + count)
                try:
                    await writer.append_many(b"%012d" % number for number in numbers)
                except Exception as error:
                    done.set_exception(error)
                    raise
                self.written += count
                done.set_result(None)


@pytest.fixture
def wide(tmp_path: Path) -> Any:
    """Four bookies, of which one can be spared."""
    found = Cluster(tmp_path / "wide")
    (tmp_path / "wide").mkdir()
    found.start(4)
    yield found
    found.close()


@pytest.mark.parametrize(("sink", "loss"), [("parquet", "true"), ("dataset", "false")])
@pytest.mark.timeout(3_600 if ALL else 300)
def test_every_record_once(spark: Any, wide: Cluster, tmp_path: Path, sink: str, loss: str) -> None:
    rng = random.Random(1)
    writer = Writer(wide.uri, "log")
    given = (wide.uri, "log", tmp_path, sink, loss, ENTRIES)
    try:
        writer.burst(1).result(60)
        for life in range(KILLS):
            writing = writer.burst(BURST)
            if life == 1:
                time.sleep(0.1)
                wide.bookies[0].kill()
            if life == KILLS - 1:
                wide.bookies[0].start()
            live = killed if ALL else stopped
            live(lambda: spark, given, tmp_path / "checkpoint" / "commits", rng)
            writing.result(120)
    finally:
        writer.close()
    # What is left is taken in large steps: there may be millions.
    finished(following(spark, *given[:-1], 100 * ENTRIES).trigger(availableNow=True))
    if sink == "parquet":
        found = spark.read.parquet(str(tmp_path / "out"))
    else:
        found = reader(spark, wide.uri, dataset="log-copied").load()
    row = (
        found.selectExpr("cast(cast(value as string) as long) as number")
        .selectExpr(
            "count(*) as n",
            "count(distinct number) as different",
            "min(number) as first",
            "max(number) as last",
        )
        .first()
    )
    assert tuple(row) == (writer.written, writer.written, 0, writer.written - 1)
    assert len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))) > KILLS
    in_cluster(wide.uri, it_was_no_easy_log)


async def it_was_no_easy_log(ours: Hands) -> None:
    """It has rolled over, and its ledgers are not all on the same bookies."""
    ledgers = (await StoredList(ours.store, "log").read()).value.ledgers
    metadata = [await ours.metadata(ledger) for ledger in ledgers]
    assert len(ledgers) > KILLS
    assert len({bookie for each in metadata for bookie in each.bookies()}) == 4
    if ALL:
        assert any(len(each.fragments) > 1 for each in metadata)


Given = tuple[str, str, Path, str, str, int]


def stopped(spark: Callable[[], Any], given: Given, commits: Path, rng: random.Random) -> None:
    """One life of the query in this process: stopped after its first batch, wherever it is then."""
    before = count(commits)
    for _ in range(
        8
    ):  # a Python worker that takes too long to start, on a busy machine, ends the query
        query = following(spark(), *given).trigger(processingTime="0 seconds").start()
        try:
            wait_for(
                lambda query=query: count(commits) > before or not query.isActive, "a batch", 60
            )
            time.sleep(rng.random())
        finally:
            query.stop()
        if count(commits) > before:
            return
    raise AssertionError("the query never came to a batch")


def killed(_spark: Callable[[], Any], given: Given, commits: Path, rng: random.Random) -> None:
    """One life of the query as a process."""
    before = count(commits)
    path = os.pathsep.join([str(CHECKOUT / "spark"), str(CHECKOUT)])
    follower = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.follower", *map(str, given)],
        env={**os.environ, "PYTHONPATH": path},
        cwd=CHECKOUT,
    )
    try:
        wait_for(lambda: count(commits) > before or follower.poll() is not None, "a batch", 120)
        time.sleep(3 * rng.random())
        assert follower.poll() is None
    finally:
        if follower.poll() is None:
            kill_all(follower.pid)
        follower.wait(30)


def count(folder: Path) -> int:
    return len(list(folder.glob("[0-9]*"))) if folder.exists() else 0
