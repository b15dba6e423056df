"""`bkbox takeover` of the disks of a Java bookie and `bkbox handback`: Java's client reads every entry back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.harness.processes import bkbox, put_keys
from tests.harness.waiting import wait_for
from tests.interop.clients import Refused, Writer
from tests.interop.conftest import MakeCluster
from tests.interop.interopcluster import BkboxBookie, InteropCluster
from tests.interop.javaclient import JavaClient
from tests.interop.javaparts import JavaBookie

STORAGES = {
    "db": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "sorted": "org.apache.bookkeeper.bookie.SortedLedgerStorage",
    "interleaved": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
}
ENTRIES = 120
SIZE = 700


@dataclass
class Written:
    """What the client has written to a bookie: payloads by ledger and entry."""

    payloads: dict[int, list[bytes]] = field(default_factory=dict)
    closed: list[int] = field(default_factory=list)
    deleted: int = -1
    fenced: Writer | None = None
    open: Writer | None = None
    explicit: int = -1


def one(client: JavaClient) -> Writer:
    return client.create(1, 1, 1)


def payload(ledger: int, entry: int) -> bytes:
    return f"{ledger}/{entry}/".encode().ljust(SIZE + entry % 50, b".")


def write(written: Written, writer: Writer, count: int) -> None:
    found = written.payloads.setdefault(writer.ledger, [])
    for _ in range(count):
        data = payload(writer.ledger, len(found))
        writer.append(data)
        found.append(data)


def fill(client: JavaClient) -> Written:
    """Ledgers in every state: closed, open, fenced and closed by a recovery, deleted, with an explicit LAC."""
    written = Written()
    for _ in range(3):
        writer = one(client)
        write(written, writer, ENTRIES)
        writer.close()
        written.closed.append(writer.ledger)
    writer = one(client)
    write(written, writer, ENTRIES)
    writer.close()
    client.delete(writer.ledger)
    written.deleted = writer.ledger
    del written.payloads[writer.ledger]
    written.fenced = one(client)
    write(written, written.fenced, ENTRIES)
    client.open(written.fenced.ledger, recovery=True)
    written.closed.append(written.fenced.ledger)
    written.open = one(client)
    write(written, written.open, ENTRIES)
    return written


def check(client: JavaClient, written: Written) -> None:
    """Every entry is there, a fenced ledger takes nothing, an open one goes on."""
    for ledger, payloads in written.payloads.items():
        reader = client.open(ledger, recovery=False)
        found = reader.read_unconfirmed(0, len(payloads) - 1)
        assert [data for _, data in found] == payloads, ledger
        assert [entry for entry, _ in found] == list(range(len(payloads)))
    assert written.fenced is not None
    with pytest.raises(Refused):
        written.fenced.append(b"late")
    with pytest.raises(Refused):
        client.open(written.deleted, recovery=False)


def go_on(written: Written) -> None:
    assert written.open is not None
    write(written, written.open, 5)


@dataclass
class Pair:
    """A bookie that is Apache's now and bkbox's then, on the same disks."""

    cluster: InteropCluster
    java: JavaBookie
    bkbox: BkboxBookie

    def command(self, name: str, *more: str, check: bool = True) -> str:
        done = bkbox(
            name, "--conf", str(self.java.configuration), "--config", str(self.bkbox.config),
            *more, "--yes", check=check,
        )  # fmt: skip
        return done.stderr


def pair(make_cluster: MakeCluster, name: str, **settings: str) -> Pair:
    cluster = make_cluster(name)
    java = cluster.add_java(**settings)
    ours = BkboxBookie(cluster.root, cluster.uri, name="taken-over", port=java.port)
    cluster.bookies.append(ours)
    bkbox("config", "import", str(java.configuration), "--to", str(ours.config))
    put_keys(ours, listen=ours.bookie_id)
    ours.disks = [Path(each) for each in settings.get("ledgerDirectories", "").split(",") if each]
    java.start()
    return Pair(cluster, java, ours)


def gone(client: JavaClient, java: JavaBookie) -> None:
    java.kill()
    wait_for(
        lambda: java.bookie_id not in client.bookies()["writable"],
        "the end of the session of Java's bookie",
    )


@pytest.mark.parametrize("storage", STORAGES)
def test_there_and_back(make_cluster: MakeCluster, storage: str) -> None:
    pytest.importorskip("rocksdict")
    both = pair(make_cluster, f"takeover-{storage}", ledgerStorageClass=STORAGES[storage])
    client = both.cluster.client("java-v3")
    assert isinstance(client, JavaClient)
    written = fill(client)
    gone(client, both.java)

    both.command("takeover")
    both.bkbox.start()
    check(client, written)
    go_on(written)
    check(client, written)

    assert both.bkbox.stop() == 0
    both.command("handback")
    both.java.start()
    check(client, written)
    go_on(written)
    check(client, written)
