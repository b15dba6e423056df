"""What may be done wrong is told, each with its own error, and nothing is broken by it.

(Writing after closing, passwords, frames and reading past the end: test_client_ledgers.py.)
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from bkbox import metadata
from bkbox.base.ids import EntryId
from bkbox.client import Client, ClientOptions, LedgerWriter, sync
from bkbox.client.log import Log, LogWriter, Position
from bkbox.errors import ForkedError, HandleClosedError, WrongLoopError
from tests.client.tinybookie import bookies, cluster


def go(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 120))


def test_a_client_belongs_to_its_loop(tmp_path: Path) -> None:
    kept: list[Any] = []

    async def first() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await client.create_ledger()
            await writer.append(b"x")
            reader = await client.open_ledger(writer.ledger_id, recovery=False)
            deferred = await client.create_ledger(deferred_sync=True)
            await deferred.append(b"x")
            log = await Log(client, "orders").open_writer()
            position = await log.append(b"x")
            kept.extend((client, writer, reader))

            def elsewhere() -> None:
                for use in (
                    lambda: client.metadata(0),
                    lambda: reader.read_entry(0),
                    lambda: writer.append(b"y"),
                    *uses_of(writer),
                    *uses_of(deferred),
                    deferred.force,
                    lambda: log.append(b"y"),
                    lambda: log.append_once(b"y", "somebody", 1),
                    log.flush,
                    *uses_of(log),
                    client.close,
                ):
                    with pytest.raises(WrongLoopError, match="another event loop"):
                        asyncio.run(use())
                for handle in (writer, log):
                    with pytest.raises(WrongLoopError, match=r"no event loop.*bkbox\.client\.sync"):
                        handle.append_nowait(b"y")

            thread = threading.Thread(target=elsewhere)
            thread.start()
            while thread.is_alive():
                await asyncio.sleep(0.01)
            thread.join()
            assert await writer.append(b"z") == 1, "nothing was broken"
            assert (await writer.close()).last_entry == 1
            assert await deferred.append(b"z") == await deferred.force() == 1
            assert (await deferred.close()).last_entry == 1
            assert await log.append_once(b"z", "somebody", 1) == Position(
                position.ledger_id, EntryId(position.entry_id + 1)
            )
            await log.close()
            assert [each.payload async for each in Log(client, "orders").read()] == [b"x", b"z"]

    go(first())

    async def second() -> None:
        client, writer, reader = kept
        for use in (
            client.metadata(0),
            reader.read_entry(0),
            reader.read_last(),
            anext(client.watch(0)),
        ):
            with pytest.raises(HandleClosedError, match="client is closed"):
                await use
        with pytest.raises(HandleClosedError):
            await writer.append(b"late")
        with pytest.raises(WrongLoopError, match="is closed: connect again"):
            await writer.close()
        await writer.abort()  # of what has ended
        await client.close()

    go(second())


def uses_of(writer: LedgerWriter | LogWriter) -> list[Callable[[], Coroutine[Any, Any, Any]]]:
    """What waits for a writer, or ends it."""

    async def entered() -> None:
        async with writer:
            pass

    return [lambda: writer.append_many([b"y"]), writer.drain, writer.close, writer.abort, entered]


def test_a_loop_that_was_closed(tmp_path: Path) -> None:
    async def first() -> Client:
        store = await metadata.create(f"sqlite:{tmp_path}/cluster.db")
        client = Client(store, ClientOptions(), random.Random(1))
        assert [each async for each in client.ledgers()] == []
        return client

    client = asyncio.run(first())

    async def second() -> None:
        with pytest.raises(WrongLoopError, match="is closed: connect again"):
            await client.create_ledger()
        await client.close()
        await client.store.close()

    asyncio.run(second())


def test_a_process_that_was_forked(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await client.create_ledger()
            await writer.append(b"x")
            log = await Log(client, "orders").open_writer()
            reader, sender = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    said = _of_the_child(client, writer, log)
                except BaseException as error:  # noqa: BLE001 - whatever it is, the child ends here
                    said = [f"failed: {error!r}"]
                os.write(sender, "\n".join(said).encode())
                os._exit(0)
            os.close(sender)
            os.waitpid(child, 0)
            text = os.read(reader, 10_000).decode()
            os.close(reader)
            wanted = (
                f"ForkedError: the client was made in process {os.getpid()} and is used in {child}"
            )
            assert text.count(wanted) == len(text.splitlines()) == 18, text
            assert await writer.append(b"y") == 1
            await writer.close()
            await log.append(b"y")
            await log.close()

    go(test())


def _of_the_child(client: Client, writer: LedgerWriter, log: LogWriter) -> list[str]:
    """What each use of a handle says. There is no event loop: what a coroutine does at once is what counts."""

    async def failed(handle: LedgerWriter | LogWriter) -> None:
        async with handle:
            raise ValueError

    said = []
    for handle in (writer, log):
        with pytest.raises(ForkedError) as found:
            handle.append_nowait(b"from the child")
        said.append(f"ForkedError: {found.value}")
    for use in (
        lambda: writer.append(b"y"),
        writer.force,
        *uses_of(writer),
        lambda: log.append(b"y"),
        lambda: log.append_once(b"y", "somebody", 1),
        log.flush,
        *uses_of(log),
        client.close,
    ):
        work = use()
        with pytest.raises(ForkedError) as found:
            work.send(None)
        said.append(f"ForkedError: {found.value}")
    for handle in (writer, log):
        with pytest.raises(ValueError) as hidden:  # noqa: PT011 - it is the body's own
            failed(handle).send(None)
        assert "forked" in hidden.value.__notes__[0]
    return said


def test_a_process_that_was_forked_from_one_without_a_loop(tmp_path: Path) -> None:
    """Its thread is not in the child: a call would wait for ever."""
    with (
        bookies(tmp_path) as made,
        sync.connect(made.uri) as client,
        client.create_ledger() as writer,
    ):
        writer.append(b"x")
        reader, sender = os.pipe()
        child = os.fork()
        if child == 0:
            said = []
            for use in (lambda: writer.append(b"y"), lambda: client.metadata(0), writer.close):
                try:
                    use()
                except ForkedError as error:
                    said.append(str(error))
            os.write(sender, "\n".join(said).encode())
            os._exit(0)
        os.close(sender)
        os.waitpid(child, 0)
        text = os.read(reader, 4000).decode()
        os.close(reader)
        assert text.count("which was forked from it: connect again there") == 3
        assert writer.append(b"y") == 1


def test_what_is_forgotten_is_warned_of(tmp_path: Path) -> None:
    script = f"""
    import asyncio, gc, random, sys
    sys.path[:0] = {sys.path!r}
    from tests.client.tinybookie import cluster
    from pathlib import Path
    from bkbox.client import Client, ClientOptions
    from bkbox.client.log import Log

    async def main():
        async with cluster(Path({str(tmp_path)!r})) as made:
            client = Client(made.store, ClientOptions(), random.Random(1))
            writer = await client.create_ledger()
            writer.append(b"forgotten await")
            del writer
            await client.close()
            client = Client(made.store, ClientOptions(), random.Random(1))
            del client
            gc.collect()
            client = Client(made.store, ClientOptions(), random.Random(1))
            writer = await client.create_ledger()
            log = await Log(client, "orders").open_writer()
    asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for text in (
        "RuntimeWarning: coroutine 'LedgerWriter.append' was never awaited",
        "ResourceWarning: the writer of ledger 0 was not closed",
        "ResourceWarning: a client was not closed",
        "ResourceWarning: the writer of ledger 1 was not closed before its event loop ended",
        "ResourceWarning: the writer of log orders was not closed before its event loop ended",
    ):
        assert text in done.stderr, done.stderr


def test_a_client_that_cannot_be_made_says_only_that(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made:
            with pytest.raises(Exception, match=r"/no/such"):
                Client(made.store, ClientOptions(topology_script="/no/such"), random.Random(1))
            gc.collect()

    go(test())
