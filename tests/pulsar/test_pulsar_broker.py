"""A Pulsar broker and its Python client on three bkbox bookies: nothing is lost, nothing is out of order, whatever
happens to bookies, disks and the broker.

``PULSAR_MESSAGES`` (20,000) messages go to ``PULSAR_TOPICS`` (20) topics.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pulsar
import pytest

from bkbox.base.ids import LedgerId
from bkbox.errors import NoSuchLedgerError
from bkbox.metadata import connect as connect_to_metadata
from tests.harness.cluster import empty
from tests.harness.java import require_java
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.waiting import wait_for
from tests.harness.zookeeper import ZooKeeper
from tests.pulsar.broker import HERE, Broker
from tests.pulsar.load import BATCH, Writer, connect, read, subscribe

MESSAGES = int(os.environ.get("PULSAR_MESSAGES", "20000"))
TOPICS = [f"topic-{number}" for number in range(int(os.environ.get("PULSAR_TOPICS", "20")))]
SHARE = max(MESSAGES // len(TOPICS) // 6, 1)
"""Messages of each topic in one of the six parts of the load."""
NAMESPACE = "persistent/public/default"


class Cluster:
    """Three bookies of one disk each, and a broker."""

    def __init__(self, root: Path, zookeeper: ZooKeeper, stack: ExitStack) -> None:
        self.uri = zookeeper.uri(layout="metadata-store")
        bkbox("cluster", "init", "--metadata", self.uri)
        self.bookies = [BookieProcess(root, self.uri, name=f"bookie{n}") for n in range(3)]
        for bookie in self.bookies:
            stack.callback(bookie.ensure_gone)
            bookie.init(disks=1, gc_interval_s=2, gc_confirm_s=0, gc_trash_s=0).start()
        self.broker = Broker(root, self.uri)
        stack.callback(self.broker.kill)
        self.broker.initialise()
        self.broker.start()

    def ledgers(self, topic: str) -> list[int]:
        found = self.broker.ask(f"{NAMESPACE}/{topic}/internalStats")["ledgers"]
        return [ledger["ledgerId"] for ledger in found]

    def wait_healthy(self, bookie: BookieProcess) -> None:
        """As an operator does before the next bookie may be taken down."""
        where = ("--config", str(bookie.config))
        bkbox("health", *where, "--exit-when-healthy", "--timeout", "4m")

    def exists(self, ledger: int) -> bool:
        async def ask() -> bool:
            async with await connect_to_metadata(self.uri) as store:
                try:
                    await store.read_ledger(LedgerId(ledger))
                except NoSuchLedgerError:
                    return False
                return True

        return asyncio.run(ask())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeper) -> Iterator[Cluster]:
    require_java()
    with ExitStack() as stack:
        yield Cluster(tmp_path_factory.mktemp("pulsar"), zookeeper, stack)


@pytest.fixture
def client(cluster: Cluster) -> Iterator[pulsar.Client]:
    client = connect(cluster.broker.url)
    yield client
    client.close()


@pytest.mark.timeout(3600)
def test_nothing_is_lost_and_nothing_is_out_of_order(
    cluster: Cluster, client: pulsar.Client
) -> None:
    audit = {topic: subscribe(client, topic, "audit") for topic in TOPICS}
    follower = {topic: subscribe(client, topic, "follower") for topic in TOPICS}
    writer = Writer(client, TOPICS)
    writer.write(SHARE)

    # A broker that is stopped in order keeps its cursors, to the batch.
    for topic, consumer in follower.items():
        read(consumer, topic, 0, SHARE // 2, repeats=0)
        consumer.close()
    cluster.broker.stop()
    cluster.broker.start()
    for topic in TOPICS:
        follower[topic] = subscribe(client, topic, "follower")
        read(follower[topic], topic, SHARE // 2, SHARE, repeats=BATCH)

    # A bookie is killed.
    load = writer.in_background(SHARE)
    cluster.bookies[0].kill()
    load.join()
    cluster.bookies[0].start()
    cluster.wait_healthy(cluster.bookies[0])

    # A disk is lost.
    load = writer.in_background(SHARE)
    lost = cluster.bookies[1]
    lost.kill()
    empty(lost.disks[0])
    bkbox("cookie", "repair", "--config", str(lost.config), "--yes")
    lost.start()
    load.join()
    cluster.wait_healthy(lost)

    # The broker is killed.
    load = writer.in_background(SHARE)
    cluster.broker.kill()
    cluster.broker.start()
    load.join()

    # The bookies are restarted, one after the other.
    load = writer.in_background(SHARE)
    for bookie in cluster.bookies:
        assert bookie.stop() == 0
        bookie.start()
        cluster.wait_healthy(bookie)
    load.join()
    writer.write(SHARE)

    # Ledgers were rolled over. They are deleted when all have read them, and not before.
    first = {topic: cluster.ledgers(topic)[0] for topic in TOPICS}
    for topic in TOPICS:
        assert len(cluster.ledgers(topic)) > 1
        read(follower[topic], topic, SHARE, writer.written, repeats=writer.written)
    assert all(map(cluster.exists, first.values()))
    for topic, consumer in audit.items():
        read(consumer, topic, 0, writer.written, repeats=writer.written)
    wait_for(lambda: not any(map(cluster.exists, first.values())), "the deletion of ledgers")


def test_a_compacted_topic_has_the_last_value_of_each_key(
    cluster: Cluster, client: pulsar.Client
) -> None:
    # Without a subscription the broker would delete each full ledger, compacted or not.
    audit = subscribe(client, "compacted", "audit")
    producer = client.create_producer("compacted")
    for version in range(10):
        for key in range(50):
            producer.send_async(f"{version}".encode(), None, partition_key=f"key-{key}")
    producer.flush()
    cluster.broker.ask(f"{NAMESPACE}/compacted/compaction", "PUT")
    wait_for(
        lambda: cluster.broker.ask(f"{NAMESPACE}/compacted/compaction")["status"] == "SUCCESS",
        "the compaction",
    )
    audit.close()
    for restart in (False, True):
        if restart:
            cluster.broker.kill()
            cluster.broker.start()
        reader = client.create_reader(
            "compacted", pulsar.MessageId.earliest, is_read_compacted=True
        )
        # A broker that has just loaded the topic may say that no message is available.
        read = [reader.read_next(60_000) for _ in range(50)]
        found = [(each.partition_key(), each.data()) for each in read]
        assert found == [(f"key-{key}", b"9") for key in range(50)]
        assert not reader.has_message_available()
        reader.close()


def test_a_reader_sees_committed_transactions_alone(
    cluster: Cluster, client: pulsar.Client
) -> None:
    """Written by Java's client: that for Python has none."""
    topics = ["transactions-1", "transactions-2"]
    consumers = [subscribe(client, topic, "audit") for topic in topics]
    cluster.broker.run(str(HERE / "Transactions.java"), cluster.broker.url, *topics, "10")
    expected = [f"{number}.{part}" for number in range(0, 10, 2) for part in range(10)]
    for consumer in consumers:
        assert [consumer.receive(60_000).data().decode() for _ in expected] == expected
        with pytest.raises(pulsar.Timeout):
            consumer.receive(500)
