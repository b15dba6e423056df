"""Leases in the SQLite store: a lock or an elected role that a process holds as long as it lives.

A row of ``lease`` is live as a registration is (registration.py): while it has not expired and its process is not
known to be dead. One task of the connection renews all leases that it holds. Each has a nonce: a holder that finds
another one in the row, or no row, has lost the lease.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import suppress
from dataclasses import astuple
from typing import NamedTuple
from uuid import uuid4

from bkbox.base import background
from bkbox.errors import HandleClosedError, MetadataError
from bkbox.metadata.liveness import Process
from bkbox.metadata.sqlite.database import Database
from bkbox.metadata.sqlite.registration import LEASE_MS, RENEWAL_INTERVAL_S, Observer
from bkbox.metadata.underreplication import Candidacy

TABLE = """
CREATE TABLE lease (
    name TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    nonce TEXT NOT NULL,
    expires_ms INTEGER NOT NULL,
    boot_id TEXT NOT NULL,
    pid_namespace INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    started INTEGER NOT NULL
) WITHOUT ROWID
"""

_ELECTION_PAUSE_S = 1.0
"""Polling interval: a process that dies changes nothing in the file."""

_log = logging.getLogger(__name__)


class Row(NamedTuple):
    """The holder of a lease. ``expires_ms`` is in CLOCK_BOOTTIME of the boot ``boot_id``."""

    name: str
    holder: str
    nonce: str
    expires_ms: int
    boot_id: str
    pid_namespace: int
    pid: int
    started: int

    @property
    def process(self) -> Process:
        return Process(self.boot_id, self.pid_namespace, self.pid, self.started)


class Leases:
    """The leases of one connection."""

    def __init__(self, database: Database, observer: Observer) -> None:
        self._database = database
        self._observer = observer
        self._owned: dict[str, Row] = {}
        self._renewal: asyncio.Task[None] | None = None

    async def acquire(self, name: str, holder: str) -> str | None:
        """Acquire a lease; returns its nonce, or None if it is held, also by this connection."""
        nonce = uuid4().hex

        def claim(connection: sqlite3.Connection) -> bool:
            if find(connection, name, self._observer) is not None:
                return False
            self._write(connection, self._row(name, holder, nonce))
            return True

        if not await self._database.write(claim):
            return None
        self._owned[name] = self._row(name, holder, nonce)
        if self._renewal is None:
            self._renewal = background.start(self._renew_for_ever(), "the renewal of leases")
        return nonce

    async def give_back(self, name: str, nonce: str) -> None:
        """Release a lease; a lost one is left alone."""
        owned = self._owned.get(name)
        if owned is not None and owned.nonce == nonce:
            del self._owned[name]
        await self._database.write(lambda c: delete(c, name, nonce))

    async def owns(self, name: str, nonce: str) -> bool:
        """True if the lease is still held with this nonce."""
        found = await self.holder(name)
        return found is not None and found.nonce == nonce

    async def holder(self, name: str) -> Row | None:
        """The live lease of this name."""
        return await self._database.read(lambda c: find(c, name, self._observer))

    async def live(self) -> list[Row]:
        """All live leases, by name."""

        def select(connection: sqlite3.Connection) -> list[Row]:
            rows = map(Row._make, connection.execute("SELECT * FROM lease ORDER BY name"))
            return [row for row in rows if self._observer.is_live(row)]

        return await self._database.read(select)

    async def close(self) -> None:
        """Release all leases."""
        if self._renewal is None:
            return
        self._renewal.cancel()
        await asyncio.wait([self._renewal])
        owned, self._owned = self._owned, {}

        def remove(connection: sqlite3.Connection) -> None:
            for row in owned.values():
                delete(connection, row.name, row.nonce)

        try:
            await self._database.write(remove)
        except MetadataError as error:
            _log.warning("%d leases stay until their time is up: %s", len(owned), error)

    async def _renew_for_ever(self) -> None:
        with suppress(HandleClosedError):
            while True:
                await asyncio.sleep(RENEWAL_INTERVAL_S)
                try:
                    await self._renew()
                except HandleClosedError:
                    raise
                except MetadataError as error:
                    _log.warning("%d leases are not renewed: %s", len(self._owned), error)

    async def _renew(self) -> None:
        rows = [self._row(row.name, row.holder, row.nonce) for row in self._owned.values()]
        if not rows:
            return

        def write_all(connection: sqlite3.Connection) -> list[Row]:
            renewed = [row for row in rows if _is_stored(connection, row)]
            for row in renewed:
                self._write(connection, row)
            return renewed

        renewed = {row.nonce for row in await self._database.write(write_all)}
        for row in rows:
            # A lease whose row is gone was taken over: it must not be revived here.
            if row.nonce not in renewed and self._owned.get(row.name, row).nonce == row.nonce:
                self._owned.pop(row.name, None)
                _log.warning("the lease %s was lost", row.name)

    def _row(self, name: str, holder: str, nonce: str) -> Row:
        expires_ms = self._observer.now_ms() + LEASE_MS
        return Row(name, holder, nonce, expires_ms, *astuple(self._observer.process))

    @staticmethod
    def _write(connection: sqlite3.Connection, row: Row) -> None:
        connection.execute("INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


class LeaseCandidacy(Candidacy):
    """See Candidacy: the elected role is a lease of this name."""

    def __init__(self, owned: Leases, office: str, candidate: str) -> None:
        self._leases = owned
        self._office = office
        self._candidate = candidate
        self._nonce: str | None = None

    async def is_elected(self) -> bool:
        if self._nonce is None or not await self._leases.owns(self._office, self._nonce):
            self._nonce = await self._leases.acquire(self._office, self._candidate)
        return self._nonce is not None

    async def changed(self, wait_s: float) -> None:
        await asyncio.sleep(min(wait_s, _ELECTION_PAUSE_S))

    async def close(self) -> None:
        nonce, self._nonce = self._nonce, None
        if nonce is not None:
            await self._leases.give_back(self._office, nonce)


# ---- in the thread of the database --------------------------------------------------------------


def find(connection: sqlite3.Connection, name: str, observer: Observer) -> Row | None:
    """The lease of this name, if it is live."""
    found = connection.execute("SELECT * FROM lease WHERE name = ?", (name,)).fetchone()
    if found is None:
        return None
    row = Row._make(found)
    return row if observer.is_live(row) else None


def delete(connection: sqlite3.Connection, name: str, nonce: str) -> None:
    """Remove a lease unless its holder has changed."""
    connection.execute("DELETE FROM lease WHERE name = ? AND nonce = ?", (name, nonce))


def _is_stored(connection: sqlite3.Connection, row: Row) -> bool:
    found = connection.execute(
        "SELECT 1 FROM lease WHERE name = ? AND nonce = ?", (row.name, row.nonce)
    ).fetchone()
    return found is not None
