"""Maintenance windows in the SQLite store: table ``rest``, bookie id and the encoding of maintenance.py."""

from __future__ import annotations

from bkbox.base.ids import BookieId
from bkbox.errors import EncodingError, MetadataError
from bkbox.metadata.maintenance import MaintenanceWindow, MaintenanceWindows, decode, encode
from bkbox.metadata.sqlite.database import Database

TABLE = "CREATE TABLE rest (bookie_id TEXT PRIMARY KEY, rest BLOB NOT NULL) WITHOUT ROWID"


class SqliteMaintenanceWindows(MaintenanceWindows):
    """See MaintenanceWindows. An embedded cluster has no Java auditors."""

    java = None

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> dict[BookieId, MaintenanceWindow]:
        rows = await self._database.read(
            lambda c: c.execute("SELECT bookie_id, rest FROM rest").fetchall()
        )
        try:
            return {BookieId(name): decode(data) for name, data in rows}
        except EncodingError as error:
            raise MetadataError(f"metadata store {self._database.path}: {error}") from error

    async def put(self, bookie: BookieId, window: MaintenanceWindow) -> None:
        row = (bookie, encode(window))
        await self._database.write(
            lambda c: c.execute("INSERT OR REPLACE INTO rest VALUES (?, ?)", row) and None
        )

    async def remove(self, bookie: BookieId) -> None:
        await self._database.write(
            lambda c: c.execute("DELETE FROM rest WHERE bookie_id = ?", (bookie,)) and None
        )
