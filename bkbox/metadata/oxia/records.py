"""Records as nodes of a tree, and single attempts of reads and writes.

A record has two numbers. ``version_id`` is drawn from a counter of its shard at each write, so that no two states of
any record have the same: writes name it, and a deletion hits exactly the record that was seen. The count of
modifications is 0 at the creation and grows by one: that is the version which the rest of bkbox sees.
"""

from __future__ import annotations

from dataclasses import dataclass

from bkbox.metadata.oxia.connection import Connection, ShardMovedError
from bkbox.metadata.oxia.failures import SessionExpiredError
from bkbox.metadata.oxia.messages import ABSENT, Status
from bkbox.metadata.oxia.server import Server
from bkbox.metadata.oxia.sessions import Owner
from bkbox.metadata.tree.nodes import BadVersionError, LostReplyError, Node
from bkbox.wire.protobuf import Values


@dataclass(frozen=True, slots=True)
class Record(Node):
    """A record; ``writer`` identifies the write that made this state."""

    version_id: int
    writer: str


class Records:
    """Single attempts; each raises LostReplyError where it may have been carried out."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def get(self, key: str, *, with_value: bool = True) -> Record | None:
        """Read a record; repeated until it succeeds."""
        get = {"key": key, "include_value": with_value}
        shard_read = -1

        async def read(server: Server, shard: int) -> Values:
            nonlocal shard_read
            shard_read = shard
            return await server.read({"shard": shard, "gets": [get]})

        found = await self._connection.read(self._connection.shard_of(key), read)
        if _status(found) is Status.KEY_NOT_FOUND:
            return None
        return _record(shard_read, found.get("value", b""), found.get("version", {}))

    async def try_put(
        self,
        key: str,
        value: bytes,
        writer: str,
        *,
        expected: int | None,
        owner: Owner | None = None,
    ) -> Record:
        """Write a record. ``expected``: its version id, ABSENT, or None for any.

        Raises BadVersionError, SessionExpiredError, ShardMovedError (the owner is of another shard), LostReplyError.
        """
        put: Values = {"key": key, "value": value, "client_identity": writer}
        if expected is not None:
            put["expected_version_id"] = expected
        if owner is not None:
            put["session_id"] = owner.number
        shard, response = await self._write(key, {"puts": [put]}, owner)
        found = _only(response["puts"])
        match _status(found):
            case Status.OK:
                return _record(shard, value, found.get("version", {}))
            case Status.SESSION_DOES_NOT_EXIST:
                raise SessionExpiredError(f"there is no session for the record {key}")
            case _:
                raise BadVersionError(f"the record {key} is not at the version id {expected}")

    async def try_delete(self, key: str, expected: int) -> bool:
        """Delete a record with this version id; False if there is none. Raises BadVersionError, LostReplyError."""
        delete = {"key": key, "expected_version_id": expected}
        _, response = await self._write(key, {"deletes": [delete]})
        match _status(_only(response["deletes"])):
            case Status.OK:
                return True
            case Status.KEY_NOT_FOUND:
                return False
            case _:
                # A record that is gone is told as one of another version, too.
                if await self.get(key, with_value=False) is None:
                    return False
                raise BadVersionError(f"the record {key} is not at the version id {expected}")

    async def barrier(self, shard: int) -> None:
        """A write that changes nothing. Once it is committed its leader has every write that was acknowledged before,
        whichever server led the shard then.
        """
        nothing = {"key": "bkbox/barrier", "expected_version_id": ABSENT}
        while True:
            try:
                await self._connection.try_write(
                    self._connection.same_shard(shard),
                    lambda server, at: server.write(
                        self._connection.uri.namespace, {"shard": at, "deletes": [nothing]}
                    ),
                )
            except LostReplyError:
                continue
            return

    async def _write(
        self, key: str, request: Values, owner: Owner | None = None
    ) -> tuple[int, Values]:
        shard_written = -1

        async def write(server: Server, shard: int) -> Values:
            nonlocal shard_written
            if owner is not None and owner.shard != shard:
                raise ShardMovedError(f"the record {key} is in another shard than its session")
            shard_written = shard
            return await server.write(self._connection.uri.namespace, request | {"shard": shard})

        response = await self._connection.try_write(self._connection.shard_of(key), write)
        return shard_written, response


def record_of(shard: int, found: Values) -> tuple[str, Record]:
    """The key and the record in a GetResponse of a scan."""
    return found.get("key", ""), _record(shard, found.get("value", b""), found.get("version", {}))


def _record(shard: int, value: bytes, version: Values) -> Record:
    session = version.get("session_id")
    return Record(
        data=value,
        version=version.get("modifications", 0),
        ctime_ms=version.get("created_ms", 0),
        owner=None if session is None else Owner(shard, session),
        changed=0,
        version_id=version.get("version_id", 0),
        writer=version.get("client_identity", ""),
    )


def _status(found: Values) -> Status:
    status = found.get("status")
    return Status.OK if status is None else Status(status)


def _only(responses: list[Values]) -> Values:
    if len(responses) != 1:
        raise LostReplyError(f"{len(responses)} responses to one write")
    return responses[0]
