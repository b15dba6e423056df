"""A child that makes no progress: told of within seconds in every window, and started again after a while."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.harness.adminsocket import ask
from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.raw import EOK, RawClient
from tests.harness.waiting import wait_for

HOOKS = Path(__file__).parent / "hooks"
ROLES = ("worker", "frontend", "repair")


def health(bookie: BookieProcess) -> tuple[int, list[str]]:
    done = bkbox("health", "--config", str(bookie.config), "-o", "json", check=False)
    return done.returncode, json.loads(done.stdout)["waits_for"]


def process_of(status: dict[str, Any], pid: int) -> dict[str, Any]:
    (found,) = (each for each in status["processes"] if each["pid"] == pid)
    return found


@pytest.mark.parametrize("role", ROLES)
def test_a_stopped_child_is_told_of_everywhere(make_bookie: MakeBookie, role: str) -> None:
    bookie = make_bookie(frontends=1).start()  # of several, one that is stopped is a warning
    child = bookie.children(role)[0]
    assert health(bookie) == (0, [])
    assert ask(bookie, "/readyz")[0] == ask(bookie, "/healthz")[0] == 200
    child.suspend()
    status, waits_for = wait_for(
        lambda: next((found for found in [health(bookie)] if found[0]), None), "health to tell"
    )
    assert status == 1
    assert any(f"(pid {child.pid}) has made no progress for" in text for text in waits_for), (
        waits_for
    )
    assert ask(bookie, "/readyz")[0] == ask(bookie, "/healthz")[0] == 503
    found = bookie.status()
    process = process_of(found, child.pid)
    assert process["running"]
    assert process["stalled_s"] > 0
    assert process["stall"] == "it is stopped"
    warnings = [each for each in found["warnings"] if str(child.pid) in each["text"]]
    assert [each["command"] for each in warnings] == [f"kill -CONT {child.pid}"]
    others = [each for each in found["processes"] if each["pid"] != child.pid]
    assert not any(each["stalled_s"] for each in others)
    states = sorted(disk["state"] for disk in found["disks"])
    assert states == ["in service", "out of service" if role == "worker" else "in service"]
    if role == "frontend":
        assert not found["writable"]
    label = "".join(
        line
        for line in ask(bookie, "/metrics")[1].splitlines()
        if "stalled_seconds{" in line and f'role="{role}"' in line and not line.endswith(" 0.0")
    )
    assert label
    os.kill(child.pid, signal.SIGCONT)  # as the warning says
    wait_for(lambda: health(bookie) == (0, []), "the child to go on")
    assert ask(bookie, "/readyz")[0] == 200
    assert child.is_running(), "it was not killed"


def test_a_child_that_stays_stopped_is_killed_and_started_again(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start(environment={"PYTHONPATH": str(HOOKS), "HOST_RESTART_S": "4"})
    with RawClient(bookie.port) as client:
        for ledger in (1, 2):
            assert client.add(ledger, 0, b"before") == EOK
    stopped = [bookie.children(role)[0] for role in ROLES]
    for child in stopped:
        child.suspend()
    wait_for(lambda: not any(child.is_running() for child in stopped), "the end of all", 60)
    wait_for(lambda: health(bookie) == (0, []), "the bookie to be whole again", 60)
    assert bookie.stderr.count("it is killed and started again") == len(ROLES)
    restarts = {each["role"]: 0 for each in bookie.status()["processes"]}
    for each in bookie.status()["processes"]:
        restarts[each["role"]] += each["restarts"]
    assert restarts == {"supervisor": 0, "worker": 1, "frontend": 1, "repair": 1}
    with RawClient(bookie.port) as client:
        assert [client.read(ledger, 0).code for ledger in (1, 2)] == [EOK, EOK]
        assert client.add(3, 0, b"after") == EOK


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (signal.SIGUSR1, "it neither computes nor answers"),
        (signal.SIGUSR2, "it computes and does not answer"),
    ],
)
def test_a_worker_that_hangs_without_a_signal(
    make_bookie: MakeBookie, tmp_path: Path, number: int, told: str
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    bookie = make_bookie().start(environment={"PYTHONPATH": str(HOOKS), "HOST_HANGS": str(fifo)})
    worker = bookie.worker(0)
    os.kill(worker.pid, number)
    found = wait_for(
        lambda: process_of(bookie.status(), worker.pid)["stall"], "the worker's stall to be told"
    )
    assert found == told
    status, waits_for = health(bookie)
    assert status == 1
    assert any(f"(pid {worker.pid}) has made no progress" in text for text in waits_for)
    assert bookie.status()["writable"], "the other disk takes new ledgers"
    if number == signal.SIGUSR1:
        os.close(os.open(fifo, os.O_WRONLY))
    else:
        fifo.unlink()
    wait_for(lambda: health(bookie) == (0, []), "the worker to go on")
    assert worker.is_running()


def test_a_worker_that_waits_for_its_disk_is_told_of_and_never_killed(
    make_bookie: MakeBookie, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    bookie = make_bookie().start(
        environment={
            "PYTHONPATH": str(HOOKS),
            "HOST_WAIT_AT": str(fifo),
            "HOST_RESTART_S": "4",
        }
    )
    worker = bookie.worker(0)
    worker.send_signal(signal.SIGUSR1)
    wait_for(lambda: worker.status() == psutil.STATUS_DISK_SLEEP, "the worker to wait")
    try:
        told = wait_for(
            lambda: process_of(bookie.status(), worker.pid)["stall"], "the wait to be told"
        )
        assert told == "it waits for its disk"
        assert process_of(bookie.status(), worker.pid)["stalled_s"] > 4
        assert worker.status() == psutil.STATUS_DISK_SLEEP
    finally:
        with open(fifo, "wb"):
            pass
    wait_for(lambda: health(bookie) == (0, []), "the worker to go on")
    assert worker.is_running()


def test_a_stopped_supervisor_is_not_taken_for_a_bookie_that_does_not_run(
    make_bookie: MakeBookie,
) -> None:
    bookie = make_bookie().start()
    assert bookie.process is not None
    config = str(bookie.config)
    with bookie.paused(children=False):
        exit_code, told = health(bookie)
        listed = bkbox("disk", "list", "--config", config, check=False)
        found = bkbox("doctor", "--config", config, "-o", "json", check=False)
    assert exit_code == 1
    assert f"-p {bookie.process.pid}" in told[0]
    assert listed.returncode == 7
    assert not listed.stdout
    findings = json.loads(found.stdout)["findings"]
    not_ok = {each["check"]: each for each in findings if each["verdict"] != "ok"}
    assert not_ok["bookie"]["verdict"] == "fail"
    assert "bkbox run" not in not_ok["bookie"]["command"]
    assert not {"leftovers", "last stop", "lock", "port"} & {*not_ok}
