"""Rows that Spark writes to a log are in it once, in order, whatever is interrupted; and nothing else is left."""

from __future__ import annotations

import asyncio
import runpy
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructType
from pyspark_bookkeeper import logsink
from pyspark_bookkeeper.dataset import Dataset, Datasets, appended, of_log, queued
from pyspark_bookkeeper.options import write_options
from pyspark_bookkeeper.writing import BatchWriter, StreamWriter

from bkbox.client.log import Log, LogWriter
from bkbox.client.log.log import logs
from bkbox.errors import (
    AddFailedError,
    ConfigError,
    EntryTooLargeError,
    NoSuchLedgerError,
    NotLeaderError,
)
from tests.harness.java import CHECKOUT
from tests.repair.copies import Cluster, Hands
from tests.spark.sparkledgers import closed, in_cluster, reader, rows, values
from tests.spark.test_spark_stream import finished, stream

ROW = StructType().add("value", BinaryType())


def rows_of(*payloads: bytes) -> Any:
    return iter([pa.record_batch([pa.array(payloads, pa.binary())], names=["value"])])


def sink(uri: str, log: str, **options: str) -> Any:
    return write_options({"metadata.uri": uri, "log": log, **options})


def batch(uri: str, log: str) -> BatchWriter:
    return BatchWriter(sink(uri, log), ROW, overwrite=False)


def records(uri: str, log: str) -> list[bytes]:
    async def read(ours: Hands) -> list[bytes]:
        return [record.payload async for record in Log(ours.client, log).read()]

    return in_cluster(uri, read)


@pytest.fixture
def left_over(cluster: Cluster) -> Callable[[], set[int]]:
    """Ledgers of tasks that are still there, but for what other tests have left."""

    async def find(ours: Hands) -> set[int]:
        found = set()
        async for ledger in ours.client.ledgers():
            with suppress(NoSuchLedgerError):
                if "bkbox.spark.job" in dict((await ours.client.metadata(ledger)).custom):
                    found.add(ledger)
        return found

    before = in_cluster(cluster.uri, find)
    return lambda: in_cluster(cluster.uri, find) - before


def test_rows_of_tasks_are_appended_in_their_order(
    cluster: Cluster, left_over: Callable[[], set[int]]
) -> None:
    writer = batch(cluster.uri, "ordered")
    second, first = writer.write(rows_of(b"c", b"d")), writer.write(rows_of(b"a", b"b"))
    abandoned = writer.write(rows_of(b"never"))
    assert abandoned.ledger_id is not None
    writer.commit([first, None, second])
    assert records(cluster.uri, "ordered") == [b"a", b"b", b"c", b"d"]
    again = batch(cluster.uri, "ordered")
    again.commit([again.write(rows_of(b"e"))])
    assert records(cluster.uri, "ordered") == [b"a", b"b", b"c", b"d", b"e"]
    assert left_over() == set()
    assert "ordered" in in_cluster(cluster.uri, lambda ours: logs(ours.client))
    assert "log:ordered" not in in_cluster(cluster.uri, lambda ours: logs(ours.client))


def test_a_job_that_fails_appends_nothing(
    cluster: Cluster, left_over: Callable[[], set[int]]
) -> None:
    writer = batch(cluster.uri, "failed")
    messages = [writer.write(rows_of(b"a"))]
    with pytest.raises(EntryTooLargeError, match="of log failed"):
        writer.write(rows_of(bytes(5 << 20)))
    writer.abort(messages)
    assert left_over() == set()
    none = batch(cluster.uri, "failed")
    none.commit([])
    with pytest.raises(ConfigError, match="a log is appended to"):
        BatchWriter(sink(cluster.uri, "failed"), ROW, overwrite=True)


