"""The network in front of a bookie: what each state lets through."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bkbox.errors import ChaosError
from proof.chaos.proxy import Proxy
from tests.harness.processes import free_port

SHORT_S = 0.05


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(b"<" + data + b">")
    writer.close()


Talk = Callable[[Proxy, int], Awaitable[None]]


def with_proxy(talk: Talk) -> None:
    async def all_of_it() -> None:
        port = free_port()  # of both addresses
        server = await asyncio.start_server(answer, "127.0.0.1", port)
        proxy = Proxy(("127.0.0.2", port), ("127.0.0.1", port))
        try:
            await proxy.start()
            await talk(proxy, port)
        finally:
            await proxy.close()
            server.close()

    asyncio.run(all_of_it())


class Caller:
    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> Caller:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.2", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()
        await asyncio.sleep(0)

    async def asks(self, data: bytes) -> bytes:
        self.writer.write(data)
        return await self.hears()

    async def hears(self) -> bytes:
        return await self.reader.read(100)

    async def hears_nothing(self) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SHORT_S):
                await self.hears()


def test_open_it_passes_all_on() -> None:
    async def talk(proxy: Proxy, port: int) -> None:
        async with Caller(port) as caller:
            assert await caller.asks(b"one") == b"<one>"
            assert await caller.asks(b"two") == b"<two>"

    with_proxy(talk)


def test_cut_it_resets_what_there_is_and_what_comes() -> None:
    async def talk(proxy: Proxy, port: int) -> None:
        async with Caller(port) as caller:
            assert await caller.asks(b"one") == b"<one>"
            proxy.turn("cut")
            with pytest.raises(ConnectionResetError):
                await caller.hears()
        async with Caller(port) as caller:
            with pytest.raises(ConnectionResetError):
                await caller.asks(b"two")
        proxy.turn("open")
        async with Caller(port) as caller:
            assert await caller.asks(b"three") == b"<three>"

    with_proxy(talk)


def test_silent_it_keeps_all_until_it_is_open_again() -> None:
    async def talk(proxy: Proxy, port: int) -> None:
        async with Caller(port) as before:
            assert await before.asks(b"one") == b"<one>"
            proxy.turn("silent")
            before.writer.write(b"two")
            await before.hears_nothing()
            async with Caller(port) as new:
                new.writer.write(b"three")
                await new.hears_nothing()
                proxy.turn("open")
                assert await before.hears() == b"<two>"
                assert await new.hears() == b"<three>"

    with_proxy(talk)


def test_one_way_the_bookie_hears_and_nobody_hears_it() -> None:
    async def talk(proxy: Proxy, port: int) -> None:
        async with Caller(port) as caller:
            proxy.turn("one-way")
            caller.writer.write(b"one")
            await caller.hears_nothing()
            proxy.turn("open")
            assert await caller.hears() == b"<one>"

    with_proxy(talk)


def test_where_nobody_listens_the_connection_is_reset() -> None:
    async def talk(proxy: Proxy, port: int) -> None:
        free = free_port()
        other = Proxy(("127.0.0.2", free), ("127.0.0.1", free))
        await other.start()
        async with Caller(free) as caller:
            with pytest.raises(ConnectionResetError):
                await caller.asks(b"one")
        await other.close()

    with_proxy(talk)


def test_a_port_that_is_taken_is_an_error_that_names_it() -> None:
    async def talk(proxy: Proxy, port: int) -> None:
        with pytest.raises(ChaosError, match=f"127.0.0.2:{port}"):
            await Proxy(("127.0.0.2", port), ("127.0.0.1", port)).start()

    with_proxy(talk)
