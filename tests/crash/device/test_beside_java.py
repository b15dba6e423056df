"""What a device does to a bookie whose metadata is in ZooKeeper and whose peers are a bookie of bkbox and Apache's."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from bkbox import metadata
from bkbox.base.ids import LedgerId
from bkbox.wire.metadata.ledger import LedgerState
from tests.crash.device.blockdevice import missing
from tests.crash.device.host import HostedBookie, Promises, payload
from tests.crash.device.mixed import MixedCluster, start_again
from tests.crash.device.test_failing_device import (
    ENTRIES,
    read_all,
    recovery_is_stuck_or_right,
    write,
)
from tests.crash.device.test_older_copies import copied, refused, run_named_command
from tests.crash.device.test_rot import ALL_PLACES, ENTRY, STATE, flip, last_record
from tests.harness.cluster import NOBODY, create_ledgers, ledger_of
from tests.harness.java import require_java
from tests.harness.waiting import wait_for
from tests.harness.zookeeper import SET, Proxy, ZooKeeper
from tests.interop.clients import Refused
from tests.interop.javaclient import JavaClient
from tests.interop.javaparts import java_shell

LEDGERS = range(1, 5)
LATER = range(5, 7)
QUICK = {"zkRetryBackoffStartMs": "100", "zkRetryBackoffMaxMs": "300"}
"""Java's client tries again soon."""

pytestmark = [
    pytest.mark.skipif(missing() != "", reason=f"no block device: {missing()}"),
    pytest.mark.timeout(180),
]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    require_java()
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def cluster(stack: ExitStack, tmp_path: Path, zookeeper: ZooKeeper) -> MixedCluster:
    return MixedCluster(stack, tmp_path, zookeeper).start()


def promised(bookie: HostedBookie, *ledgers: int) -> Promises:
    """That a bookie acknowledged the entries of a client."""
    promises = Promises(bookie)
    for ledger in ledgers:
        promises.entries[ledger] = set(range(ENTRIES))
    return promises


def java_is_stuck_or_right(client: JavaClient, ledger: int) -> None:
    with suppress(Refused):
        assert client.open(ledger, digest="CRC32").lac() >= ENTRIES - 1


def java_reads_all(client: JavaClient, ledger: int) -> bool:
    """Whether Apache's client could recover the ledger by now; it is whole then."""
    try:
        reader = client.open(ledger, digest="CRC32")
    except Refused:
        return False
    assert reader.lac() == ENTRIES - 1
    found = reader.read(0, ENTRIES - 1)
    assert found == [(entry, payload(ledger, entry)) for entry in range(ENTRIES)]
    return True


@pytest.mark.parametrize(("what", "java_is"), [("eio", "away"), ("gone", "late")])
def test_a_device_fails(cluster: MixedCluster, what: str, java_is: str) -> None:
    """Point one, E = WQ = 3, AQ = 2. Entries that two bookies acknowledged, of which one loses its device and
    the other is ``away``; the third was ``late`` and has the first entry alone. Neither client's recovery closes
    the ledger before what was acknowledged. With all bookies there both find it whole, and the disk is refilled.
    """
    failing, java = cluster.failing, cluster.java
    away, late = (java, cluster.peer) if java_is == "away" else (cluster.peer, java)
    client = cluster.java_client()
    ours = asyncio.run(write(cluster.uri, late))
    start_again(late)
    theirs = asyncio.run(write(cluster.uri, late))
    promises = promised(failing, ours, theirs)
    cluster.device.eio() if what == "eio" else cluster.device.vanish()
    failing.kill()
    away.kill()
    start_again(late)
    cluster.device.come_back()
    failing.start_again()
    assert failing.classes() == {"host crash"}
    looked = promises.kept()
    assert failing.limbo or looked.served == 2 * ENTRIES
    asyncio.run(recovery_is_stuck_or_right(cluster.uri, ours))
    java_is_stuck_or_right(client, theirs)
    promises.kept()
    start_again(away)
    wait_for(lambda: asyncio.run(read_all(cluster.uri, ours)), "bkbox to recover it", timeout=60)
    wait_for(lambda: java_reads_all(client, theirs), "Java to recover it", timeout=60)
    for ledger in (ours, theirs):
        found = client.metadata(ledger)
        assert (found.state, found.last) == ("CLOSED", ENTRIES - 1)
    cluster.wait_for_repair()
    assert promises.kept(unknown_ok=False).served == 2 * ENTRIES


@pytest.mark.parametrize("what", ["fence", "entry"])
def test_rot_and_a_power_cut(
    stack: ExitStack, tmp_path: Path, zookeeper: ZooKeeper, what: str
) -> None:
    """Point two, under ``sync``. A bit rots in the record that came last, then the power fails: that is a loss, and the
    peers refill it.
    """
    cluster = MixedCluster(stack, tmp_path, zookeeper, "sync").start()
    failing, device = cluster.failing, cluster.device
    failing.name_ledgers(LEDGERS, cluster.java.bookie_id, cluster.peer.bookie_id)
    cluster.write_everywhere(LEDGERS, range(40))
    promises = cluster.promises
    if what == "fence":
        promises.fence(LEDGERS[0])
    else:
        cluster.write_everywhere(LEDGERS[:1], range(40, 41))
    subprocess.run(["sync", "-f", device.path], check=True)
    failing.lose_host()
    kind = STATE if what == "fence" else ENTRY
    path, at = last_record(failing.disks[0] / "entrylog", kind, LEDGERS[0])
    flip(path, at + ALL_PLACES["body"])
    subprocess.run(["sync", "-f", device.path], check=True)
    device.cut(7)
    device.come_back()
    failing.start_again()
    assert failing.classes() == {"host crash"}
    promises.kept()
    cluster.wait_for_repair()
    assert promises.kept(unknown_ok=False).served == promises.count