@pytest.mark.parametrize("after", [0, 1, 3, 7, 12])
def test_what_was_interrupted_is_finished_by_the_next(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, after: int, left_over: Callable[[], set[int]]
) -> None:
    """A driver that dies while it appends: some rows are in the log, of others it is not known."""
    name = f"interrupted-{after}"
    wanted = [b"%d" % number for number in range(20)]
    writer = batch(cluster.uri, name)
    messages = [writer.write(rows_of(*wanted[start : start + 5])) for start in range(0, 20, 5)]
    append_once, calls = LogWriter.append_once, 0

    async def dies(self: LogWriter, payload: bytes, *given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > after:
            raise AddFailedError("planted")
        return await append_once(self, payload, *given)

    with monkeypatch.context() as patched:
        patched.setattr(LogWriter, "append_once", dies)
        with pytest.raises(AddFailedError) as caught:
            writer.commit(messages)
    assert "do not write them again" in caught.value.__notes__[0]
    writer.abort(messages)  # as Spark does then
    follower = batch(cluster.uri, name)
    follower.commit([follower.write(rows_of(b"behind"))])
    assert records(cluster.uri, name) == [*wanted, b"behind"]
    assert left_over() == set()


def test_a_batch_of_a_stream_that_comes_again(
    cluster: Cluster, left_over: Callable[[], set[int]]
) -> None:
    options = sink(cluster.uri, "again", writerId="copy")
    for rows_now in ((b"a", b"b"), (b"b", b"a")):  # in another order the second time
        writer = StreamWriter(options, ROW, overwrite=False)
        writer.commit([writer.write(rows_of(*rows_now))], batchId=0)
    writer = StreamWriter(options, ROW, overwrite=False)
    writer.commit([writer.write(rows_of(b"c"))], batchId=1)
    assert records(cluster.uri, "again") == [b"a", b"b", b"c"]
    assert left_over() == set()


def test_two_drivers_at_the_same_time(cluster: Cluster) -> None:
    async def commit(ours: Hands, name: bytes) -> None:
        for number in range(4):
            writer = await ours.client.create_ledger(3, 3, 2)
            await writer.append_many([name + b"%d.%d" % (number, row) for row in range(5)])
            await writer.close()
            await Datasets(ours.client.store).change(
                of_log("contended"), queued([(writer.ledger_id, 5)])
            )
            for _ in range(20):
                try:
                    await logsink.append_queue(
                        ours.client, "contended", sink(cluster.uri, "contended")
                    )
                    break
                except NotLeaderError:
                    continue

    async def both(one: Hands) -> None:
        await asyncio.gather(commit(one, b"a"), commit(one, b"b"))

    in_cluster(cluster.uri, both)
    found = records(cluster.uri, "contended")
    assert sorted(found) == sorted(
        b"%s%d.%d" % (name, number, row)
        for name in (b"a", b"b")
        for number in range(4)
        for row in range(5)
    )


def test_the_document() -> None:
    change: Callable[[Dataset], Dataset] = queued([(7, 2), (5, 3)], writer="w", batch=1)
    once = change(Dataset("i"))
    assert once.queue == ((7, 0), (5, 2))
    assert once.next_sequence == 5
    assert change(once) == once, "the batch is there already"
    assert queued([(7, 2)])(once) == once, "the answer was lost"
    less = appended(7)(once)
    assert (less.queue, less.ledgers, less.doomed) == (((5, 2),), {5}, {7})
    assert appended(7)(less) == less


def test_with_spark_as_a_batch_and_as_a_stream(
    spark: Any, cluster: Cluster, tmp_path: Path, left_over: Callable[[], set[int]]
) -> None:
    frame = spark.range(0, 100, 1, 3).selectExpr("concat('row ', id) as value")
    written = frame.write.format("bookkeeper").option("metadata.uri", cluster.uri)
    written.option("log", "of-spark").mode("append").save()
    back = values(reader(spark, cluster.uri, log="of-spark").load())
    assert back == sorted(b"row %d" % number for number in range(100))
    with pytest.raises(Exception, match="mode has to be append"):
        frame.write.format("bookkeeper").option("metadata.uri", cluster.uri).option(
            "log", "of-spark"
        ).mode("overwrite").save()
    for mode in ("error", "ignore"):  # as docs/spark.md says
        with pytest.raises(Exception, match="cannot be written in the"):
            frame.write.format("bookkeeper").option("metadata.uri", cluster.uri).option(
                "log", "of-spark"
            ).mode(mode).save()
    source = closed(cluster.uri, 30)
    followed = stream(
        spark, cluster.uri, ledgers=source, startingOffsets="earliest", maxEntriesPerTrigger=10
    )
    query = (
        followed.select("value")
        .writeStream.format("bookkeeper")
        .options(
            **{
                "metadata.uri": cluster.uri,
                "log": "streamed",
                "checkpointLocation": str(tmp_path / "c"),
            }
        )
    )
    finished(query.trigger(availableNow=True))
    wanted = [value for _, _, value in rows(reader(spark, cluster.uri, ledgers=source).load())]
    assert records(cluster.uri, "streamed") == wanted, "in order, as each batch is one partition"
    assert left_over() == set()


def test_the_example(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    async def write(ours: Hands, *payloads: bytes) -> None:
        async with await Log(ours.client, "orders").open_writer() as log:
            await log.append_many(payloads)

    example = runpy.run_path(str(CHECKOUT / "examples/spark_log.py"))
    for number in range(2):
        payloads = (b"urgent %d" % number, b"later")
        in_cluster(cluster.uri, lambda ours, payloads=payloads: write(ours, *payloads))
        example["run"](spark, cluster.uri, "orders", "shouted", "urgent", str(tmp_path / "c"))
    assert records(cluster.uri, "shouted") == [b"URGENT 0", b"URGENT 1"]


def test_passwords_of_single_ledgers(spark: Any, cluster: Cluster) -> None:
    one, other = closed(cluster.uri, 3, password=b"one"), closed(cluster.uri, 4, password=b"other")
    given = {"ledgers": f"{one},{other}", "password": "one"}
    with pytest.raises(Exception, match="password is not that of ledger"):
        reader(spark, cluster.uri, **given).load().count()
    assert reader(spark, cluster.uri, **given, skipUnauthorized="true").load().count() == 3
    found = reader(spark, cluster.uri, **given, passwords=f'{{"{other}": "other"}}').load()
    assert found.count() == 7
