"""Tasks whose Python processes are killed are done again, and nothing is there twice; and filters that Spark pushes
down do not stick to a frame."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil
import pytest

pytest.importorskip("pyspark")

from tests.harness.waiting import wait_for
from tests.repair.copies import Cluster
from tests.spark.sparkledgers import closed, expected, in_cluster, ledgers_of, reader, rows, values

DAEMON = "pyspark.daemon"


def python_workers() -> list[psutil.Process]:
    """Those that Spark's sessions in this process have forked for tasks."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            parent = child.parent()
            if parent is not None and DAEMON in child.cmdline() and DAEMON in parent.cmdline():
                found.append(child)
    return found


@contextmanager
def killing(when: Callable[[], object]) -> Iterator[list[int]]:
    """All Python workers are killed, once ``when`` says so; their pids. (A task of the session may fail once.)"""
    over = threading.Event()
    killed: list[int] = []

    def kill() -> None:
        while not (over.is_set() or when()):
            time.sleep(0.02)
        for each in [] if over.is_set() else python_workers():
            with suppress(psutil.Error):
                each.kill()
                killed.append(each.pid)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def test_tasks_that_are_killed_write_once(spark: Any, cluster: Cluster) -> None:
    def there() -> set[int]:
        return in_cluster(cluster.uri, lambda ours: ledgers_of(ours.client))

    before = there()
    frame = spark.range(0, 60_000, 1, 3).selectExpr("concat(repeat('x', 300), id) as value")
    with killing(lambda: len(there() - before) > 1) as killed:  # the job has one, too
        write = frame.write.format("bookkeeper").option("metadata.uri", cluster.uri)
        write.option("dataset", "killed").mode("append").save()
    assert killed
    back = reader(spark, cluster.uri, dataset="killed").load()
    assert values(back) == sorted(b"x" * 300 + b"%d" % number for number in range(60_000))
    published = {row.ledger_id for row in back.select("ledger_id").distinct().collect()}
    assert there() - before == published


def test_tasks_that_are_killed_read_once(spark: Any, cluster: Cluster) -> None:
    ledger = closed(cluster.uri, 4_000)
    frame = reader(spark, cluster.uri, ledgers=ledger, minPartitions=6).load()
    found: list[Any] = []
    begin = time.monotonic()
    with killing(lambda: python_workers() and time.monotonic() - begin > 0.3) as killed:
        found += rows(frame)
        wait_for(lambda: killed, "workers to be killed")
    assert found == expected(ledger, entries=4_000)


def test_filters_that_spark_pushes_down_do_not_stick(spark: Any, cluster: Cluster) -> None:
    ledger = closed(cluster.uri, 20)
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "true")
    try:
        frame = reader(spark, cluster.uri, ledgers=ledger).load()
        assert frame.where("entry_id < 5").count() == 5
        assert frame.where("entry_id >= 15 and entry_id <> 17").count() == 4
        assert frame.count() == 20
    finally:
        spark.conf.unset(name)
