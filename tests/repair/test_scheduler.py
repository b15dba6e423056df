"""The scheduler of jobs: what is asked of jobs while they run, how they end, what they share."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from bkbox.base.ids import BookieId
from bkbox.errors import DiskFullError, JobCancelledError
from bkbox.ipc.messages.disk import Latency
from bkbox.ipc.messages.message import Message
from bkbox.ipc.messages.repair import ControlJob, StartJob
from bkbox.jobs.context import JobContext
from bkbox.jobs.job import JobAction, JobKind
from bkbox.repair.context import Environment
from bkbox.repair.jobs import Code
from bkbox.repair.scheduler import Scheduler
from tests.harness import virtual_time
from tests.repair.orders import open_repair

KIB = 1024


class Bench:
    """A scheduler with the code of the test, and the last report of each job."""

    def __init__(self, code: dict[JobKind, Code], **settings: object) -> None:
        order = open_repair(**settings)
        self.disks: dict[str, Any] = {}
        nothing = cast(Any, None)
        environment = Environment(
            me=BookieId("b:1"),
            store=nothing,
            client=nothing,
            disks=self.disks,
            order=order,
            rng=random.Random(1),
            wall_ms=lambda: 0,
            monotonic_s=virtual_time.now_s,
        )
        self.last: dict[int, dict[str, Any]] = {}
        self.scheduler = Scheduler(environment, code, self._report)

    def _report(self, values: dict[str, Any]) -> None:
        self.last[values["id"]] = values

    def start(self, number: int, kind: JobKind = JobKind.SCRUB, **arguments: str) -> None:
        self.scheduler.start(StartJob(id=number, kind=kind, arguments=arguments))

    def control(self, number: int, action: JobAction, bytes_per_second: int = 0) -> None:
        order = ControlJob(id=number, action=action, bytes_per_second=bytes_per_second)
        self.scheduler.control(order)

    async def state(self, number: int, state: str, timeout_s: float = 20.0) -> dict[str, Any]:
        deadline = virtual_time.now_s() + timeout_s
        while self.last[number]["state"] != state:
            assert virtual_time.now_s() < deadline, f"waits for {state}: {self.last[number]}"
            await asyncio.sleep(0.01)
        return self.last[number]


def running(test: Callable[[Bench], Awaitable[None]], bench: Bench) -> None:
    async def go() -> None:
        beside = [
            asyncio.ensure_future(bench.scheduler.send_reports()),
            asyncio.ensure_future(bench.scheduler.watch_foreground()),
        ]
        try:
            await test(bench)
        finally:
            for task in beside:
                task.cancel()
            await bench.scheduler.close()

    virtual_time.run(go())


async def pieces(work: JobContext, _environment: Environment, arguments: dict[str, str]) -> None:
    """So many pieces of 1 KiB."""
    count = int(arguments["pieces"])
    work.expect(size=count * KIB)
    for _ in range(count):
        await work.checkpoint(disk_bytes=KIB, network_bytes=KIB)
        work.add_progress(size=KIB)
        await asyncio.sleep(0)


def test_a_job_runs_to_its_end() -> None:
    async def test(bench: Bench) -> None:
        bench.start(1, pieces="10")
        bench.start(1, pieces="10")  # what runs already goes on
        last = await bench.state(1, "done")
        assert (last["percent"], last["done"]["bytes"], last["error"]) == (100.0, 10 * KIB, "")

    running(test, Bench({JobKind.SCRUB: pieces}))


def test_a_job_that_fails_says_why_and_the_others_go_on() -> None:
    async def fail(_work: JobContext, _environment: Environment, arguments: dict[str, str]) -> None:
        await asyncio.sleep(0)
        if arguments:
            raise DiskFullError("no room on disk d")
        raise ZeroDivisionError("oh")

    async def test(bench: Bench) -> None:
        bench.start(1, pieces="1000")
        bench.start(2, JobKind.DRAIN, disk="d")
        bench.start(3, JobKind.DRAIN)
        assert (await bench.state(2, "failed"))["error"] == "no room on disk d"
        assert "a fault of bkbox itself" in (await bench.state(3, "failed"))["error"]
        bench.start(4, JobKind.REBUILD)
        assert "kind rebuild" in (await bench.state(4, "failed"))["error"]
        await bench.state(1, "done")

    running(test, Bench({JobKind.SCRUB: pieces, JobKind.DRAIN: fail}))


def test_a_job_rests_while_it_is_paused() -> None:
    async def test(bench: Bench) -> None:
        bench.start(1, pieces="1000000")
        await asyncio.sleep(0.05)
        bench.control(1, JobAction.PAUSE)
        paused = bench.last[1]
        assert paused["state"] == "paused"
        await asyncio.sleep(0.7)
        assert bench.last[1]["done"]["bytes"] <= paused["done"]["bytes"] + KIB
        assert bench.last[1]["rate"]["bytes"] >= 0
        bench.control(1, JobAction.RESUME)
        assert bench.last[1]["state"] == "running"
        await asyncio.sleep(0.1)
        bench.control(1, JobAction.CANCEL)
        done = (await bench.state(1, "cancelled"))["done"]["bytes"]
        assert paused["done"]["bytes"] + KIB < done < 1_000_000 * KIB

    running(test, Bench({JobKind.SCRUB: pieces}))


@pytest.mark.parametrize("first", [None, JobAction.PAUSE, JobAction.RATE])
def test_a_job_is_cancelled_whatever_it_waits_for_and_tidies_up(first: JobAction | None) -> None:
    tidied: list[int] = []

    async def careful(
        work: JobContext, environment: Environment, arguments: dict[str, str]
    ) -> None:
        try:
            await pieces(work, environment, arguments)
        except JobCancelledError:
            await asyncio.sleep(0.01)
            tidied.append(1)
            raise

    async def test(bench: Bench) -> None:
        bench.start(1, pieces="1000000")
        if first is not None:
            bench.control(1, first, 1)
        await asyncio.sleep(0.05)
        bench.control(1, JobAction.CANCEL)
        bench.control(1, JobAction.PAUSE)
        await bench.state(1, "cancelled", timeout_s=5.0)
        assert tidied == [1]

    running(test, Bench({JobKind.SCRUB: careful}))


def test_a_new_rate_holds_at_once_for_what_waits_already() -> None:
    async def test(bench: Bench) -> None:
        bench.start(1, pieces="30")
        bench.control(1, JobAction.RATE, 1)
        bench.start(2, pieces="30")
        bench.control(0, JobAction.RATE, 1)
        await asyncio.sleep(0.3)
        assert bench.last[1]["state"] == bench.last[2]["state"] == "running"
        bench.control(0, JobAction.RATE, 0)
        await bench.state(2, "done", timeout_s=5.0)
        assert bench.last[1]["state"] == "running"
        bench.control(1, JobAction.RATE, 0)
        await bench.state(1, "done", timeout_s=5.0)

    running(test, Bench({JobKind.SCRUB: pieces}))


async def in_one_go(work: JobContext, _environment: Environment, arguments: dict[str, str]) -> None:
    """So many pieces of 1 KiB, asked for together by two tasks."""

    async def some() -> None:
        left = int(arguments["pieces"])
        while left:
            given = await work.checkpoint(
                pieces=left, disk_bytes=left * KIB, network_bytes=left * KIB
            )
            work.add_progress(size=given * KIB)
            left -= given

    await asyncio.gather(some(), some())


def test_of_many_pieces_a_second_s_worth_is_done_at_a_time() -> None:
    async def test(bench: Bench) -> None:
        bench.start(1, pieces="1000")
        bench.control(1, JobAction.RATE, 20 * KIB)
        began = virtual_time.now_s()
        await asyncio.sleep(1.2)
        bench.control(1, JobAction.PAUSE)
        done = bench.last[1]["done"]["bytes"]
        assert 20 * KIB <= done <= 20 * KIB * (virtual_time.now_s() - began + 2)
        assert done % (20 * KIB) == 0
        bench.control(1, JobAction.RATE, 100)
        bench.control(1, JobAction.RESUME)
        await asyncio.sleep(0.5)
        assert bench.last[1]["done"]["bytes"] <= done + KIB  # one piece at least
        bench.control(1, JobAction.RATE, 0)
        await bench.state(1, "done", timeout_s=5.0)

    running(test, Bench({JobKind.SCRUB: in_one_go}))


def test_what_waits_for_the_budget_of_all_is_paused_and_slowed_down() -> None:
    """It has had leave by its own limit already when that becomes another one."""

    async def test(bench: Bench) -> None:
        bench.control(0, JobAction.RATE, 1)
        bench.start(1, pieces="1000")
        await asyncio.sleep(0.05)
        bench.control(1, JobAction.PAUSE)
        done = bench.last[1]["done"]["bytes"]
        bench.control(0, JobAction.RATE, 0)
        await asyncio.sleep(0.5)
        assert bench.last[1]["done"]["bytes"] == done
        bench.control(1, JobAction.RATE, KIB)
        bench.control(1, JobAction.RESUME)
        await asyncio.sleep(1.0)
        assert bench.last[1]["done"]["bytes"] <= done + 4 * KIB
        bench.control(1, JobAction.RATE, 0)
        await bench.state(1, "done", timeout_s=5.0)

    running(test, Bench({JobKind.SCRUB: in_one_go}))


def test_all_jobs_share_one_budget() -> None:
    async def test(bench: Bench) -> None:
        began = virtual_time.now_s()
        for number in (1, 2):
            bench.start(number, pieces="1000000")
        await asyncio.sleep(2.0)
        for number in (1, 2):
            bench.control(number, JobAction.PAUSE)
        passed = virtual_time.now_s() - began
        done = [bench.last[number]["done"]["bytes"] for number in (1, 2)]
        assert 0.5 * 50 * KIB < sum(done) <= 50 * KIB * (passed + 1) + 2 * KIB
        assert abs(done[0] - done[1]) <= 0.2 * sum(done)

    running(test, Bench({JobKind.SCRUB: pieces}, network_bytes_per_second=50 * KIB))


def test_jobs_give_way_when_adds_take_longer() -> None:
    class Disk:
        closed = False
        p99_us = 5_000

        async def call(self, _message: object, timeout_s: float | None = None) -> Message:
            return Latency(adds=1000, p99_us=self.p99_us)

    async def speed(bench: Bench, seconds: float) -> float:
        began, before = virtual_time.now_s(), bench.last[1]["done"]["bytes"]
        await asyncio.sleep(seconds)
        done: int = bench.last[1]["done"]["bytes"]
        return (done - before) / (virtual_time.now_s() - began)

    async def steady(
        work: JobContext, _environment: Environment, _arguments: dict[str, str]
    ) -> None:
        while True:
            await work.checkpoint(disk_bytes=KIB)
            work.add_progress(size=KIB)
            await asyncio.sleep(0.001)

    async def test(bench: Bench) -> None:
        disk = Disk()
        bench.disks["d"] = disk
        bench.start(1)
        await asyncio.sleep(9.0)  # at first they rest, as nothing is known, and then start slowly
        usual = await speed(bench, 1.5)
        disk.p99_us = 20_000
        await asyncio.sleep(3.5)
        assert await speed(bench, 1.5) < 0.5 * usual
        disk.closed = True

    running(test, Bench({JobKind.SCRUB: steady}))
