"""Server-sent events without a server: numbers, what is missed, listeners that do not listen."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import replace

import pytest

from bkbox.api.admin import events as module
from bkbox.api.admin.events import LISTENERS_MAX, Events
from bkbox.api.admin.problems import HttpRefusedError
from bkbox.api.admin.status import Boot, Status, StatusWarning
from bkbox.jobs.job import Job, JobKind, JobState

STATUS = Status("0.1.0", "b:1", "i", "b:1", "running", True, "sync", Boot("up"))


def in_loop(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    @functools.wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


class Bookie:
    """One whose document is what a test says."""

    def __init__(self) -> None:
        self.status = STATUS
        self.jobs: tuple[Job, ...] = ()
        self.looks = 0
        self.events = Events(self.look)

    async def look(self) -> tuple[Status, Sequence[Job]]:
        self.looks += 1
        return self.status, self.jobs

    def warn(self, text: str) -> None:
        self.status = replace(self.status, warnings=(StatusWarning(text),))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL_EVERY_S", 0.01)
    monkeypatch.setattr(module, "_ALIVE_EVERY_S", 0.2)


async def event(stream: AsyncGenerator[str, None]) -> dict[str, object]:
    """The next one."""
    async with asyncio.timeout(5):
        async for chunk in stream:
            if chunk.startswith("id: "):
                data = next(line for line in chunk.splitlines() if line.startswith("data: "))
                found = json.loads(data.removeprefix("data: "))
                assert chunk.startswith(f"id: {found['number']}\nevent: change\n")
                assert chunk.endswith("\n\n")
                assert isinstance(found, dict)
                return found
    raise AssertionError("the stream ended")


async def looked(bookie: Bookie) -> None:
    before = bookie.looks
    while bookie.looks < before + 2:
        await asyncio.sleep(0.005)


async def listening(bookie: Bookie) -> AsyncGenerator[str, None]:
    """A new stream, whose listener hears of what changes from now on."""
    stream = bookie.events.listen(None)
    await anext(stream)
    await looked(bookie)
    return stream


@in_loop
async def test_what_changes_is_told_once_to_each() -> None:
    bookie = Bookie()
    streams = [bookie.events.listen(None) for _ in range(3)]
    for stream in streams:
        assert await anext(stream) == "retry: 2000\n\n"
    await looked(bookie)
    bookie.status = replace(bookie.status, state="stopping")
    for stream in streams:
        found = await event(stream)
        assert (found["subject"], found["text"]) == ("bookie", "the bookie is stopping")
        assert await anext(stream) == ": alive\n\n", "and only once"
    bookie.jobs = (Job(7, JobKind.GC, {}, 0, JobState.FAILED, error="no room"),)
    found = await event(streams[0])
    assert (found["subject"], found["severity"]) == ("job/7", "error")
    await bookie.events.close()


@in_loop
async def test_a_fault_ends_the_streams_and_the_next_listener_gets_events_again() -> None:
    bookie = Bookie()
    stream = await listening(bookie)
    bookie.status = None  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        await event(stream)
    bookie.status = STATUS
    stream = await listening(bookie)
    bookie.warn("one")
    assert (await event(stream))["text"] == "one"
    await bookie.events.close()


@in_loop
async def test_who_comes_back_gets_what_he_missed() -> None:
    bookie = Bookie()
    stays, goes = bookie.events.listen(None), bookie.events.listen(None)
    await anext(stays)
    await anext(goes)
    await looked(bookie)
    bookie.warn("one")
    first = await event(goes)
    await goes.aclose()
    for text in ("two", "three"):
        bookie.warn(text)
        await looked(bookie)
    number = first["number"]
    assert isinstance(number, int)
    back = bookie.events.listen(number)
    assert [(await event(back))["text"] for _ in range(2)] == ["two", "three"]
    await stays.aclose()
    await bookie.events.close()


@in_loop
async def test_nobody_looks_while_nobody_listens() -> None:
    bookie = Bookie()
    await asyncio.sleep(0.05)
    assert bookie.looks == 0
    stream = await listening(bookie)
    await stream.aclose()
    await asyncio.sleep(0.05)
    before = bookie.looks
    await asyncio.sleep(0.05)
    assert bookie.looks == before
    bookie.warn("unseen")
    again = await listening(bookie)
    bookie.warn("seen")
    assert (await event(again))["text"] == "seen"
    await bookie.events.close()


@in_loop
async def test_one_that_does_not_listen_costs_no_more_than_so_many_events() -> None:
    bookie = Bookie()
    stream = await listening(bookie)
    for number in range(module._UNSENT_MAX + 500):
        bookie.events._tell((replace(STATUS, warnings=(StatusWarning(chr(0x4E00 + number)),)), ()))
    bookie.events._watching.cancel()  # type: ignore[union-attr]
    first = await event(stream)
    assert isinstance(first["number"], int)
    assert first["number"] >= 500
    assert len(bookie.events._remembered) == module.REMEMBERED_MAX


@in_loop
async def test_too_many_listeners_are_refused() -> None:
    bookie = Bookie()
    streams = [bookie.events.listen(None) for _ in range(LISTENERS_MAX)]
    for stream in streams:
        await anext(stream)
    with pytest.raises(HttpRefusedError, match="listen"):
        bookie.events.listen(None)
    await streams[0].aclose()
    bookie.events.listen(None)
    await bookie.events.close()
