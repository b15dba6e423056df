"""A bookie under a service manager: what it says and when, and when it stops giving signs of life."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BookieProcess
from tests.harness.raw import EOK, RawClient
from tests.harness.waiting import wait_for
from tests.host.managerlistener import BookieAnswer, Listener

HOOKS = Path(__file__).parent / "hooks"
WATCHDOG_S = 12.0
QUIET_S = WATCHDOG_S / 2
"""A child may be silent for so long."""

MakeListener = Callable[..., Listener]


@pytest.fixture
def listen(tmp_path: Path) -> Iterator[MakeListener]:
    made: list[Listener] = []

    def make(on_said: Callable[[BookieAnswer], None] = lambda said: None) -> Listener:
        made.append(Listener(tmp_path / f"notify{len(made)}", on_said))
        return made[-1]

    yield make
    for listener in made:
        listener.close()


def test_ready_is_said_once_and_after_the_port_answers(
    make_bookie: MakeBookie, listen: MakeListener
) -> None:
    bookie = make_bookie()
    answers: list[bool] = []

    def try_port(said: BookieAnswer) -> None:
        if said.name == "READY":
            with (
                socket.create_connection(("127.0.0.1", bookie.port), 5),
                RawClient(bookie.port) as c,
            ):
                answers.append(c.add(1, 0, b"now") == EOK)

    listener = listen(try_port)
    bookie.start(environment=listener.environment())
    listener.wait("STATUS", f"serving on 127.0.0.1:{bookie.port}: 2 of 2 disks in service")
    wait_for(lambda: answers, "the answer on the port")
    assert answers == [True]
    assert listener.statuses()[0].startswith("starting: ")
    assert bookie.stop() == 0
    names = [said.name for said in listener.said]
    assert names.count("READY") == names.count("STOPPING") == 1
    assert names.index("READY") < names.index("STOPPING")
    assert "WATCHDOG" not in names, "nobody asked for signs of life"


def test_children_do_not_inherit_where_the_manager_listens(
    make_bookie: MakeBookie, listen: MakeListener
) -> None:
    bookie = make_bookie(frontends=1).start(environment=listen().environment(WATCHDOG_S))
    children = bookie.children()
    assert len(children) == 4
    for child in children:
        assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC"} & child.environ().keys()


def test_a_long_replay_has_a_phase_and_an_estimate_and_asks_for_time(
    make_bookie: MakeBookie, listen: MakeListener, tmp_path: Path
) -> None:
    bookie = make_bookie(segment_bytes_max=65_536).start()
    with RawClient(bookie.port) as client:
        for entry in range(120):
            assert client.add(1, entry, os.urandom(60_000)) == EOK
    bookie.kill()
    slow = tmp_path / "slow"
    slow.touch()
    listener = listen()
    environment = {
        **listener.environment(),
        "PYTHONPATH": str(HOOKS),
        "HOST_SLOW_READS": str(slow),
    }
    bookie.start(wait=False, environment=environment)
    said = listener.wait("STATUS", "starting: replay, about ")
    assert said.value.endswith((" s left", " min left"))
    listener.wait("EXTEND_TIMEOUT_USEC", "30000000", since_s=said.at_s)
    assert not listener.times("READY")
    slow.unlink()
    bookie.wait_ready()
    listener.wait("READY")


def test_signs_of_life_end_when_a_child_hangs_and_come_back_with_it(
    make_bookie: MakeBookie, listen: MakeListener
) -> None:
    """One bookie for each kind of child, all at the same time: it is waiting that takes long here."""
    hung: list[tuple[psutil.Process, Listener, BookieProcess]] = []
    for role in ("worker", "frontend", "repair"):
        bookie, listener = make_bookie(name=role, metadata=f"{role}.db"), listen()
        bookie.start(environment=listener.environment(WATCHDOG_S))
        listener.wait("WATCHDOG")
        child = bookie.children(role)[0]
        child.suspend()
        hung.append((child, listener, bookie))
    for child, listener, bookie in hung:
        listener.wait("STATUS", f"(pid {child.pid}) has shown no life for ")
        wait_for(lambda bookie=bookie: "watchdog is not fed" in bookie.stderr, "the log")
    since = time.monotonic()
    time.sleep(WATCHDOG_S)
    for child, listener, _bookie in hung:
        assert not [at for at in listener.times("WATCHDOG") if at > since], child
        child.resume()
    since = time.monotonic()
    for _child, listener, _bookie in hung:
        listener.wait("WATCHDOG", since_s=since)


def test_a_child_that_ended_is_its_keepers_business(
    make_bookie: MakeBookie, listen: MakeListener
) -> None:
    bookie = make_bookie(restart_backoff_initial_s=600, restart_backoff_max_s=600)
    listener = listen()
    bookie.start(environment=listener.environment(WATCHDOG_S))
    bookie.worker(0).kill()
    listener.wait("STATUS", "1 of 2 disks in service")
    last = time.monotonic() + 2 * QUIET_S
    listener.wait("WATCHDOG", since_s=last)
    pings = [at for at in listener.times("WATCHDOG") if at < last]
    assert max(b - a for a, b in itertools.pairwise(pings)) < WATCHDOG_S


def test_a_worker_that_waits_for_its_disk_is_alive(
    make_bookie: MakeBookie, listen: MakeListener, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    bookie, listener = make_bookie(), listen()
    bookie.start(
        environment={
            **listener.environment(WATCHDOG_S),
            "PYTHONPATH": str(HOOKS),
            "HOST_WAIT_AT": str(fifo),
        }
    )
    worker = bookie.worker(0)
    worker.send_signal(signal.SIGUSR1)
    wait_for(lambda: worker.status() == psutil.STATUS_DISK_SLEEP, "the worker to wait")
    try:
        listener.wait("WATCHDOG", since_s=time.monotonic() + 2 * QUIET_S)
        assert worker.status() == psutil.STATUS_DISK_SLEEP
    finally:
        with open(fifo, "wb"):
            pass
    assert not any("no life" in status for status in listener.statuses())


def test_a_long_stop_asks_for_time(make_bookie: MakeBookie, listen: MakeListener) -> None:
    bookie, listener = make_bookie(stop_timeout_s=7), listen()
    bookie.start(environment=listener.environment())
    listener.wait("READY")
    worker = bookie.worker(0)
    worker.suspend()
    since = time.monotonic()
    status = bookie.stop()
    assert status == 1, "its disk could not be left clean"
    assert listener.times("STOPPING")[0] > since
    asked = [at for at in listener.times("EXTEND_TIMEOUT_USEC") if at > since]
    assert len(asked) >= 2
    assert any(text.startswith("stopping: ") for text in listener.statuses())


def test_a_refused_start_says_why(make_bookie: MakeBookie, listen: MakeListener) -> None:
    bookie, listener = make_bookie(), listen()
    (bookie.disks[1] / "VERSION").unlink()
    bookie.start(wait=False, environment=listener.environment())
    assert bookie.process is not None
    assert bookie.process.wait(30) == 4
    assert listener.statuses()[-1].startswith("cookie mismatch: ")
    assert not listener.times("READY")


def test_a_manager_that_has_gone_away_does_not_stop_a_bookie(
    make_bookie: MakeBookie, tmp_path: Path
) -> None:
    bookie: BookieProcess = make_bookie()
    bookie.start(environment={"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    assert bookie.stop() == 0
