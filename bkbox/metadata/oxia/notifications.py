"""Watches of records, fed by the shards' streams of notifications: nothing is polled.

The streams begin with the first watch. The first batch of a stream is empty and says that later changes will be
told; a watch is set before its record is read, and the record is read once the stream of its shard has begun. A stream
that ended may have missed changes: when it begins anew, all watches fire. Source: leader_controller.go
(GetNotifications), notifications_tracker.go.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict

from bkbox.errors import MetadataError
from bkbox.metadata.oxia.connection import Connection, ShardMovedError
from bkbox.metadata.oxia.failures import OxiaRefusalError
from bkbox.metadata.oxia.messages import NotificationType
from bkbox.metadata.oxia.server import Server
from bkbox.metadata.oxia.shards import NO_SHARD
from bkbox.metadata.tree.watches import Watch
from bkbox.wire.protobuf import Values

_log = logging.getLogger(__name__)


class Notifications:
    """The watches of one connection, by key."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._watches: defaultdict[str, set[Watch]] = defaultdict(set)
        self._live: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self._followed: set[int] = set()
        self._refusals: dict[int, OxiaRefusalError] = {}

    async def set_watch(self, key: str, watch: Watch) -> None:
        """Let a watch fire at the next change of a key: one after this call has returned.

        Raises OxiaRefusalError if the namespace has no notifications.
        """
        self._watches[key].add(watch)
        await self._connection.run(self._until_live(key))

    def forget(self, watch: Watch) -> None:
        for key, watches in list(self._watches.items()):
            watches.discard(watch)
            if not watches:
                del self._watches[key]

    def fire_all(self) -> None:
        watches, self._watches = self._watches, defaultdict(set)
        for waiting in watches.values():
            for watch in waiting:
                watch.fired.set()

    async def _until_live(self, key: str) -> None:
        backoff = self._connection.backoff()
        while True:
            shard = self._connection.shards.shard_of(key)
            if shard == NO_SHARD:
                await self._connection.shards.next_change(backoff.next_s())
                continue
            if shard not in self._followed:
                self._followed.add(shard)
                self._connection.start(self._follow(shard), f"oxia-notifications-{shard}")
            await self._live[shard].wait()
            if shard in self._refusals:
                raise self._refusals[shard]
            if self._connection.shards.shard_of(key) == shard:
                return

    async def _follow(self, shard: int) -> None:
        """Follow one shard for as long as it is in the map."""
        backoff = self._connection.backoff()
        try:
            while True:
                try:
                    await self._connection.read(
                        self._connection.same_shard(shard), self._one_stream
                    )
                    backoff.reset()
                except ShardMovedError:
                    return
                except OxiaRefusalError as error:
                    _log.error("%s", error)
                    self._refusals[shard] = error
                    self._live[shard].set()
                    return
                await asyncio.sleep(backoff.next_s())
        finally:
            if shard not in self._refusals:
                self._followed.discard(shard)
                self._live[shard].clear()
            self.fire_all()

    async def _one_stream(self, server: Server, shard: int) -> None:
        """Follow one stream to its end. Raises MetadataError if it ends before it began."""
        has_begun = False
        try:
            async for batch in server.notifications(shard):
                if not has_begun:
                    has_begun = True
                    self._live[shard].set()
                    self.fire_all()
                self._fire(batch)
        except MetadataError:
            if not has_begun:
                raise
        finally:
            if has_begun:
                self._live[shard].clear()

    def _fire(self, batch: Values) -> None:
        for entry in batch["notifications"]:
            if entry.get("value", {}).get("type") is NotificationType.KEY_RANGE_DELETED:
                self.fire_all()
                continue
            for watch in self._watches.pop(entry.get("key", ""), ()):
                watch.fired.set()
