"""Streams: every entry once, over rolls of a log, limits and restarts; and batches written once."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from bkbox.client.log import Log
from tests.repair.copies import Cluster, Hands, payload
from tests.spark.sparkledgers import closed, expected, in_cluster, reader, rows, values


def stream(spark: Any, uri: str, **options: object) -> Any:
    found = spark.readStream.format("bookkeeper").option("metadata.uri", uri)
    for name, value in options.items():
        found = found.option(name, str(value))
    return found.load()


def drain(frame: Any, folder: Path) -> int:
    """Run a query into Parquet files until there is nothing more; how many batches it took."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "out"))
        .trigger(availableNow=True)
    )
    return len([each for each in finished(query).recentProgress if each["numInputRows"]])


def finished(query: Any) -> Any:
    """The query, which has run to its end. A Python worker that takes more than ten seconds to start, on a machine
    that is busy with other tests, ends it; from its checkpoint it goes on."""
    for tries in range(8):
        started = query.start()
        try:
            assert started.awaitTermination(120)
        except Exception as error:
            if "failed to connect back" not in str(error) or tries == 7:
                raise
        else:
            return started
    raise AssertionError("unreachable")


def test_ledgers_are_followed_with_limits_and_restarts(
    spark: Any, cluster: Cluster, tmp_path: Path
) -> None:
    one, other = closed(cluster.uri, 40), closed(cluster.uri, 25)
    given = {"ledgers": f"{one},{other}", "startingOffsets": "earliest"}
    batches = drain(stream(spark, cluster.uri, **given, maxEntriesPerTrigger=20), tmp_path)
    assert batches >= 4
    assert drain(stream(spark, cluster.uri, **given), tmp_path) == 0
    found = spark.read.parquet(str(tmp_path / "out"))
    assert rows(found) == expected(one, entries=40) + expected(other, entries=25)


def test_a_log_is_followed_over_its_ledgers(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    records = [b"record %04d" % number for number in range(600)]
    goes_on = threading.Event()

    async def write(ours: Hands) -> None:
        async with await Log(ours.client, "followed").open_writer() as log:
            await log.append_many(records[:100])
        for start in range(100, 600, 100):  # each opening is another ledger
            async with await Log(ours.client, "followed").open_writer() as log:
                await log.append_many(records[start : start + 100])
            goes_on.set()
            await asyncio.sleep(0.3)

    writing = threading.Thread(target=lambda: in_cluster(cluster.uri, write))
    writing.start()
    assert goes_on.wait(60)
    frame = stream(
        spark, cluster.uri, log="followed", startingOffsets="earliest", maxBytesPerTrigger="2k"
    )
    for _ in range(3):  # stopped and started again while it is written
        drain(frame, tmp_path)
    writing.join(60)
    drain(frame, tmp_path)
    assert values(spark.read.parquet(str(tmp_path / "out"))) == records


def test_a_batch_that_comes_again_is_written_once(
    spark: Any, cluster: Cluster, tmp_path: Path
) -> None:
    from pyspark_bookkeeper.options import write_options
    from pyspark_bookkeeper.writing import StreamWriter

    ledger = closed(cluster.uri, 30)
    frame = stream(
        spark, cluster.uri, ledgers=ledger, startingOffsets="earliest", maxEntriesPerTrigger=10
    )
    sink = {
        "metadata.uri": cluster.uri,
        "dataset": "copied",
        "checkpointLocation": str(tmp_path / "c"),
    }
    query = frame.select("value").writeStream.format("bookkeeper").options(**sink)
    started = finished(query.trigger(availableNow=True))
    wanted = sorted(payload(ledger, entry) for entry in range(30))
    assert values(reader(spark, cluster.uri, dataset="copied").load()) == wanted

    # The last batch again, as after a driver that died between the commit and its checkpoint.
    import pyarrow as pa
    from pyspark.sql.types import BinaryType, StructType

    schema = StructType().add("value", BinaryType())
    writer = StreamWriter(write_options(sink), schema, overwrite=False)
    batch = pa.record_batch([pa.array([b"again"], pa.binary())], names=["value"])
    message = writer.write(iter([batch]))
    writer.commit([message], batchId=started.lastProgress["batchId"])
    assert values(reader(spark, cluster.uri, dataset="copied").load()) == wanted
    assert message.ledger_id is not None

    async def is_there(ours: Hands) -> bool:
        return message.ledger_id in {int(each) async for each in ours.client.ledgers()}

    assert not in_cluster(cluster.uri, is_there)
