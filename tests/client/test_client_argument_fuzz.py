"""Arguments of all public calls of the clients, made from the types of their parameters, right ones and wrong ones: a
call raises no error but those of bkbox, and no call hangs.

For seconds in the ordinary run; ``FUZZ_SECONDS=60`` goes on for so long.
"""

from __future__ import annotations

import asyncio
import inspect
import types
import typing
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bkbox
from bkbox.client import Client, ClientOptions, LedgerReader, LedgerWriter, log, sync
from bkbox.client.log import LeaderElection, Log, LogFile, LogOptions, LogWriter, Position
from bkbox.client.log.handler import BookKeeperHandler
from bkbox.errors import BkboxError
from tests.client.tinybookie import bookies
from tests.harness import fuzztime

HANG_S = 30.0
"""A call that takes longer hangs."""

WAIT_S = 0.2
"""For calls that may wait for others by what they are asked."""

MAY_WAIT = {
    "LedgerReader.tail": "for more entries",
    "LedgerReader.read_last_add_confirmed_and_entry": "as long as it is told",
    "LedgerWriter.append": "an entry_id that leaves a gap",
    "LedgerWriter.append_nowait": "an entry_id that leaves a gap",
    "LedgerWriter.drain": "an entry_id that leaves a gap",
    "Client.watch": "for a change",
    "Log.tail": "for more records",
    "LeaderElection.won": "for a candidate to go",
    "LeaderElection.lost": "for another candidate",
}

ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(),
    st.integers(),
    st.sampled_from([2**31, 2**63 - 1, 2**63, 2**64, -1, -(2**63), -(2**63) - 1, 1.5, 2.0]),
    st.text(max_size=4),
    st.sampled_from(["0", "5", "8m", "\ud800", "", b"", b"x", (), [], {}, {"a": 1}, object(), int]),
    st.just([1, "x", None]),
    st.builds(bytearray, st.binary(max_size=3)),
    st.builds(Position, st.integers(-1, 3), st.floats()),
)

RIGHT: dict[Any, st.SearchStrategy[Any]] = {
    int: st.one_of(
        st.integers(-1, 5), st.integers(-2, 2**65), st.sampled_from([2**31, 2**63 - 1, 2**63])
    ),
    float: st.one_of(st.floats(), st.floats(0, 0.1), st.integers(0, 1), st.just(1e300)),
    bool: st.booleans(),
    bytes: st.one_of(
        st.binary(max_size=20), st.just(bytes(100)), st.builds(memoryview, st.binary())
    ),
    str: st.one_of(st.text(max_size=5), st.sampled_from(["orders", "w", "x" * 300, "\ud800"])),
    type(None): st.none(),
    Position: st.builds(Position, st.integers(-1, 3), st.integers(-1, 9), st.integers(-1, 3)),
    LogOptions: st.builds(LogOptions, batch_bytes=st.integers(1, 100)),
}


