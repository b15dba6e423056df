"""What counts as progress of a process: its answers, and without these what the kernel says of it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from bkbox.api.admin.stalls import STOPPED
from bkbox.supervisor.children.child_group import ChildGroup
from bkbox.supervisor.children.heartbeat import (
    COMPUTES,
    IDLE,
    Heartbeat,
    main_thread_ticks,
    processor_ticks,
)
from bkbox.supervisor.service.child_progress import Progress
from tests.harness.waiting import wait_for

BUSY, ASLEEP = "while True: pass", "import time; time.sleep(600)"


class Mute:
    """A child that answers where ``answers`` says so, beside a process that does something."""

    running = True

    def __init__(self, code: str) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", code])
        self.pid = self.process.pid
        self.control = self
        self.answers = False

    async def call(self, _message: object) -> None:
        if not self.answers:
            await asyncio.Event().wait()


@pytest.fixture
def children() -> Iterator[list[Mute]]:
    made: list[Mute] = []
    yield made
    for each in made:
        each.process.kill()
        each.process.wait()


async def looked(child: Mute, looks: int, *, serves: bool | None) -> Heartbeat:
    """Looked at once a second of a clock that a late look moves by a minute."""
    now = [0.0]
    heartbeat = Heartbeat(cast(Any, child), 1.0, lambda: now[0])
    for number in range(looks + 1):
        heartbeat.poll(serves=serves)
        await asyncio.sleep(0.05)
        now[0] += 60.0 if number == 2 else 1.0
    heartbeat.forget()
    return heartbeat


def test_what_a_process_does_that_gives_no_answer(children: list[Mute]) -> None:
    children += [Mute(BUSY), Mute(ASLEEP), Mute(ASLEEP)]
    stopped = psutil.Process(children[2].pid)
    stopped.suspend()
    wait_for(lambda: stopped.status() == psutil.STATUS_STOPPED, "the stop")
    sleeping = psutil.Process(children[1].pid)
    wait_for(lambda: sleeping.status() == psutil.STATUS_SLEEPING, "the sleep")
    found = [asyncio.run(looked(child, 10, serves=True)) for child in children]
    assert [heartbeat.doing for heartbeat in found] == [COMPUTES, IDLE, STOPPED]
    # A look that came a minute late counts two seconds: it was not the child that was late.
    assert [heartbeat.silent_s for heartbeat in found] == [11.0, 11.0, 11.0]
    assert [heartbeat.idle_s for heartbeat in found] == [0.0, 11.0, 11.0]
    assert [heartbeat.spun_s > 0 for heartbeat in found] == [True, False, False]


def test_a_stop_is_seen_before_an_answer_is_missed(children: list[Mute]) -> None:
    child = Mute(ASLEEP)
    children.append(child)
    child.answers = True
    now = [0.0]

    async def go() -> None:
        heartbeat = Heartbeat(cast(Any, child), 1.0, lambda: now[0])

        async def poll() -> None:
            heartbeat.poll(serves=True)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            now[0] += 1.0

        await poll()
        await poll()
        assert heartbeat.idle_s == 0.0
        process = psutil.Process(child.pid)
        process.suspend()
        wait_for(lambda: process.status() == psutil.STATUS_STOPPED, "the stop")
        await poll()
        assert (heartbeat.doing, heartbeat.idle_s) == (STOPPED, 1.0)
        process.resume()
        wait_for(lambda: process.status() != psutil.STATUS_STOPPED, "the process to go on")
        await poll()
        assert heartbeat.idle_s == 0.0

    asyncio.run(go())


def test_a_child_that_computed_until_it_was_stopped_is_stopped_at_once(
    children: list[Mute],
) -> None:
    """Its processor time has grown since the last poll: that was before the stop."""
    child = Mute(BUSY)
    children.append(child)
    child.answers = True
    now = [0.0]

    async def go() -> None:
        heartbeat = Heartbeat(cast(Any, child), 1.0, lambda: now[0])
        heartbeat.poll(serves=None)
        await asyncio.sleep(0)
        ticks = processor_ticks(child.pid)
        wait_for(lambda: processor_ticks(child.pid) > ticks, "it to compute")
        process = psutil.Process(child.pid)
        process.suspend()
        wait_for(lambda: process.status() == psutil.STATUS_STOPPED, "the stop")
        now[0] += 1.0
        heartbeat.poll(serves=None)
        assert (heartbeat.doing, heartbeat.idle_s) == (STOPPED, 1.0)
        heartbeat.forget()

    asyncio.run(go())


def test_to_compute_is_progress_before_a_process_serves(children: list[Mute]) -> None:
    children += [Mute(BUSY), Mute(ASLEEP)]
    sleeping = psutil.Process(children[1].pid)
    wait_for(lambda: sleeping.status() == psutil.STATUS_SLEEPING, "the sleep")
    for serves in (False, None):  # None: it has not answered yet
        busy, asleep = (asyncio.run(looked(child, 10, serves=serves)) for child in children)
        assert (busy.silent_s, busy.idle_s) == (0.0, 0.0)
        assert asleep.silent_s == 11.0
        assert busy.unresponsive_s == asleep.unresponsive_s == 11.0


def test_an_answer_is_progress(children: list[Mute]) -> None:
    child = Mute(ASLEEP)
    children.append(child)
    child.answers = True
    heartbeat = asyncio.run(looked(child, 5, serves=None))
    assert (heartbeat.unresponsive_s, heartbeat.silent_s, heartbeat.idle_s) == (0.0, 0.0, 0.0)
    assert heartbeat.serves


@pytest.mark.parametrize(("code", "serves"), [(BUSY, True), (ASLEEP, True), (BUSY, False)])
def test_when_a_child_that_hangs_is_stalled(
    children: list[Mute], code: str, *, serves: bool
) -> None:
    """One that does nothing by the clock of the polls, one that computes by its own processor time alone."""
    child = Mute(code)
    children.append(child)
    ready = "sleeping" if code == ASLEEP else "running"
    wait_for(lambda: psutil.Process(child.pid).status() == ready, f"it to be {ready}")
    disk = SimpleNamespace(path="/d", child=child, usable=serves)
    bookie = SimpleNamespace(state="running", disks=[disk], frontends=ChildGroup(), repair=None)
    now = [0.0]
    progress = Progress(cast(Any, bookie), 0.25, lambda: now[0])
    told = cast(Any, child)

    async def go() -> None:
        progress.poll()
        await asyncio.sleep(0)
        since = main_thread_ticks(child.pid)
        for _ in range(2):
            now[0] += 0.25
            progress.poll()
        assert progress.stall_of(told) is None
        if code == BUSY:  # however long the clock says
            ticks = os.sysconf("SC_CLK_TCK")
            wait_for(lambda: main_thread_ticks(child.pid) > since + 1.1 * ticks, "it to compute")
        now[0] += 0.25
        progress.poll()
        stall = progress.stall_of(told)
        if serves:
            assert stall is not None
            assert stall.doing == (COMPUTES if code == BUSY else IDLE)
        else:
            assert stall is None, "a worker that replays its log"
        assert not progress.lasts(told)
        for _ in range(8):
            now[0] += 0.25
            progress.poll()
        assert not progress.lasts(told)
        now[0] += 0.25
        progress.poll()
        assert progress.lasts(told) == (code == ASLEEP)

    asyncio.run(go())
