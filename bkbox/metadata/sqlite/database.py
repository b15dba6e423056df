"""One SQLite file that several processes of one host use at once, each through its own thread.

Rules:

- The file is in WAL mode on a local file system (WAL needs memory shared between processes, which network file
  systems do not give) and every commit is synced (``synchronous=FULL``): a commit that succeeded survives a power
  cut.
- A write is one transaction that takes the write lock at its start (BEGIN IMMEDIATE), so what it reads cannot change
  before it commits. A writer that waits longer than BUSY_TIMEOUT_MS for the lock gets MetadataUnavailableError.
- All calls of a connection run in one thread, one after the other; the event loop never blocks. A cancelled call that
  had begun runs to its end.
- A new file appears under its name whole or not at all: it is made under another name, then linked. It is created
  0600, since ledger metadata holds passwords in clear.
- A file that is removed or replaced while it is in use is detected before the next call: writes to an unlinked file
  would lose what was acknowledged.

``application_id`` of the file is APPLICATION_ID, ``user_version`` is the schema's version. What an older version of
the schema lacks is added, in one transaction, by the process that opens the file first.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import quote
from uuid import uuid4

from bkbox.base.commandline import plain_command
from bkbox.errors import HandleClosedError, MetadataError, MetadataUnavailableError

APPLICATION_ID = 0x626B626F
"""The letters 'bkbo': distinguishes our file from any other SQLite file."""

BUSY_TIMEOUT_MS = 5_000

T = TypeVar("T")
Transaction = Callable[[sqlite3.Connection], T]
Upgrades = Mapping[int, Sequence[str]]
"""For each older version of the schema, the statements that make the next one of it."""

_UNAVAILABLE = frozenset(
    {
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)


class _FileIdentity(NamedTuple):
    device: int
    inode: int


def create_file(
    path: Path, version: int, statements: Sequence[tuple[str, tuple[object, ...]]]
) -> bool:
    """Create the file with its first content; False if the name exists. Blocks.

    Raises MetadataUnavailableError.
    """
    if path.exists():
        return False
    made = path.with_name(f".{path.name}.{uuid4().hex}.new")
    try:
        os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            _fill(made, version, statements)
            # link() fails if the name exists: of two creators the first one wins.
            os.link(made, path)
        except FileExistsError:
            return False
        finally:
            made.unlink()
        _sync_folder(path.parent)
    except OSError as error:
        raise MetadataUnavailableError(
            f"cannot create the metadata store {path}: {error.strerror}"
        ) from error
    return True


def _fill(path: Path, version: int, statements: Sequence[tuple[str, tuple[object, ...]]]) -> None:
    connection = _open(path)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        for statement, values in statements:
            connection.execute(statement, values)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise _translated(path, error) from error
    finally:
        connection.close()


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _open(path: Path) -> sqlite3.Connection:
    """A connection that begins and ends transactions only by explicit statements."""
    address = f"file:{quote(os.fsencode(os.path.abspath(path)))}?mode=rw"
    connection = sqlite3.connect(address, uri=True, isolation_level=None)
    try:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _translated(path: Path, error: sqlite3.Error) -> MetadataError:
    """The MetadataError for an error of SQLite: unavailable now, or unusable file."""
    primary = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if primary == sqlite3.SQLITE_BUSY:
        text = f"metadata store {path}: busy for {BUSY_TIMEOUT_MS / 1000:g} s"
        return MetadataUnavailableError(text)
    if primary in _UNAVAILABLE:
        return MetadataUnavailableError(f"metadata store {path}: {error}")
    return MetadataError(f"metadata store {path}: {error}")


class Database:
    """A connection and its thread. Made by ``open``; ``close`` ends both.

    Invariant: no cursor leaves the thread. One that another thread drops hides the error of a statement that runs then.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bkbox-metadata")
        self._connection: sqlite3.Connection | None = None
        self._identity: _FileIdentity | None = None
        self._closed = False

    @classmethod
    async def open(cls, path: Path, version: int, upgrades: Upgrades) -> Database:
        """Connect to an existing file with this version of the schema, or an older one that ``upgrades`` knows. An
        older file is upgraded, and older versions of bkbox refuse it from then on.

        Raises MetadataUnavailableError (missing, not writable, locked), MetadataError (not a database, not ours, of a
        newer version).
        """
        database = cls(path)
        try:
            await database._in_thread(lambda: database._connect(version, upgrades))
        except BaseException:
            await database.close()
            raise
        return database

    async def read(self, work: Transaction[T]) -> T:
        """Run one SELECT or PRAGMA in the thread. Raises as ``write``."""
        return await self._in_thread(lambda: self._guarded(work))

    async def write(self, work: Transaction[T]) -> T:
        """Run a transaction in the thread; it is rolled back if ``work`` raises.

        Raises MetadataUnavailableError, MetadataError, HandleClosedError.
        """
        return await self._in_thread(lambda: self._guarded(lambda c: _transaction(c, work)))

    async def change_mark(self) -> tuple[int, int]:
        """A value that differs from an earlier one if something was committed in between."""
        return await self.read(_change_mark)

    async def close(self) -> None:
        """Wait for the calls in flight, then close. Idempotent."""
        if self._closed:
            return
        self._closed = True
        loop = asyncio.get_running_loop()
        try:
            await asyncio.shield(loop.run_in_executor(self._thread, self._disconnect))
        finally:
            self._thread.shutdown(wait=False)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        if self._closed:
            raise HandleClosedError(f"the metadata store {self.path} was closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    # ---- in the thread --------------------------------------------------------------------

    def _connect(self, version: int, upgrades: Upgrades) -> None:
        identity = _identity_of(self.path)
        if identity is None:
            raise MetadataUnavailableError(
                f"there is no metadata store {self.path}: `{plain_command('init', '--help')}` says how to create it"
            )
        if not os.access(self.path, os.W_OK, effective_ids=True):
            # SQLite would open it for reading and fail only at the first write.
            raise MetadataUnavailableError(f"metadata store {self.path} may not be written")
        try:
            self._connection = _open(self.path)
            self._check_schema(self._connection, version, upgrades)
            mode = self._connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.Error as error:
            raise _translated(self.path, error) from error
        if mode != "wal":
            raise MetadataError(f"metadata store {self.path}: the file system does not allow WAL")
        self._identity = identity

    def _check_schema(
        self, connection: sqlite3.Connection, version: int, upgrades: Upgrades
    ) -> None:
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise MetadataError(f"{self.path} is not a metadata store of bkbox")
        found = _schema_version(connection)
        if found in upgrades:
            found = _transaction(connection, lambda c: _upgrade(c, version, upgrades))
        if found != version:
            raise MetadataError(
                f"metadata store {self.path} has schema version {found}; this version of bkbox "
                f"reads {version}"
            )

    def _guarded(self, work: Transaction[T]) -> T:
        assert self._connection is not None
        if _identity_of(self.path) != self._identity:
            raise MetadataUnavailableError(
                f"metadata store {self.path} was removed or replaced while it was in use: put it "
                "back and restart"
            )
        try:
            return work(self._connection)
        except sqlite3.Error as error:
            raise _translated(self.path, error) from error

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _transaction(connection: sqlite3.Connection, work: Transaction[T]) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.rollback()
    return result


def _upgrade(connection: sqlite3.Connection, version: int, upgrades: Upgrades) -> int:
    """Upgrade; returns the resulting version of the schema. (Another process may have been first.)"""
    while (found := _schema_version(connection)) in upgrades and found < version:
        for statement in upgrades[found]:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {found + 1}")
    return found


def _schema_version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _change_mark(connection: sqlite3.Connection) -> tuple[int, int]:
    # data_version counts the commits of other connections, total_changes those of this one.
    theirs: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return theirs, connection.total_changes


def _identity_of(path: Path) -> _FileIdentity | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return _FileIdentity(status.st_dev, status.st_ino)
