"""Sessions with the shards: one for each shard that an ephemeral record was created in, kept alive by heartbeats.

A session of Oxia belongs to one shard and survives a change of its leader. It ends when the leader has had no heartbeat
for the session time-out; from then on its id is refused. Only the leader's word counts: a session whose heartbeats fail
may be alive or not, and ``unconfirmed_since`` says since when. Source: session_manager.go, Session.java.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from bkbox.errors import MetadataError
from bkbox.metadata.oxia.connection import CLOSE_GRACE_S, Connection, ShardMovedError
from bkbox.metadata.oxia.failures import SessionExpiredError
from bkbox.metadata.tree.nodes import LostReplyError

HEARTBEATS = 5
"""Heartbeats in one session time-out."""

_log = logging.getLogger(__name__)


class Owner(NamedTuple):
    """The session that an ephemeral record belongs to. A shard never gives a number twice."""

    shard: int
    number: int


class Sessions:
    """The sessions of one connection. ``lost`` counts those that have expired."""

    def __init__(
        self,
        connection: Connection,
        identity: str,
        timeout_s: float,
        on_loss: Callable[[], None],
    ) -> None:
        self.timeout_s = timeout_s
        self.lost = 0
        self.unconfirmed_since: float | None = None
        self._connection = connection
        self._identity = identity
        self._on_loss = on_loss
        self._live: dict[int, Owner] = {}
        self._former: set[Owner] = set()
        self._unconfirmed: set[Owner] = set()
        self._changed = asyncio.Event()
        self._creating: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    def is_live(self, owner: object) -> bool:
        return owner in self._live.values()

    def is_former(self, owner: object) -> bool:
        return owner in self._former

    async def of_shard(self, shard: int) -> Owner:
        """The session with a shard, created if there is none. Raises ShardMovedError."""
        async with self._creating[shard]:
            if shard not in self._live:
                request = {
                    "session_timeout_ms": round(self.timeout_s * 1000),
                    "client_identity": self._identity,
                }
                # A session whose response was lost ends by itself.
                number = await self._connection.read(
                    self._connection.same_shard(shard),
                    lambda server, at: server.create_session(request | {"shard": at}),
                )
                owner = self._live[shard] = Owner(shard, number)
                self._connection.start(self._keep_alive(owner), f"oxia-session-{shard}")
            return self._live[shard]

    def expired(self, owner: Owner) -> None:
        """The leader has no such session any more."""
        if self._live.get(owner.shard) == owner:
            _log.warning(
                "the session %d with shard %d of Oxia (%s) has expired",
                owner.number,
                owner.shard,
                self._connection.uri.host,
            )
            del self._live[owner.shard]
            self._former.add(owner)
            self._confirm(owner)
            self.lost += 1
            self._on_loss()

    async def until_unconfirmed(self) -> None:
        """Wait until a heartbeat fails, or until the connection is closed."""
        while self.unconfirmed_since is None and not self._connection.closed:
            await self._changed.wait()

    async def close(self) -> None:
        """End all sessions, and with them their records, as far as leaders answer within CLOSE_GRACE_S."""
        live, self._live = self._live, {}
        self._changed.set()
        ending = [self._end(owner) for owner in live.values() if owner not in self._unconfirmed]
        await asyncio.gather(*ending)

    async def _end(self, owner: Owner) -> None:
        try:
            async with asyncio.timeout(CLOSE_GRACE_S):
                await self._connection.read(
                    self._connection.same_shard(owner.shard),
                    lambda server, _: server.close_session(
                        {"shard": owner.shard, "session_id": owner.number}, CLOSE_GRACE_S
                    ),
                )
        except SessionExpiredError:
            return
        except (MetadataError, TimeoutError) as error:
            _log.warning("a session with Oxia stays until it expires: %s", error)

    async def _keep_alive(self, owner: Owner) -> None:
        interval_s = self.timeout_s / HEARTBEATS
        while self._live.get(owner.shard) == owner:
            await asyncio.sleep(interval_s)
            try:
                async with asyncio.timeout(interval_s):
                    await self._connection.try_write(
                        self._connection.same_shard(owner.shard),
                        lambda server, _: server.keep_alive(
                            {"shard": owner.shard, "session_id": owner.number}, interval_s
                        ),
                    )
            except (SessionExpiredError, ShardMovedError):
                self.expired(owner)
            except (LostReplyError, TimeoutError):
                self._doubt(owner)
            except MetadataError as error:
                _log.warning("a heartbeat to Oxia was refused: %s", error)
                self._doubt(owner)
            else:
                self._confirm(owner)

    def _doubt(self, owner: Owner) -> None:
        if self._live.get(owner.shard) == owner:
            self._unconfirmed.add(owner)
            if self.unconfirmed_since is None:
                _log.warning(
                    "Oxia (%s) does not answer the heartbeats of a session",
                    self._connection.uri.host,
                )
                self.unconfirmed_since = asyncio.get_running_loop().time()
                self._changed.set()

    def _confirm(self, owner: Owner) -> None:
        self._unconfirmed.discard(owner)
        if self.unconfirmed_since is not None and not self._unconfirmed:
            outage_s = asyncio.get_running_loop().time() - self.unconfirmed_since
            _log.warning("Oxia (%s) is back after %.1f s", self._connection.uri.host, outage_s)
            self.unconfirmed_since = None
            self._changed.clear()