def right(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type, on their edges and a little beyond."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in RIGHT:
        return RIGHT[hint]
    if origin in (Union, types.UnionType):
        return st.one_of(*map(right, args))
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (Iterable, list, Iterator):
        return st.lists(st.one_of(right(args[0]), right(args[0]), ODD), max_size=4)
    if origin is Mapping:
        return st.dictionaries(right(args[0]), st.one_of(right(args[1]), ODD), max_size=2)
    if origin is Callable:
        return st.sampled_from([lambda: 1, lambda: 1.5, lambda: None, lambda: 2**63])
    if inspect.isclass(hint) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    return ODD


def call(data: st.DataObject, method: Callable[..., Any], **fixed: Any) -> Any:
    """Call with drawn arguments, by position where that is the way; those that have defaults may be left out."""
    hints = typing.get_type_hints(method)
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(method).parameters.items():
        if name in fixed:
            given[name] = fixed[name]
        elif parameter.kind is parameter.VAR_KEYWORD:
            continue
        elif parameter.default is parameter.empty or data.draw(st.booleans(), f"gives {name}"):
            given[name] = data.draw(st.one_of(right(hints.get(name)), ODD), name)
    return method(**given)


def public(kind: type) -> list[str]:
    return sorted(
        name
        for name, member in vars(kind).items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
    )


async def settle(found: Any, limit_s: float) -> None:
    """Wait for whatever a call has returned."""
    async with asyncio.timeout(limit_s):
        if isinstance(found, AsyncGenerator):
            try:
                for _ in range(3):
                    await anext(found)
            except StopAsyncIteration:
                pass
            finally:
                await found.aclose()
        elif isinstance(found, Awaitable):
            found = await found
    if isinstance(found, (LedgerWriter, LogWriter)):
        await found.abort()


def must_say_something(error: BkboxError) -> None:
    assert str(error), f"{type(error).__name__} says nothing"
    assert " object at 0x" not in str(error), error


class Handles:
    """A client, and handles that can still be used."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._made: dict[type, Any] = {}

    async def one(self, kind: type) -> Any:
        made = self._made.get(kind)
        if made is None or getattr(made, "failure", None) or getattr(made, "was_abandoned", False):
            await self.drop(kind)
            made = self._made[kind] = await self._make(kind)
        return made

    async def drop(self, kind: type) -> None:
        made = self._made.pop(kind, None)
        if isinstance(made, (LedgerWriter, LogWriter)):
            await made.abort()

    async def close(self) -> None:
        for kind in tuple(self._made):
            await self.drop(kind)

    async def _make(self, kind: type) -> Any:
        client = self.client
        if kind is LedgerWriter:
            return await client.create_ledger()
        if kind is LogWriter:
            return await Log(client, "orders").open_writer()
        if kind is Log:
            async with await Log(client, "read").open_writer() as writer:
                await writer.append_many([b"a", b"b"])
            return Log(client, "read")
        if kind is LogFile:
            await self.one(Log)
            return LogFile(Log(client, "read").read())
        if kind is LeaderElection:
            return LeaderElection(client, "orders", "me")
        if kind is LedgerReader:
            async with await client.create_ledger() as writer:
                await writer.append_many([b"%d" % number for number in range(5)])
            return await client.open_ledger(writer.ledger_id)
        return client


KINDS = (Client, LedgerWriter, LedgerReader, Log, LogWriter, LogFile, LeaderElection)
ASYNC_CALLS = [
    (kind, name)
    for kind in KINDS
    for name in public(kind)
    # Those for tools take what they are given by other parts; a client that is closed is closed.
    if (kind, name) not in {(Client, "leave"), (Client, "close")}
]


def fuzz(test: Callable[[st.DataObject], None]) -> None:
    """Run for a moment, or as long as the variable says."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # sizes that are legal and unwise
        fuzztime.fuzz(given(st.data())(test), 150)


@pytest.mark.timeout(900)
def test_asynchronous_calls(tmp_path: Path) -> None:
    with bookies(tmp_path) as made, asyncio.Runner() as runner:
        connecting = bkbox.connect(made.uri, quarantine_failures=0)
        client = runner.run(connecting.__aenter__())
        handles = Handles(client)

        async def go(kind: type, name: str, data: st.DataObject) -> None:
            handle = await handles.one(kind)
            called = f"{kind.__name__}.{name}"
            try:
                member = getattr(handle, name)
                found = call(data, member) if callable(member) else member
                limit_s = WAIT_S if called in MAY_WAIT else HANG_S
                await settle(found, limit_s)
            except BkboxError as error:
                must_say_something(error)
            except TimeoutError:
                assert called in MAY_WAIT, f"{called} hangs"
                await handles.drop(kind)
            if name in ("close", "abort", "aclose", "delete"):
                await handles.drop(kind)

        runner.run(handles.one(Log))
        fuzz(lambda data: runner.run(go(*data.draw(st.sampled_from(ASYNC_CALLS)), data)))

        async def still_works() -> None:
            async with await client.create_ledger() as writer:
                assert await writer.append(b"x") == 0
            async with await Log(client, "orders").open_writer() as log_writer:
                await log_writer.append(b"x")

        runner.run(handles.close())
        runner.run(still_works())
        runner.run(connecting.__aexit__(None, None, None))


SYNC_KINDS = (sync.Client, sync.LedgerWriter, sync.LedgerReader, sync.Log, sync.LogWriter)
SYNC_CALLS = [(kind, name) for kind in SYNC_KINDS for name in public(kind)]


@pytest.mark.timeout(900)
def test_synchronous_calls(tmp_path: Path) -> None:
    with bookies(tmp_path) as made, sync.connect(made.uri, quarantine_failures=0) as client:

        def handle_of(kind: type) -> Any:
            if kind is sync.LedgerWriter:
                return client.create_ledger()
            if kind is sync.LogWriter:
                return client.log("orders").open_writer()
            if kind is sync.Log:
                return client.log("orders")
            if kind is sync.LedgerReader:
                return client.open_ledger(0)
            return client

        with client.create_ledger(ledger=0) as first:
            first.append_many([b"a", b"b"])
        kept: dict[type, Any] = {}

        def dropped(kind: type) -> None:
            handle = kept.pop(kind, None)
            if isinstance(handle, (sync.LedgerWriter, sync.LogWriter)):
                handle.abort()

        def go(kind: type, name: str, data: st.DataObject) -> None:
            handle = kept.get(kind)
            if handle is None or getattr(handle, "failure", None):
                dropped(kind)
                handle = kept[kind] = handle_of(kind)
            called = f"{kind.__name__}.{name}"
            fixed: dict[str, Any] = {}
            if called in MAY_WAIT:
                fixed = {"timeout_s": data.draw(st.sampled_from([0.1, 0.2, -1, "x"]), "timeout_s")}
            try:
                member = getattr(handle, name)
                if (kind, name) == (sync.Client, "delete_ledger"):
                    fixed["ledger"] = data.draw(ODD.filter(lambda each: each not in (0,)), "ledger")
                found = call(data, member, **fixed) if callable(member) else member
                if isinstance(found, Future):
                    found.exception(HANG_S if "entry_id" not in str(found) else WAIT_S)
                if isinstance(found, Iterator):
                    if called not in MAY_WAIT:
                        next(found, None)
                    found.close()  # type: ignore[attr-defined]
                if isinstance(found, (sync.LedgerWriter, sync.LogWriter)):
                    found.abort()
            except BkboxError as error:
                must_say_something(error)
            except TimeoutError:
                assert "timeout_s" in inspect.signature(member).parameters or isinstance(
                    found, Future
                )
                dropped(kind)
            if name in ("close", "abort", "delete") or called == "LedgerWriter.append_nowait":
                dropped(kind)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            fuzz(lambda data: go(*data.draw(st.sampled_from(SYNC_CALLS)), data))
            for kind in tuple(kept):
                dropped(kind)


def test_what_is_made(tmp_path: Path) -> None:
    """Constructors, options and ``connect``."""
    with bookies(tmp_path) as made, asyncio.Runner() as runner:
        connecting = bkbox.connect(made.uri)
        client = runner.run(connecting.__aenter__())

        def options(data: st.DataObject, kind: type, *without: str) -> dict[str, Any]:
            hints = typing.get_type_hints(kind)
            names = data.draw(st.sets(st.sampled_from(sorted({*hints} - {*without})), max_size=3))
            return {name: data.draw(st.one_of(right(hints[name]), ODD), name) for name in names}

        async def connects(given: dict[str, Any], data: st.DataObject) -> None:
            uri = data.draw(st.sampled_from([made.uri, made.uri, 5, "", "zk", "sqlite:/no/such"]))
            async with bkbox.connect(uri, **given):
                pass

        def go(data: st.DataObject) -> None:
            what = data.draw(st.sampled_from(range(8)))
            # Scripts are executed: not those that are drawn.
            given = options(data, ClientOptions, "topology_script", "rack_map")
            try:
                match what:
                    case 0:
                        ClientOptions(**given)
                    case 1:
                        LogOptions(**options(data, LogOptions))
                    case 2:
                        runner.run(connects(given, data))
                    case 3:
                        call(data, Position.parse)
                    case 4:
                        call(data, Log, client=client)
                    case 5:
                        call(data, LeaderElection, client=client)
                    case 6:
                        runner.run(log.logs(client))
                    case 7:
                        call(data, BookKeeperHandler).close()
            except BkboxError as error:
                must_say_something(error)

        fuzz(go)
        runner.run(connecting.__aexit__(None, None, None))
