"""Entries with ids of the caller's own, as Java's LedgerHandleAdv has them: in any order, acknowledged in theirs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bkbox.client import LedgerWriter, sync
from bkbox.errors import (
    EntryIdError,
    HandleClosedError,
    InvalidIdError,
    LedgerFencedError,
    PayloadTypeError,
    WindowFullError,
)
from bkbox.wire.metadata.ledger import LedgerState
from tests.client.tinybookie import bookies, cluster
from tests.harness.seeds import EXAMPLES

pytestmark = pytest.mark.usefixtures("protocol")


def go(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 120))


def noted(writer: LedgerWriter, payload: bytes, entry: int, into: list[int]) -> asyncio.Future[Any]:
    future = writer.append_nowait(payload, entry_id=entry)
    future.add_done_callback(lambda done: into.append(done.result()))
    return future


def test_in_any_order(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            async with await client.create_ledger() as writer:
                acked: list[int] = []
                late = [noted(writer, b"%d" % entry, entry, acked) for entry in (3, 1, 2)]
                await asyncio.sleep(0.05)
                assert acked == []
                assert writer.last_add_confirmed == -1
                assert await writer.append(b"0", entry_id=0) == 0
                await asyncio.gather(*late)
                await asyncio.sleep(0)  # what is done already is gathered at once since Python 3.12
                assert acked == [1, 2, 3]
                assert await writer.append(b"4", entry_id=4) == 4
            assert (writer.metadata.last_entry, writer.metadata.length) == (4, 5)
            reader = await client.open_ledger(writer.ledger_id)
            found = [(entry.entry_id, entry.payload, entry.length) async for entry in reader]
            assert found == [(n, b"%d" % n, n + 1) for n in range(5)], "also the length of each"

    go(test())


def test_what_is_wrong_with_ids_is_said(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            async with await client.create_ledger() as writer:
                await writer.append(b"0", entry_id=0)
                early = writer.append_nowait(b"2", entry_id=2)
                for entry in (0, 2):
                    with pytest.raises(EntryIdError, match=f"entry {entry} .* appended before"):
                        await writer.append(b"again", entry_id=entry)
                for call in (writer.append(b"x"), writer.append_many([b"x"])):
                    with pytest.raises(EntryIdError, match="entry_id="):
                        await call
                for wrong in (-1, 2**63):
                    with pytest.raises(InvalidIdError):
                        writer.append_nowait(b"x", entry_id=wrong)
                with pytest.raises(PayloadTypeError):
                    writer.append_nowait("x", entry_id=1)  # type: ignore[arg-type]
                assert await writer.append(b"1", entry_id=1) == 1, "nothing was broken"
                assert await early == 2
            async with await client.create_ledger() as writer:
                await writer.append(b"0")
                with pytest.raises(EntryIdError, match="order of the calls"):
                    await writer.append(b"1", entry_id=1)
                assert await writer.append(b"1") == 1

    go(test())


def test_what_waits_for_others_fails_when_the_ledger_is_closed(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await client.create_ledger()
            first = writer.append_nowait(b"0", entry_id=0)
            early = writer.append_nowait(b"2", entry_id=2)
            metadata = await writer.close()
            assert await first == 0
            assert (metadata.state, metadata.last_entry) == (LedgerState.CLOSED, 0)
            with pytest.raises(
                HandleClosedError, match=r"entry 2 was never sent.*entry 1 before it"
            ):
                await early
            with pytest.raises(HandleClosedError):
                await writer.append(b"1", entry_id=1)

    go(test())


def test_what_waits_for_others_fails_with_the_writer(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client, made.client() as other:
            writer = await client.create_ledger()
            early = writer.append_nowait(b"1", entry_id=1)
            await other.recover(writer.ledger_id)
            with pytest.raises(LedgerFencedError):
                await writer.append(b"0", entry_id=0)
            with pytest.raises(LedgerFencedError):
                await early
            await writer.abort()

    go(test())


def test_the_window_bounds_those_that_are_early_and_lets_the_next_one_through(
    tmp_path: Path,
) -> None:
    """It would never be empty otherwise: all that is in it waits for that one."""

    async def test() -> None:
        async with cluster(tmp_path) as made, made.client(window_bytes=20_000) as client:
            writer = await client.create_ledger()
            tasks = [
                asyncio.ensure_future(writer.append(b"x" * 1000, entry_id=entry))
                for entry in range(99, -1, -1)
            ]
            assert await asyncio.gather(*tasks) == list(range(99, -1, -1))
            early = [writer.append_nowait(b"x" * 1000, entry_id=entry) for entry in range(102, 106)]
            with pytest.raises(WindowFullError):
                writer.append_nowait(b"x", entry_id=106)
            for bookie in made.bookies.values():
                bookie.hung = True
            with pytest.raises(WindowFullError):
                while True:  # those that can be sent are bounded as well
                    writer.append_nowait(b"x" * 1000, entry_id=100)
                    writer.append_nowait(b"x" * 1000, entry_id=101)
                    for entry in range(106, 200):
                        early.append(writer.append_nowait(b"x" * 1000, entry_id=entry))
            assert len(early) < 10
            for bookie in made.bookies.values():
                bookie.release()
            await asyncio.gather(*early)
            await writer.close()

    go(test())


def test_a_cancelled_append_leaves_no_hole(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            async with await client.create_ledger() as writer:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await writer.append(b"1", entry_id=1)
                await writer.append(b"0", entry_id=0)
                await writer.append(b"2", entry_id=2)
            reader = await client.open_ledger(writer.ledger_id)
            assert [entry.payload async for entry in reader] == [b"0", b"1", b"2"]

    go(test())


@settings(
    max_examples=EXAMPLES // 3,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.permutations(range(40)), st.integers(0, 2**32), st.sampled_from([500, 9_000, 1 << 20]))
def test_whatever_the_order_acknowledgements_ascend_without_a_gap(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], seed: int, window: int
) -> None:
    """Bookies die, come back and answer late meanwhile."""
    rng = random.Random(seed)

    async def test() -> None:
        folder = tmp_path_factory.mktemp("order")
        async with cluster(folder, 4) as made, made.client(window_bytes=window) as client:
            writer = await client.create_ledger()
            acked: list[int] = []

            async def append(entry: int) -> None:
                await asyncio.sleep(rng.random() * 0.01)
                acked.append(await writer.append(b"%d" % entry * 50, entry_id=entry))

            tasks = [asyncio.ensure_future(append(entry)) for entry in order]
            await asyncio.sleep(rng.random() * 0.02)
            victim = made.of(f"bookie-{rng.randrange(4)}")
            victim.drop_connections()
            await asyncio.gather(*tasks)
            assert acked == list(range(40))
            await writer.close()
            reader = await client.open_ledger(writer.ledger_id)
            assert [entry.payload async for entry in reader] == [b"%d" % n * 50 for n in range(40)]

    go(test())


def test_without_a_loop(tmp_path: Path) -> None:
    with bookies(tmp_path) as made, sync.connect(made.uri) as client:
        with client.create_ledger(ledger=77) as writer:
            futures = [writer.append_nowait(b"%d" % n, entry_id=n) for n in (2, 1)]
            assert writer.append(b"0", entry_id=0) == 0
            assert [future.result(30) for future in futures] == [2, 1]
        assert [entry.payload for entry in client.open_ledger(77)] == [b"0", b"1", b"2"]
