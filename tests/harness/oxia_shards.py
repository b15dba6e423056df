"""The shards of the stand-in for Oxia (oxia_server.py): records, sessions, notifications, in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import xxhash

from bkbox.metadata.oxia import messages as m
from bkbox.wire.protobuf import Values


def sort_key(key: str) -> bytes:
    """Keys are sorted by the number of their slashes first; a second one at the end does not count."""
    slashes = key.count("/") - key.endswith("//")
    return slashes.to_bytes(2, "big") + key.encode().replace(b"/", b"\xff")


@dataclass(frozen=True)
class Record:
    value: bytes
    version_id: int
    modifications: int
    created_ms: int
    modified_ms: int
    session: int | None
    identity: str | None

    def version(self) -> Values:
        return {
            "version_id": self.version_id,
            "modifications": self.modifications,
            "created_ms": self.created_ms,
            "modified_ms": self.modified_ms,
            "session_id": self.session,
            "client_identity": self.identity,
        }


@dataclass
class Session:
    identity: str
    timeout_s: float
    deadline: float


@dataclass
class Shard:
    number: int
    first: int
    last: int
    leader: int
    natural: bool
    silent: bool
    records: dict[str, Record] = field(default_factory=dict)
    sessions: dict[int, Session] = field(default_factory=dict)
    offset: int = -1
    last_version_id: int = -1
    term: int = 0
    log: list[Values] = field(default_factory=list)
    grown: asyncio.Condition = field(default_factory=asyncio.Condition)

    # ---- writes ---------------------------------------------------------------------------

    async def commit(self, request: Values) -> Values:
        """Apply a WriteRequest."""
        self.offset += 1
        changes: dict[str, m.NotificationType] = {}
        puts = [self._put(each, changes) for each in request.get("puts", ())]
        deletes = [self._delete(each, changes) for each in request.get("deletes", ())]
        entries = [{"key": key, "value": {"type": changes[key]}} for key in sorted(changes)]
        async with self.grown:
            self.log.append({"shard": self.number, "offset": self.offset, "notifications": entries})
            self.grown.notify_all()
        return {"puts": puts, "deletes": deletes}

    def _refuses(self, key: str, expected: int | None) -> bool:
        found = self.records.get(key)
        if found is None:
            return expected not in (None, m.ABSENT)
        return expected is not None and found.version_id != expected

    def _put(self, put: Values, changes: dict[str, m.NotificationType]) -> Values:
        key, session = put.get("key", ""), put.get("session_id")
        if self._refuses(key, put.get("expected_version_id")):
            return {"status": m.Status.UNEXPECTED_VERSION_ID}
        if session is not None and session not in self.sessions:
            return {"status": m.Status.SESSION_DOES_NOT_EXIST}
        self.last_version_id += 1
        before, now_ms = self.records.get(key), time.time_ns() // 1_000_000
        record = Record(
            value=put.get("value", b""),
            version_id=self.last_version_id,
            modifications=0 if before is None else before.modifications + 1,
            created_ms=now_ms if before is None else before.created_ms,
            modified_ms=now_ms,
            session=session,
            identity=put.get("client_identity"),
        )
        self.records[key] = record
        kind = m.NotificationType
        changes[key] = kind.KEY_CREATED if before is None else kind.KEY_MODIFIED
        return {"version": record.version()}

    def _delete(self, delete: Values, changes: dict[str, m.NotificationType]) -> Values:
        key = delete.get("key", "")
        if self._refuses(key, delete.get("expected_version_id")):
            return {"status": m.Status.UNEXPECTED_VERSION_ID}
        if self.records.pop(key, None) is None:
            return {"status": m.Status.KEY_NOT_FOUND}
        changes[key] = m.NotificationType.KEY_DELETED
        return {}

    # ---- reads ----------------------------------------------------------------------------

    def get(self, get: Values) -> Values:
        found = self.records.get(get.get("key", ""))
        if found is None:
            return {"status": m.Status.KEY_NOT_FOUND}
        value = found.value if get.get("include_value") else None
        return {"version": found.version(), "value": value}

    def keys(self, request: Values) -> list[str]:
        order = str.encode if self.natural else sort_key
        start = order(request.get("start_inclusive", ""))
        end = order(request.get("end_exclusive", ""))
        return sorted((key for key in self.records if start <= order(key) < end), key=order)

    # ---- sessions -------------------------------------------------------------------------

    async def create_session(self, request: Values) -> int:
        self.offset += 1
        self.last_version_id += 1  # a session is a record of its own
        timeout_s = request["session_timeout_ms"] / 1000
        self.sessions[self.offset] = Session(
            request.get("client_identity", ""), timeout_s, time.monotonic() + timeout_s
        )
        return self.offset

    async def end_session(self, number: int) -> None:
        del self.sessions[number]
        keys = [key for key, record in self.records.items() if record.session == number]
        await self.commit({"deletes": [{"key": key} for key in keys]})

    async def expire(self) -> None:
        now = time.monotonic()
        for number, session in list(self.sessions.items()):
            if session.deadline < now:
                await self.end_session(number)

    def move(self, leader: int) -> None:
        """A new leader: it gives every session a whole time-out."""
        self.leader = leader
        self.term += 1
        for session in self.sessions.values():
            session.deadline = time.monotonic() + session.timeout_s

    def split(self, numbers: Iterator[int]) -> list[Shard]:
        """Two shards, each with half of the hashes; sessions are in both."""
        middle = (self.first + self.last) // 2
        halves = []
        for first, last in ((self.first, middle), (middle + 1, self.last)):
            half = replace(self, number=next(numbers), first=first, last=last)
            half.log, half.grown, half.sessions = [], asyncio.Condition(), dict(self.sessions)
            half.records = {
                key: record for key, record in self.records.items() if first <= hash_of(key) <= last
            }
            halves.append(half)
        return halves


def hash_of(key: str) -> int:
    return xxhash.xxh3_64_intdigest(key.encode()) & 0xFFFFFFFF
