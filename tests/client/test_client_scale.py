"""Many ledgers open at once, and very many reads: nothing grows. TESTS_CLIENT_SCALE=1 runs the long forms."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.client.tinybookie import cluster
from tests.harness.waiting import until

IS_LONG = os.environ.get("TESTS_CLIENT_SCALE") == "1"
LEDGERS = 10_000 if IS_LONG else 300
READS = 1_000_000 if IS_LONG else 20_000
STALLED_BYTES = (2000 if IS_LONG else 60) << 20
ENTRIES = 1_000
TIMEOUT_S = 600.0
HELD_UP_S = 2 * TIMEOUT_S
"""Answers get as much time again as the process was held up for beyond the time-out."""


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


def test_a_process_that_is_held_up_takes_no_bookie_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by ten thousand ledgers on a busy machine: the timers go off before the answers are looked at."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        clock, held_up = loop.time, [0.0]
        monkeypatch.setattr(loop, "time", lambda: clock() + sum(held_up))

        async def hold_up() -> None:
            held_up.append(HELD_UP_S)
            await asyncio.sleep(0.001)  # what is due goes off first

        options = ("add_timeout_s", "read_timeout_s", "connect_timeout_s")
        async with (
            cluster(tmp_path) as made,
            made.client(**dict.fromkeys(options, TIMEOUT_S)) as client,
        ):
            bookies = made.bookies.values()

            async def answered_late() -> None:
                await until(lambda: any(bookie.held for bookie in bookies))
                await hold_up()
                for bookie in bookies:
                    bookie.release()

            def hang() -> None:
                for bookie in bookies:
                    bookie.hung = True

            # Each append waits for all three: a bookie has at most one outstanding request to be late with.
            writer = await client.create_ledger(ack_quorum=3)
            appended = writer.append_nowait(b"0")
            for _ in range(2):
                await asyncio.sleep(0)
            await hold_up()  # while it connects
            assert await appended == 0
            hang()
            appended = writer.append_nowait(b"1")
            await answered_late()
            assert await appended == 1
            assert client.health() == {}
            reader = await client.open_ledger(writer.ledger_id, recovery=False)
            hang()
            read = asyncio.ensure_future(reader.read_entry(0))
            await answered_late()
            assert (await read).payload == b"0"
            await writer.close()
            assert client.health() == {}

    asyncio.run(test())


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
