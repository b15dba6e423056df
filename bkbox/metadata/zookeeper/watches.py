"""Following a value in ZooKeeper: now, and after each change of the znodes that it was read from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from bkbox.errors import HandleClosedError
from bkbox.metadata.zookeeper.connection import Connection, Watch

V = TypeVar("V")


async def follow(zk: Connection, read: Callable[[Watch], Awaitable[V]]) -> AsyncIterator[V]:
    """The value that ``read`` gives, now and whenever it differs from the one before.

    ``read`` reads everything with the watch that it is given. Raises what the first ``read``
    raises, MetadataUnavailableError included; later reads wait until ZooKeeper is back. Ends when
    the connection is closed.
    """
    watch = Watch()
    try:
        async with zk.deadline():
            value = await read(watch)
        yield value
        while True:
            await watch.fired.wait()
            watch.fired.clear()
            try:
                newer = await read(watch)
            except HandleClosedError:
                return
            if newer != value:
                value = newer
                yield value
    finally:
        zk.forget(watch)
