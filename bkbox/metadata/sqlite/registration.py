"""Registration of a bookie in the SQLite store: a lease that its process renews.

A row of ``registration`` is live while its lease has not expired *and* its process is not known to be dead
(liveness.py). So a bookie that was killed is gone at once for processes of its PID namespace, and after LEASE_MS for
those of other containers; a process that hangs is gone after LEASE_MS. Each registration has a nonce: a holder that
finds another one in the row has lost it.

A renewal writes the whole row. It restores a row that was lost, and completes a write that failed.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple
from typing import NamedTuple, Protocol
from uuid import uuid4

from bkbox.base import background
from bkbox.base.ids import BookieId
from bkbox.base.values import frozen_struct
from bkbox.errors import HandleClosedError, MetadataError, OperatorError
from bkbox.metadata.base import Registration
from bkbox.metadata.liveness import Process, ProcessIdentity, life_of
from bkbox.metadata.sqlite.database import Database

LEASE_MS = 10_000
RENEWAL_INTERVAL_S = 2.0

TABLE = """
CREATE TABLE registration (
    bookie_id TEXT PRIMARY KEY,
    read_only INTEGER NOT NULL,
    service_info BLOB NOT NULL,
    nonce TEXT NOT NULL,
    expires_ms INTEGER NOT NULL,
    boot_id TEXT NOT NULL,
    pid_namespace INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    started INTEGER NOT NULL
) WITHOUT ROWID
"""

_log = logging.getLogger(__name__)


class Row(NamedTuple):
    """A bookie's registration. ``expires_ms`` is in CLOCK_BOOTTIME of the boot ``boot_id``."""

    bookie_id: str
    read_only: int
    service_info: bytes
    nonce: str
    expires_ms: int
    boot_id: str
    pid_namespace: int
    pid: int
    started: int

    @property
    def process(self) -> Process:
        return Process(self.boot_id, self.pid_namespace, self.pid, self.started)


class Leased(Protocol):
    """A row that is live while its process lives, and its lease."""

    @property
    def expires_ms(self) -> int: ...

    @property
    def process(self) -> Process: ...


@frozen_struct
class Observer:
    """The process that reads registrations, and its clock (ms since boot)."""

    process: Process
    now_ms: Callable[[], int]

    def is_live(self, row: Leased) -> bool:
        """True if the row's lease and process are live."""
        return (
            life_of(row.process, self.process) is not ProcessIdentity.DEAD
            and row.expires_ms > self.now_ms()
        )


def live_rows(connection: sqlite3.Connection, observer: Observer) -> list[Row]:
    """The live registrations of bookies, by bookie id."""
    rows = map(Row._make, connection.execute("SELECT * FROM registration ORDER BY bookie_id"))
    return [row for row in rows if observer.is_live(row)]


class SqliteRegistration(Registration):
    """See Registration; made by ``begin``."""

    def __init__(
        self,
        database: Database,
        observer: Observer,
        bookie: BookieId,
        service_info: bytes,
        read_only: bool,
    ) -> None:
        self._database = database
        self._observer = observer
        self._bookie = bookie
        self._service_info = service_info
        self._read_only = read_only
        self._nonce = uuid4().hex
        self._renewal: asyncio.Task[None] | None = None
        self._failing_since_ms: int | None = None

    async def begin(self) -> None:
        """Take the bookie's row and renew it from now on. Raises OperatorError, MetadataError.

        A holder in another PID namespace may be dead invisibly. Its lease is waited for, and only a renewal meanwhile
        shows that it is alive.
        """
        first = await self._database.write(self._claim)
        holder = first
        while holder is not None:
            unseen = life_of(holder.process, self._observer.process) is ProcessIdentity.UNKNOWN
            if not unseen or (first is not None and holder.expires_ms != first.expires_ms):
                raise OperatorError(
                    f"bookie {self._bookie} is registered by process {holder.pid}, which is "
                    f"alive: stop it, or give this bookie another bookie_id"
                )
            await asyncio.sleep(max(holder.expires_ms - self._observer.now_ms(), 1) / 1000)
            holder = await self._database.write(self._claim)
        self._renewal = background.start(self._renew_for_ever(), "the registration")
        self._renewal.add_done_callback(self._ended)

    async def set_read_only(self, read_only: bool) -> None:
        if self._renewal is None:
            raise HandleClosedError(f"the registration of bookie {self._bookie} was closed")
        self._read_only = read_only
        await self._renew()

    def unregistered_s(self) -> float:
        if self._failing_since_ms is None:
            return 0.0
        return (self._observer.now_ms() - self._failing_since_ms) / 1000

    async def close(self) -> None:
        if self._renewal is None:
            return
        renewal, self._renewal = self._renewal, None
        renewal.cancel()
        await asyncio.wait([renewal])
        try:
            await self._database.write(self._remove)
        except MetadataError as error:
            _log.warning("bookie %s stays registered until its lease ends: %s", self._bookie, error)

    async def _renew_for_ever(self) -> None:
        with suppress(HandleClosedError):
            while True:
                await asyncio.sleep(RENEWAL_INTERVAL_S)
                await self._renew()

    async def _renew(self) -> None:
        requested_ms = self._observer.now_ms()
        try:
            holder = await self._database.write(self._claim)
        except MetadataError as error:
            self._note_failure(requested_ms)
            _log.warning("registration of bookie %s is not renewed: %s", self._bookie, error)
            return
        if holder is None:
            self._failing_since_ms = None
            return
        self._note_failure(requested_ms)
        _log.error("registration of bookie %s was taken by process %d", self._bookie, holder.pid)

    def _ended(self, renewal: asyncio.Task[None]) -> None:
        if not renewal.cancelled():
            self._note_failure(self._observer.now_ms())

    def _note_failure(self, requested_ms: int) -> None:
        if self._failing_since_ms is None:
            self._failing_since_ms = requested_ms

    # ---- in the thread of the database ----------------------------------------------------

    def _claim(self, connection: sqlite3.Connection) -> Row | None:
        """Write our row, unless another one is live: that one is returned."""
        found = connection.execute(
            "SELECT * FROM registration WHERE bookie_id = ?", (self._bookie,)
        ).fetchone()
        if found is not None:
            row = Row._make(found)
            if row.nonce != self._nonce and self._observer.is_live(row):
                return row
        connection.execute(
            "INSERT OR REPLACE INTO registration VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            Row(
                self._bookie,
                int(self._read_only),
                self._service_info,
                self._nonce,
                self._observer.now_ms() + LEASE_MS,
                *astuple(self._observer.process),
            ),
        )
        return None

    def _remove(self, connection: sqlite3.Connection) -> None:
        connection.execute(
            "DELETE FROM registration WHERE bookie_id = ? AND nonce = ?",
            (self._bookie, self._nonce),
        )
