"""A log's writer waits for room in the window of its ledger, whatever it writes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from bkbox.client.log import Log, LogOptions, log_open
from bkbox.client.log import writer as writer_module
from tests.client.tinybookie import cluster

PRODUCERS = [f"partition-{number:05}-of-the-topic-orders-in-region-eu-west" for number in range(20)]
"""Their state is larger than the windows here."""


def go(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 120))


def test_the_state_of_writer_ids_may_fill_the_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "STATE_EVERY_BYTES", 500)
    options = LogOptions(batch_bytes=100)

    async def test() -> None:
        async with cluster(tmp_path) as made, made.client(window_bytes=600) as client:
            log = Log(client, "orders")
            async with await log.open_writer(options) as writer:
                appends = (
                    writer.append_once(b"%d" % number, name, number)
                    for number in range(5)
                    for name in PRODUCERS
                )
                positions = await asyncio.gather(*appends)
                assert writer._state_entry > 0, "it was written again"
            assert [record.position async for record in log.read()] == positions
            async with await log.open_writer(options) as writer:
                assert [writer.last_sequence(name) for name in PRODUCERS] == [4] * 20

    go(test())


def test_the_first_entry_of_a_ledger_may_fill_the_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is acknowledged by two of three bookies, and is more than the third one may be behind."""

    async def test() -> None:
        async with (
            cluster(tmp_path) as made,
            made.client(window_bytes=300, add_timeout_s=600) as client,
        ):
            log, slow, begun = Log(client, "orders"), made.of("bookie-2"), asyncio.Event()

            async def begin(*given: Any) -> None:
                slow.hung = True
                await log_open.begin(*given)
                begun.set()

            monkeypatch.setattr(writer_module, "begin", begin)
            async with await log.open_writer() as writer:
                await asyncio.gather(*(writer.append_once(b"x", name, 1) for name in PRODUCERS))
                writer._rolling.prepare()
                await begun.wait()
                following = asyncio.ensure_future(writer.append(b"y"))
                done, _ = await asyncio.wait([following], timeout=0.05)
                assert not done, "there is no space"
                slow.release()
                assert (await following).entry_id == 1

    go(test())
