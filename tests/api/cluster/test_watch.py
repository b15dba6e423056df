"""Polls side by side: a bookie that hangs or fails delays no other, and none is dropped. Time is a variable here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bkbox.api.admin.cluster_members import DOWN, WRITABLE, Member
from bkbox.api.cluster.rows import Report
from bkbox.api.cluster.watch import FIRST_S, IN_FLIGHT_MAX, SLOW_S, ClusterWatch
from bkbox.errors import BookieNotRunningError, MetadataUnavailableError


class Stage:
    """A cluster of which each bookie answers, fails or hangs as it is told."""

    def __init__(self, *names: str) -> None:
        self.now = 100.0
        self.members = [Member(name, name, WRITABLE, admin=f"http://{name}") for name in names]
        self.fails: set[str] = set()
        self.hangs: set[str] = set()
        self.faults: set[str] = set()
        self.listing_faults = False
        self.away = self.listing_hangs = False
        self.port_answers: asyncio.Event | None = None
        self.asked: list[str] = []
        self.watch = ClusterWatch(self.list, self.ask, lambda: self.now)
        self.answers = 0
        self.watch.on_answer = self.note_answer

    def note_answer(self) -> None:
        self.answers += 1

    async def list(self) -> list[Member]:
        if self.away:
            raise MetadataUnavailableError("no ZooKeeper")
        if self.listing_faults:
            raise ZeroDivisionError("of no use")
        if self.listing_hangs:
            await asyncio.Event().wait()
        return self.members

    async def ask(self, member: Member) -> Report:
        self.asked.append(member.id)
        if member.id in self.hangs:
            await asyncio.Event().wait()
        if self.port_answers is not None:
            await self.port_answers.wait()
            return Report(verdict="warn", problems=("its status hangs",))
        if member.id in self.faults:
            raise ZeroDivisionError("of no use")
        if member.id in self.fails:
            raise BookieNotRunningError("connection refused")
        return Report(state="writable", adds=1.0)

    async def look(self) -> dict[str, tuple[str, float | None]]:
        """Polls, and lets all that can answer do so."""
        self.watch.poll()
        for _ in range(20):
            await asyncio.sleep(0)
        return {
            row.bookie: (row.state, None if row.silent_s is None else round(row.silent_s, 6))
            for row in self.watch.rows()
        }

    async def wait(self, seconds: float) -> dict[str, tuple[str, float | None]]:
        """Looks every tenth of a second."""
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            found = await self.look()
        return found


def play(stage: Stage, story: Callable[[], Awaitable[None]]) -> None:
    async def go() -> None:
        try:
            await story()
        finally:
            await stage.watch.close()

    asyncio.run(go())


def test_one_that_fails_is_silent_from_its_last_answer_on_until_it_answers() -> None:
    stage = Stage("a", "b")

    async def story() -> None:
        assert await stage.look() == {"a": ("writable", None), "b": ("writable", None)}
        stage.fails, stage.now = {"b"}, 101.0
        assert (await stage.look())["b"] == ("no answer", 1.0)
        stage.now = 109.0
        assert await stage.look() == {"a": ("writable", None), "b": ("no answer", 9.0)}
        stage.fails = set()
        assert (await stage.look())["b"] == ("writable", None)

    play(stage, story)


def test_what_was_known_before_a_fault_does_not_pass_for_new(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage("a", "b")

    async def story() -> None:
        await stage.look()
        stage.faults, stage.listing_faults, stage.now = {"b"}, True, 101.0
        for _ in range(3):
            assert (await stage.look()) == {"a": ("writable", None), "b": ("no answer", 1.0)}
        assert sorted(record.getMessage() for record in caplog.records) == [
            "bookie b cannot be looked at",
            "the list of bookies cannot be looked at",
        ]
        assert "ZeroDivisionError: of no use; the last list is 1 s old" in stage.watch.problem
        stage.faults, stage.listing_faults = set(), False
        assert (await stage.look())["b"] == ("writable", None)
        assert stage.watch.problem == ""

    play(stage, story)


def test_one_that_hangs_is_silent_once_it_is_slow_and_asked_once() -> None:
    stage = Stage("a", "b")
    stage.hangs = {"b"}

    async def story() -> None:
        assert await stage.look() == {"a": ("writable", None), "b": ("being asked", None)}
        assert (await stage.wait(FIRST_S - 0.1))["b"] == ("being asked", None)
        assert (await stage.wait(0.2))["b"] == ("no answer", round(FIRST_S + 0.1, 6))
        assert stage.asked.count("b") == 1
        assert stage.asked.count("a") > 2
        stage.hangs = {"a"}
        await stage.look()
        assert (await stage.wait(SLOW_S - 0.1))["a"] == ("writable", None)
        assert (await stage.wait(0.2))["a"] == ("no answer", round(SLOW_S + 0.1, 6))

    play(stage, story)


def test_time_for_which_nobody_looked_is_charged_to_no_bookie() -> None:
    stage = Stage("a")

    async def story() -> None:
        await stage.look()
        stage.hangs, stage.listing_hangs = {"a"}, True
        await stage.look()
        stage.now += 30.0
        assert await stage.look() == {"a": ("writable", None)}
        assert stage.watch.problem == ""
        assert (await stage.wait(0.3))["a"][0] == "no answer"
        assert "does not answer" in stage.watch.problem

    play(stage, story)


def test_one_that_registers_is_asked_anew_and_no_old_failure_is_told() -> None:
    stage = Stage("a", "b")
    stage.members[0] = Member("a", None, DOWN)
    stage.hangs = {"a"}

    async def story() -> None:
        await stage.look()
        assert (await stage.wait(SLOW_S + 0.1))["a"][0] == "down"
        stage.members[0] = Member("a", "a", WRITABLE)
        assert (await stage.look())["a"] == ("being asked", None)
        assert stage.asked.count("a") == 2, "the poll of before is not waited for"

    play(stage, story)


def test_each_answer_is_told() -> None:
    stage = Stage("a", "b")
    stage.fails = {"b"}

    async def story() -> None:
        await stage.look()
        assert stage.answers == 3, "the list, and both"

    play(stage, story)


def test_one_whose_port_alone_answers_does_not_flicker() -> None:
    stage = Stage("a")

    async def story() -> None:
        await stage.look()
        for number in range(1, 4):
            stage.port_answers = asyncio.Event()
            await stage.look()
            assert await stage.wait(2.0) == {"a": ("no answer", 2.0 * number)}
            stage.port_answers.set()
            assert await stage.look() == {"a": ("no answer", 2.0 * number)}
        assert stage.watch.rows()[0].problems == ("its status hangs",)
        stage.port_answers = None
        await stage.look()
        assert await stage.look() == {"a": ("writable", None)}

    play(stage, story)


def test_those_that_wait_for_their_turn_are_not_called_silent() -> None:
    names = [f"b{number:03}" for number in range(IN_FLIGHT_MAX + 5)]
    stage = Stage(*names)
    stage.hangs = set(names)

    async def story() -> None:
        await stage.look()
        found = await stage.wait(FIRST_S + 0.1)
        assert sum(state == "no answer" for state, _ in found.values()) == IN_FLIGHT_MAX
        assert sum(state == "being asked" for state, _ in found.values()) == 5

    play(stage, story)


def test_members_come_and_go() -> None:
    stage = Stage("a")

    async def story() -> None:
        await stage.look()
        stage.members = [*stage.members, Member("b", "b", WRITABLE)]
        assert set(await stage.look()) == {"a", "b"}
        stage.members = stage.members[1:]
        assert set(await stage.look()) == {"b"}

    play(stage, story)


def test_one_that_lost_its_registration_is_asked_where_it_answered_before() -> None:
    stage = Stage("a")

    async def story() -> None:
        await stage.look()
        stage.members = [Member("a", None, DOWN)]
        await stage.look()
        (row,) = stage.watch.rows()
        assert (row.mode, row.state, row.admin) == (DOWN, "writable", "http://a")
        stage.fails, stage.now = {"a"}, 104.0
        await stage.look()
        (row,) = stage.watch.rows()
        assert (row.state, row.silent_s) == ("down", 4.0)

    play(stage, story)


def test_a_metadata_store_that_hangs_is_told_of_as_soon_as_a_bookie_is() -> None:
    stage = Stage("a")

    async def story() -> None:
        await stage.look()
        stage.listing_hangs = True
        await stage.look()
        assert stage.watch.problem == ""
        assert await stage.wait(SLOW_S + 0.1) == {"a": ("writable", None)}
        assert stage.watch.problem.startswith("the metadata store does not answer; the last list")

    play(stage, story)


def test_without_the_metadata_store_the_last_list_stands_and_says_its_age() -> None:
    stage = Stage("a", "b")

    async def story() -> None:
        await stage.look()
        assert stage.watch.problem == ""
        stage.away, stage.now = True, 107.0
        assert set(await stage.look()) == {"a", "b"}
        assert stage.watch.problem == "no ZooKeeper; the last list is 7 s old"
        stage.away = False
        await stage.look()
        assert stage.watch.problem == ""

    play(stage, story)


def test_finish_waits_for_all_answers() -> None:
    stage = Stage("a", "b")
    stage.fails = {"b"}

    async def story() -> None:
        stage.watch.poll()
        await stage.watch.finish()
        assert [row.state for row in stage.watch.rows()] == ["writable", "no answer"]

    play(stage, story)
