"""What counts as progress of a process: its answers, and without these what the kernel says of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, cast

import psutil
import pytest

from bkbox.api.admin.status_parts import STOPPED
from bkbox.supervisor.children.heartbeat import COMPUTES, IDLE, Pulse
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


async def looked(child: Mute, looks: int, *, serves: bool | None) -> Pulse:
    """Looked at once a second of a clock that a late look moves by a minute."""
    now = [0.0]
    pulse = Pulse(cast(Any, child), 1.0, lambda: now[0])
    for number in range(looks + 1):
        pulse.look(serves=serves)
        await asyncio.sleep(0.05)
        now[0] += 60.0 if number == 2 else 1.0
    pulse.forget()
    return pulse


def test_what_a_process_does_that_gives_no_answer(children: list[Mute]) -> None:
    children += [Mute(BUSY), Mute(ASLEEP), Mute(ASLEEP)]
    stopped = psutil.Process(children[2].pid)
    stopped.suspend()
    wait_for(lambda: stopped.status() == psutil.STATUS_STOPPED, "the stop")
    sleeping = psutil.Process(children[1].pid)
    wait_for(lambda: sleeping.status() == psutil.STATUS_SLEEPING, "the sleep")
    found = [asyncio.run(looked(child, 10, serves=True)) for child in children]
    assert [pulse.doing for pulse in found] == [COMPUTES, IDLE, STOPPED]
    # A look that came a minute late counts two seconds: it was not the child that was late.
    assert [pulse.silent_s for pulse in found] == [11.0, 11.0, 11.0]
    assert [pulse.idle_s for pulse in found] == [0.0, 11.0, 11.0]


def test_a_stop_is_seen_before_an_answer_is_missed(children: list[Mute]) -> None:
    child = Mute(ASLEEP)
    children.append(child)
    child.answers = True
    now = [0.0]

    async def go() -> None:
        pulse = Pulse(cast(Any, child), 1.0, lambda: now[0])

        async def look() -> None:
            pulse.look(serves=True)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            now[0] += 1.0

        await look()
        await look()
        assert pulse.idle_s == 0.0
        process = psutil.Process(child.pid)
        process.suspend()
        wait_for(lambda: process.status() == psutil.STATUS_STOPPED, "the stop")
        await look()
        assert (pulse.doing, pulse.idle_s) == (STOPPED, 1.0)
        process.resume()
        wait_for(lambda: process.status() != psutil.STATUS_STOPPED, "the process to go on")
        await look()
        assert pulse.idle_s == 0.0

    asyncio.run(go())


def test_to_compute_is_progress_before_a_process_serves(children: list[Mute]) -> None:
    children += [Mute(BUSY), Mute(ASLEEP)]
    sleeping = psutil.Process(children[1].pid)
    wait_for(lambda: sleeping.status() == psutil.STATUS_SLEEPING, "the sleep")
    for serves in (False, None):  # None: it has not answered yet
        busy, asleep = (asyncio.run(looked(child, 10, serves=serves)) for child in children)
        assert (busy.silent_s, busy.idle_s) == (0.0, 0.0)
        assert asleep.silent_s == 11.0
        assert busy.unanswered_s == asleep.unanswered_s == 11.0


def test_an_answer_is_progress(children: list[Mute]) -> None:
    child = Mute(ASLEEP)
    children.append(child)
    child.answers = True
    pulse = asyncio.run(looked(child, 5, serves=None))
    assert (pulse.unanswered_s, pulse.silent_s, pulse.idle_s) == (0.0, 0.0, 0.0)
    assert pulse.serves
