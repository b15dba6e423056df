"""Clients that cost more than they may: each is stopped, and a well-behaved one beside it loses nothing."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bkbox.base.limits import FRONTEND_BUFFERED_BYTES_MAX
from bkbox.frontend.overload import connection_timeouts
from bkbox.frontend.overload.protocol_error_throttle import PAUSE_S
from tests.frontend.inprocess import FRAME_BYTES_MAX, InProcessBookie, serving
from tests.harness import raw
from tests.harness.raw import RawClient
from tests.harness.raw3 import ADD, AUTH, EOK, READ, add_part, message, read_part, request, varint

QUICK = {"frame_timeout_s": 0.5, "answers_timeout_s": 0.5}
GIVEN_UP_S = 5.0


class GoodClient:
    """Writes and reads beside what goes on, one entry after the other.

    ``took_s``: what this process, which has the bookie, too, did meanwhile: processor seconds, as other tests run."""

    def __init__(self, bookie: InProcessBookie) -> None:
        self._bookie = bookie
        self.took_s: list[float] = []
        self.written = 0
        self._stop = False

    async def run(self) -> None:
        client = await self._bookie.client()
        assert await asyncio.to_thread(client.add3, 77, 0) == EOK
        self.written = 1
        while not self._stop or self.written < 20:
            began = time.process_time()
            assert await asyncio.to_thread(client.add3, 77, self.written) == EOK
            self.took_s.append(time.process_time() - began)
            self.written += 1
        for entry in range(self.written):
            found = await asyncio.to_thread(client.read3, 77, entry)
            assert found.status == EOK, f"entry {entry} is lost"

    def stop(self) -> None:
        self._stop = True


Abuse = Callable[[InProcessBookie], Awaitable[None]]


def beside_a_good_client(folder: Path, abuse: Abuse, **bounds: Any) -> list[float]:
    """Run the abuse while somebody works; what each add of the latter took (``GoodClient``), sorted."""

    async def told() -> list[float]:
        async with serving(folder, **bounds) as bookie:
            good = GoodClient(bookie)
            work = asyncio.ensure_future(good.run())
            try:
                await abuse(bookie)
            finally:
                good.stop()
                await work
            return sorted(good.took_s)

    return asyncio.run(told())


@asynccontextmanager
async def dialled(bookie: InProcessBookie) -> AsyncIterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", bookie.port)) as sock:
        sock.setblocking(False)
        yield sock


async def closed_by_bookie(sock: socket.socket, within_s: float = GIVEN_UP_S) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(within_s):
        try:
            while await loop.sock_recv(sock, 1 << 16):
                pass
        except ConnectionError:
            return


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_timeouts, "POLL_INTERVAL_S", 0.1)


@pytest.mark.parametrize(
    "begin", [b"", b"\0", b"\0\0\0", raw.add_frame(5, 0, b"x" * 100)[:40]], ids=str
)
def test_slow_to_say_anything_a_header_or_a_body(tmp_path: Path, begin: bytes) -> None:
    async def abuse(bookie: InProcessBookie) -> None:
        async with dialled(bookie) as sock:
            began = time.monotonic()
            await asyncio.get_running_loop().sock_sendall(sock, begin)
            await closed_by_bookie(sock)
            assert time.monotonic() - began > QUICK["frame_timeout_s"]

    beside_a_good_client(tmp_path, abuse, **QUICK)


def test_a_body_that_comes_byte_by_byte_is_no_progress(tmp_path: Path) -> None:
    frame = raw.add_frame(5, 0, bytes(500_000))

    async def abuse(bookie: InProcessBookie) -> None:
        async with dialled(bookie) as sock:
            loop = asyncio.get_running_loop()
            ended = asyncio.ensure_future(closed_by_bookie(sock))
            await loop.sock_sendall(sock, frame[:200_000])
            for at in range(200_000, 200_400):
                if ended.done():
                    break
                try:
                    await loop.sock_sendall(sock, frame[at : at + 1])
                except ConnectionError:
                    break
                await asyncio.sleep(0.02)
            await ended
        assert (await bookie.stats())["buffered_bytes"] == 0

    beside_a_good_client(tmp_path, abuse, **QUICK)


def test_a_client_that_never_reads_its_answers(tmp_path: Path) -> None:
    async def abuse(bookie: InProcessBookie) -> None:
        client = await bookie.client()
        assert await asyncio.to_thread(client.add3, 5, 0, b"x" * 1_000_000) == EOK
        async with dialled(bookie) as sock:
            asked = b"".join(request(READ, n, read_part(5, 0)) for n in range(40))
            await asyncio.get_running_loop().sock_sendall(sock, asked)
            deadline = time.monotonic() + GIVEN_UP_S
            # The well-behaved client and the one that wrote are left.
            while (await bookie.stats())["connections"] != 2:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
        assert (await bookie.stats())["buffered_bytes"] == 0

    beside_a_good_client(tmp_path, abuse, **QUICK)


def test_a_client_that_reads_slowly_is_left_alone(tmp_path: Path) -> None:
    async def story(bookie: InProcessBookie) -> None:
        client = await bookie.client()
        assert await asyncio.to_thread(client.add3, 5, 0, b"x" * 1_000_000) == EOK
        async with dialled(bookie) as sock:
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(sock, b"".join(raw.read_frame(5, 0) for _ in range(8)))
            left = 8 * (1_000_000 + 40 + 28)
            while left > 0:
                left -= len(await loop.sock_recv(sock, 400_000))
                await asyncio.sleep(0.05)
            assert left == 0

    beside_a_good_client(tmp_path, story, **QUICK)


def test_large_frames_that_do_not_end_are_refused_to_nobody_for_long(tmp_path: Path) -> None:
    """So many that no room is left: whoever began them has to go, not those who work."""
    begun = struct.pack(">i", FRAME_BYTES_MAX - 4) + b"\2\1\0\0" + bytes(1000)

    async def story() -> None:
        async with serving(tmp_path) as bookie:
            client = await bookie.client()
            socks = [socket.create_connection(("127.0.0.1", bookie.port)) for _ in range(40)]
            for sock in socks:
                sock.sendall(begun)
            refused_until = began = time.monotonic()
            entry = 0
            while time.monotonic() < began + 5:
                if await asyncio.to_thread(client.add3, 1, entry) == EOK:
                    entry += 1
                else:
                    refused_until = time.monotonic()
            assert refused_until - began < 4
            assert (await bookie.stats())["buffered_bytes"] < FRONTEND_BUFFERED_BYTES_MAX
            for sock in socks:
                sock.close()

    asyncio.run(story())


def test_more_connections_than_there_may_be(tmp_path: Path) -> None:
    async def abuse(bookie: InProcessBookie) -> None:
        await asyncio.sleep(0.2)
        socks = [socket.create_connection(("127.0.0.1", bookie.port)) for _ in range(60)]
        try:
            while (await bookie.stats())["rejected"] != 60 - 19:
                await asyncio.sleep(0.02)
            assert (await bookie.stats())["connections"] == 20
        finally:
            for sock in socks:
                sock.close()
        while (await bookie.stats())["connections"] != 1:
            await asyncio.sleep(0.02)
        with RawClient(bookie.port) as late:
            assert await asyncio.to_thread(late.add, 6, 0, b"x") == raw.EOK

    beside_a_good_client(tmp_path, abuse, connections_max=20)


def test_more_connections_of_one_address_than_there_may_be(tmp_path: Path) -> None:
    async def abuse(bookie: InProcessBookie) -> None:
        await asyncio.sleep(0.2)

        def dial(host: str) -> socket.socket:
            return socket.create_connection(("127.0.0.1", bookie.port), source_address=(host, 0))

        socks = [dial("127.0.0.2") for _ in range(30)]
        try:
            while (await bookie.stats())["rejected"] != 22:
                await asyncio.sleep(0.02)
            other = dial("127.0.0.3")
            socks.append(other)
            other.sendall(raw.read_frame(1, 0))
            await asyncio.sleep(0.1)
            assert other.recv(100, socket.MSG_DONTWAIT)
        finally:
            for sock in socks:
                sock.close()

    beside_a_good_client(tmp_path, abuse, connections_max=1000, connections_per_peer_max=8)


MANY_FIELDS = (
    message([(1, message([(1, 3), (2, 2), (3, 9)]))]) + (varint(500 << 3) + b"\1") * 1_000_000
)
NESTED = message([(1, message([(1, 3), (2, 2), (3, 9)]))]) + b"\xa3\x1f" * 100_000
"""Groups within groups, of a field that nobody knows."""

REPEATED = message(
    [(1, message([(1, 3), (2, 2), (3, 9)]))] + [(101, message(add_part(1, 0)))] * 20_000
)
HUGE_LENGTH = (
    message([(1, message([(1, 3), (2, 2), (3, 9)]))]) + varint(101 << 3 | 2) + varint(2**62)
)
TAGS_WITHOUT_END = b"\x0a" + b"\xff" * 1_000_000


@pytest.mark.parametrize(
    "body",
    [MANY_FIELDS, NESTED, REPEATED, HUGE_LENGTH, TAGS_WITHOUT_END],
    ids=["many fields", "nested", "repeated", "huge length", "tags"],
)
def test_protobuf_bombs(tmp_path: Path, body: bytes) -> None:
    bomb = struct.pack(">I", len(body)) + body
    assert len(bomb) <= FRAME_BYTES_MAX

    async def abuse(bookie: InProcessBookie) -> None:
        for _ in range(5):
            async with dialled(bookie) as sock:
                await asyncio.get_running_loop().sock_sendall(sock, bomb)
                await closed_by_bookie(sock)

    assert beside_a_good_client(tmp_path, abuse)[-1] < 0.5


@pytest.mark.parametrize("size", [0, -1, -(2**31), FRAME_BYTES_MAX - 3, 2**31 - 1])
def test_lengths_that_no_frame_has(tmp_path: Path, size: int) -> None:
    async def abuse(bookie: InProcessBookie) -> None:
        held = (await bookie.stats())["buffered_bytes"]
        for _ in range(12):
            async with dialled(bookie) as sock:
                await asyncio.get_running_loop().sock_sendall(
                    sock, struct.pack(">i", size) + b"x" * 8
                )
                await closed_by_bookie(sock)
        assert (await bookie.stats())["buffered_bytes"] == held

    beside_a_good_client(tmp_path, abuse)


def test_floods_of_what_takes_long_hold_up_nobody(tmp_path: Path) -> None:
    """Requests that are looked at one by one: to take a whole read of them at once takes a third of a second."""
    flood = request(AUTH, 1, [(1, b"x"), (2, b"")]) * 2_000

    async def abuse(bookie: InProcessBookie) -> None:
        loop = asyncio.get_running_loop()
        socks = []
        for _ in range(4):
            sock = socket.create_connection(("127.0.0.1", bookie.port))
            sock.setblocking(False)
            socks.append(sock)
        until = time.monotonic() + 3

        async def pour(sock: socket.socket) -> None:
            while time.monotonic() < until:
                await loop.sock_sendall(sock, flood)

        async def drain(sock: socket.socket) -> None:
            while time.monotonic() < until:
                try:
                    async with asyncio.timeout(0.2):
                        await loop.sock_recv(sock, 1 << 20)
                except TimeoutError:
                    continue

        tasks = [asyncio.ensure_future(work(sock)) for sock in socks for work in (pour, drain)]
        await asyncio.sleep(3)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for sock in socks:
            sock.close()

    took = beside_a_good_client(tmp_path, abuse)
    assert took[len(took) // 2] < 0.5


IDS = [-1, -2, -(2**63), 2**63 - 1, 2**62]


@pytest.mark.parametrize("ledger", IDS)
def test_negative_and_huge_ids(tmp_path: Path, ledger: int) -> None:
    """Whatever is answered, it is answered or the connection is closed, and nothing else happens."""

    async def abuse(bookie: InProcessBookie) -> None:
        for entry in IDS:
            for frame in (
                raw.add_frame(ledger, entry, b"x"),
                raw.read_frame(ledger, entry),
                raw.read_frame(ledger, entry, raw.FENCE),
                raw.batch_frame(ledger, entry, 2**31 - 1),
                raw.batch_frame(ledger, entry, -1, -1),
                request(ADD, 1, add_part(ledger, entry)),
                request(READ, 1, read_part(ledger, entry)),
                request(READ, 1, read_part(ledger, entry, previous=-5, timeout_ms=-1)),
            ):
                async with dialled(bookie) as sock:
                    loop = asyncio.get_running_loop()
                    await loop.sock_sendall(sock, frame)
                    async with asyncio.timeout(GIVEN_UP_S):
                        try:
                            await loop.sock_recv(sock, 1 << 16)
                        except ConnectionError:
                            continue

    beside_a_good_client(tmp_path, abuse)


def test_floods_fill_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two hundred connections that end in an error: a few lines, and how many there were."""
    caplog.set_level(logging.INFO, "bkbox.frontend")

    async def abuse(bookie: InProcessBookie) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(200):
            async with dialled(bookie) as sock:
                await loop.sock_sendall(sock, b"\x7f\xff\xff\xff" + bytes(100))
        await asyncio.sleep(2 * PAUSE_S)  # most have to wait before they are looked at

    beside_a_good_client(tmp_path, abuse)
    said = [record.getMessage() for record in caplog.records if "frame of" in record.getMessage()]
    assert 5 <= len(said) <= 30
