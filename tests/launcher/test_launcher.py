"""The launcher finds free ports, waits, and lets no process outlive the one that started it."""

from __future__ import annotations

import asyncio
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bkbox.errors import DemoFailedError
from bkbox.launcher.ports import HOST, free_port
from bkbox.launcher.processes import Processes, lives, own_environment
from bkbox.launcher.waiting import until, wait_until
from tests.harness.waiting import wait_for

RNG = random.Random(1)

PARENT = """
import sys
from pathlib import Path
from bkbox.errors import DemoFailedError
from bkbox.launcher.processes import Processes, own_environment

root = Path(sys.argv[1])
with (root / "out").open("wb") as out:
    processes = Processes(root, own_environment(), DemoFailedError)
    child = processes.spawn("bench", "sink", stdout=out, stderr=out)
print(child.pid, flush=True)
sys.stdin.read()
"""
"""Starts a command that runs until it is ended, and tells its pid."""


def test_a_free_port_is_not_taken_and_not_listened_on() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        port = taken.getsockname()[1]
        assert free_port(RNG, range(port, port + 3), {port + 1}) == port + 2


def test_a_free_port_of_an_address_that_is_not_of_this_host() -> None:
    with pytest.raises(OSError, match="assign requested address"):
        free_port(RNG, range(15_000, 15_100), hosts=(HOST, "192.0.2.1"))


def test_waits_end_with_the_first_true_value_or_the_last_false_one() -> None:
    values = [0, 0, 3, 4]
    assert wait_until(lambda: values.pop(0), 60.0, 0.0) == 3
    assert asyncio.run(until(lambda: values.pop(0), 60.0, 0.0)) == 4
    assert wait_until(lambda: 0, 0.0) == 0
    assert asyncio.run(until(lambda: "", 0.0)) == ""


def test_a_command_that_fails_says_so(tmp_path: Path) -> None:
    processes = Processes(tmp_path, own_environment(), DemoFailedError)
    with pytest.raises(DemoFailedError, match=r"bkbox run --config none ended with \d+: .*none"):
        processes.run_blocking("run", "--config", "none")
    with pytest.raises(DemoFailedError, match=r"bkbox run --config none ended with \d+: .*none"):
        asyncio.run(processes.run("run", "--config", "none"))
    assert asyncio.run(processes.run("--version")) == processes.run_blocking("--version") != ""


def test_a_command_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        wait_for(lambda: (tmp_path / "out").read_bytes(), "the command to listen")
        assert lives(pid)
        parent.kill()
    wait_for(lambda: not lives(pid), "the end of the command")


def test_a_command_whose_parent_is_gone_does_not_begin() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bkbox.launcher", "1", "--version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "the launcher was gone before this process began\n"
