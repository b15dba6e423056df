"""What makes the client convenient: reading the last entry, iterating, watching, orders of reads, health, time-outs."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from bkbox.base.ids import BookieId
from bkbox.client.connection.bookie_health import FAILURES, INTERVAL_S, SLOW_S, BookieHealth
from bkbox.client.ledger.read_order import ReadOrder
from bkbox.errors import ConfigError, LedgerExistsError, WrongDigestTypeError
from bkbox.protocol.events import NoResponse
from bkbox.wire import v2, v3
from bkbox.wire.codes import Code
from bkbox.wire.metadata.ledger import DigestType, LedgerState
from tests.client.tinybookie import Cluster, cluster

pytestmark = pytest.mark.usefixtures("protocol")

A, B, C = (BookieId(name) for name in "abc")


def go(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 120))


def reads(made: Cluster) -> dict[str, int]:
    """How many reads of single entries each bookie was asked for."""
    return {
        str(name): sum(
            isinstance(request, (v2.ReadRequest, v3.ReadRequest)) for request in bookie.requests
        )
        for name, bookie in made.bookies.items()
    }


def test_the_last_entry_and_iteration(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await client.create_ledger()
            reader = await client.open_ledger(writer.ledger_id, recovery=False)
            assert await reader.read_last() is None
            for payload in (b"a", b"b", b"c"):
                await writer.append(payload)
            last = await reader.read_last()
            assert last is not None
            assert last.payload == b"b", "what is confirmed, which is told with the next entry"
            await writer.close()
            last = await reader.read_last()
            assert last is not None
            assert last.payload == b"c"
            assert [entry.payload async for entry in reader] == [b"a", b"b", b"c"]

    go(test())


def test_metadata_is_watched(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await client.create_ledger()
            watch = client.watch(writer.ledger_id)
            found = await anext(watch)
            assert found is not None
            assert found.state is LedgerState.OPEN
            await writer.append(b"a")
            await writer.close()
            found = await anext(watch)
            assert found is not None
            assert (found.state, found.last_entry) == (LedgerState.CLOSED, 0)
            await client.delete_ledger(writer.ledger_id)
            assert await anext(watch) is None
            await watch.aclose()

    go(test())


def test_the_digest_type_may_be_insisted_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            await (await client.create_ledger(digest_type=DigestType.HMAC)).close()
            await client.open_ledger(0, digest_type=DigestType.HMAC)
            with pytest.raises(WrongDigestTypeError, match=r"HMAC, not CRC32C"):
                await client.open_ledger(0, digest_type=DigestType.CRC32C)
            with pytest.raises(ConfigError, match=r"'crc32c'.*DigestType.CRC32C"):
                await client.create_ledger(digest_type="crc32c")  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match=r"password is of type str.*\n.*'x' = 'y'"):
                await client.create_ledger(password="pw", custom={"x": "y"})  # type: ignore[arg-type,dict-item]
            assert [each async for each in client.ledgers()] == [0], "nothing was created"

    go(test())


def test_a_ledger_may_have_an_id_of_ones_own(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            async with await client.create_ledger(ledger=2**40) as writer:
                assert writer.ledger_id == 2**40
                await writer.append(b"x")
            with pytest.raises(LedgerExistsError):
                await client.create_ledger(ledger=2**40)
            assert [each async for each in client.ledgers()] == [2**40]

    go(test())


def test_options_that_cannot_be(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made:
            with pytest.raises(ConfigError, match=r"add_timeout_s = 0 .*\n.*window_bytes = -1 "):
                async with made.client(add_timeout_s=0, window_bytes=-1):
                    pass

    go(test())


# ---- time-outs and cancellation -----------------------------------------------------------------------


def test_a_call_that_times_out_leaves_its_handle_usable(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client(add_timeout_s=30) as client:
            writer = await client.create_ledger()
            await writer.append(b"a")
            for bookie in made.bookies.values():
                bookie.hung = True
            for call in (writer.append(b"b"), writer.append_many([b"c", b"d"])):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await call
            for bookie in made.bookies.values():
                bookie.release()
            assert await writer.append(b"e") == 4
            await writer.close()
            reader = await client.open_ledger(writer.ledger_id)
            assert [entry.payload async for entry in reader] == [b"a", b"b", b"c", b"d", b"e"]
            for bookie in made.bookies.values():
                bookie.hung = True
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await reader.read_entry(0)
            for bookie in made.bookies.values():
                bookie.release()
            assert (await reader.read_entry(0)).payload == b"a"

    go(test())


# ---- orders of reads ------------------------------------------------------------------------------------


def test_reads_go_round_unless_they_stick(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made:
            async with (
                made.client(batch_reads=False) as client,
                await client.create_ledger() as writer,
            ):
                await writer.append_many([b"x"] * 30)
            for sticky in (False, True):
                for bookie in made.bookies.values():
                    bookie.requests.clear()
                async with made.client(batch_reads=False, sticky_reads=sticky) as client:
                    reader = await client.open_ledger(0)
                    assert len([entry async for entry in reader]) == 30
                counts = sorted(reads(made).values())
                assert counts == ([0, 0, 30] if sticky else [10, 10, 10])

    go(test())


def test_the_closest_bookie_is_asked_first(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            async with await client.create_ledger() as writer:
                await writer.append_many([b"x"] * 9)
            found = await client.metadata(writer.ledger_id)
            order = ReadOrder(
                client.pool.health,
                random.Random(1),
                {found.fragments[0].ensemble[2]: 0, found.fragments[0].ensemble[1]: 2},
                sticky=False,
            )
            first, second, third = found.fragments[0].ensemble
            assert order((first, second, third)) == (third, second, first)
            racks = tmp_path / "racks.json"
            for near in found.fragments[0].ensemble:
                where = {str(bookie): {"rack": "/far"} for bookie in made.bookies}
                where |= {str(near): {"rack": "/near"}, "myhost:0": {"rack": "/near"}}
                racks.write_text(json.dumps({"group": where}))
                async with made.client(
                    closest_to="myhost", rack_map=str(racks), batch_reads=False
                ) as other:
                    for bookie in made.bookies.values():
                        bookie.requests.clear()
                    reader = await other.open_ledger(writer.ledger_id)
                    assert len([entry async for entry in reader]) == 9
                assert reads(made) == dict.fromkeys(map(str, made.bookies), 0) | {str(near): 9}

    go(test())


def test_a_slow_bookie_is_asked_last_and_batches_know_it_too(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            cluster(tmp_path) as made,
            made.client(batch_reads=False, speculative_read_s=0.05, read_timeout_s=30) as client,
        ):
            async with await client.create_ledger() as writer:
                await writer.append_many([b"x"] * 30)
            ensemble = writer.metadata.fragments[0].ensemble
            made.bookies[ensemble[0]].hung = True
            reader = await client.open_ledger(writer.ledger_id)
            await reader.read_entry(0)  # speculates
            assert client.health()[ensemble[0]].slow_s > 0
            for bookie in made.bookies.values():
                bookie.requests.clear()
            assert len([entry async for entry in reader]) == 30
            assert reads(made)[str(ensemble[0])] == 0
            made.bookies[ensemble[0]].release()

    go(test())


# ---- health ---------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_many_failures_in_a_short_time_bring_quarantine() -> None:
    clock = Clock()
    health = BookieHealth(clock, 3, 100.0)
    for answer in (
        Code.ENOENTRY,
        Code.EFENCED,
        NoResponse.NOT_REACHED,
        NoResponse.CONNECTION_LOST,
    ) * 5:
        health.failed(A, answer)
    assert health.of_all() == {}
    for answer in list(FAILURES)[:2]:
        health.failed(A, answer)
    clock.now += INTERVAL_S
    health.failed(A, NoResponse.TIMEOUT)
    assert health.quarantined() == frozenset(), "the first two are too long ago"
    assert health.of_all()[A].failures == 1
    health.failed(A, NoResponse.TIMEOUT)
    health.failed(A, Code.EIO)
    assert health.quarantined() == {A}
    assert health.of_all()[A].quarantined_s == 100.0
    clock.now += 100.0
    assert health.quarantined() == frozenset()
    never = BookieHealth(clock, 0, 100.0)
    for _ in range(1000):
        never.failed(A, NoResponse.TIMEOUT)
    assert never.of_all() == {}


def test_the_order_follows_health() -> None:
    clock = Clock()
    health = BookieHealth(clock, 1, 100.0)
    assert health.in_order((A, B, C)) == (A, B, C)
    health.slow(A)
    assert health.in_order((A, B, C)) == (B, C, A)
    health.failed(B, NoResponse.BAD_DIGEST)
    assert health.in_order((A, B, C)) == (C, A, B)
    clock.now += SLOW_S
    assert health.in_order((A, B, C)) == (A, C, B)


@pytest.mark.parametrize("failing", ["add", "read"])
def test_a_bookie_in_quarantine_is_in_no_new_ensemble(tmp_path: Path, failing: str) -> None:
    async def test() -> None:
        async with cluster(tmp_path, 4) as made, made.client(quarantine_failures=1) as client:
            bad = made.of("bookie-1")
            async with await client.create_ledger(4) as writer:
                bad.refusal = Code.EIO if failing == "add" else None
                await writer.append_many([b"x"] * 4)
                while failing == "add" and bad.id not in client.health():
                    await asyncio.sleep(0.002)
                bad.refusal = None
            if failing == "read":
                bad.wrong_digest = True
                reader = await client.open_ledger(writer.ledger_id)
                for entry in range(4):  # each bookie is the first to be asked for one
                    assert (await reader.read_entry(entry)).payload == b"x"
                bad.wrong_digest = False
            assert {*client.health()} == {bad.id}
            for _ in range(5):
                async with await client.create_ledger() as writer:
                    assert BookieId("bookie-1") not in writer.metadata.bookies()
            async with await client.create_ledger(4) as writer:
                assert BookieId("bookie-1") in writer.metadata.bookies(), "for want of others"

    go(test())
