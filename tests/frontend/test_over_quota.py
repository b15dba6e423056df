"""Ledgers whose owner is over its quota: what the front-end refuses, what it does not, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from bkbox.ipc.messages.items import LEDGER_ID_ITEM
from bkbox.ipc.messages.repair import OverQuota
from tests.frontend.inprocess import InProcessBookie, serving
from tests.harness import raw
from tests.harness.raw3 import ENOENTRY, EOK, ETOOMANY

T = TypeVar("T")


async def aside(call: Callable[..., T], *arguments: object, **options: object) -> T:
    return await asyncio.to_thread(call, *arguments, **options)


async def say(bookie: InProcessBookie, *pages: list[int]) -> None:
    for number, page in enumerate(pages, start=1):
        payload = b"".join(map(LEDGER_ID_ITEM.pack, page))
        bookie.control.send(OverQuota(more=number < len(pages), payload=payload))
    await bookie.stats()  # so it was taken


@pytest.mark.parametrize("disks", [1, 2])
def test_ordinary_adds_are_refused_and_nothing_else(tmp_path: Path, disks: int) -> None:
    async def story(bookie: InProcessBookie) -> None:
        client, old = await bookie.client(), await bookie.client()
        for ledger in (1, 2):
            assert await aside(old.add, ledger, 0, b"x") == raw.EOK
        await say(bookie, [1, 9])
        for _ in range(2):
            assert await aside(old.add, 1, 1, b"x") == raw.ETOOMANY
            assert await aside(client.add3, 1, 1) == ETOOMANY
            assert await aside(client.add3, 1, 1, deferred=True) == ETOOMANY
            assert await aside(client.add3, 9, 0) == ETOOMANY, "one that is on no disk yet"
            assert (await aside(old.read, 1, 0)).code == raw.EOK
            assert (await aside(old.read, 1, 1)).code == raw.ENOENTRY
            assert (await aside(client.read3, 1, 0)).status == EOK
            assert await aside(client.write_lac, 1, 0) == EOK
            assert await aside(client.force, 1) == EOK
        assert await aside(old.add, 2, 1, b"x") == raw.EOK
        assert await aside(client.add3, 2, 2) == EOK
        assert await aside(old.add, 1, 1, b"x", raw.RECOVERY) == raw.EOK
        assert await aside(client.add3, 1, 2, recovery=True) == EOK
        assert await aside(client.add3, 9, 0, recovery=True) == EOK
        await say(bookie, [])
        assert await aside(old.add, 1, 3, b"x") == raw.EOK
        assert await aside(client.add3, 1, 4) == EOK
        await say(bookie, [1])
        assert (await aside(client.fence3, 1, 5)).status == ENOENTRY
        assert (await aside(old.fence, 9, 5)).code == raw.ENOENTRY
        await say(bookie, [])
        assert await aside(old.add, 1, 5, b"x") == raw.EFENCED

    async def told() -> None:
        async with serving(tmp_path, disks) as bookie:
            await story(bookie)

    asyncio.run(told())


def test_what_was_said_holds_until_the_last_page_is_there(tmp_path: Path) -> None:
    async def told() -> None:
        async with serving(tmp_path) as bookie:
            client = await bookie.client()
            for ledger in (1, 2, 3):
                assert await aside(client.add, ledger, 0, b"x") == raw.EOK
            await say(bookie, [1])
            bookie.control.send(OverQuota(more=True, payload=bytes([2, *[0] * 7])))
            await bookie.stats()
            assert await aside(client.add, 1, 1, b"x") == raw.ETOOMANY
            assert await aside(client.add, 2, 1, b"x") == raw.EOK
            await say(bookie, [3])
            assert await aside(client.add, 1, 1, b"x") == raw.EOK
            assert await aside(client.add, 2, 2, b"x") == raw.ETOOMANY
            assert await aside(client.add, 3, 1, b"x") == raw.ETOOMANY

    asyncio.run(told())
