"""Lists of logs in the SQLite store: table ``log``; elections are leases ``log:<name>``."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator

from bkbox.errors import VersionConflictError
from bkbox.metadata.loglists import LogLists
from bkbox.metadata.sqlite import watch
from bkbox.metadata.sqlite.database import Database
from bkbox.metadata.sqlite.leases import LeaseCandidacy, Leases
from bkbox.metadata.underreplication import Candidacy
from bkbox.metadata.versioned import Versioned

TABLE = "CREATE TABLE log (name TEXT PRIMARY KEY, version INTEGER NOT NULL, list BLOB NOT NULL) WITHOUT ROWID"


class SqliteLogLists(LogLists):
    """See LogLists."""

    def __init__(self, database: Database, changes: watch.Changes, leases: Leases) -> None:
        self._database = database
        self._changes = changes
        self._leases = leases

    async def find(self, name: str, *, linearizable: bool = False) -> Versioned[bytes] | None:
        # One file: every read is linearizable.
        def select(connection: sqlite3.Connection) -> Versioned[bytes] | None:
            row = connection.execute(
                "SELECT list, version FROM log WHERE name = ?", (name,)
            ).fetchone()
            return None if row is None else Versioned(*row)

        return await self._database.read(select)

    async def write(self, name: str, data: bytes, expected_version: int | None) -> int:
        def put(connection: sqlite3.Connection) -> int:
            row = connection.execute("SELECT version FROM log WHERE name = ?", (name,)).fetchone()
            found = None if row is None else row[0]
            if found != expected_version:
                raise VersionConflictError(f"the list of log {name} was changed by another client")
            version = 0 if found is None else found + 1
            connection.execute("INSERT OR REPLACE INTO log VALUES (?, ?, ?)", (name, version, data))
            return version

        return await self._database.write(put)

    def watch(self, name: str) -> AsyncIterator[Versioned[bytes] | None]:
        return watch.watch(self._changes, lambda: self.find(name))

    async def names(self) -> list[str]:
        rows = await self._database.read(
            lambda c: c.execute("SELECT name FROM log ORDER BY name").fetchall()
        )
        return [row[0] for row in rows]

    def candidacy(self, name: str, candidate: str) -> Candidacy:
        return LeaseCandidacy(self._leases, f"log:{name}", candidate)

    async def leader(self, name: str) -> str | None:
        found = await self._leases.holder(f"log:{name}")
        return None if found is None else found.holder
