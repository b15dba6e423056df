"""Many ledgers open at once, and very many reads: nothing grows. TESTS_CLIENT_SCALE=1 runs the long forms."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import psutil

from tests.client.tinybookie import cluster

IS_LONG = os.environ.get("TESTS_CLIENT_SCALE") == "1"
LEDGERS = 10_000 if IS_LONG else 300
READS = 1_000_000 if IS_LONG else 20_000
STALLED_BYTES = (2000 if IS_LONG else 60) << 20
ENTRIES = 1_000
HELD_UP_S = 4.0
"""Twice the time-outs: answers get as much time again, which a busy machine of tests may need."""


def go(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 1800))


def rss() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def test_many_ledgers_are_open_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        # The bookies are in this process, too, and take their time over so much at once.
        patient = {"add_timeout_s": 600, "read_timeout_s": 600, "speculative_read_s": 600}
        async with cluster(tmp_path) as made, made.client(**patient) as client:
            before = rss()
            writers = [await client.create_ledger() for _ in range(LEDGERS)]
            for number in range(3):
                await asyncio.gather(*(writer.append(b"%d" % number) for writer in writers))
            each = (rss() - before) / LEDGERS
            assert each < 40_000, "bytes of a ledger, with what the three bookies here hold of it"
            readers = [
                await client.open_ledger(writer.ledger_id, recovery=False) for writer in writers
            ]
            assert {reader.ledger_id for reader in readers} == set(range(LEDGERS))
            found = await asyncio.gather(*(reader.read_entry(1) for reader in readers))
            assert {entry.payload for entry in found} == {b"1"}
            for bookie in made.bookies.values():
                assert bookie.connections_made <= 4
            await asyncio.gather(*(writer.close() for writer in writers))

    go(test())


def test_a_process_that_is_held_up_takes_no_bookie_for_dead(tmp_path: Path) -> None:
    """As by ten thousand ledgers on a busy machine: the timers go off before the answers are looked at."""

    async def test() -> None:
        short = {"add_timeout_s": 2.0, "read_timeout_s": 2.0, "connect_timeout_s": 2.0}
        async with cluster(tmp_path) as made, made.client(**short) as client:
            writer = await client.create_ledger()
            loop = asyncio.get_running_loop()
            for number in range(2):  # while it connects, and then with an add on its way
                appended = writer.append_nowait(b"%d" % number)
                for _ in range(number + 2):
                    await asyncio.sleep(0)
                loop.call_soon(time.sleep, HELD_UP_S)
                assert await appended == number
            assert client.health() == {}
            read = asyncio.ensure_future(
                (await client.open_ledger(writer.ledger_id, recovery=False)).read_entry(0)
            )
            await asyncio.sleep(0)
            time.sleep(HELD_UP_S)
            assert (await read).payload == b"0"
            await writer.close()
            assert client.health() == {}

    go(test())


def test_memory_is_bounded_while_a_bookie_stalls(tmp_path: Path) -> None:
    """One takes connections and reads nothing from them: what was meant for it may not gather here."""

    async def test() -> None:
        window, size = 1 << 20, 64 << 10
        async with (
            cluster(tmp_path) as made,
            made.client(window_bytes=window, add_timeout_s=1.0) as client,
        ):
            made.of("bookie-1").deaf = True
            writer = await client.create_ledger()

            async def append(total: int) -> None:
                for _ in range(total // size // 8):
                    await writer.append_many([bytes(size)] * 8)
                    for bookie in made.bookies.values():  # which are in this process
                        bookie.requests.clear()
                        for ledger in bookie.ledgers.values():
                            for entry in sorted(ledger.entries)[:-1]:
                                del ledger.entries[entry]

            await append(STALLED_BYTES // 4)
            before = rss()
            await append(STALLED_BYTES)
            assert rss() - before < 16 * window  # three copies, and what the allocator keeps
            made.of("bookie-1").deaf = False
            made.of("bookie-1").drop_connections()
            await writer.close()

    go(test())


def test_very_many_reads_leave_nothing_behind(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            async with await client.create_ledger() as writer:
                await writer.append_many([b"x" * 100] * ENTRIES)
            reader = await client.open_ledger(writer.ledger_id)

            async def read_all() -> None:
                count = 0
                async for entries in reader.read_batches():
                    count += len(entries)
                await asyncio.gather(*(reader.read_entry(entry) for entry in range(0, ENTRIES, 10)))
                for bookie in made.bookies.values():
                    bookie.requests.clear()
                assert count == ENTRIES

            for _ in range(5):
                await read_all()
            before = rss()
            for _ in range(READS // ENTRIES):
                await read_all()
            assert rss() - before < 8 << 20

    go(test())
