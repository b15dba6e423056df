"""Bookies with several front-ends: what holds over all of them together, and what the end of one changes."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.harness.cluster import NOBODY, create_ledgers, ledger_of
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.raw import RawClient, add_frame, read_frame
from tests.harness.raw3 import (
    EFENCED,
    EIO,
    ENOENTRY,
    ENOLEDGER,
    EOK,
    ETOOMANY,
    EUNKNOWN,
    PIGGYBACK,
    READ,
    RawClient3,
    lac_packet,
    read_part,
)
from tests.harness.waiting import wait_for
from tests.security.certificates import secret_file
from tests.security.secured import Visitor
from tests.supervisor.manyfrontends import (
    Traffic,
    check_all,
    client_of,
    frontend_of,
    frontends,
    ledgers_on_disks,
    payload,
    together,
)

QUICK: dict[str, object] = {
    "restart_backoff_initial_s": 0.3,
    "restart_backoff_max_s": 0.3,
    "repair_retry_initial_s": 0.2,
    "repair_retry_max_s": 0.5,
}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[object]:
    made: list[BookieProcess] = []

    def new(frontends: int, disks: int = 2, **settings: object) -> BookieProcess:
        bookie = BookieProcess(tmp_path, f"sqlite:{tmp_path}/cluster.db")
        made.append(bookie)
        return bookie.init(disks=disks, **{**QUICK, **settings, "frontends": frontends}).start()

    yield new
    for bookie in made:
        bookie.ensure_gone()


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookieProcess]:
    """A bookie with three front-ends, for tests that leave it as it was."""
    root = tmp_path_factory.mktemp("three")
    made = BookieProcess(root, f"sqlite:{root}/cluster.db")
    made.init(disks=2, **{**QUICK, "frontends": 3}).start()
    yield made
    assert made.stop() == 0


_LEDGERS = itertools.count(1_000)


def test_each_serves_and_the_status_sums_up(three: BookieProcess) -> None:
    processes = [each for each in three.status()["processes"] if each["role"] == "frontend"]
    assert [each["name"] for each in processes] == ["front-end 1", "front-end 2", "front-end 3"]
    clients = [client_of(three, pid) for pid in frontends(three)]
    try:
        for client in clients:
            ledger = next(_LEDGERS)
            assert client.add3(ledger, 0, payload(ledger, 0)) == EOK
            assert [each.read3(ledger, 0).status for each in clients] == [EOK] * 3
        wait_for(
            lambda: three.status()["clients"]["connections"] == 3, "three connections, no others"
        )
    finally:
        for client in clients:
            client.close()


def test_connections_are_spread_over_them(three: BookieProcess) -> None:
    clients = [RawClient3(three.port) for _ in range(64)]
    try:
        for client in clients:
            assert client.read3(1 << 40, 0).status == ENOLEDGER
        counts = [0] * 3
        pids = frontends(three)
        for client in clients:
            pid = frontend_of(three, client)
            assert pid is not None
            counts[pids.index(pid)] += 1
        assert min(counts) >= 8, counts
    finally:
        for client in clients:
            client.close()


def test_ledgers_that_are_made_over_all_at_once_are_on_one_disk_each(three: BookieProcess) -> None:
    before = ledgers_on_disks(three)
    ledgers = [next(_LEDGERS) for _ in range(150)]
    clients = [client_of(three, pid) for pid in frontends(three)]

    def fill(number: int, client: RawClient3) -> None:
        for ledger in ledgers:
            assert client.add3(ledger, number, payload(ledger, number)) == EOK

    try:
        together(*(partial(fill, number, client) for number, client in enumerate(clients)))
        for client, ledger, entry in itertools.product(clients, ledgers, range(3)):
            assert client.read3(ledger, entry).status == EOK
    finally:
        for client in clients:
            client.close()
    wait_for(lambda: ledgers_on_disks(three) >= before + 150, "the statistics to follow")
    assert ledgers_on_disks(three) == before + 150, "a ledger is on two disks"


def test_an_entry_is_known_to_all_once_it_is_acknowledged(three: BookieProcess) -> None:
    """The first read of a ledger over another front-end comes right behind the response to its first add."""
    one, two, *others = (client_of(three, pid) for pid in frontends(three))
    try:
        for _ in range(300):
            ledger = next(_LEDGERS)
            assert one.add3(ledger, 0) == EOK
            assert two.read3(ledger, 0).status == EOK
            assert two.read3(ledger, 1).status == ENOENTRY
    finally:
        for client in (one, two, *others):
            client.close()


def test_fence_over_one_while_adds_flow_over_the_other(three: BookieProcess) -> None:
    first, second, *_ = frontends(three)
    writer, recovery = client_of(three, first), client_of(three, second)
    for _ in range(10):
        ledger, acked = next(_LEDGERS), 0
        fenced = threading.Event()
        begun = threading.Event()

        def write(ledger: int, begun: threading.Event) -> None:
            nonlocal acked
            for entry in itertools.count():
                status = writer.add3(ledger, entry)
                if status == EFENCED:
                    return
                assert status == EOK
                acked = entry + 1
                if entry == 5:
                    begun.set()

        def fence(ledger: int, begun: threading.Event, fenced: threading.Event) -> None:
            assert begun.wait(60)
            assert recovery.fence3(ledger).status in (EOK, ENOENTRY)
            fenced.set()

        together(partial(write, ledger, begun), partial(fence, ledger, begun, fenced))
        assert fenced.is_set()
        assert {recovery.read3(ledger, entry).status for entry in range(acked)} == {EOK}
        assert recovery.read3(ledger, acked).status == ENOENTRY
    writer.close()
    recovery.close()


def test_deferred_adds_and_force_over_different_ones(three: BookieProcess) -> None:
    clients = [client_of(three, pid) for pid in frontends(three)]
    ledger = next(_LEDGERS)
    for entry, client in enumerate(clients):
        assert client.add3(ledger, entry, deferred=True) == EOK
    for client in clients:
        assert client.force(ledger) == EOK
        assert client.force(next(_LEDGERS)) == EOK, "there is nothing to sync"
        client.close()


def test_long_polls_and_explicit_lac_over_different_ones(three: BookieProcess) -> None:
    one, two, *others = (client_of(three, pid) for pid in frontends(three))
    ledger = next(_LEDGERS)
    assert one.add3(ledger, 0) == EOK
    poll = two.post(READ, read_part(ledger, -1, flag=PIGGYBACK, previous=-1, timeout_ms=60_000))
    assert two.read_lac(ledger)[0] == EOK, "the poll is with the worker and waits"
    assert one.add3(ledger, 1, lac=0) == EOK
    assert two.answer3().txn == poll
    assert one.write_lac(ledger, 1) == EOK
    assert two.read_lac(ledger)[1] == lac_packet(ledger, 1)
    for client in (one, two, *others):
        client.close()


@pytest.mark.parametrize("count", [2, 3])
def test_one_that_dies_takes_its_own_connections(make: object, count: int) -> None:
    assert callable(make)
    bookie = make(count)
    pids = frontends(bookie)
    acked: set[tuple[int, int]] = set()
    clients = [client_of(bookie, pid) for pid in pids]
    traffic = [
        Traffic(client, range(1, 12), acked, number, len(pids)).start()
        for number, client in enumerate(clients)
    ]
    for round_ in range(3):
        victim = frontends(bookie)[0] if round_ else pids[0]
        before = [each.adds for each in traffic]
        wait_for(
            lambda before=before: all(
                each.failed or each.adds > was + 30
                for each, was in zip(traffic, before, strict=True)
            ),
            "traffic over all that are left",
        )
        os.kill(victim, signal.SIGKILL)
        with RawClient3(bookie.port) as new:  # at once: no restart is waited for
            assert isinstance(new, RawClient3)
            assert new.add3(50 + round_, 0, payload(50 + round_, 0)) == EOK
            acked.add((50 + round_, 0))
        wait_for(lambda: len(frontends(bookie)) == count, "all front-ends")
    for each in traffic:
        each.stop()
        assert each.lies == []
    assert traffic[0].failed, "the connection of the one that was killed"
    assert [each.failed for each in traffic[1:]] == [""] * (count - 1)
    assert [each.refused for each in traffic] == [0] * count
    wait_for(lambda: len(frontends(bookie)) == count, "all front-ends")
    check_all(bookie, acked)
    wait_for(lambda: ledgers_on_disks(bookie) >= 14, "the statistics to follow")
    assert ledgers_on_disks(bookie) == 14
    restarts = [each["restarts"] for each in bookie.status()["processes"]]
    assert sum(restarts) == 3


def test_one_that_is_stopped_holds_up_nobody_else(make: object) -> None:
    assert callable(make)
    bookie = make(2)
    stopped, other = frontends(bookie)
    clients = client_of(bookie, stopped), client_of(bookie, other)
    acked: set[tuple[int, int]] = set()
    for ledger in range(1, 9):
        for entry in range(20):
            assert clients[0].add3(ledger, entry, payload(ledger, entry) * 500) == EOK
    os.kill(stopped, signal.SIGSTOP)
    # Its worker's responses have nobody to take them.
    for ledger in range(1, 9):
        for entry in range(20):
            clients[0].post(READ, read_part(ledger, entry))
    traffic = Traffic(clients[1], range(10, 30), acked, 0, 1).start()
    wait_for(lambda: traffic.failed or traffic.adds > 300, "traffic over the other")
    for number in range(8):
        with RawClient3(bookie.port) as new:
            assert isinstance(new, RawClient3)
            assert new.add3(100 + number, 0, payload(100 + number, 0)) == EOK
            acked.add((100 + number, 0))
    warnings = [each["text"] for each in bookie.status()["warnings"]]
    assert any("front-end 1" in each and "stopped" in each for each in warnings)
    assert bkbox("health", "--config", str(bookie.config), check=False).returncode in (0, 1)
    os.kill(stopped, signal.SIGCONT)
    traffic.stop()
    assert (traffic.failed, traffic.lies, traffic.refused) == ("", [], 0)
    statuses = {clients[0].answer3().status for _ in range(8 * 20)}
    assert statuses <= {EOK, EIO}
    wait_for(
        lambda: all(clients[0].read3(ledger, 0).status == EOK for ledger in range(1, 9)),
        "the links of the one that goes on",
    )
    check_all(bookie, acked)
    for client in clients:
        client.close()


def test_a_drain_under_load_over_both_and_one_dies_meanwhile(make: object) -> None:
    assert callable(make)
    bookie = make(2)
    acked: set[tuple[int, int]] = set()
    survivor = client_of(bookie, frontends(bookie)[1])
    victim = client_of(bookie, frontends(bookie)[0])
    traffic = [
        Traffic(victim, range(1, 40), acked, 0, 2).start(),
        Traffic(survivor, range(1, 40), acked, 1, 2).start(),
    ]
    wait_for(lambda: all(each.adds > 200 for each in traffic), "some load")
    config = ("--config", str(bookie.config))
    bkbox("disk", "drain", str(bookie.disks[0]), *config)
    wait_for(lambda: sum(each["ledgers"] for each in bookie.status()["disks"][:1]) < 18, "a start")
    os.kill(frontends(bookie)[0], signal.SIGKILL)

    def drained() -> bool:
        done = bkbox("job", "list", "--all", "-o", "json", *config).stdout
        return any(job["kind"] == "drain" and job["state"] == "done" for job in json.loads(done))

    wait_for(drained, "the end of the drain", timeout=240, pause=0.3)
    for each in traffic:
        each.stop()
        assert each.lies == []
    assert traffic[1].failed == ""
    assert traffic[1].refused == 0, "a pause is short enough for every request to wait"
    wait_for(lambda: len(frontends(bookie)) == 2, "both front-ends")
    check_all(bookie, acked)
    wait_for(lambda: bookie.status()["disks"][0]["ledgers"] == 0, "the statistics to follow")
    assert ledgers_on_disks(bookie) == 39
    for number, pid in enumerate(frontends(bookie)):
        with client_of(bookie, pid) as client:
            assert isinstance(client, RawClient3)
            assert client.add3(100 + number, 0) == EOK
    wait_for(lambda: ledgers_on_disks(bookie) == 41, "new ledgers")
    assert bookie.status()["disks"][0]["ledgers"] == 0, "none goes to the disk that was drained"


def test_a_drain_beside_one_that_is_stopped(make: object) -> None:
    """No ledger moves while one cannot pause it; the other holds requests back for a moment, and refuses none."""
    assert callable(make)
    bookie = make(2)
    acked: set[tuple[int, int]] = set()
    stopped, other = frontends(bookie)
    traffic = Traffic(client_of(bookie, other), range(1, 13), acked, 0, 1).start()
    wait_for(lambda: traffic.adds > 100, "some load")
    os.kill(stopped, signal.SIGSTOP)
    config = ("--config", str(bookie.config))
    bkbox("disk", "drain", str(bookie.disks[0]), *config)
    before = traffic.adds
    wait_for(lambda: traffic.failed or traffic.adds > before + 500, "more load")
    assert bookie.status()["disks"][0]["ledgers"] == 6
    os.kill(stopped, signal.SIGCONT)
    wait_for(
        lambda: bookie.status()["disks"][0]["ledgers"] == 0,
        "the end of the drain",
        timeout=240,
        pause=0.3,
    )
    traffic.stop()
    assert (traffic.failed, traffic.lies, traffic.refused) == ("", [], 0)
    check_all(bookie, acked)
    assert ledgers_on_disks(bookie) == 12


def test_a_worker_that_dies_comes_back_to_all(make: object) -> None:
    assert callable(make)
    bookie = make(2)
    clients = [client_of(bookie, pid) for pid in frontends(bookie)]
    for ledger in range(1, 9):
        assert clients[ledger % 2].add3(ledger, 0, payload(ledger, 0)) == EOK
    bookie.worker(0).kill()

    def whole() -> bool:
        return all(
            client.read3(ledger, 0).status == EOK for client in clients for ledger in range(1, 9)
        )

    wait_for(whole, "both disks over both")
    for ledger in range(9, 17):
        assert clients[ledger % 2].add3(ledger, 0, payload(ledger, 0)) == EOK
    check_all(bookie, {(ledger, 0) for ledger in range(1, 17)})
    wait_for(lambda: ledgers_on_disks(bookie) == 16, "the statistics to follow")
    for client in clients:
        client.close()


def test_one_that_comes_back_is_listed_all_ledgers_while_the_other_serves(make: object) -> None:
    """More of them than a worker lists in one turn, and new ones come meanwhile."""
    assert callable(make)
    bookie = make(2)
    count = 9_000
    with RawClient(bookie.port, timeout=60) as client:
        client.send(b"".join(add_frame(ledger, 0, b"x") for ledger in range(1, count + 1)))
        assert {client.answer().code for _ in range(count)} == {EOK}
    acked: set[tuple[int, int]] = set()
    first, second = frontends(bookie)
    traffic = Traffic(client_of(bookie, second), range(20_000, 20_010), acked, 0, 1).start()
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: len(frontends(bookie)) == 2, "both front-ends")
    again = client_of(bookie, frontends(bookie)[0])
    again.send(b"".join(read_frame(ledger, 0) for ledger in range(1, count + 1)))
    assert {again.frame()[4:8] for _ in range(count)} == {EOK.to_bytes(4, "big")}
    again.close()
    traffic.stop()
    assert (traffic.failed, traffic.lies, traffic.refused) == ("", [], 0)
    check_all(bookie, acked)
    assert ledgers_on_disks(bookie) == count + 10


def accepted(bookie: BookieProcess, tries: int) -> list[RawClient3]:
    """The connections of so many that are let in."""
    found = []
    for _ in range(tries):
        client = RawClient3(bookie.port)
        try:
            assert client.read3(1 << 40, 0).status == ENOLEDGER
        except (EOFError, OSError):
            client.close()
        else:
            found.append(client)
    return found


@pytest.mark.parametrize("limit", ["connections_max", "connections_per_peer_max"])
def test_limits_of_connections_hold_over_all(make: object, limit: str) -> None:
    assert callable(make)
    bookie = make(2, **{limit: 12})
    clients = accepted(bookie, 30)
    assert len(clients) == 12
    assert bookie.status()["clients"]["rejected"] == 18
    of_each = dict.fromkeys(frontends(bookie), 0)
    for client in clients:
        pid = frontend_of(bookie, client)
        assert pid is not None
        of_each[pid] += 1
    assert min(of_each.values()) > 0
    victim = next(iter(of_each))
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: len(frontends(bookie)) == 2, "both front-ends")
    again = accepted(bookie, 30)
    assert len(again) == of_each[victim], "its connections count no more"
    for client in (*clients, *again):
        client.close()


def test_ledgers_in_limbo_are_unknown_over_all(make: object) -> None:
    assert callable(make)
    bookie = make(2, strict_unclean_shutdown="true", ack_after="write", repair_retry_initial_s=600,
                  repair_retry_max_s=600)  # fmt: skip
    ledgers = range(1, 9)
    create_ledgers(
        bookie.metadata, [ledger_of(each, [bookie.bookie_id, NOBODY]) for each in ledgers]
    )
    acked: set[tuple[int, int]] = set()
    traffic = Traffic(RawClient3(bookie.port), ledgers, acked, 0, 1).start()
    wait_for(lambda: traffic.failed or traffic.adds > 100, "entries of each")
    bookie.kill()  # while they are written: what is idle is durable, and in no limbo
    traffic.stop()
    bookie.start()
    assert bookie.status()["limbo"]["ledgers"] == len(ledgers)
    for pid in frontends(bookie):
        with client_of(bookie, pid) as client:
            assert isinstance(client, RawClient3)
            for ledger in ledgers:
                assert client.read3(ledger, 0).status == EOK
                assert client.read3(ledger, 1 << 30).status == EUNKNOWN
                assert client.add3(ledger, 1 << 30) == EFENCED
            assert client.read3(99, 0).status == ENOLEDGER
    assert ledgers_on_disks(bookie) == len(ledgers)


def test_a_rate_limit_holds_over_all(make: object, tmp_path: Path) -> None:
    """Far more requests than a user may send, over both at once; and no new connection fills the bucket."""
    assert callable(make)
    users = secret_file(tmp_path / "users", "reader:another secret\n")
    rate = 40
    bookie = make(
        2,
        disks=1,
        auth="token",
        auth_users_file=users,
        roles="token/reader=read",
        requests_per_second=f"token/reader={rate}",
    )
    visitors = []
    for pid in frontends(bookie):
        for _ in range(400):
            visitor = Visitor(bookie.port)
            assert visitor.log_in_with_token("reader") == EOK
            if frontend_of(bookie, visitor) == pid:
                visitors.append(visitor)
                break
            visitor.close()
    assert len(visitors) == 2
    taken = [0, 0]
    began = time.monotonic()

    def ask(number: int) -> None:
        for _ in range(600):
            status = visitors[number].read3(1, 0).status
            assert status in (ENOLEDGER, ETOOMANY)
            taken[number] += status == ENOLEDGER

    together(partial(ask, 0), partial(ask, 1))
    lasted_s = time.monotonic() - began
    assert sum(taken) <= rate * (lasted_s + 1) + 1
    assert sum(taken) >= rate, "what was saved up"
    for visitor in visitors:
        visitor.close()


def test_a_quota_holds_over_all(make: object) -> None:
    assert callable(make)
    bookie = make(2, quotas="greedy=200K", quota_interval_s=0.2)
    named = replace(ledger_of(1, [bookie.bookie_id]), custom=(("owner", b"greedy"),))
    create_ledgers(bookie.metadata, [named, ledger_of(2, [bookie.bookie_id])])
    clients = [client_of(bookie, pid) for pid in frontends(bookie)]
    entries = itertools.count()

    def over() -> bool:
        return all(client.add3(1, next(entries), b"x" * 20_000) == ETOOMANY for client in clients)

    wait_for(over, "the owner to be over over both")
    os.kill(frontends(bookie)[0], signal.SIGKILL)
    wait_for(lambda: len(frontends(bookie)) == 2, "both front-ends")
    with client_of(bookie, frontends(bookie)[0]) as again:
        assert isinstance(again, RawClient3)
        assert again.add3(1, next(entries)) == ETOOMANY, "the first add that it sees"
        assert again.add3(2, 0) == EOK
    for client in clients:
        client.close()
