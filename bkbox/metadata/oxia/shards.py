"""The shards of a namespace: which one a key belongs to, and which server leads it.

A shard has a range of hashes: the lower 32 bits of XXH3 (64 bits, seed 0) of the key's UTF-8. A server says the whole
map whenever it changes; a redirection by another server counts until then. Source: shard_strategy_impl.go, hash.go,
HashRangeShardStrategy.java.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import xxhash

from bkbox.errors import MetadataError
from bkbox.metadata.oxia.messages import KeyRouter
from bkbox.wire.protobuf import Values

NO_SHARD = -1


class Shard(NamedTuple):
    """One shard; ``leader``: the address of its leader, empty while it has none."""

    number: int
    leader: str
    first_hash: int
    last_hash: int


def hash_of(key: str) -> int:
    """The hash that a key is placed by."""
    return xxhash.xxh3_64_intdigest(key.encode()) & 0xFFFFFFFF


def shards_of(namespace: str, assignments: Values) -> list[Shard]:
    """The shards in a ShardAssignments. Raises MetadataError for what is not known here."""
    for entry in assignments["namespaces"]:
        if entry.get("key") == namespace and entry.get("value"):
            return _shards(namespace, entry["value"])
    raise MetadataError(f"the shards of Oxia's namespace {namespace} are not known to its server")


def _shards(namespace: str, found: Values) -> list[Shard]:
    if found.get("router") is not KeyRouter.XXHASH3:
        raise MetadataError(f"the keys of Oxia's namespace {namespace} are not placed by XXHASH3")
    shards = []
    for each in found["assignments"]:
        hashes = each.get("hash_range")
        if hashes is None:
            raise MetadataError(f"a shard of Oxia's namespace {namespace} has no range of hashes")
        first, last = hashes.get("min", 0), hashes.get("max", 0)
        shards.append(Shard(each.get("shard", 0), each.get("leader", ""), first, last))
    return shards


class Shards:
    """The newest map; ``generation`` grows with each. ``changed`` is notified of it."""

    def __init__(self) -> None:
        self._shards: dict[int, Shard] = {}
        self.generation = 0
        self._changed = asyncio.Event()

    @property
    def known(self) -> bool:
        return bool(self._shards)

    def numbers(self) -> list[int]:
        return list(self._shards)

    def update(self, shards: list[Shard]) -> None:
        """Take the whole map."""
        self._set({shard.number: shard for shard in shards})

    def redirect(self, number: int, leader: str) -> None:
        """Another server leads the shard, until the next map says more."""
        if number in self._shards:
            self._set(self._shards | {number: self._shards[number]._replace(leader=leader)})

    def shard_of(self, key: str) -> int:
        """The shard of a key; if the map has a gap there NO_SHARD, which never has a leader."""
        hashed = hash_of(key)
        for shard in self._shards.values():
            if shard.first_hash <= hashed <= shard.last_hash:
                return shard.number
        return NO_SHARD

    def leader_of(self, number: int) -> str:
        """The address of the leader; empty without one."""
        shard = self._shards.get(number)
        return "" if shard is None else shard.leader

    def leaders(self) -> list[str]:
        return sorted({shard.leader for shard in self._shards.values() if shard.leader})

    async def next_change(self, wait_s: float) -> None:
        """Wait for the next change, ``wait_s`` at most."""
        event = self._changed
        try:
            async with asyncio.timeout(wait_s):
                await event.wait()
        except TimeoutError:
            return

    def _set(self, shards: dict[int, Shard]) -> None:
        if shards != self._shards:
            self._shards = shards
            self.generation += 1
            self._changed.set()
            self._changed = asyncio.Event()
