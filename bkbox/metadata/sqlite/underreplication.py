"""Ledgers that lack replicas, in the SQLite store: what ZooKeeper keeps below ``underreplication``.

================  ===============================================================================
table             row
================  ===============================================================================
underreplicated   ledger id, version, mark (wire/underreplication, as in ZooKeeper)
lease             ``ledger:<id>`` of each lock, ``auditor`` of the present one: see leases.py
setting           name, version (one more with every write), value: see _Setting
================  ===============================================================================

The version of a mark is a random token that is never reused: a mark that was deleted and created again differs from
the first.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Collection
from enum import StrEnum
from typing import NamedTuple
from uuid import uuid4

from bkbox.base.ids import LedgerId
from bkbox.errors import EncodingError, MetadataError
from bkbox.metadata.sqlite import leases
from bkbox.metadata.sqlite.database import Database
from bkbox.metadata.sqlite.leases import LeaseCandidacy, Leases
from bkbox.metadata.sqlite.registration import Observer
from bkbox.metadata.underreplication import (
    Candidacy,
    Lock,
    Mark,
    RecoveryDelay,
    Task,
    UnderReplication,
)
from bkbox.wire.metadata import underreplication as wire
from bkbox.wire.metadata.underreplication import UnderreplicatedLedger

TABLES = (
    """
    CREATE TABLE underreplicated (
        ledger_id INTEGER PRIMARY KEY,
        version TEXT NOT NULL,
        mark BLOB NOT NULL
    )
    """,
    "CREATE TABLE setting (name TEXT PRIMARY KEY, version INTEGER NOT NULL, value BLOB NOT NULL)",
    leases.TABLE,
)

_PAGE = 1_000
_LOCK = "ledger:"
_AUDITOR = "auditor"


class _Setting(StrEnum):
    """Values are encoded as those of the znodes of the same names."""

    DISABLED = "disable"
    RECOVERY_DELAY = "lostBookieRecoveryDelay"
    LAST_FULL_CHECK = "checkallledgersctime"


_DECODE: dict[_Setting, Callable[[bytes], int | None]] = {
    _Setting.RECOVERY_DELAY: wire.decode_recovery_delay,
    _Setting.LAST_FULL_CHECK: wire.decode_check_time,
}


class _Value(NamedTuple):
    version: int
    data: bytes


class SqliteUnderReplication(UnderReplication):
    """See UnderReplication. ``Lock.owner`` is the nonce of a lease, ``Mark.version`` the token in its row."""

    def __init__(self, database: Database, observer: Observer) -> None:
        self._database = database
        self._observer = observer
        self.leases = Leases(database, observer)

    # ---- marks ------------------------------------------------------------------------------

    async def mark(self, ledger: LedgerId, replicas: Collection[str], now_ms: int) -> None:
        names = tuple(replicas)

        def put(connection: sqlite3.Connection) -> None:
            found = self._select(connection, ledger)
            before = UnderreplicatedLedger((), now_ms) if found is None else found.missing
            after = before.marked_again(names, now_ms)
            if found is None or after is not before:
                connection.execute(
                    "INSERT OR REPLACE INTO underreplicated VALUES (?, ?, ?)",
                    (ledger, uuid4().hex, wire.encode_ledger(after)),
                )

        await self._database.write(put)

    async def ledgers(self) -> AsyncIterator[LedgerId]:
        after = -1
        while page := await self._page(after):
            for ledger in page:
                yield ledger
            after = page[-1]

    async def _page(self, after: int) -> list[LedgerId]:
        def select(connection: sqlite3.Connection) -> list[LedgerId]:
            rows = connection.execute(
                "SELECT ledger_id FROM underreplicated WHERE ledger_id > ? "
                "ORDER BY ledger_id LIMIT ?",
                (after, _PAGE),
            )
            return [LedgerId(row[0]) for row in rows]

        return await self._database.read(select)

    async def read_mark(self, ledger: LedgerId) -> Mark | None:
        return await self._database.read(lambda c: self._select(c, ledger))

    def _select(self, connection: sqlite3.Connection, ledger: LedgerId) -> Mark | None:
        row = connection.execute(
            "SELECT version, mark FROM underreplicated WHERE ledger_id = ?", (ledger,)
        ).fetchone()
        if row is None:
            return None
        try:
            return Mark(wire.decode_ledger(row[1]), row[0])
        except EncodingError as error:
            raise MetadataError(
                f"metadata store {self._database.path}: the mark of ledger {ledger}: {error}"
            ) from error

    # ---- work -------------------------------------------------------------------------------

    async def _acquire_lock(self, ledger: LedgerId, holder: str | None) -> Lock | None:
        nonce = await self.leases.acquire(f"{_LOCK}{ledger}", holder or "")
        return None if nonce is None else Lock(ledger, nonce)

    async def _give_back(self, lock: Lock) -> None:
        await self.leases.give_back(f"{_LOCK}{lock.ledger}", str(lock.owner))

    async def locked(self) -> frozenset[LedgerId]:
        return frozenset(
            LedgerId(int(row.name.removeprefix(_LOCK)))
            for row in await self.leases.live()
            if row.name.startswith(_LOCK)
        )

    async def holder(self, ledger: LedgerId) -> str | None:
        found = await self.leases.holder(f"{_LOCK}{ledger}")
        return None if found is None else found.holder

    async def finish(self, task: Task) -> bool:
        def delete(connection: sqlite3.Connection) -> bool:
            lease = leases.find(connection, f"{_LOCK}{task.ledger}", self._observer)
            if lease is None or lease.nonce != task.lock.owner:
                return False
            done = connection.execute(
                "DELETE FROM underreplicated WHERE ledger_id = ? AND version = ?",
                (task.ledger, task.mark.version),
            )
            return done.rowcount == 1

        removed = await self._database.write(delete)
        await self.unlock(task.lock)
        return removed

    # ---- the auditor ------------------------------------------------------------------------

    def candidacy(self, name: str) -> Candidacy:
        return LeaseCandidacy(self.leases, _AUDITOR, name)

    async def auditor(self) -> str | None:
        found = await self.leases.holder(_AUDITOR)
        return None if found is None else found.holder

    async def last_full_check_ms(self) -> int | None:
        found = await self._get(_Setting.LAST_FULL_CHECK)
        return None if found is None else self._decoded(_Setting.LAST_FULL_CHECK, found)

    async def set_last_full_check_ms(self, time_ms: int) -> None:
        await self._put(_Setting.LAST_FULL_CHECK, wire.encode_check_time(time_ms))

    # ---- switches ---------------------------------------------------------------------------

    async def enabled(self) -> bool:
        return await self._get(_Setting.DISABLED) is None

    async def set_enabled(self, enabled: bool) -> None:
        if not enabled:
            await self._put(_Setting.DISABLED, b"")
            return

        def delete(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM setting WHERE name = ?", (_Setting.DISABLED,))

        await self._database.write(delete)

    async def recovery_delay(self) -> RecoveryDelay | None:
        found = await self._get(_Setting.RECOVERY_DELAY)
        if found is None:
            return None
        seconds = self._decoded(_Setting.RECOVERY_DELAY, found)
        return None if seconds is None else RecoveryDelay(seconds, found.version)

    async def set_recovery_delay_s(self, seconds: int) -> None:
        await self._put(_Setting.RECOVERY_DELAY, wire.encode_recovery_delay(seconds))

    async def _get(self, name: _Setting) -> _Value | None:
        def select(connection: sqlite3.Connection) -> _Value | None:
            row = connection.execute(
                "SELECT version, value FROM setting WHERE name = ?", (name,)
            ).fetchone()
            return None if row is None else _Value(*row)

        return await self._database.read(select)

    def _decoded(self, name: _Setting, found: _Value) -> int | None:
        try:
            return _DECODE[name](found.data)
        except EncodingError as error:
            raise MetadataError(f"metadata store {self._database.path}: {error}") from error

    async def _put(self, name: _Setting, data: bytes) -> None:
        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO setting VALUES (?, 0, ?) "
                "ON CONFLICT (name) DO UPDATE SET version = version + 1, value = excluded.value",
                (name, data),
            )

        await self._database.write(write)

    async def close(self) -> None:
        """Release all locks and the auditor's role."""
        await self.leases.close()
