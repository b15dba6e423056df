"""The front-end between clients and disks: what has no disk, what is not answered, what waits, what is gone."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from bkbox.ipc import link
from bkbox.ipc.messages.frontend import AttachDisk, DiskUnavailable, NewLedgers
from bkbox.wire.frames import frame
from bkbox.worker.response_sender import RequestGroup
from tests.bookie.bench import carry_out
from tests.frontend.inprocess import INFLIGHT_BYTES_MAX, InProcessBookie, serving
from tests.harness import raw
from tests.harness.raw3 import (
    ADD,
    EIO,
    ENOENTRY,
    ENOLEDGER,
    EOK,
    EREADONLY,
    FORCE,
    INFO,
    LIST,
    READ,
    READ_LAC,
    add_part,
    read_part,
    request,
)
from tests.harness.waiting import until

T = TypeVar("T")
LONG_MS = 60_000


def run(folder: Path, story: Callable[[InProcessBookie], object], disks: int = 1) -> None:
    """A story of a test, which is a coroutine function, with a bookie that serves meanwhile."""

    async def told() -> None:
        async with serving(folder, disks) as bookie:
            await story(bookie)  # type: ignore[misc]

    asyncio.run(told())


async def aside(call: Callable[..., T], *arguments: object, **options: object) -> T:
    """A blocking call of a client, while the event loop serves."""
    return await asyncio.to_thread(call, *arguments, **options)


def polls_at(bookie: InProcessBookie) -> int:
    return sum(len(disk.bookie._polls) for disk in bookie.disks)


# ---- ledgers that no disk has -----------------------------------------------------------------------


def test_without_new_ledgers_only_what_recovers_creates_one(tmp_path: Path) -> None:
    async def story(bookie: InProcessBookie) -> None:
        client, old = await bookie.client(), await bookie.client()
        assert await aside(client.add3, 1, 0) == EOK
        bookie.control.send(NewLedgers(allowed=False))
        await bookie.stats()  # so it was taken
        assert await aside(client.add3, 2, 0) == EREADONLY
        assert await aside(client.write_lac, 2, 0) == EREADONLY
        assert await aside(old.add, 2, 0, b"x") == raw.EREADONLY
        assert (await aside(client.read3, 2, 0)).status == ENOLEDGER
        assert await aside(client.add3, 1, 1) == EOK, "a ledger that is there already"
        assert await aside(client.add3, 3, 0, recovery=True) == EOK
        assert (await aside(client.fence3, 4)).status == ENOENTRY
        assert await aside(old.add, 5, 0, b"x", raw.RECOVERY) == raw.EOK
        assert (await aside(old.fence, 6)).code == raw.ENOENTRY
        bookie.control.send(NewLedgers(allowed=True))
        await bookie.stats()
        assert await aside(client.add3, 2, 0) == EOK

    run(tmp_path, story)


def test_nothing_is_said_about_a_ledger_while_a_disk_is_not_listed(tmp_path: Path) -> None:
    async def story(bookie: InProcessBookie) -> None:
        client = await bookie.client()
        assert await aside(client.add3, 1, 0) == EOK
        await bookie.control.call(DiskUnavailable(disk="disk 1"))
        for _ in range(2):
            assert (await aside(client.read3, 9)).status == EIO
            assert (await aside(client.fence3, 9)).status == EIO
            assert await aside(client.add3, 9, 0) == EIO
            assert (await aside(client.read_lac, 9))[0] == EIO
            assert (await aside(client.list_entries, 9))[0] == EIO
            assert await aside(client.force, 9) == EIO
            bookie.control.send(NewLedgers(allowed=False))  # which changes nothing of it
        assert await aside(client.add3, 1, 1) == EOK

    run(tmp_path, story, disks=2)


def test_a_size_that_cannot_be_found_out(tmp_path: Path) -> None:
    async def story(bookie: InProcessBookie) -> None:
        client = await bookie.client()
        assert (await aside(client.ask, INFO, [(1, 3)])).status == EOK
        shutil.rmtree(bookie.disks[0].path)
        answer = await aside(client.ask, INFO, [(1, 3)])
        assert (answer.status, answer.without_status()) == (EIO, {})

    run(tmp_path, story)


# ---- a worker that dies -----------------------------------------------------------------------------


def test_a_worker_that_is_dead_before_it_is_attached(tmp_path: Path) -> None:
    async def story(bookie: InProcessBookie) -> None:
        client = await bookie.client()
        assert await aside(client.add3, 1, 0) == EOK
        front, back = link.pair()
        back.close()
        with front:
            bookie.control.send(AttachDisk(disk="disk 0"), [front.fileno()])
        assert await aside(client.add3, 1, 1) == EIO
        await bookie.disks[0].attach(bookie.control, "disk 0")
        for _ in range(250):  # until it is listed, too
            if await aside(client.add3, 1, 1) == EOK:
                return
            await asyncio.sleep(0.02)
        raise AssertionError("the disk does not come into service")

    run(tmp_path, story)


def test_what_a_dead_worker_had_is_answered_once_each(tmp_path: Path) -> None:
    """Every operation of version 3, batches and long polls, and requests of version 2 beside them."""

    async def story(bookie: InProcessBookie) -> None:
        [disk] = bookie.disks
        client, old = await bookie.client(), await bookie.client()
        assert await aside(client.add3, 1, 0) == EOK
        waiting = [await aside(client.poll, 1, 5, LONG_MS) for _ in range(3)]
        await until(lambda: polls_at(bookie) == 3, "three polls to wait")
        disk.hold()
        simple = [client.post(operation, [(1, 1)]) for operation in (READ_LAC, FORCE, LIST)]
        sent = [
            client.post(ADD, add_part(1, 1)),
            client.post(READ, read_part(1, 0)),
            client.poll(1, 5, LONG_MS),
            client.poll(1, -1, None),
        ]
        old.send(raw.add_frame(1, 7, b"x") + raw.read_frame(1, 0))
        await asyncio.sleep(0.1)
        disk.detach()
        answers = [await aside(client.answer3) for _ in range(len(waiting + simple + sent))]
        assert {answer.status for answer in answers} == {EIO}
        assert sorted(answer.txn for answer in answers) == sorted(waiting + simple + sent)
        assert [(await aside(old.answer)).code for _ in range(2)] == [raw.EIO] * 2
        # Nothing comes twice: the next answers are those to the next requests.
        assert (await aside(client.read3, 1)).status == EIO
        assert (await aside(old.read, 1, 0)).code == raw.EIO

    run(tmp_path, story)


def test_a_worker_that_dies_between_an_answer_and_its_done(tmp_path: Path) -> None:
    async def story(bookie: InProcessBookie) -> None:
        [disk] = bookie.disks
        client = await bookie.client()
        for entry in range(3):
            assert await aside(client.add3, 1, entry, lac=entry - 1) == EOK
        disk.hold()
        plain = [client.post(READ, read_part(1, entry)) for entry in range(3)]
        polls = [client.poll(1, 0, LONG_MS), client.poll(1, 7, LONG_MS)]
        await asyncio.sleep(0.1)
        assert disk.link is not None
        link = disk.link
        group = await until(link.pop_group, "the requests to come")
        for connection, body in carry_out(disk.bookie, group.area, group.segments)[:2]:
            link.responses(group).put(connection, frame(body), 1)
        for connection, frames in disk.bookie.pop_ready_polls():
            for one in frames:
                link.poll_responses().put(connection, one, 1)
        link.flush()
        disk.detach()
        answers = [await aside(client.answer3) for _ in range(5)]
        found = {answer.txn: answer.status for answer in answers}
        assert found == dict.fromkeys([*plain[:2], polls[0]], EOK) | {plain[2]: EIO, polls[1]: EIO}
        assert (await aside(client.read3, 1)).status == EIO

    run(tmp_path, story)


def test_a_worker_that_dies_while_groups_overlap(tmp_path: Path) -> None:
    """The first group is done, of the last some answers came: every request is answered once."""

    async def story(bookie: InProcessBookie) -> None:
        [disk] = bookie.disks
        client, old = await bookie.client(), await bookie.client()
        for entry in range(2):
            assert await aside(client.add3, 1, entry) == EOK
            assert await aside(old.add, 2, entry, b"x") == raw.EOK
        disk.hold()
        assert disk.link is not None
        link = disk.link
        sent, groups = [], []
        for _ in range(2):
            sent += [client.post(READ, read_part(1, entry)) for entry in range(2)]
            old.send(raw.read_frame(2, 0) + raw.read_frame(2, 1))
            seen = 0
            while seen < 4:
                group = await until(link.pop_group, "the requests to come")
                groups.append((group, carry_out(disk.bookie, group.area, group.segments)))
                seen += sum(count for _, count, _, _ in group.segments)
        answered = 0

        def answer(group: RequestGroup, bodies: list[tuple[int, bytes]]) -> None:
            nonlocal answered
            for connection, body in bodies:
                link.responses(group).put(connection, frame(body), 1)
            answered += len(bodies)

        (first, bodies_of_first), *_, (last, bodies_of_last) = groups
        answer(first, bodies_of_first[:1])
        answer(last, bodies_of_last[-1:])
        answer(first, bodies_of_first[1:])
        link.done(first, read_only=False)
        disk.detach()
        found3 = [await aside(client.answer3) for _ in range(4)]
        assert sorted(each.txn for each in found3) == sorted(sent)
        found2 = [await aside(old.answer) for _ in range(4)]
        assert sorted(each.entry for each in found2) == [0, 0, 1, 1]
        good = [each for each in found3 if each.status == EOK]
        good2 = [each for each in found2 if each.code == raw.EOK]
        assert len(good) + len(good2) == answered
        assert {each.status for each in found3} | {EOK} == {EOK, EIO}
        # Nothing comes twice: the next answers are those to the next requests.
        assert (await aside(client.read3, 1)).status == EIO
        assert (await aside(old.read, 2, 1)).code == raw.EIO

    run(tmp_path, story)


def test_a_force_counts_only_for_adds_that_went_to_the_same_worker(tmp_path: Path) -> None:
    """The next worker may have found less than the last one had answered, and does not know it."""

    async def story(bookie: InProcessBookie) -> None:
        [disk] = bookie.disks
        writer, other = await bookie.client(), await bookie.client()
        assert await aside(writer.add3, 1, 0, deferred=True) == EOK
        assert await aside(writer.add3, 2, 0) == EOK
        assert await aside(writer.force, 1) == EOK
        disk.detach()
        assert await aside(writer.force, 1) == EIO
        await disk.attach(bookie.control, "disk 0")
        while (await aside(other.read3, 1, 0)).status != EOK:
            await asyncio.sleep(0.01)
        assert await aside(writer.force, 1) == EIO
        assert await aside(writer.add3, 1, 1, deferred=True) == EOK
        assert await aside(writer.force, 1) == EIO, "the add before is still in doubt"
        assert await aside(writer.force, 2) == EOK
        assert await aside(other.force, 1) == EOK

    run(tmp_path, story)


# ---- long polls -------------------------------------------------------------------------------------


def test_polls_that_wait_hold_up_nothing_and_cost_nothing(tmp_path: Path) -> None:
    """By what a read costs, so many of them would have stopped the connection many times over."""
    many = 4 * INFLIGHT_BYTES_MAX // (64 * 1024)

    async def story(bookie: InProcessBookie) -> None:
        client = await bookie.client()
        assert await aside(client.add3, 1, 0) == EOK
        polls = [await aside(client.poll, 1, 0, LONG_MS) for _ in range(many)]
        await until(lambda: polls_at(bookie) == many, "all polls to wait")
        for entry in range(1, 20):
            assert await aside(client.add3, 1, entry, lac=0) == EOK
            assert (await aside(client.read3, 1, entry)).status == EOK
        waker = await bookie.client()
        assert await aside(waker.write_lac, 1, 1) == EOK
        answers = [await aside(client.answer3) for _ in range(many)]
        assert sorted(answer.txn for answer in answers) == sorted(polls)
        assert {answer.without_status()[3] for answer in answers} == {1}
        assert (await aside(client.read3, 1, 0)).status == EOK

    run(tmp_path, story)


@pytest.mark.parametrize("when", ["they wait", "they are on their way"])
def test_polls_of_a_closed_connection_are_dropped(tmp_path: Path, when: str) -> None:
    async def story(bookie: InProcessBookie) -> None:
        [disk] = bookie.disks
        gone, stays = await bookie.client(), await bookie.client()
        assert await aside(stays.add3, 1, 0) == EOK
        if when == "they are on their way":
            disk.hold()
        for _ in range(50):
            gone.poll(1, 5, LONG_MS)
        if when == "they wait":
            await until(lambda: polls_at(bookie) == 50, "the polls to wait")
        else:
            await asyncio.sleep(0.1)
        gone.close()
        if when == "they are on their way":
            await asyncio.sleep(0.1)
            disk.resume()
        assert await aside(stays.add3, 1, 1) == EOK
        await until(lambda: polls_at(bookie) == 0, "the polls to be dropped")
        assert (await bookie.stats())["connections"] == 1
        poll = stays.poll(1, 0, LONG_MS)
        stays.post(ADD, add_part(1, 2, lac=1))
        assert {(await aside(stays.answer3)).txn for _ in range(2)} == {poll, poll + 1}

    run(tmp_path, story)


def test_garbage_behind_good_requests(tmp_path: Path) -> None:
    async def story(bookie: InProcessBookie) -> None:
        client, other = await bookie.client(), await bookie.client()
        client.send(request(ADD, 1, add_part(1, 0)) + b"\xff" * 8)
        with pytest.raises(EOFError):
            while True:
                await aside(client.answer3)
        assert (await aside(other.read3, 1, 0)).status in (EOK, ENOLEDGER)

    run(tmp_path, story)
