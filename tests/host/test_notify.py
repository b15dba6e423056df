"""The notification protocol itself: addresses, variables, and what is not there."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from bkbox.supervisor.children.heartbeat import processor_ticks, waits_for_disk
from bkbox.supervisor.service.sd_notify import ServiceManager
from bkbox.supervisor.service.systemd_watchdog import duration


def received(address: str | bytes, tell: object) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(address)
        sock.settimeout(5)
        tell()  # type: ignore[operator]
        return sock.recv(4096)


def test_a_path_and_an_abstract_name(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    assert (
        received(path, lambda: ServiceManager(path).tell(READY=1, STATUS="a\nb"))
        == b"READY=1\nSTATUS=a b"
    )
    name = f"bkbox-{uuid.uuid4()}"
    said = received(f"\0{name}", lambda: ServiceManager(f"@{name}").tell(WATCHDOG=1))
    assert said == b"WATCHDOG=1"


def test_the_variables_are_taken_out() -> None:
    environ = {
        "NOTIFY_SOCKET": "/run/x",
        "WATCHDOG_USEC": "30000000",
        "WATCHDOG_PID": "7",
        "A": "b",
    }
    manager = ServiceManager.from_environment(environ, 7)
    assert (manager.listens, manager.watchdog_s, environ) == (True, 30.0, {"A": "b"})


@pytest.mark.parametrize(
    ("environ", "listens", "watchdog_s"),
    [
        ({}, False, None),
        ({"NOTIFY_SOCKET": "/x"}, True, None),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "5", "WATCHDOG_PID": "8"}, True, None),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "0"}, True, None),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "soon"}, True, None),
        ({"NOTIFY_SOCKET": "vsock:2:1234", "WATCHDOG_USEC": "5"}, False, None),
        ({"NOTIFY_SOCKET": ""}, False, None),
    ],
)
def test_what_does_not_make_sense_is_left_alone(
    environ: dict[str, str], listens: bool, watchdog_s: float | None
) -> None:
    manager = ServiceManager.from_environment(environ, 7)
    assert (manager.listens, manager.watchdog_s) == (listens, watchdog_s)
    assert environ == {}


def test_nobody_listens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert not ServiceManager().tell(READY=1)
    manager = ServiceManager(str(tmp_path / "none"))
    assert not manager.tell(READY=1)
    assert not manager.tell(READY=1)
    assert len(caplog.records) == 1


def test_a_manager_that_does_not_read_costs_half_a_second_and_nothing_else(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        manager = ServiceManager(path)
        began = time.monotonic()
        while manager.tell(WATCHDOG=1):
            assert time.monotonic() - began < 60
        assert sock.recv(100) == b"WATCHDOG=1"
        assert manager.tell(READY=1), "there is room again"


def test_signs_of_life_of_a_process() -> None:
    assert not waits_for_disk(os.getpid())
    assert processor_ticks(os.getpid()) > 0
    with subprocess.Popen([sys.executable, "-c", "pass"]) as gone:
        gone.wait()
    assert not waits_for_disk(gone.pid)
    assert processor_ticks(gone.pid) == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "5 s"), (8, "10 s"), (89, "90 s"), (100, "2 min"), (3600, "60 min"), (7200, "2 h")],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text
