"""Entries that are acknowledged and not on disk yet: the durable close, the persisted LAC, adds that ask for a sync."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from bkbox.errors import ConfigError, NotDurableError
from bkbox.wire import v2, v3
from bkbox.wire.metadata.ledger import ACK_AFTER, LedgerState
from tests.client.tinybookie import Cluster, cluster

pytestmark = pytest.mark.usefixtures("protocol")


def go(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 120))


def forces(made: Cluster) -> int:
    return sum(isinstance(r, v3.ForceRequest) for b in made.bookies.values() for r in b.requests)


@pytest.mark.parametrize("is_bkbox", [True, False])
def test_a_durable_close_has_every_bookie_sync(tmp_path: Path, is_bkbox: bool) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            for bookie in made.bookies.values():
                bookie.is_bkbox = is_bkbox
            writer = await client.create_ledger()
            await writer.append_many([b"x"] * 5)
            await made.every_copy_of(writer.metadata, 5)
            for bookie in made.bookies.values():
                bookie.ledgers[writer.ledger_id].unsynced = {3, 4}
            closed = await writer.close(durable=True)
            assert (closed.state, closed.last_entry) == (LedgerState.CLOSED, 4)
            assert not any(b.ledgers[writer.ledger_id].unsynced for b in made.bookies.values())
            assert forces(made) == (0 if is_bkbox else 3)
            assert await writer.close(durable=True) == closed

    go(test())


@pytest.mark.parametrize("away", [1, 2])
def test_a_durable_close_needs_an_ack_quorum_on_disk(tmp_path: Path, away: int) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client(read_timeout_s=0.3) as client:
            writer = await client.create_ledger()
            await writer.append_many([b"x"] * 5)
            await made.every_copy_of(writer.metadata, 5)
            hung = [*made.bookies.values()][:away]
            for bookie in hung:
                bookie.hung = True
            if away == 1:
                assert (await writer.close(durable=True)).last_entry == 4
            else:
                with pytest.raises(
                    NotDurableError, match=r"entry 0 .* bookie-0 did not answer in time"
                ):
                    await writer.close(durable=True)
                assert (await client.metadata(writer.ledger_id)).state is LedgerState.OPEN
                for bookie in hung:
                    bookie.release()
                assert (await writer.close(durable=True)).last_entry == 4

    go(test())


def test_a_copy_that_is_missing_does_not_count(tmp_path: Path) -> None:
    """Acknowledged by two of three, and one of the two has lost it since."""

    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await client.create_ledger()
            await writer.append_many([b"x"] * 5)
            await made.every_copy_of(writer.metadata, 5)
            for name in ("bookie-0", "bookie-1"):
                made.of(name).ledgers[writer.ledger_id].entries.pop(3)
            with pytest.raises(NotDurableError, match="entry 3 "):
                await writer.close(durable=True)
            assert (await writer.close()).last_entry == 4, "closed without"

    go(test())


def test_a_host_that_was_lost_between_the_questions_vouches_for_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await client.create_ledger()
            await writer.append_many([b"x"] * 3)
            await made.every_copy_of(writer.metadata, 3)
            for name in ("bookie-0", "bookie-1"):
                bookie = made.of(name)
                serve, lost = bookie.serve, [False]

                def listed_then_lost(
                    request: Any, bookie: Any = bookie, serve: Any = serve, lost: Any = lost
                ) -> Any:
                    if isinstance(request, v3.ReadLacRequest) and not lost[0]:
                        lost[0] = True
                        bookie.lose_host()
                    return serve(request)

                bookie.ledgers[writer.ledger_id].unsynced = {0, 1, 2}
                bookie.serve = listed_then_lost  # type: ignore[method-assign]
            with pytest.raises(NotDurableError):
                await writer.close(durable=True)

    go(test())


def test_what_is_pending_is_waited_for(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await client.create_ledger()
            futures = [writer.append_nowait(b"x") for _ in range(50)]
            closed = await writer.close(durable=True)
            assert closed.last_entry == 49
            assert all(future.done() for future in futures)

    go(test())


def test_the_persisted_lac_of_a_reader(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client(read_timeout_s=0.5) as client:
            for bookie in made.bookies.values():
                bookie.is_bkbox = True
            writer = await client.create_ledger()
            for _ in range(6):
                await writer.append(b"x")
            await made.every_copy_of(writer.metadata, 6)
            reader = await client.open_ledger(writer.ledger_id, recovery=False)
            assert await reader.read_last_add_confirmed() == 4
            assert await reader.read_last_add_confirmed(persisted=True) == 4
            for name in ("bookie-0", "bookie-1"):
                made.of(name).ledgers[writer.ledger_id].entries.pop(2)
            assert await reader.read_last_add_confirmed(persisted=True) == 1
            await writer.close()
            assert await reader.read_last_add_confirmed(persisted=True) == 1, (
                "of a closed ledger too"
            )

    go(test())


def test_a_ledger_whose_metadata_asks_for_it_has_its_adds_synced(tmp_path: Path) -> None:
    """The writer's adds, and those of the recovery that does not know the writer."""

    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await client.create_ledger(custom={ACK_AFTER: b"sync"})
            for _ in range(3):
                await writer.append(b"x")
            await writer.abort()
            await client.recover(writer.ledger_id)
            adds = [
                r for b in made.bookies.values() for r in b.requests if isinstance(r, v3.AddRequest)
            ]
            assert all(add.synced for add in adds)
            assert {add.recovery for add in adds} == {True, False}
            assert not any(
                isinstance(r, v2.AddRequest) for b in made.bookies.values() for r in b.requests
            )
            other = await client.create_ledger()
            await other.append(b"x")
            assert not any(
                isinstance(r, v3.AddRequest) and r.ledger_id == other.ledger_id and r.synced
                for b in made.bookies.values()
                for r in b.requests
            )
            await other.close()

    go(test())


def test_what_cannot_be_asked_for(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            with pytest.raises(ConfigError, match="the one value that there is is 'sync'"):
                await client.create_ledger(custom={ACK_AFTER: b"never"})
            with pytest.raises(ConfigError, match="contradict"):
                await client.create_ledger(custom={ACK_AFTER: b"sync"}, deferred_sync=True)

    go(test())
