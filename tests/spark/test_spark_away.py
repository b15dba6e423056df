"""A metadata store that goes away: queries end in bounded time, say why, and go on when it is back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_bookkeeper.batch import BatchReader
from pyspark_bookkeeper.options import read_options
from pyspark_bookkeeper.schema import schema_of
from pyspark_bookkeeper.stream import StreamReader

from bkbox.errors import MetadataUnavailableError
from bkbox.metadata import connect, init_cluster
from tests.harness.waiting import wait_for
from tests.harness.zookeeper import Proxy, ZooKeeper, root_of
from tests.repair.copies import Cluster, Hands
from tests.spark.sparkledgers import closed, in_cluster

WAIT_MS = 1_000
T = TypeVar("T")


@contextmanager
def proxied(port: int) -> Iterator[tuple[int, threading.Event]]:
    """A way to ZooKeeper: its port, and what is set while it is cut."""
    cut = threading.Event()
    ended = threading.Event()
    ports: list[int] = []
    ready = threading.Event()

    async def serve() -> None:
        async with Proxy(port) as proxy:
            ports.append(proxy.port)
            ready.set()
            while not ended.is_set():
                if cut.is_set() and not proxy.is_away:
                    proxy.cut()
                proxy.is_away = cut.is_set()
                await asyncio.sleep(0.02)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(30)
    try:
        yield ports[0], cut
    finally:
        ended.set()
        thread.join(30)


def known_to(uri: str, cluster: Cluster, ledger: int) -> None:
    """Let another store know a ledger as well."""

    async def read(ours: Hands) -> None:
        metadata = await ours.metadata(ledger)  # type: ignore[arg-type]
        await init_cluster(uri)
        async with await connect(uri) as store:
            await store.create_ledger(metadata)

    in_cluster(cluster.uri, read)


def answered(ask: Callable[[], T]) -> T:
    """What is answered once the store is reached again: a try waits for WAIT_MS only."""
    found: list[T] = []

    def is_answered() -> bool:
        with suppress(MetadataUnavailableError):
            found.append(ask())
        return bool(found)

    wait_for(is_answered, "an answer of the metadata store")
    return found[0]


def test_a_query_whose_metadata_store_goes_away(cluster: Cluster, zookeeper: ZooKeeper) -> None:
    uri = zookeeper.uri()
    ledger = closed(cluster.uri, 30)
    known_to(uri, cluster, ledger)
    with proxied(zookeeper.port) as (port, away):
        given = {
            "metadata.uri": f"zk://127.0.0.1:{port}{root_of(uri)}",
            "metadataTimeoutMs": str(WAIT_MS),
            "ledgers": str(ledger),
        }
        schema = schema_of(log=False, metadata=False)
        batch = BatchReader(read_options(given, streaming=False), schema)
        stream = StreamReader(
            read_options({**given, "startingOffsets": "earliest"}, streaming=True), schema
        )
        (partition,) = batch.partitions()
        start = stream.initialOffset()
        try:
            away.set()
            time.sleep(0.2)
            for ask in (
                batch.partitions,
                lambda: list(batch.read(partition)),
                lambda: stream.latestOffset(start, ReadAllAvailable()),
            ):
                with pytest.raises(MetadataUnavailableError, match=f"127.0.0.1:{port}.* after 1 s"):
                    ask()
            away.clear()
            back = answered(lambda: list(batch.read(partition)))
            assert sum(each.num_rows for each in back) == 30
            end = answered(lambda: stream.latestOffset(start, ReadAllAvailable()))
            assert end == {str(ledger): 30}
        finally:
            stream.stop()
