"""Connections: matching, time-outs, loss, back-off, bad answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bkbox.base.ids import BookieId
from bkbox.client import ClientOptions
from bkbox.client.connection.bookie_connection import RequestPriority
from bkbox.client.connection.pool import Add, BookiePool, Reply
from bkbox.client.options import new_backoff
from bkbox.protocol.events import NoResponse
from bkbox.wire import v2, v3
from bkbox.wire.codes import Code
from bkbox.wire.digest import DigestManager, master_key
from bkbox.wire.metadata.ledger import DigestType
from bkbox.wire.metadata.service_info import HostPort
from bkbox.wire.v3_format import Operation
from tests.client.tinybookie import DEFAULT_OPTIONS, Cluster, TinyBookie, cluster, encoded
from tests.harness.waiting import until

pytestmark = pytest.mark.usefixtures("protocol")

KEY = master_key(b"")
ENTRIES = DigestManager(7, DigestType.CRC32C, b"")


def go(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 120))


class Pool(BookiePool):
    """A pool that speaks to one bookie."""

    def __init__(self, bookie: TinyBookie, **options: Any) -> None:
        async def resolve(_: BookieId) -> HostPort | None:
            return HostPort("127.0.0.1", bookie.port) if bookie.port else None

        self.id = bookie.id
        options = {"protocol": DEFAULT_OPTIONS["protocol"]} | options
        super().__init__(resolve, ClientOptions(**options), random.Random(1))

    def write(self, entry: int, payload: bytes = b"x") -> asyncio.Future[Reply]:
        return self.add(self.id, Add(7, entry, KEY, ENTRIES.package(entry, entry - 1, 1, payload)))

    async def ask_held(self, bookie: TinyBookie, entry: int) -> Reply:
        """The same of a bookie that is hung; it answers this alone."""
        asked = self.ask(entry)
        await until(lambda: getattr(bookie.held[-1][1], "fencing", None) is False)
        bookie.held[-1][0].answer(bookie.held[-1][1])
        return await asked

    def ask(self, entry: int, *, fence: bool = False) -> asyncio.Future[Reply]:
        return self.read(self.id, 7, entry, KEY if fence else None)


@asynccontextmanager
async def one_bookie(folder: Path, **options: Any) -> AsyncIterator[tuple[TinyBookie, Pool]]:
    made: Cluster
    async with cluster(folder, 1) as made:
        pool = Pool(made.of("bookie-0"), **options)
        try:
            yield made.of("bookie-0"), pool
        finally:
            await pool.close()


def test_requests_share_a_connection_and_fencing_reads_may_have_their_own(
    tmp_path: Path, protocol: str
) -> None:
    async def test() -> None:
        async with one_bookie(tmp_path) as (bookie, pool):
            replies = await asyncio.gather(*(pool.write(n) for n in range(100)))
            assert {reply.status for reply in replies} == {Code.EOK}
            reply = await pool.ask(42)
            assert (reply.status, reply.connection) == (Code.EOK, 1)
            assert reply.entry == bookie.ledgers[7].entries[42]
            assert (await pool.ask(100))[:2] == (Code.ENOENTRY, None)
            assert bookie.connections_made == 1
            assert (await pool.ask(-1, fence=True)).status is Code.EOK
            assert (await pool.ask(5, fence=True)).status is Code.EOK
            assert bookie.connections_made == (2 if protocol == "v2" else 1)
            if protocol == "v2":
                assert [r.flags for r in bookie.requests[-2:]] == [1, 5]
            else:
                assert [r.header.priority for r in bookie.requests[-2:]] == [0, 100]
            assert all(r.fencing for r in bookie.requests[-2:])
            assert (await pool.write(100)).status is Code.EFENCED

    go(test())


def test_equal_requests_are_answered_each(tmp_path: Path) -> None:
    async def test() -> None:
        async with one_bookie(tmp_path) as (bookie, pool):
            replies = await asyncio.gather(pool.write(0), pool.write(0), pool.write(0))
            assert [reply.status for reply in replies] == [Code.EOK] * 3
            assert len(bookie.requests) == 3

    go(test())


def test_a_late_answer_is_not_taken_for_that_of_a_later_request(tmp_path: Path) -> None:
    async def test() -> None:
        async with one_bookie(tmp_path, read_timeout_s=1.0) as (bookie, pool):
            await pool.write(0)
            bookie.hung = True
            assert await pool.ask(1) == Reply(NoResponse.TIMEOUT)
            cancelled = pool.ask(1)
            await until(lambda: len(bookie.held) == 2)
            cancelled.cancel()
            again = pool.ask(1)
            await until(lambda: len(bookie.held) == 3)
            first, second, third = bookie.held
            for connection, request in (first, second):  # both say 'no such entry'
                connection.answer(request)
            bookie.ledgers[7].entries[1] = ENTRIES.package(1, 0, 2, b"y")
            third[0].answer(third[1])
            bookie.hung = False
            reply = await again
            assert (reply.status, reply.entry) == (Code.EOK, bookie.ledgers[7].entries[1])
            assert bookie.connections_made == 1

    go(test())


def test_a_bookie_that_never_answers_costs_its_connection_in_the_end(tmp_path: Path) -> None:
    async def test() -> None:
        async with one_bookie(tmp_path, read_timeout_s=0.5) as (bookie, pool):
            await pool.write(0)
            bookie.hung = True
            replies = await asyncio.gather(*(pool.ask(n) for n in range(257)))
            assert {reply.status for reply in replies} == {NoResponse.TIMEOUT}
            await until(lambda: not bookie.connections)
            bookie.hung = False
            assert (await pool.ask(0)).status is Code.EOK
            assert bookie.connections_made == 2

    go(test())


def test_a_lost_connection_answers_everything_and_comes_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with one_bookie(tmp_path) as (bookie, pool):
            await pool.write(0)
            bookie.hung = True
            outstanding = [pool.write(1), pool.ask(0), pool.ask(0)]
            await until(lambda: len(bookie.held) == 3)
            bookie.hung = False
            bookie.drop_connections()
            lost = [await reply for reply in outstanding]
            assert lost == [Reply(NoResponse.CONNECTION_LOST)] * 3
            again = await pool.write(1)
            assert (again.status, again.connection) == (Code.EOK, 2)

    go(test())


def test_while_a_bookie_is_backed_off_requests_fail_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with one_bookie(tmp_path, backoff_initial_s=3600, backoff_max_s=3600) as (
            bookie,
            pool,
        ):
            await bookie.kill()
            both = pool.ask(0), pool.ask(1)  # one attempt for the two
            assert [await reply for reply in both] == [Reply(NoResponse.NOT_REACHED)] * 2
            assert pool.suspects() == {bookie.id}
            await bookie.start()
            assert pool.ask(0).done()
            assert bookie.connections_made == 0

    go(test())


def test_pauses_grow_with_jitter_up_to_the_longest() -> None:
    options = ClientOptions(backoff_initial_s=0.1, backoff_max_s=1.0)
    means = (0.1, 0.2, 0.4, 0.8, 1.0, 1.0)
    seen = []
    for seed in range(200):
        backoff = new_backoff(options, random.Random(seed))
        seen.append([backoff.next_s() for _ in means])
        backoff.reset()
        assert backoff.next_s() <= 0.15, "something had succeeded"
    for mean_s, pauses in zip(means, zip(*seen, strict=True), strict=True):
        assert 0.5 * mean_s <= min(pauses) < 0.6 * mean_s
        assert 1.4 * mean_s < max(pauses) <= 1.5 * mean_s


def test_a_bookie_without_an_address(tmp_path: Path) -> None:
    async def test() -> None:
        async with one_bookie(tmp_path, backoff_initial_s=0.001) as (bookie, pool):
            port, bookie.port = bookie.port, 0
            assert await pool.ask(0) == Reply(NoResponse.NOT_REACHED)
            bookie.port = port
            await asyncio.sleep(0.01)
            assert (await pool.ask(0)).status is Code.ENOLEDGER

    go(test())


UNKNOWN_CODE = {
    "v2": v2.encode_response(v2.ReadResponse(2, Code.ENOENTRY, 7, 0)).replace(
        (2).to_bytes(4, "big"), (999).to_bytes(4, "big")
    ),
    "v3": v3.encode_response(v3.ReadResponse(1, Code.ENOENTRY, 7, 0)).replace(
        b"\x93\x03", b"\x93\x07"
    ),
}
OTHER_VERSION = {"v2": v3.encode_response(v3.ReadResponse(1, Code.ENOENTRY, 7, 0))}
OTHER_VERSION["v3"] = v2.encode_response(v2.ReadResponse(2, Code.ENOENTRY, 7, 0))
OUT_OF_PLACE = {
    "v2": v2.encode_response(v2.ReadResponse(2, Code.ENOENTRY, 7, 1)),
    "v3": v3.encode_response(v3.StartTlsResponse(1)),
}
NOTHING_SAID = {
    "v2": v2.encode_response(v2.BatchReadResponse(2, Code.EOK, 7, 0, 0)),
    "v3": v3.encode_response(v3.Refused(v3.Header(Operation.READ_ENTRY, 1), Code.EOK)),
}
EMPTY = dict.fromkeys(("v2", "v3"), bytes(4))
TOO_LARGE = dict.fromkeys(("v2", "v3"), b"\x7f\xff\xff\xff")


@pytest.mark.parametrize(
    "answers",
    [UNKNOWN_CODE, OUT_OF_PLACE, OTHER_VERSION, NOTHING_SAID, EMPTY, TOO_LARGE],
    ids=["unknown code", "out of place", "other version", "nothing said", "empty", "too large"],
)
def test_what_breaks_the_protocol_closes_the_connection(
    tmp_path: Path, answers: dict[str, bytes], protocol: str
) -> None:
    async def test() -> None:
        async with one_bookie(tmp_path, backoff_initial_s=0.001) as (bookie, pool):
            bookie.raw = answers[protocol]
            assert await pool.ask(0) == Reply(NoResponse.CONNECTION_LOST)
            await until(lambda: not bookie.connections)
            bookie.raw = b""
            await asyncio.sleep(0.01)
            assert (await pool.ask(0)).status is Code.ENOLEDGER

    go(test())


def test_answers_in_pieces_and_larger_than_a_chunk(tmp_path: Path) -> None:
    async def test() -> None:
        async with one_bookie(tmp_path) as (bookie, pool):
            large = bytes(range(256)) * 16_000
            await pool.write(0, large)
            answers = await asyncio.gather(pool.ask(0), pool.ask(0), pool.ask(1), pool.ask(0))
            for reply in (answers[0], answers[1], answers[3]):
                assert reply.status is Code.EOK
                assert reply.entry == bookie.ledgers[7].entries[0]
            (connection,) = bookie.connections
            bookie.hung = True
            slow = pool.ask(0)
            await until(lambda: len(bookie.held) == 1)
            frame = encoded(bookie.serve(bookie.held[0][1]))
            for at in range(100):
                connection.transport.write(frame[at : at + 1])
                await asyncio.sleep(0)
            connection.transport.write(frame[100:])
            assert (await slow).status is Code.EOK

    go(test())


def test_what_a_deaf_bookie_was_not_sent_waits_by_reference(tmp_path: Path, protocol: str) -> None:
    async def test() -> None:
        async with one_bookie(tmp_path, add_timeout_s=100) as (bookie, pool):
            bookie.deaf = True
            replies = [pool.write(n, bytes(100_000)) for n in range(400)]
            link = pool._link(
                bookie.id, RequestPriority.V2 if protocol == "v2" else RequestPriority.V3
            )
            await until(lambda: link._stream is not None and link._stream._paused)
            assert link._stream is not None
            assert link._stream._transport is not None
            assert link._stream._transport.get_write_buffer_size() < 1_000_000
            assert len(link._stream._outbox) > 100
            bookie.drop_connections()
            assert {await reply for reply in replies} == {Reply(NoResponse.CONNECTION_LOST)}

    go(test())


def test_closing_answers_what_is_outstanding(tmp_path: Path, protocol: str) -> None:
    async def test() -> None:
        async with one_bookie(tmp_path) as (bookie, pool):
            await pool.write(0)
            bookie.hung = True
            outstanding = pool.ask(0)
            await until(lambda: len(bookie.held) == 1)
            connecting = pool.ask(0, fence=True)
            await pool.close()
            assert await outstanding == Reply(NoResponse.CONNECTION_LOST)
            if protocol == "v2":
                assert await connecting == Reply(NoResponse.NOT_REACHED)
            else:
                assert await connecting == Reply(NoResponse.CONNECTION_LOST)
            assert await pool.ask(0) == Reply(NoResponse.NOT_REACHED)

    go(test())
