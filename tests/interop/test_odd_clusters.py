"""Clusters that are not as usual: other layouts of the ledgers, bookies that take nothing, hang, or are given up."""

from __future__ import annotations

import re
import signal

import psutil
import pytest

from tests.harness.waiting import wait_for
from tests.interop.clients import numbered, pattern
from tests.interop.conftest import MakeCluster
from tests.interop.interopcluster import BkboxBookie, InteropCluster
from tests.interop.scenarios import all_copies_there


@pytest.mark.parametrize("layout", ["flat", "longhierarchical"])
def test_layouts(make_cluster: MakeCluster, layout: str) -> None:
    """Java's client and bkbox's find each other's ledgers, whoever made the cluster."""
    cluster = make_cluster(layout, layout, java=1, bkbox=1)
    clients = [cluster.client("java-v3"), cluster.client("bkbox-v2")]
    written = {}
    for client in clients:
        writer = client.create(2, 2, 2)
        writer.append_async(20, 50)
        writer.close()
        written[writer.ledger] = numbered([pattern(n, 50) for n in range(20)])
    for client in clients:
        assert set(client.ledgers()) == set(written)
        for ledger, entries in written.items():
            assert client.open(ledger).read(0, 19) == entries
    ((status, text),) = cluster.shell(["listledgers"])
    assert status == 0
    assert all(re.search(rf"\b{ledger}\b", text) for ledger in written), text


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> InteropCluster:
    return make_cluster("odd", java=1, bkbox=3)


def test_a_bookie_without_room_is_listed_as_read_only(cluster: InteropCluster) -> None:
    full = cluster.add_bkbox(disk_usage_max=0.01)
    full.start()
    assert full.stop() == 0
    full.start()
    ((status, text),) = cluster.shell(["listbookies", "-ro"])
    assert status == 0
    assert full.bookie_id in text
    assert all(bookie.bookie_id not in text for bookie in cluster.bookies if bookie is not full)
    cluster.lose(full)


def test_a_bkbox_bookie_hangs(cluster: InteropCluster) -> None:
    """Neither killed nor gone: Java's writer leaves it behind."""
    client = cluster.client("java-v3")
    writer = client.create(3, 3, 2)
    writer.append_async(10, 100)
    hung = next(
        bookie
        for bookie in cluster.bookies
        if isinstance(bookie, BkboxBookie)
        and bookie.bookie_id in client.metadata(writer.ledger).members
    )
    assert hung.process is not None
    processes = [psutil.Process(hung.process.pid), *hung.children()]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        for entry in range(10, 20):
            assert writer.append(pattern(entry, 100)) == entry
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)
    writer.close()
    everything = numbered([pattern(n, 100) for n in range(20)])
    assert cluster.client("bkbox-v3").open(writer.ledger).read(0, 19) == everything


def test_a_bookie_is_given_up_by_hand(cluster: InteropCluster) -> None:
    """`recover` copies what a lost bkbox bookie had to the others, and its cookie goes."""
    client = cluster.client("java-v3")
    writers = [client.create(3, 3, 2) for _ in range(3)]
    for writer in writers:
        writer.append_async(10, 100)
        writer.close()
    lost = next(
        bookie
        for bookie in cluster.bookies
        if isinstance(bookie, BkboxBookie)
        and bookie.bookie_id in client.metadata(writers[0].ledger).members
    )
    cluster.lose(lost)
    ((status, text),) = cluster.shell(["recover", "-f", "-d", lost.bookie_id])
    assert status == 0, text
    for writer in writers:
        metadata = client.metadata(writer.ledger)
        assert lost.bookie_id not in metadata.members
        assert wait_for(lambda found=metadata: all_copies_there(found), "all copies")
        everything = numbered([pattern(n, 100) for n in range(10)])
        assert cluster.client("bkbox-v2").open(writer.ledger).read(0, 9) == everything
    ((status, text),) = cluster.shell(["cookie_get", lost.bookie_id])
    assert status != 0