@pytest.mark.parametrize("what", ["disk", "index"])
def test_an_older_copy(cluster: MixedCluster, tmp_path: Path, what: str) -> None:
    """Point three. A device from the past is refused; taken in with the command of the message, it is refilled from the
    peers, Apache's among them. Where the index alone is older, nothing is missing.
    """
    failing, device = cluster.failing, cluster.device
    disk = failing.disks[0]
    failing.name_ledgers([*LEDGERS, *LATER], cluster.java.bookie_id, cluster.peer.bookie_id)
    cluster.write_everywhere(LEDGERS, range(40))
    assert failing.stop() == 0
    subprocess.run(["sync", "-f", device.path], check=True)
    device.snapshot()
    copied(disk / "index", tmp_path / "old")
    failing.start_again()
    cluster.write_everywhere(LEDGERS, range(40, 80))
    cluster.write_everywhere(LATER, range(40))
    promises = cluster.promises
    promises.fence(LEDGERS[0])
    promises.fence(LATER[0])
    assert failing.stop() == 0
    if what == "index":
        copied(tmp_path / "old", disk / "index")
        failing.start_again()
        promises.kept(unknown_ok=False)
        assert not failing.limbo
        return
    device.restore()
    said = refused(failing)
    assert "older copy" in said
    assert str(disk) in said
    run_named_command(failing, said)
    failing.start_again()
    promises.kept()
    cluster.wait_for_repair()
    assert promises.kept(unknown_ok=False).served == promises.count
    assert failing.stop() == 0
    failing.start_again()
    assert failing.classes() == {"clean"}
    promises.kept(unknown_ok=False)


@pytest.mark.parametrize("then", ["goes on", "is killed"])
def test_copies_of_java_that_the_metadata_does_not_name_yet(
    stack: ExitStack, tmp_path: Path, zookeeper: ZooKeeper, then: str
) -> None:
    """Point four. Java's ``recover`` has copied a ledger; its change of the metadata does not reach ZooKeeper
    before the target has lost its host. Nothing of it is denied, whether the metadata names the target or not.
    ``recover`` goes on; or it is killed, and run again, and copies the ledger to where it is in limbo.
    """
    cluster = MixedCluster(stack, tmp_path, zookeeper).start(peer=False)
    asyncio.run(copy_and_lose(cluster, tmp_path, kill=then == "is killed"))


async def copy_and_lose(cluster: MixedCluster, root: Path, *, kill: bool) -> None:
    target, java = cluster.failing, cluster.java
    copies = range(74)
    assert Promises(java).add(1, copies) == len(copies)
    size = sum(len(payload(1, each)) for each in copies)
    ensemble = [java.bookie_id, NOBODY]
    closed = ledger_of(1, ensemble, state=LedgerState.CLOSED, last_entry=copies[-1])
    await asyncio.to_thread(create_ledgers, cluster.uri, [replace(closed, length=size)])
    promises = Promises(target)
    promises.entries[1] = set(copies)
    async with Proxy(cluster.zookeeper.port) as proxy:
        proxy.lose_request[SET] = 1_000_000
        uri = cluster.uri.replace(f":{cluster.zookeeper.port}", f":{proxy.port}")
        command = ["recover", "-f", NOBODY]
        recovery = asyncio.create_task(asyncio.to_thread(java_shell, root, uri, command, **QUICK))
        async with asyncio.timeout(60):
            while not proxy.seen[SET]:
                assert not recovery.done(), recovery.result()
                await asyncio.sleep(0.01)
        await asyncio.to_thread(lose_host, cluster)
        found = await asyncio.to_thread(promises.kept)
        assert found.unknown
        assert not recovery.done(), recovery.result()
        if kill:
            kill_shell()
            with pytest.raises(AssertionError):
                await recovery
            recovery = asyncio.create_task(asyncio.to_thread(java_shell, root, uri, command))
        proxy.lose_request[SET] = 0
        ((status, text),) = await recovery
    assert status == 0, text
    async with await metadata.connect(cluster.uri) as store:
        (fragment,) = (await store.read_ledger(LedgerId(1))).value.fragments
    assert set(fragment.ensemble) == {java.bookie_id, target.bookie_id}
    await asyncio.to_thread(promises.kept)
    target.kill()  # phase two looks at what is in limbo now, and not only when it comes to that by itself
    target.start_again()
    promises.kept()
    cluster.wait_for_repair()
    assert promises.kept(unknown_ok=False).served == len(copies)


def lose_host(cluster: MixedCluster) -> None:
    cluster.failing.lose_host()
    cluster.device.cut(5)
    cluster.device.come_back()
    cluster.failing.start_again()


def kill_shell() -> None:
    """Kill the JVM of ``java_shell``."""
    (shell,) = (
        child for child in psutil.Process().children() if "bkbox.interop.Shell" in child.cmdline()
    )
    shell.kill()
