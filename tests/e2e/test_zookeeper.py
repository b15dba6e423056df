"""A bookie and its ZooKeeper: away at the start, in phase one, for a while, for good; sessions that expire."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from bkbox.api.admin.client import fetch_status
from bkbox.api.admin.status import Status
from bkbox.errors import BookieNotRunningError, BookieUnresponsiveError
from tests.harness.cluster import (
    NOBODY,
    bookies_of,
    create_ledgers,
    ledger_of,
    pretend_a_failed_sync,
)
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.raw import EIO, EOK, EREADONLY, RECOVERY, RawClient
from tests.harness.waiting import wait_for
from tests.harness.zookeeper import ZooKeeper, expire_session, root_of

MakeBookie = Callable[..., BookieProcess]


@pytest.fixture
def make_bookie(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[MakeBookie]:
    """make_bookie(**settings): initialised in a new cluster, not started."""
    made: list[BookieProcess] = []
    uri = zookeeper.uri()
    bkbox("cluster", "init", "--metadata", uri)

    def make(**settings: object) -> BookieProcess:
        bookie = BookieProcess(tmp_path, uri, name=f"bookie{len(made)}")
        made.append(bookie)
        return bookie.init(disks=1, **{"metadata_wait_s": 1, "metadata_lost_s": 1, **settings})

    yield make
    for bookie in made:
        bookie.ensure_gone()


@contextmanager
def away(zookeeper: ZooKeeper) -> Iterator[None]:
    """It answers nobody, as behind a network that is cut."""
    zookeeper.suspend()
    try:
        yield
    finally:
        zookeeper.resume()


def status(bookie: BookieProcess) -> Status | None:
    try:
        return fetch_status(bookie.disks[0] / "admin.sock", 5.0)
    except (BookieNotRunningError, BookieUnresponsiveError):
        return None


def phase(bookie: BookieProcess) -> str:
    found = status(bookie)
    return "" if found is None else found.boot.phase


def refuses_connections(bookie: BookieProcess) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", bookie.port)) != 0


def test_a_cluster_that_is_not_there(tmp_path: Path, zookeeper: ZooKeeper) -> None:
    uri = zookeeper.uri()
    bookie = BookieProcess(tmp_path, uri)
    done = bkbox(
        "init", "--config", str(bookie.config), "--metadata", uri,
        "--listen", bookie.bookie_id, "--disk", str(bookie.disks[0]), check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "no cluster" in done.stderr
    assert "bkbox cluster init" in done.stderr
    assert "Traceback" not in done.stderr


def test_away_at_the_start(make_bookie: MakeBookie, zookeeper: ZooKeeper) -> None:
    bookie = make_bookie()
    with away(zookeeper):
        done = bkbox("run", "--config", str(bookie.config), check=False)
        assert done.returncode not in (0, 1)
        errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
        assert len(errors) == 1
        assert zookeeper.address in errors[0]
        assert "Traceback" not in done.stderr
    bookie.start()


def test_told_to_stop_while_it_waits_for_zookeeper(
    make_bookie: MakeBookie, zookeeper: ZooKeeper
) -> None:
    bookie = make_bookie(metadata_wait_s=600)
    with away(zookeeper):
        bookie.start(wait=False)
        assert bookie.process is not None
        process = psutil.Process(bookie.process.pid)
        wait_for(
            lambda: any(
                link.raddr and link.raddr.port == zookeeper.port
                for link in process.net_connections()
            ),
            "the wait for ZooKeeper",
        )
        assert bookie.stop() == 0


def test_away_in_phase_one(make_bookie: MakeBookie, zookeeper: ZooKeeper) -> None:
    """It waits with the port closed, marks everything when ZooKeeper is back, and only then serves."""
    bookie = make_bookie(ack_after="write", repair_retry_initial_s=600, repair_retry_max_s=600)
    bookie.start()
    with RawClient(bookie.port) as client:
        assert client.add(1, 0, b"acknowledged") == EOK
    bookie.kill()
    pretend_a_failed_sync(bookie.disks)
    ledgers = range(1, 1501)
    create_ledgers(bookie.metadata, (ledger_of(n, [bookie.bookie_id, NOBODY]) for n in ledgers))
    bookie.start(wait=False)
    wait_for(lambda: phase(bookie) == "phase one", "phase one", pause=0.002)
    with away(zookeeper):
        waiting = "phase one: waiting for the metadata store"
        wait_for(lambda: phase(bookie) == waiting, "the wait", pause=0.01)
        assert refuses_connections(bookie)
    bookie.wait_ready()
    found = status(bookie)
    assert found is not None
    assert found.limbo.ledgers == len(ledgers)
    with RawClient(bookie.port) as client:
        assert {client.read(ledger, 1).code for ledger in ledgers} == {EIO}


def test_away_for_a_while(make_bookie: MakeBookie, zookeeper: ZooKeeper) -> None:
    """It serves what it has, takes no new ledgers after a bound, and all is as before afterwards."""
    bookie = make_bookie().start()
    with RawClient(bookie.port) as client:
        assert client.add(1, 0, b"before") == EOK
        with away(zookeeper):
            fresh = itertools.count(100)
            wait_for(lambda: client.add(next(fresh), 0, b"") == EREADONLY, "no new ledgers")
            assert client.add(1, 1, b"meanwhile") == EOK
            assert client.read(1, 0).code == EOK
            assert client.fence(3).code != EREADONLY
            assert client.add(4, 0, b"repaired", RECOVERY) == EOK
            found = status(bookie)
            assert found is not None
            assert not found.writable
            assert found.read_only_reasons == ("not registered",)
            assert "takes no new ledgers" in found.warnings[0].text
        wait_for(lambda: client.add(5, 0, b"new ledger") == EOK, "new ledgers")
    assert bookies_of(bookie.metadata) == {bookie.bookie_id: False}
    assert bookie.stop() == 0
    assert bookies_of(bookie.metadata) == {}


def test_a_session_that_expires(make_bookie: MakeBookie, zookeeper: ZooKeeper) -> None:
    """The registration goes with it; the bookie makes another one and nobody notices."""
    bookie = make_bookie().start()
    path = f"{root_of(bookie.metadata)}/available/{bookie.bookie_id}"
    with RawClient(bookie.port) as client, zookeeper.client() as kazoo:
        assert client.add(1, 0, b"before") == EOK
        _, before = kazoo.get(path)
        expire_session(zookeeper, before.ephemeralOwner)

        def registered_anew() -> bool:
            found = kazoo.exists(path)
            return found is not None and found.ephemeralOwner != before.ephemeralOwner

        wait_for(registered_anew, "another registration")
        assert client.add(1, 1, b"after") == EOK
        wait_for(lambda: client.add(2, 0, b"new ledger") == EOK, "new ledgers")


def test_away_for_good(make_bookie: MakeBookie, zookeeper: ZooKeeper) -> None:
    """It serves to the end, and stops in order."""
    bookie = make_bookie().start()
    with RawClient(bookie.port) as client:
        assert client.add(1, 0, b"before") == EOK
        with away(zookeeper):
            fresh = itertools.count(100)
            wait_for(lambda: client.add(next(fresh), 0, b"") == EREADONLY, "no new ledgers")
            assert client.add(1, 1, b"meanwhile") == EOK
            assert bookie.stop() == 0
            assert not (bookie.disks[0] / "DIRTY").exists()


def test_a_killed_bookie_takes_its_own_registration_over(
    make_bookie: MakeBookie, zookeeper: ZooKeeper
) -> None:
    bookie = make_bookie().start()
    path = f"{root_of(bookie.metadata)}/available/{bookie.bookie_id}"
    with zookeeper.client() as kazoo:
        before = kazoo.exists(path)
        bookie.kill()
        assert kazoo.exists(path) == before, "the session has not run out yet"
        bookie.start()
        after = kazoo.exists(path)
        assert after is not None
        assert after.ephemeralOwner != before.ephemeralOwner
