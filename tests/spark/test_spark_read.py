"""Batches that are read: what they hold, how they are cut, and what is said of what cannot be read."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

pytest.importorskip("pyspark")

from bkbox.base.ids import LedgerId
from bkbox.client.log import Log
from tests.repair.copies import Cluster, Hands, payload
from tests.spark.sparkledgers import as_text, closed, expected, in_cluster, reader, rows


def test_ledgers_are_read_whole(spark: Any, cluster: Cluster) -> None:
    uniform = closed(cluster.uri, 50)
    striped = closed(cluster.uri, 37, 3, 2, 2)
    empty = closed(cluster.uri, 0)
    frame = reader(spark, cluster.uri, ledgers=as_text([uniform, striped, empty])).load()
    assert [field.name for field in frame.schema] == [
        "ledger_id", "entry_id", "last_confirmed", "length", "value",
    ]  # fmt: skip
    assert rows(frame) == expected(uniform, entries=50) + expected(striped, entries=37)
    last = frame.where(f"ledger_id = {uniform}").orderBy(frame.entry_id.desc()).first()
    assert last.length == sum(len(payload(uniform, entry)) for entry in range(50))


def test_partitions(spark: Any, cluster: Cluster) -> None:
    ledger = closed(cluster.uri, 60)
    frame = reader(spark, cluster.uri, ledgers=ledger, minPartitions=4).load()
    assert frame.rdd.getNumPartitions() == 4
    assert rows(frame) == expected(ledger, entries=60)
    cut = reader(spark, cluster.uri, ledgers=ledger, maxBytesPerPartition=4_000).load()
    assert cut.rdd.getNumPartitions() == 8
    many = reader(spark, cluster.uri, ledgers=closed(cluster.uri, 3), minPartitions=50).load()
    assert many.rdd.getNumPartitions() == 3
    assert many.count() == 3


def test_only_the_columns_that_are_asked_for(spark: Any, cluster: Cluster) -> None:
    ledger = closed(cluster.uri, 10, custom={"owner": b"billing"})
    few = reader(spark, cluster.uri, ledgers=ledger).schema("entry_id long, length long").load()
    assert [tuple(row) for row in few.orderBy("entry_id").collect()][:2] == [
        (0, len(payload(ledger, 0))),
        (1, 2 * len(payload(ledger, 0))),
    ]
    more = reader(spark, cluster.uri, ledgers=ledger, includeMetadata="true").load()
    row = more.first()
    assert (row.state, row.owner, row.fragment) == ("CLOSED", "billing", 0)
    assert sorted(row.ensemble) == sorted(bookie.bookie_id for bookie in cluster.bookies)
    with pytest.raises(Exception, match="there is no column 'colour'"):
        reader(spark, cluster.uri, ledgers=ledger).schema("colour string").load().count()


def test_offsets_and_assign(spark: Any, cluster: Cluster) -> None:
    one, other = closed(cluster.uri, 20), closed(cluster.uri, 20)
    frame = reader(
        spark,
        cluster.uri,
        ledgers=as_text([one, other]),
        startingOffsets=json.dumps({one: 15}),
        endingOffsets=json.dumps({other: 5}),
    ).load()
    assert rows(frame) == expected(one, entries=20)[15:] + expected(other, entries=5)
    frame = reader(spark, cluster.uri, assign=json.dumps({one: [3, 4], other: [18, 99]})).load()
    assert rows(frame) == expected(one, entries=20)[3:5] + expected(other, entries=20)[18:]


def test_ledgers_are_selected_by_their_metadata(spark: Any, cluster: Cluster) -> None:
    wanted = closed(cluster.uri, 4, custom={"owner": b"reports"})
    closed(cluster.uri, 4, custom={"owner": b"others"})
    frame = reader(spark, cluster.uri, select="owner = reports and state = CLOSED").load()
    assert rows(frame) == expected(wanted, entries=4)
    assert reader(spark, cluster.uri, select="owner = nobody").load().count() == 0


def test_an_open_ledger_is_read_as_far_as_it_is_confirmed(spark: Any, cluster: Cluster) -> None:
    async def write(ours: Hands) -> LedgerId:
        writer = await ours.client.create_ledger(3, 3, 2)
        for entry in range(10):
            await writer.append(payload(writer.ledger_id, entry))
        await writer.abort()
        return writer.ledger_id

    ledger = in_cluster(cluster.uri, write)
    assert rows(reader(spark, cluster.uri, ledgers=ledger).load()) == expected(ledger, entries=9)


def test_nothing_to_read(spark: Any, cluster: Cluster) -> None:
    frame = reader(spark, cluster.uri, ledgers=closed(cluster.uri, 0)).load()
    assert frame.count() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ledgers": "{one}", "password": "no"}, "the password is not that of ledger"),
        ({"ledgers": "999999"}, "999999"),
        ({"ledger": "1"}, "did you mean 'ledgers'?"),
        ({}, "exactly one of ledgers, assign, select, log, dataset"),
        ({"dataset": "nothing"}, "there is no dataset nothing"),
        ({"log": "nothing"}, "there is no log nothing"),
        ({"ledgers": "{one}", "startingOffsets": "latest"}, "cannot begin at the latest"),
    ],
)
def test_what_cannot_be_read_is_said(
    spark: Any, cluster: Cluster, options: dict[str, str], said: str
) -> None:
    one = closed(cluster.uri, 1, password=b"secret")
    given = {name: value.format(one=one) for name, value in options.items()}
    with pytest.raises(Exception, match=re.escape(said)):
        reader(spark, cluster.uri, **given).load().count()


def test_a_metadata_store_that_is_not_there(spark: Any, tmp_path: Any) -> None:
    with pytest.raises(Exception, match=r"nowhere\.db"):
        reader(spark, f"sqlite:{tmp_path}/nowhere.db", ledgers="1").load().count()


def test_a_ledger_that_is_deleted_meanwhile(spark: Any, cluster: Cluster) -> None:
    ledger, left = closed(cluster.uri, 10), closed(cluster.uri, 5)
    both = as_text([ledger, left])
    strict = reader(spark, cluster.uri, ledgers=both, minPartitions=3).load()
    lenient = reader(spark, cluster.uri, ledgers=both, failOnDataLoss="false").load()
    assert strict.rdd.getNumPartitions() > 0  # planned

    async def delete(ours: Hands) -> None:
        await ours.client.delete_ledger(ledger)

    in_cluster(cluster.uri, delete)
    with pytest.raises(Exception, match=f"{ledger}"):
        strict.rdd.count()
    assert rows(lenient) == expected(left, entries=5)


def test_a_log_is_read_record_by_record(spark: Any, cluster: Cluster) -> None:
    records = [b"record %d" % number for number in range(40)]

    async def write(ours: Hands) -> None:
        async with await Log(ours.client, "events").open_writer() as log:
            for start in range(0, 40, 10):
                await log.append_many(records[start : start + 10])

    in_cluster(cluster.uri, write)
    frame = reader(spark, cluster.uri, log="events").load()
    assert {"record", "timestamp"} <= set(frame.columns)
    found = frame.orderBy("ledger_id", "entry_id", "record").collect()
    assert [bytes(row.value) for row in found] == records
