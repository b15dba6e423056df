"""What Spark writes is there exactly once, and nothing else is left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructType
from pyspark_bookkeeper.options import write_options
from pyspark_bookkeeper.writing import BatchWriter

from bkbox.errors import JobCancelledError, LedgerClosedError, NoSuchLedgerError
from bkbox.wire.metadata.ledger import LedgerState
from tests.harness.waiting import wait_for
from tests.repair.copies import Cluster, Hands
from tests.spark.sparkledgers import in_cluster, ledgers_of, reader, values


def writer(frame: Any, uri: str, dataset: str, **options: object) -> Any:
    found = frame.write.format("bookkeeper").option("metadata.uri", uri).option("dataset", dataset)
    for name, value in options.items():
        found = found.option(name.replace("__", "."), str(value))
    return found


def ledgers_for(uri: str, *datasets: str) -> set[int]:
    """Those that were written for these, published or not. (Tasks of a test before may still be ending.)"""
    names = {name.encode() for name in datasets}

    async def find(ours: Hands) -> set[int]:
        found = set()
        for ledger in await ledgers_of(ours.client):
            with suppress(NoSuchLedgerError):
                custom = dict((await ours.client.metadata(ledger)).custom)
                if custom.get("bkbox.spark.dataset") in names:
                    found.add(ledger)
        return found

    return in_cluster(uri, find)


def test_rows_are_written_published_and_read_again(spark: Any, cluster: Cluster) -> None:
    frame = spark.range(0, 1_000, 1, 4).selectExpr("concat('row ', id) as value")
    writer(frame, cluster.uri, "first", custom__owner="tests", password="p").mode("append").save()
    back = reader(spark, cluster.uri, dataset="first", password="p", includeMetadata="true").load()
    assert values(back) == sorted(b"row %d" % number for number in range(1_000))
    assert {row.owner for row in back.select("owner").distinct().collect()} == {"tests"}
    assert len(ledgers_for(cluster.uri, "first")) == 4

    more = spark.range(1_000, 1_010, 1, 1).selectExpr("cast(concat('row ', id) as binary) as value")
    writer(more, cluster.uri, "first", password="p").mode("append").save()
    back = reader(spark, cluster.uri, dataset="first", password="p").load()
    assert values(back) == sorted(b"row %d" % number for number in range(1_010))

    writer(more, cluster.uri, "first", password="p").mode("overwrite").save()
    back = reader(spark, cluster.uri, dataset="first", password="p").load()
    assert back.count() == 10
    (left,) = ledgers_for(cluster.uri, "first")

    metadata = in_cluster(cluster.uri, lambda ours: ours.client.metadata(left))
    assert metadata.state is LedgerState.CLOSED


def test_a_job_that_fails_leaves_nothing(spark: Any, cluster: Cluster) -> None:
    broken = spark.range(0, 100_000, 1, 2).selectExpr(
        "if(id = 99999, raise_error('planted'), cast(id as string)) as value"
    )
    with pytest.raises(Exception, match="planted"):
        writer(broken, cluster.uri, "broken").mode("append").save()
    # A task that is still at work when another one fails ends a moment later.
    wait_for(lambda: not ledgers_for(cluster.uri, "broken"), "what it has written to be gone")
    with pytest.raises(Exception, match="there is no dataset broken"):
        reader(spark, cluster.uri, dataset="broken").load().count()


@pytest.mark.parametrize("end", ["commit", "abort"])
@pytest.mark.parametrize("ends_after", [0, 1, 2])
def test_a_task_that_outlives_its_job_leaves_nothing(
    cluster: Cluster, end: str, ends_after: int
) -> None:
    """``ends_after``: batches of rows that the task has read when the job ends."""
    options = write_options({"metadata.uri": cluster.uri, "dataset": "outlived"})
    job = BatchWriter(options, StructType().add("value", BinaryType()), overwrite=False)
    assert len(ledgers_for(cluster.uri, "outlived")) == 1, "the job's own"

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(3):
            if number == ends_after:
                getattr(job, end)([])
            yield pa.record_batch([pa.array([b"row"], pa.binary())], names=["value"])

    with pytest.raises((JobCancelledError, NoSuchLedgerError, LedgerClosedError)):
        job.write(batches())
    assert not ledgers_for(cluster.uri, "outlived")


def test_no_rows_and_rows_that_are_no_entries(spark: Any, cluster: Cluster) -> None:
    none = spark.range(0).selectExpr("cast(id as string) as value")
    writer(none, cluster.uri, "empty").mode("append").save()
    assert reader(spark, cluster.uri, dataset="empty").load().count() == 0
    for rows, said in (
        ("id", "rows need a column 'value'"),
        ("id as value", "has to be binary or string"),
        ("'a' as value, id", "no entry has room for: id"),
        ("cast(null as string) as value", "no value"),
    ):
        with pytest.raises(Exception, match=said):
            frame = spark.range(3).selectExpr(*rows.split(", "))
            writer(frame, cluster.uri, "bad").mode("append").save()
    with pytest.raises(Exception, match="option dataset is missing"):
        none.write.format("bookkeeper").option("metadata.uri", cluster.uri).mode("append").save()
    assert not ledgers_for(cluster.uri, "empty", "bad")
