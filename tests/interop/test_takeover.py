"""`bkbox takeover` of the disks of a Java bookie and `bkbox handback`: Java's client reads every entry back.

``TAKEOVER_ENTRIES=1000000 TAKEOVER_KILLS=25 pytest tests/interop/test_takeover.py -k many`` for a million, and
processes that are killed 25 times each way.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bkbox.storage.disk.conversion import Direction
from tests.harness.processes import bkbox, put_keys
from tests.harness.waiting import wait_for
from tests.interop.clients import Refused, Writer, numbered, pattern
from tests.interop.conftest import MakeCluster
from tests.interop.interopcluster import BkboxBookie, InteropCluster
from tests.interop.javaclient import JavaClient
from tests.interop.javaparts import JavaBookie
from tests.takeover.killed import killed

STORAGES = {
    "db": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "sorted": "org.apache.bookkeeper.bookie.SortedLedgerStorage",
    "interleaved": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
}
ENTRIES = 120
SIZE = 700

MANY = int(os.environ.get("TAKEOVER_ENTRIES", "20000"))
MANY_BYTES = 100
MANY_LEDGERS = 4
MANY_KILLS = int(os.environ.get("TAKEOVER_KILLS", "4"))
APPENDED_AT_ONCE, READ_AT_ONCE = 50_000, 5_000


@dataclass
class Written:
    """What the client has written to a bookie: payloads by ledger and entry."""

    payloads: dict[int, list[bytes]] = field(default_factory=dict)
    deleted: int = -1
    fenced: list[Writer] = field(default_factory=list)
    open: Writer | None = None
    explicit: int = -1
    """A ledger with the explicit LAC 2."""


KILLS = (1, 3, 5, 7)
"""Steps of a conversion before which its process is killed, one after the other."""


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
    writer = one(client)
    write(written, writer, ENTRIES)
    writer.close()
    client.delete(writer.ledger)
    written.deleted = writer.ledger
    del written.payloads[writer.ledger]
    for _ in range(2):
        writer = one(client)
        write(written, writer, ENTRIES)
        client.open(writer.ledger, recovery=True)
        written.fenced.append(writer)
    other = client.another(explicit_lac_ms=50)
    writer = one(other)
    write(written, writer, 3)
    written.explicit = writer.ledger
    wait_for(lambda: explicit_lac(client, written) == 2, "the explicit LAC")
    other.close()
    written.open = one(client)
    write(written, written.open, ENTRIES)
    return written


def explicit_lac(client: JavaClient, written: Written) -> int:
    return client.open(written.explicit, recovery=False).explicit_lac()


def check(client: JavaClient, written: Written) -> None:
    """Every entry is there, the explicit LAC too, and a writer that does not know yet of the fence learns of it."""
    for ledger, payloads in written.payloads.items():
        reader = client.open(ledger, recovery=False)
        found = reader.read_unconfirmed(0, len(payloads) - 1)
        assert [data for _, data in found] == payloads, ledger
        assert [entry for entry, _ in found] == list(range(len(payloads)))
    assert explicit_lac(client, written) == 2
    if written.fenced:
        with pytest.raises(Refused, match=Refused.FENCED):
            written.fenced.pop().append(b"late")
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
    wait_gone(client, java)


def wait_gone(client: JavaClient, java: JavaBookie) -> None:
    wait_for(
        lambda: java.bookie_id not in client.bookies()["writable"],
        "the end of the session of Java's bookie",
    )


def convert(both: Pair, direction: Direction, kills: Sequence[int] = KILLS) -> list[str]:
    """Convert the disks, with kills in between; the steps before which the process was killed. Whenever it was, neither
    bookie starts."""
    steps = []
    for number, at in enumerate(kills):
        step = killed(both.java.configuration, both.bkbox.config, direction, at)
        if not step:
            return steps
        steps.append(step)
        if number % 2:
            refused = bkbox("run", "--config", str(both.bkbox.config), check=False)
            assert f"bkbox {direction}" in refused.stderr
    refused = bkbox("run", "--config", str(both.bkbox.config), check=False)
    assert f"bkbox {direction}" in refused.stderr
    both.java.launch_bookie()
    assert both.java.process is not None
    assert both.java.process.wait(100) != 0
    both.java.kill()
    both.command(direction)
    return steps


@pytest.mark.parametrize("storage", STORAGES)
def test_there_and_back(make_cluster: MakeCluster, storage: str) -> None:
    pytest.importorskip("rocksdict")
    both = pair(
        make_cluster,
        f"takeover-{storage}",
        ledgerStorageClass=STORAGES[storage],
        logSizeLimit="100000",
    )
    client = both.cluster.client("java-v3")
    assert isinstance(client, JavaClient)
    written = fill(client)
    gone(client, both.java)

    assert len(convert(both, Direction.TAKEOVER)) == len(KILLS)
    both.bkbox.start()
    check(client, written)
    go_on(written)

    assert both.bkbox.stop() == 0
    assert len(convert(both, Direction.HANDBACK)) == len(KILLS)
    both.java.start()
    check(client, written)
    go_on(written)
    check(client, written)


@pytest.mark.timeout(300 + MANY // 500)
@pytest.mark.parametrize("journal", [True, False], ids=["journal", "no journal"])
@pytest.mark.parametrize("storage", ["db", "sorted"])
def test_many_entries_there_and_back(
    make_cluster: MakeCluster, storage: str, *, journal: bool
) -> None:
    """With its journal Java's bookie is killed, and the journal is full; without one it loses then what it has not
    flushed, so it is stopped."""
    pytest.importorskip("rocksdict")
    both = pair(
        make_cluster,
        f"takeover-many-{storage}-{journal}",
        ledgerStorageClass=STORAGES[storage],
        journalWriteData=str(journal).lower(),
        flushInterval="3600000",
        logSizeLimit=str(max(100_000, MANY * MANY_BYTES // 20)),
    )
    client = both.cluster.client("java-v3")
    assert isinstance(client, JavaClient)
    written, ledgers = fill(client), write_many(client)
    if journal:
        gone(client, both.java)
    else:
        both.java.stop()
        wait_gone(client, both.java)

    kills = [1 + number % 3 for number in range(MANY_KILLS)]
    assert len(convert(both, Direction.TAKEOVER, kills)) == MANY_KILLS
    both.bkbox.start()
    check(client, written)
    check_many(client, ledgers)
    go_on(written)

    assert both.bkbox.stop() == 0
    assert len(convert(both, Direction.HANDBACK, kills)) == MANY_KILLS
    both.java.start()
    check(client, written)
    check_many(client, ledgers)


def write_many(client: JavaClient) -> list[int]:
    """Ledgers of MANY entries together, whose writer closes them."""
    ledgers, count = [], MANY // MANY_LEDGERS
    for _ in range(MANY_LEDGERS):
        writer = one(client)
        for first in range(0, count, APPENDED_AT_ONCE):
            writer.append_async(min(APPENDED_AT_ONCE, count - first), MANY_BYTES, first=first)
        writer.close()
        ledgers.append(writer.ledger)
    return ledgers


def check_many(client: JavaClient, ledgers: Sequence[int]) -> None:
    count = MANY // MANY_LEDGERS
    for ledger in ledgers:
        reader = client.open(ledger, recovery=False)
        assert reader.lac() == count - 1
        for first in range(0, count, READ_AT_ONCE):
            last = min(first + READ_AT_ONCE, count) - 1
            expected = [pattern(entry, MANY_BYTES) for entry in range(first, last + 1)]
            assert reader.read(first, last) == numbered(expected, first)


def test_two_disks(make_cluster: MakeCluster, tmp_path: Path) -> None:
    """DbLedgerStorage with a database in each of two directories, stopped in order."""
    pytest.importorskip("rocksdict")
    both = pair(
        make_cluster,
        "takeover-two-disks",
        ledgerStorageClass=STORAGES["db"],
        ledgerDirectories=f"{tmp_path / 'one'},{tmp_path / 'two'}",
        indexDirectories=f"{tmp_path / 'index1'},{tmp_path / 'index2'}",
    )
    client = both.cluster.client("java-v3")
    assert isinstance(client, JavaClient)
    written = fill(client)
    both.java.stop()
    wait_gone(client, both.java)
    both.command("takeover", "--dry-run")
    both.command("takeover")
    both.bkbox.start()
    check(client, written)
    go_on(written)
    more = one(client)
    write(written, more, ENTRIES)
    more.close()
    assert both.bkbox.stop() == 0
    both.command("handback", "--dry-run")
    both.command("handback")
    both.java.start()
    check(client, written)
    go_on(written)
