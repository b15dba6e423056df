"""What a Python programmer does wrong in the first ten minutes, and what is said then."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import bkbox
from bkbox.base.ids import BookieId
from bkbox.client import sync
from bkbox.client.log import Log
from bkbox.errors import (
    AddFailedError,
    CallerError,
    ConfigError,
    InvalidIdError,
    MetadataUnavailableError,
    NoSuchLedgerError,
    NoSuchLogError,
    NotConnectedError,
    NotEnoughBookiesError,
    PayloadTypeError,
    UnknownEntryError,
)
from bkbox.wire.metadata.service_info import rpc_service_info
from tests.client.tinybookie import Cluster, cluster


def go(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 120))


def test_connect_is_entered_with_async_with(tmp_path: Path) -> None:
    connecting: Any = bkbox.connect(f"sqlite:{tmp_path}/cluster.db")

    async def awaited() -> None:
        await connecting

    for use in (
        lambda: asyncio.run(awaited()),
        lambda: connecting.create_ledger(),
        connecting.__enter__,
    ):
        with pytest.raises(NotConnectedError, match=r"async with bkbox\.connect") as caught:
            use()
        assert isinstance(caught.value, CallerError)
    with pytest.raises(NotConnectedError), connecting:
        pass


@pytest.mark.parametrize(
    "uri", ["", "cluster.db", "sqlit:cluster.db", "sqlite:", "localhost:3181", "zk:/localhost", 7]
)
def test_a_uri_with_a_typo(uri: Any) -> None:
    async def test() -> None:
        with pytest.raises(ConfigError, match=f"metadata URI {re.escape(repr(uri))}"):
            async with bkbox.connect(uri):
                pass

    go(test())
    with pytest.raises(ConfigError, match="metadata URI"), sync.connect(uri):
        pass


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    async def test() -> None:
        for path, text in ((tmp_path / "no.db", "bkbox init"), (tmp_path, "open database")):
            with pytest.raises(MetadataUnavailableError, match=text):
                async with bkbox.connect(f"sqlite:{path}"):
                    pass
        async with cluster(tmp_path, 0) as made, made.client() as client:
            with pytest.raises(NotEnoughBookiesError, match="none"):
                await client.create_ledger()

    go(test())


@pytest.mark.parametrize("payload", ["text", 5, None, [1, 2], {"a": 1}, 1.5])
def test_what_is_no_payload(tmp_path: Path, payload: Any) -> None:
    """Least of all a number: bytes(5) would be five zeros."""

    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            name = type(payload).__name__
            async with await client.create_ledger() as writer:
                for call in (
                    writer.append,
                    writer.append_nowait,
                    lambda x: writer.append_many([x]),
                ):
                    with pytest.raises(PayloadTypeError, match=f"type {name}"):
                        await call(payload)  # type: ignore[operator]
                with pytest.raises(TypeError):  # as Python's own are caught
                    await writer.append(payload)
                assert await writer.append(b"well") == 0
                assert await writer.append(bytearray(b"well")) == 1
                assert await writer.append(memoryview(b"wxexlxl")[::2]) == 2
            reader = await client.open_ledger(writer.ledger_id)
            assert [entry.payload async for entry in reader] == [b"well", b"well", b"well"]
            async with await Log(client, "orders").open_writer() as log:
                for call in (log.append, log.append_nowait, lambda x: log.append_once(x, "w", 1)):
                    with pytest.raises(PayloadTypeError, match=f"type {name}"):
                        await call(payload)  # type: ignore[operator]
                await log.append_once(b"well", "w", 1)

    go(test())


def test_append_many_of_one_payload(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            async with await client.create_ledger() as writer:
                with pytest.raises(PayloadTypeError, match="type int"):
                    await writer.append_many(b"not a list")  # type: ignore[arg-type]
            assert writer.metadata.last_entry == -1

    go(test())


def test_ledgers_and_logs_that_are_not_there(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            with pytest.raises(NoSuchLedgerError, match="no ledger 7"):
                await client.open_ledger(7)
            for wrong in ("x", -1, None, b"", 2**63):
                with pytest.raises(InvalidIdError):
                    await client.open_ledger(wrong)  # type: ignore[arg-type]
            with pytest.raises(NoSuchLogError, match="no log orders"):
                await anext(Log(client, "orders").read())

    go(test())


class Talker(asyncio.Protocol):
    """Says something to everybody, and hangs up."""

    def __init__(self, says: bytes) -> None:
        self._says = says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._says)
        transport.close()


@asynccontextmanager
async def a_stranger(made: Cluster, *, says: bytes | None) -> AsyncIterator[None]:
    """A bookie is registered where something else listens, or nothing (None)."""

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Talker(says or b""), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    if says is None:
        server.close()
        await server.wait_closed()
    info = rpc_service_info("127.0.0.1", port)
    registration = await made.store.register(BookieId("stranger"), info, read_only=False)
    try:
        yield
    finally:
        await registration.close()
        server.close()


@pytest.mark.parametrize(
    "says",
    [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(100)],
    ids=["nobody", "silence", "HTTP", "zeros"],
)
def test_nobody_or_somebody_else_listens(tmp_path: Path, says: bytes | None) -> None:
    async def test() -> None:
        async with (
            cluster(tmp_path, 0) as made,
            a_stranger(made, says=says),
            made.client(add_timeout_s=1, read_timeout_s=1) as client,
        ):
            writer = await client.create_ledger(1)
            with pytest.raises(AddFailedError, match="stranger"):
                await writer.append(b"hello")
            await writer.abort()
            reader = await client.open_ledger(writer.ledger_id, recovery=False)
            with pytest.raises(UnknownEntryError, match="stranger"):
                async for _ in reader.read_unconfirmed(0, 0):
                    pass

    go(test())


def test_a_port_that_takes_connections_and_says_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            async with cluster(tmp_path, 0) as made, made.client(add_timeout_s=0.2) as client:
                info = rpc_service_info("127.0.0.1", silent.getsockname()[1])
                registration = await made.store.register(
                    BookieId("stranger"), info, read_only=False
                )
                writer = await client.create_ledger(1)
                with pytest.raises(AddFailedError, match=r"stranger.*TIMEOUT|stranger.*in time"):
                    await writer.append(b"hello")
                await writer.abort()
                await registration.close()

    go(test())
