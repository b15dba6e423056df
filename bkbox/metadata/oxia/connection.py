"""A connection to an Oxia cluster: the map of its shards, a channel to each server, and calls that reach the leader.

- A read is repeated until it succeeds. A write is one attempt: it raises LostReplyError where it may have been carried
  out (failures.py), and is repeated only where it certainly was not.
- Nothing gives up by itself. ``deadline()`` bounds its block, and raises MetadataUnavailableError.
- The map of shards is followed: from the server that the URI names, and if that does not answer from the leaders.
- ``close()`` ends everything that waits, with HandleClosedError.

Sessions are in sessions.py, notifications in notifications.py.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import grpc

from bkbox.base import wait_notices
from bkbox.base.backoff import Backoff
from bkbox.config.metadata_uri import OxiaUri
from bkbox.errors import (
    BootError,
    ConfigError,
    HandleClosedError,
    MetadataError,
    MetadataUnavailableError,
)
from bkbox.metadata.oxia.failures import NotLeaderError, OxiaRefusalError
from bkbox.metadata.oxia.server import Server, ending
from bkbox.metadata.oxia.shards import Shards, shards_of
from bkbox.metadata.tree.nodes import LostReplyError
from bkbox.security.secret_files import read_secret, read_text, read_word

T = TypeVar("T")

RETRY_S = 0.05
RETRY_MAX_S = 2.0
CLOSE_GRACE_S = 2.0
"""Time, in seconds, that servers are given to confirm the end of a session."""

_log = logging.getLogger(__name__)


class ShardMovedError(MetadataError):
    """The shard is no longer in the map. Stays inside this package."""


class Connection:
    """See above; made by ``open``."""

    def __init__(self, uri: OxiaUri, wait_s: float, rng: random.Random) -> None:
        """Raises ConfigError for credentials that cannot be read."""
        self.uri = uri
        self.wait_s = wait_s
        self.closed = False
        self.shards = Shards()
        self._rng = rng
        self._credentials, self._metadata = credentials_of(uri)
        self._servers: dict[str, Server] = {}
        self._known: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._wait_logged = False

    @classmethod
    async def open(cls, uri: OxiaUri, *, wait_s: float, rng: random.Random) -> Connection:
        """Connect to the cluster within ``wait_s``.

        Raises MetadataUnavailableError, ConfigError, MetadataError (the namespace, the credentials).
        """
        connection = cls(uri, wait_s, rng)
        connection.start(connection._follow_shards(), "oxia-shards")
        try:
            async with connection.deadline():
                await connection._known
        except BaseException:
            await connection.close()
            raise
        return connection

    async def close(self) -> None:
        """Close the channels, and end what waits. Idempotent."""
        self.closed = True
        async with ending(sum(server.calls for server in self._servers.values())):
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
            while self._servers:
                await self._servers.popitem()[1].close()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """A task that ends with the connection."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of ``work``, which the end of the connection ends with HandleClosedError."""
        if self.closed:
            work.close()
            raise self.closed_error()
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if self.closed and current is not None and not current.cancelling():
                raise self.closed_error() from None
            raise
        finally:
            self._tasks.discard(task)

    def backoff(self) -> Backoff:
        return Backoff(RETRY_S, RETRY_MAX_S, self._rng)

    def closed_error(self) -> HandleClosedError:
        return HandleClosedError(f"the connection to Oxia ({self.uri.host}) was closed")

    @asynccontextmanager
    async def deadline(self, wait_s: float | None = None) -> AsyncIterator[None]:
        """Bound the block by ``wait_s``, else by the time-out of the connection."""
        seconds = self.wait_s if wait_s is None else wait_s
        loop = asyncio.get_running_loop()
        waiting = loop.call_later(wait_notices.NOTICE_AFTER_S, self._log_wait, seconds)
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            how = "does not answer" if self.shards.known else "cannot be reached"
            raise MetadataUnavailableError(
                f"Oxia ({self.uri.host}) {how} after {seconds:g} s: check that it runs, that its shards have leaders, "
                "and that they can be reached from this host"
            ) from None
        finally:
            waiting.cancel()

    def _log_wait(self, seconds: float) -> None:
        """Logs a lost connection once each time."""
        if not (self._wait_logged or self.closed):
            self._wait_logged = True
            wait_notices.notify(f"waiting for Oxia ({self.uri.host}), for {seconds:g} s at most")

    # ---- calls ------------------------------------------------------------------------------

    async def read(
        self, shard_of: Callable[[], int], call: Callable[[Server, int], Awaitable[T]]
    ) -> T:
        """A call to the leader of a shard, until it succeeds.

        Raises ShardMovedError if ``shard_of`` does, and what is definite.
        """
        return await self.run(self._at_leader(shard_of, call, repeat=True))

    async def try_write(
        self, shard_of: Callable[[], int], call: Callable[[Server, int], Awaitable[T]]
    ) -> T:
        """One attempt of a write at the leader. Raises LostReplyError, and what is definite."""
        return await self.run(self._at_leader(shard_of, call, repeat=False))

    def shard_of(self, key: str) -> Callable[[], int]:
        """The shard of a key, whenever asked."""
        return lambda: self.shards.shard_of(key)

    def same_shard(self, number: int) -> Callable[[], int]:
        """This shard. Raises ShardMovedError once it is not in the map."""

        def shard() -> int:
            if number not in self.shards.numbers():
                raise ShardMovedError(f"shard {number} of Oxia ({self.uri.host}) has been split")
            return number

        return shard

    async def _at_leader(
        self,
        shard_of: Callable[[], int],
        call: Callable[[Server, int], Awaitable[T]],
        *,
        repeat: bool,
    ) -> T:
        backoff = self.backoff()
        while True:
            shard = shard_of()
            leader = self.shards.leader_of(shard)
            if leader:
                try:
                    result = await call(self._server(leader), shard)
                except NotLeaderError as error:
                    if error.leader is not None:
                        self.shards.redirect(shard, error.leader)
                except LostReplyError:
                    if not repeat:
                        await asyncio.sleep(RETRY_S)  # the leader may be changing just now
                        raise
                else:
                    self._wait_logged = False
                    return result
            await self.shards.next_change(backoff.next_s())

    def _server(self, address: str) -> Server:
        server = self._servers.get(address)
        if server is None:
            server = self._servers[address] = Server(address, self._credentials, self._metadata)
        return server

    # ---- the shards -------------------------------------------------------------------------

    async def _follow_shards(self) -> None:
        """Take the map from one server after the other."""
        backoff = self.backoff()
        turn = 0
        while True:
            sources = [
                self.uri.host,
                *(each for each in self.shards.leaders() if each != self.uri.host),
            ]
            address = sources[turn % len(sources)]
            turn += 1
            try:
                async for assignments in self._server(address).shard_assignments(
                    self.uri.namespace
                ):
                    self.shards.update(shards_of(self.uri.namespace, assignments))
                    if not self._known.done():
                        self._known.set_result(None)
                    turn = sources.index(address)
                    backoff.reset()
            except OxiaRefusalError as error:
                if not self._known.done():
                    self._known.set_exception(error)
                _log.warning("%s", error)
            except MetadataError as error:
                _log.debug("the shards of Oxia are not known anew: %s", error)
            await asyncio.sleep(backoff.next_s())


def credentials_of(
    uri: OxiaUri,
) -> tuple[grpc.ChannelCredentials | None, tuple[tuple[str, str], ...]]:
    """The credentials of the channels, and the metadata of each call. Raises ConfigError for files that cannot be
    read, or whose secret others may read.
    """
    access = uri.access
    credentials: grpc.ChannelCredentials | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    try:
        if access.tls_ca_file is not None:
            key = certificate = None
            if access.tls_key_file is not None and access.tls_certificate_file is not None:
                key = read_secret(access.tls_key_file, "tls_key_file")
                certificate = read_text(
                    access.tls_certificate_file, "tls_certificate_file"
                ).encode()
            authority = read_text(access.tls_ca_file, "tls_ca_file").encode()
            credentials = grpc.ssl_channel_credentials(authority, key, certificate)
        if access.token_file is not None:
            token = read_word(access.token_file, "token_file")
            metadata = (("authorization", f"Bearer {token}"),)
    except BootError as error:
        raise ConfigError([str(error)]) from None
    return credentials, metadata
