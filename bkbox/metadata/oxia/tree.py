"""Oxia as a tree of nodes: a record for each, whose key is the path.

Oxia knows no parents. Pulsar's driver makes them as empty records all the same, since it finds ledgers by listing
folders, and so does this: top down, before the record itself. They are never deleted, as Oxia cannot delete a folder on
the condition that it is empty: a record that another client creates at that moment would be in no list. Pulsar's driver
leaves them, too.

Listing relies on the order of keys in Oxia's namespaces, which is by the number of slashes first: the keys from
``folder/`` to ``folder//`` are the children of the folder and nothing else.

Certain writes
    Every write carries an identity of its own, which Oxia stores with the record. A write whose response was lost is
    repeated with the same version id; the stored identity tells whether an earlier attempt took effect. A late first
    attempt of a change or a deletion fails, since a version id never comes again. Only a creation that arrives late,
    after its repetition succeeded *and* the record was deleted again, would create it once more.

Source: OxiaMetadataStore.java, compare_with_slash.go, encode.go, db.go.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import TypeVar

from bkbox.metadata.oxia.connection import Connection, ShardMovedError
from bkbox.metadata.oxia.failures import SessionExpiredError
from bkbox.metadata.oxia.messages import ABSENT
from bkbox.metadata.oxia.notifications import Notifications
from bkbox.metadata.oxia.records import Record, Records, record_of
from bkbox.metadata.oxia.sessions import Owner, Sessions
from bkbox.metadata.tree.nodes import (
    BadVersionError,
    LostReplyError,
    Node,
    NodeExistsError,
    NoNodeError,
)
from bkbox.metadata.tree.tree import Tree
from bkbox.metadata.tree.watches import Watch
from bkbox.wire.protobuf import Values

T = TypeVar("T")


class OxiaTree(Tree):
    """See Tree."""

    noun = "record"

    def __init__(self, connection: Connection, identity: str, session_timeout_s: float) -> None:
        """``identity``: one that no other connection has."""
        self.wait_s = connection.wait_s
        self.session_timeout_s = session_timeout_s
        self._connection = connection
        self._records = Records(connection)
        self._notifications = Notifications(connection)
        self._sessions = Sessions(
            connection, identity, session_timeout_s, self._notifications.fire_all
        )
        self._identity = identity
        self._writes = itertools.count()

    # ---- the session ------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        return not self._connection.closed and self._sessions.unconfirmed_since is None

    @property
    def disconnected_since(self) -> float | None:
        return self._sessions.unconfirmed_since

    @property
    def session(self) -> object:
        return self._sessions.lost

    def is_own(self, node: Node) -> bool:
        return self._sessions.is_live(node.owner)

    def is_former(self, node: Node) -> bool:
        return self._sessions.is_former(node.owner)

    def owner_text(self, node: Node) -> str:
        assert isinstance(node.owner, Owner)
        return f"the session {node.owner.number} with shard {node.owner.shard} of Oxia"

    def deadline(self, wait_s: float | None = None) -> AbstractAsyncContextManager[None]:
        return self._connection.deadline(wait_s)

    async def until_disconnected(self) -> None:
        await self._sessions.until_unconfirmed()

    async def close(self) -> None:
        if not self._connection.closed:
            await self._sessions.close()
            await self._connection.close()
            self._notifications.fire_all()

    # ---- reads ------------------------------------------------------------------------------

    async def get(self, path: str) -> Record:
        found = await self._records.get(path)
        if found is None:
            raise NoNodeError(f"there is no record {path}")
        return found

    async def find(self, path: str, watch: Watch | None = None) -> Record | None:
        if watch is not None:
            await self._notifications.set_watch(path, watch)
        return await self._records.get(path)

    async def exists(self, path: str) -> Record | None:
        return await self._records.get(path, with_value=False)

    async def children(self, folder: str) -> list[str]:
        keys = await self._list(f"{folder}/", f"{folder}//")
        return [key.removeprefix(f"{folder}/") for key in keys]

    async def leaves(self, folder: str, first: str, last: str) -> AsyncIterator[str]:
        # One list instead of one for each folder: there may be many empty ones.
        depth = f"{folder}/{first}/".count("/")
        async with self.deadline():
            keys = await self._list(f"{folder}/{first}/", f"{folder}/{last}//")
        for key in keys:
            if key.count("/") == depth:
                yield key

    async def children_state(self, folder: str) -> object:
        async def scan(shard: int) -> list[tuple[str, int]]:
            def request(at: int) -> Values:
                return {
                    "shard": at,
                    "start_inclusive": f"{folder}/",
                    "end_exclusive": f"{folder}//",
                }

            found = await self._connection.read(
                self._connection.same_shard(shard),
                lambda server, at: server.range_scan(request(at)),
            )
            return [
                (key, each.version_id) for key, each in (record_of(shard, one) for one in found)
            ]

        return frozenset(itertools.chain.from_iterable(await self._on_all_shards(scan)))

    async def sync(self, path: str) -> None:
        while True:
            with suppress(ShardMovedError):
                await self._records.barrier(self._connection.shards.shard_of(path))
                return
            await self._connection.shards.next_change(self._connection.backoff().next_s())

    async def sync_children(self, folder: str) -> None:
        await self._on_all_shards(self._records.barrier)

    def forget(self, watch: Watch) -> None:
        self._notifications.forget(watch)

    async def _list(self, start: str, end: str) -> list[str]:
        """The keys of a range, sorted."""

        async def keys_of(shard: int) -> list[str]:
            return await self._connection.read(
                self._connection.same_shard(shard),
                lambda server, at: server.list_keys(
                    {"shard": at, "start_inclusive": start, "end_exclusive": end}
                ),
            )

        lists = await self._on_all_shards(keys_of)
        return sorted(set(itertools.chain.from_iterable(lists)))

    async def _on_all_shards(self, call: Callable[[int], Awaitable[T]]) -> list[T]:
        """The results of a call on each shard; anew if the shards are others by then."""
        shards = self._connection.shards
        while True:
            numbers = shards.numbers()
            try:
                results = await asyncio.gather(*map(call, numbers))
            except ShardMovedError:
                continue
            if shards.numbers() == numbers:
                return results

    # ---- writes -----------------------------------------------------------------------------

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        is_ours: Callable[[Node], bool] | None = None,
    ) -> Record:
        writer = self._new_writer()
        while True:
            owner = await self._owner_at(path) if ephemeral else None
            try:
                return await self._records.try_put(path, data, writer, expected=ABSENT, owner=owner)
            except ShardMovedError:
                continue
            except SessionExpiredError:
                assert owner is not None
                self._sessions.expired(owner)
            except (BadVersionError, LostReplyError) as error:
                found = await self._records.get(path)
                if found is not None and found.writer == writer:
                    return found
                if isinstance(error, BadVersionError) and found is not None:
                    raise NodeExistsError(f"the record {path} exists") from None

    async def create_branch(
        self,
        root: str,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        is_ours: Callable[[Node], bool] | None = None,
    ) -> Record:
        parent = path.rpartition("/")[0]
        if parent != root and await self.exists(parent) is None:
            await self.ensure_branch(root, parent)
        return await self.create(path, data, ephemeral=ephemeral)

    async def set_data(self, path: str, data: bytes, version: int | None) -> Record:
        writer = self._new_writer()
        while True:
            found = await self._records.get(path)
            if found is None:
                raise NoNodeError(f"there is no record {path}")
            if found.writer == writer:
                return found
            if version not in (None, found.version):
                raise BadVersionError(
                    f"the record {path} is at version {found.version}, not {version}"
                )
            with suppress(BadVersionError, LostReplyError):  # what is stored decides
                return await self._records.try_put(path, data, writer, expected=found.version_id)

    async def delete(self, path: str, seen: Node | None = None) -> None:
        assert seen is None or isinstance(seen, Record)
        while True:
            found = seen or await self._records.get(path, with_value=False)
            if found is None:
                return
            try:
                await self._records.try_delete(path, found.version_id)
            except LostReplyError:
                continue
            except BadVersionError:
                if seen is not None:
                    raise
            else:
                return

    async def delete_empty_parents(self, root: str, path: str) -> None:
        return  # see above

    async def count(self, path: str) -> int:
        """The number of changes of a record so far, this one included, which is one more than any other caller of this
        method was or will be told. The record becomes empty.
        """
        while True:
            with suppress(LostReplyError):  # skipping a number does no harm
                found = await self._records.try_put(path, b"", self._new_writer(), expected=None)
                return found.version

    async def _owner_at(self, path: str) -> Owner:
        while True:
            with suppress(ShardMovedError):
                return await self._sessions.of_shard(self._connection.shards.shard_of(path))
            await self._connection.shards.next_change(self._connection.backoff().next_s())

    def _new_writer(self) -> str:
        return f"{self._identity}:{next(self._writes)}"
