"""Room for bytes on their way: in the order of asking, and given back whatever becomes of who waits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from bkbox.repair.copy.byte_semaphore import ByteWindow


def in_loop(do: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(do, 5))


async def soon(*tasks: asyncio.Task[None]) -> list[bool]:
    """Which of them are done, when all have had their turn."""
    for _ in range(5):
        await asyncio.sleep(0)
    return [task.done() for task in tasks]


def test_room_is_had_in_the_order_of_asking() -> None:
    async def test() -> None:
        window = ByteWindow(10)
        await window.acquire(6)
        large = asyncio.ensure_future(window.acquire(8))
        small = asyncio.ensure_future(window.acquire(1))
        assert await soon(large, small) == [False, False], "the small one does not overtake"
        window.release(6)
        assert await soon(large, small) == [True, True]
        huge = asyncio.ensure_future(window.acquire(1_000))
        assert await soon(huge) == [False]
        window.release(9)
        assert await soon(huge) == [True], "what is larger than all passes alone"

    in_loop(test())


def test_less_may_be_on_its_way_than_there_is_room_for() -> None:
    async def test() -> None:
        window = ByteWindow(10)
        await window.acquire(2)
        slow = asyncio.ensure_future(window.acquire(2, 3))
        assert await soon(slow) == [False]
        window.release(2)
        assert await soon(slow) == [True]

    in_loop(test())


@pytest.mark.parametrize("given_first", [False, True])
def test_who_is_cancelled_leaves_no_trace(given_first: bool) -> None:
    """Found by chaos, seed 20261123: room came for one who was cancelled and did not know it yet, and who then did not
    find himself among those who wait."""

    async def test() -> None:
        window = ByteWindow(10)
        await window.acquire(10)
        waits = asyncio.ensure_future(window.acquire(5))
        next_one = asyncio.ensure_future(window.acquire(7))
        assert await soon(waits, next_one) == [False, False]
        if given_first:
            window.release(10)
            waits.cancel()
        else:
            waits.cancel()
            window.release(10)
        with pytest.raises(asyncio.CancelledError):
            await waits
        assert await soon(next_one) == [True]
        window.release(7)
        await window.acquire(10)

    in_loop(test())
