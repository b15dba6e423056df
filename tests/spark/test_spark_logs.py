"""What is read of a log: where it begins and ends, by place and by time, and nothing behind what is not settled."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

pytest.importorskip("pyspark")

from bkbox.base.ids import EntryId, LedgerId
from bkbox.client.log import Log
from bkbox.client.log.options import LogOptions
from bkbox.client.log.position import Position
from bkbox.client.log.stored import StoredList
from bkbox.errors import ConfigError, NoSuchEntryError, OperatorError
from bkbox.wire.metadata.ledger import LedgerState
from bkbox.wire.metadata.loss import LossRecord, with_loss
from tests.repair.copies import Cluster, Hands
from tests.spark.inprocess import Row, follow_here, read_here
from tests.spark.sparkledgers import in_cluster

_NAMES = (f"log{number}" for number in itertools.count())


def written(uri: str, *ledgers: Iterable[int]) -> tuple[str, list[int]]:
    """A new log: for each ledger the times of its records, of which three share an entry. Its name, its ledgers."""
    name = next(_NAMES)

    async def write(ours: Hands) -> list[int]:
        for some in ledgers:
            async with await Log(ours.client, name).open_writer(LogOptions()) as log:
                for each in threes(some):
                    await log.append_many([b"%d" % time for time in each], timestamps_ms=each)
        found = (await StoredList(ours.store, name).read()).value.ledgers
        return [int(each) for each in found]

    return name, in_cluster(uri, write)


def threes(times: Iterable[int]) -> list[list[int]]:
    left = list(times)
    return [left[start : start + 3] for start in range(0, len(left), 3)]


def times(rows: Iterable[Row]) -> list[int]:
    return [int(row[2]) for row in rows]


def test_it_begins_and_ends_at_times(cluster: Cluster) -> None:
    name, _ = written(cluster.uri, range(0, 90, 10), range(90, 150, 10))
    everything = list(range(0, 150, 10))
    assert times(read_here(cluster.uri, log=name)) == everything
    for when in (0, 1, 20, 21, 30, 80, 81, 90, 111, 140):
        entries = threes(everything)
        late = [entry for entry in entries if max(entry) >= when]
        early = entries[: len(entries) - len(late)]
        after, before = list(chain(*late)), list(chain(*early))
        assert times(read_here(cluster.uri, log=name, startingTimestamp=when)) == after, when
        found, _ = follow_here(cluster.uri, log=name, startingTimestamp=when)
        assert times(found) == after, when
        assert times(read_here(cluster.uri, log=name, endingTimestamp=when)) == before, when
    assert times(read_here(cluster.uri, log=name, endingTimestamp=10_000)) == everything
    given: dict[str, Any] = {"log": name, "startingTimestamp": 10_000}
    for read in (read_here, follow_here):
        with pytest.raises(OperatorError, match="has no record of 10000 ms since 1970 or later"):
            read(cluster.uri, **given)
    latest = {**given, "startingOffsetsByTimestampStrategy": "latest"}
    assert read_here(cluster.uri, **latest) == []
    assert follow_here(cluster.uri, **latest)[0] == []


def test_it_begins_and_ends_at_places(cluster: Cluster) -> None:
    name, (one, other) = written(cluster.uri, range(9), range(9, 18))
    found = read_here(cluster.uri, log=name)
    some = [row for row in found if row[:2] >= (one, 2)]
    assert 0 < len(some) < len(found)
    place = f'{{"{one}": 2}}'
    assert read_here(cluster.uri, log=name, startingOffsets=place) == some
    assert follow_here(cluster.uri, log=name, startingOffsets=place)[0] == some
    ends = read_here(cluster.uri, log=name, endingOffsets=f'{{"{other}": 1}}')
    assert ends == [row for row in found if row[:2] < (other, 1)]
    with pytest.raises(ConfigError, match="is not in the log"):
        read_here(cluster.uri, log=name, startingOffsets='{"987654": 2}')
    with pytest.raises(ConfigError, match="names one ledger"):
        read_here(cluster.uri, log=name, startingOffsets=f'{{"{one}": 2, "{other}": 0}}')


def test_what_is_truncated_is_not_read(cluster: Cluster) -> None:
    name, (*_, one, other) = written(cluster.uri, range(9), range(9, 18), range(18, 27))
    found = read_here(cluster.uri, log=name)
    for place in ((one, 2), (other, 0), (other, 2)):

        async def truncate(ours: Hands, ledger: int, entry: int) -> None:
            await Log(ours.client, name).truncate(Position(LedgerId(ledger), EntryId(entry)))

        in_cluster(cluster.uri, lambda ours, place=place: truncate(ours, *place))
        left = [row for row in found if row[:2] >= place]
        assert read_here(cluster.uri, log=name) == left
        assert follow_here(cluster.uri, log=name, startingOffsets="earliest")[0] == left


def test_a_stream_says_what_was_truncated_before_it_was_read(cluster: Cluster) -> None:
    name, (first, *_, last) = written(cluster.uri, range(6), range(6, 12), range(12, 18))
    start = {"ledger": first, "entry": 1}
    before, _ = follow_here(cluster.uri, start, log=name)

    async def truncate(ours: Hands) -> None:
        await Log(ours.client, name).truncate(Position(LedgerId(last), EntryId(0)))

    in_cluster(cluster.uri, truncate)
    with pytest.raises(NoSuchEntryError, match=f"truncated behind ledger {first}"):
        follow_here(cluster.uri, start, log=name)
    after, end = follow_here(cluster.uri, start, log=name, failOnDataLoss="false")
    assert after
    assert after == [row for row in before if row[0] != first]
    assert follow_here(cluster.uri, end, log=name) == ([], end)


def test_losses_on_record_are_told(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Of a log and of ledgers, by a batch and a stream: also where nothing is left to be read."""
    name, (first, second) = written(cluster.uri, range(6), range(6, 12))

    async def record(ours: Hands) -> None:
        found = await ours.store.read_ledger(LedgerId(second))
        lost = with_loss(found.value, LossRecord(1, -1, unknown_after=-1))
        await ours.store.write_ledger(replace(lost, last_entry=-1, length=0), found.version)

    in_cluster(cluster.uri, record)
    for read in (read_here, follow_here):
        for options in ({"log": name}, {"ledgers": f"{first},{second}"}):
            caplog.clear()
            read(cluster.uri, **options)
            told = [each for each in caplog.messages if "does not hold all" in each]
            assert told, (read, options)
            assert all(each.startswith(f"ledger {second} ") for each in told)


def test_nothing_is_read_behind_a_ledger_that_is_open(cluster: Cluster) -> None:
    name, (one, other) = written(cluster.uri, range(6), range(6, 12))
    everything = read_here(cluster.uri, log=name)
    assert {row[0] for row in everything} == {one, other}

    async def reopen(ours: Hands) -> None:
        found = await ours.store.read_ledger(LedgerId(one), linearizable=True)
        opened = replace(found.value, state=LedgerState.OPEN, last_entry=-1, length=0)
        await ours.store.write_ledger(opened, found.version)

    in_cluster(cluster.uri, reopen)
    list_and_extents = [row for row in everything if row[0] == one]
    for rows in (
        read_here(cluster.uri, log=name),
        follow_here(cluster.uri, log=name, startingOffsets="earliest")[0],
    ):
        assert rows
        assert rows == list_and_extents[: len(rows)]
