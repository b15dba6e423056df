"""The embedded metadata store: one SQLite file for all bookies and clients of one host.

=============  ==================================================================================
table          row
=============  ==================================================================================
cluster        one: instance id, the next ledger id to give out
ledger         ledger id, version, creation time (ms since 1970), metadata (wire/ledger_metadata)
cookie         bookie id, version, cookie (wire/cookie)
disk_record    bookie id, version, the bookie's record of its disks (supervisor/disks/witness.py)
ended          ledger id, of each ledger whose metadata records an accepted loss
registration   see registration.py
others         see underreplication.py, maintenance.py, loglists.py
=============  ==================================================================================

Sharing, creation and durability of the file: database.py. Watches: watch.py.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from bkbox.base.ids import MAX_ID, BookieId, LedgerId
from bkbox.errors import (
    EncodingError,
    LedgerExistsError,
    MetadataError,
    NoSuchLedgerError,
    VersionConflictError,
)
from bkbox.metadata.base import RANGE_LEDGERS_MAX, MetadataStore, RegisteredBookie, Registration
from bkbox.metadata.liveness import boottime_ms, this_process
from bkbox.metadata.loglists import LogLists
from bkbox.metadata.maintenance import MaintenanceWindows
from bkbox.metadata.sqlite import loglists, maintenance, registration, underreplication, watch
from bkbox.metadata.sqlite.database import Database, create_file
from bkbox.metadata.sqlite.loglists import SqliteLogLists
from bkbox.metadata.sqlite.maintenance import SqliteMaintenanceWindows
from bkbox.metadata.sqlite.registration import Observer, SqliteRegistration
from bkbox.metadata.sqlite.underreplication import SqliteUnderReplication
from bkbox.metadata.underreplication import UnderReplication
from bkbox.metadata.versioned import Versioned
from bkbox.wire.metadata import ledger_metadata, service_info
from bkbox.wire.metadata.ledger import LedgerMetadata
from bkbox.wire.metadata.loss import losses_of
from bkbox.wire.metadata.service_info import ServiceInfo

SCHEMA_VERSION = 5
"""Version 1 had no tables for re-replication and maintenance, version 2 none for logs, version 3 none for records of
disks, version 4 none for ended ledgers."""

_DISK_RECORDS = """
    CREATE TABLE disk_record (
        bookie_id TEXT PRIMARY KEY,
        version INTEGER NOT NULL,
        record BLOB NOT NULL
    ) WITHOUT ROWID
    """

_ENDED_LEDGERS = "CREATE TABLE ended (ledger_id INTEGER PRIMARY KEY)"

_TABLES = (
    "CREATE TABLE cluster (instance_id TEXT NOT NULL, next_ledger_id INTEGER NOT NULL)",
    """
    CREATE TABLE ledger (
        ledger_id INTEGER PRIMARY KEY,
        version INTEGER NOT NULL,
        ctime_ms INTEGER NOT NULL,
        metadata BLOB NOT NULL
    )
    """,
    """
    CREATE TABLE cookie (
        bookie_id TEXT PRIMARY KEY,
        version INTEGER NOT NULL,
        cookie BLOB NOT NULL
    ) WITHOUT ROWID
    """,
    _DISK_RECORDS,
    _ENDED_LEDGERS,
    registration.TABLE,
    *underreplication.TABLES,
    maintenance.TABLE,
    loglists.TABLE,
)

_UPGRADES = {
    1: (*underreplication.TABLES, maintenance.TABLE),
    2: (loglists.TABLE,),
    3: (_DISK_RECORDS,),
    4: (
        _ENDED_LEDGERS,
        "INSERT INTO ended SELECT ledger_id FROM ledger "
        "WHERE instr(metadata, CAST('bkbox.ended' AS BLOB))",  # loss.ENDED
    ),
}
"""The upgrade from each older version to the next one."""


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


async def create(path: Path) -> bool:
    """Create the file with a new instance id; False if it exists, unchanged.

    Raises MetadataUnavailableError.
    """
    statements: list[tuple[str, tuple[object, ...]]] = [(table, ()) for table in _TABLES]
    statements.append(("INSERT INTO cluster VALUES (?, 0)", (str(uuid4()),)))
    return await asyncio.to_thread(create_file, path, SCHEMA_VERSION, statements)


class SqliteStore(MetadataStore):
    """See MetadataStore; made by ``open``."""

    def __init__(self, database: Database, observer: Observer, now_ms: Callable[[], int]) -> None:
        self._database = database
        self._observer = observer
        self._now_ms = now_ms
        self._changes = watch.Changes(database.change_mark)
        self._registrations: list[SqliteRegistration] = []
        self._under_replication = SqliteUnderReplication(database, observer)

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        boottime_ms: Callable[[], int] = boottime_ms,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> SqliteStore:
        """Connect to an existing file.

        Leases are measured with ``boottime_ms``; ``now_ms`` dates ledgers. Raises
        MetadataUnavailableError, MetadataError.
        """
        database = await Database.open(path, SCHEMA_VERSION, _UPGRADES)
        return cls(database, Observer(this_process(), boottime_ms), now_ms)

    async def instance_id(self) -> str:
        def select(connection: sqlite3.Connection) -> str:
            return str(connection.execute("SELECT instance_id FROM cluster").fetchone()[0])

        return await self._database.read(select)

    # ---- ledgers ----------------------------------------------------------------------------

    async def new_ledger_id(self) -> LedgerId:
        return await self._database.write(_next_ledger_id)

    async def create_ledger(self, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        ledger, token = metadata.ledger_id, metadata.creator_token
        ctime_ms = self._now_ms()
        data = ledger_metadata.encode(metadata)
        created = Versioned(ledger_metadata.decode(ledger, data, ctime_ms), 0)

        def insert(connection: sqlite3.Connection) -> Versioned[LedgerMetadata]:
            stored = self._select_ledger(connection, ledger)
            if stored is None:
                connection.execute(
                    "INSERT INTO ledger VALUES (?, 0, ?, ?)", (ledger, ctime_ms, data)
                )
                return created
            if token and stored.value.creator_token == token:
                return stored
            raise LedgerExistsError(f"ledger {ledger} exists already")

        return await self._database.write(insert)

    async def read_ledger(
        self, ledger: LedgerId, *, linearizable: bool = False
    ) -> Versioned[LedgerMetadata]:
        # One file: every read is linearizable.
        stored = await self._find_ledger(ledger)
        if stored is None:
            raise NoSuchLedgerError(f"there is no ledger {ledger}")
        return stored

    async def write_ledger(
        self, metadata: LedgerMetadata, expected_version: int
    ) -> Versioned[LedgerMetadata]:
        ledger = metadata.ledger_id
        data = ledger_metadata.encode(replace(metadata, creator_token=0))
        ledger_metadata.decode(
            ledger, data
        )  # metadata that no client could read is refused before it is stored

        def update(connection: sqlite3.Connection) -> Versioned[LedgerMetadata]:
            row = connection.execute(
                "SELECT version, ctime_ms FROM ledger WHERE ledger_id = ?", (ledger,)
            ).fetchone()
            if row is None:
                raise NoSuchLedgerError(f"there is no ledger {ledger}")
            version, ctime_ms = row
            if version != expected_version:
                raise VersionConflictError(
                    f"ledger {ledger} is at version {version}, not {expected_version}"
                )
            connection.execute(
                "UPDATE ledger SET version = ?, metadata = ? WHERE ledger_id = ?",
                (version + 1, data, ledger),
            )
            if losses_of(metadata):
                connection.execute("INSERT OR IGNORE INTO ended VALUES (?)", (ledger,))
            return Versioned(ledger_metadata.decode(ledger, data, ctime_ms), version + 1)

        return await self._database.write(update)

    async def delete_ledger(self, ledger: LedgerId) -> None:
        def delete(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM ledger WHERE ledger_id = ?", (ledger,))
            connection.execute("DELETE FROM ended WHERE ledger_id = ?", (ledger,))

        await self._database.write(delete)

    async def ledger_ranges(self) -> AsyncIterator[list[LedgerId]]:
        after = -1
        while True:
            page = await self._ledgers_after(after)
            if not page:
                return
            yield page
            after = page[-1]

    def watch_ledger(self, ledger: LedgerId) -> AsyncIterator[Versioned[LedgerMetadata] | None]:
        return watch.watch(self._changes, lambda: self._find_ledger(ledger))

    async def ended_ledgers(self) -> list[LedgerId]:
        def select(connection: sqlite3.Connection) -> list[LedgerId]:
            rows = connection.execute("SELECT ledger_id FROM ended ORDER BY ledger_id")
            return [LedgerId(row[0]) for row in rows]

        return await self._database.read(select)

    async def _find_ledger(self, ledger: LedgerId) -> Versioned[LedgerMetadata] | None:
        return await self._database.read(lambda c: self._select_ledger(c, ledger))

    async def _ledgers_after(self, after: int) -> list[LedgerId]:
        def select(connection: sqlite3.Connection) -> list[LedgerId]:
            rows = connection.execute(
                "SELECT ledger_id FROM ledger WHERE ledger_id > ? ORDER BY ledger_id LIMIT ?",
                (after, RANGE_LEDGERS_MAX),
            )
            return [LedgerId(row[0]) for row in rows]

        return await self._database.read(select)

    def _select_ledger(
        self, connection: sqlite3.Connection, ledger: LedgerId
    ) -> Versioned[LedgerMetadata] | None:
        row = connection.execute(
            "SELECT metadata, ctime_ms, version FROM ledger WHERE ledger_id = ?", (ledger,)
        ).fetchone()
        if row is None:
            return None
        data, ctime_ms, version = row
        try:
            return Versioned(ledger_metadata.decode(ledger, data, ctime_ms), version)
        except EncodingError as error:
            raise MetadataError(f"metadata store {self._database.path}: {error}") from error

    @property
    def under_replication(self) -> UnderReplication:
        return self._under_replication

    @property
    def maintenance_windows(self) -> MaintenanceWindows:
        return SqliteMaintenanceWindows(self._database)

    @property
    def logs(self) -> LogLists:
        return SqliteLogLists(self._database, self._changes, self._under_replication.leases)

    # ---- cookies ----------------------------------------------------------------------------

    async def read_cookie(self, bookie: BookieId) -> Versioned[bytes] | None:
        return (await self.cookies()).get(bookie)

    async def write_cookie(
        self, bookie: BookieId, cookie: bytes, expected_version: int | None
    ) -> Versioned[bytes]:
        return await self._database.write(
            lambda connection: _put(connection, "cookie", bookie, cookie, expected_version)
        )

    async def delete_cookie(self, bookie: BookieId) -> None:
        def delete(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM cookie WHERE bookie_id = ?", (bookie,))

        await self._database.write(delete)

    async def cookies(self) -> dict[BookieId, Versioned[bytes]]:
        def select(connection: sqlite3.Connection) -> dict[BookieId, Versioned[bytes]]:
            rows = connection.execute("SELECT bookie_id, cookie, version FROM cookie")
            return {
                BookieId(bookie): Versioned(cookie, version) for bookie, cookie, version in rows
            }

        return await self._database.read(select)

    # ---- records of disks -------------------------------------------------------------------

    async def read_disk_record(self, bookie: BookieId) -> Versioned[bytes] | None:
        def select(connection: sqlite3.Connection) -> Versioned[bytes] | None:
            row = connection.execute(
                "SELECT record, version FROM disk_record WHERE bookie_id = ?", (bookie,)
            ).fetchone()
            return None if row is None else Versioned(*row)

        return await self._database.read(select)

    async def write_disk_record(
        self, bookie: BookieId, record: bytes, expected_version: int | None
    ) -> Versioned[bytes]:
        return await self._database.write(
            lambda connection: _put(connection, "disk_record", bookie, record, expected_version)
        )

    # ---- registration -----------------------------------------------------------------------

    async def register(
        self, bookie: BookieId, service_info: ServiceInfo, *, read_only: bool
    ) -> Registration:
        mine = SqliteRegistration(
            self._database, self._observer, bookie, _encoded(bookie, service_info), read_only
        )
        await mine.begin()
        self._registrations.append(mine)
        return mine

    async def bookies(self) -> dict[BookieId, RegisteredBookie]:
        rows = await self._database.read(lambda c: registration.live_rows(c, self._observer))
        found = {}
        for row in rows:
            bookie = BookieId(row.bookie_id)
            try:
                info = service_info.decode(bookie, row.service_info)
            except EncodingError as error:
                raise MetadataError(f"metadata store {self._database.path}: {error}") from error
            found[bookie] = RegisteredBookie(bool(row.read_only), info)
        return found

    # ---- lifetime ---------------------------------------------------------------------------

    async def close(self) -> None:
        while self._registrations:
            await self._registrations.pop().close()
        await self._under_replication.close()
        await self._changes.close()
        await self._database.close()


def _put(
    connection: sqlite3.Connection,
    table: str,
    bookie: BookieId,
    value: bytes,
    expected_version: int | None,
) -> Versioned[bytes]:
    """Compare-and-set a bookie's row in a table. Raises VersionConflictError."""
    row = connection.execute(
        f"SELECT version FROM {table} WHERE bookie_id = ?",  # noqa: S608 a name of this module
        (bookie,),
    ).fetchone()
    found = None if row is None else row[0]
    if found != expected_version:
        raise VersionConflictError(
            f"the {table.replace('_', ' ')} of bookie {bookie} is {_at(found)}, not {_at(expected_version)}"
        )
    version = 0 if found is None else found + 1
    connection.execute(
        f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)",  # noqa: S608 the same
        (bookie, version, value),
    )
    return Versioned(value, version)


def _next_ledger_id(connection: sqlite3.Connection) -> LedgerId:
    ledger = connection.execute("SELECT next_ledger_id FROM cluster").fetchone()[0]
    while (
        ledger < MAX_ID
        and connection.execute("SELECT 1 FROM ledger WHERE ledger_id = ?", (ledger,)).fetchone()
    ):
        ledger += 1
    if ledger >= MAX_ID:
        raise MetadataError("all ledger ids are used up")
    connection.execute("UPDATE cluster SET next_ledger_id = ?", (ledger + 1,))
    return LedgerId(ledger)


def _encoded(bookie: BookieId, info: ServiceInfo) -> bytes:
    """The bytes to register. Raises EncodingError for what no client could read."""
    data = service_info.encode(info)
    service_info.decode(bookie, data)
    return data


def _at(version: int | None) -> str:
    return "absent" if version is None else f"at version {version}"
