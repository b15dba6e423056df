"""The embedded metadata store of a run: every change of it is observed, and now and then it is unavailable.

Triggers in the file itself write each change of a ledger into a table of this module, in the transaction that makes the
change, in any process: so the history has all versions, with times before any client read them.
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from urllib.parse import quote

from bkbox.base.ids import LedgerId
from bkbox.errors import ChaosError
from bkbox.wire.metadata import ledger_metadata
from proof.chaos.history import History

_HIDDEN = ".away"
_BUSY_S = 10.0
_NOW = "(julianday('now') - 2440587.5) * 86400.0"
_RESOLUTION_S = 0.001
"""Resolution of SQLite's clock, which may be late by so much; no change may seem later than it was."""

_SETUP = f"""
CREATE TABLE chaos_change (
    number INTEGER PRIMARY KEY,
    at_s REAL NOT NULL,
    ledger_id INTEGER NOT NULL,
    version INTEGER,
    ctime_ms INTEGER NOT NULL,
    metadata BLOB
);
CREATE TRIGGER chaos_insert AFTER INSERT ON ledger BEGIN
    INSERT INTO chaos_change (at_s, ledger_id, version, ctime_ms, metadata)
    VALUES ({_NOW}, NEW.ledger_id, NEW.version, NEW.ctime_ms, NEW.metadata);
END;
CREATE TRIGGER chaos_update AFTER UPDATE ON ledger BEGIN
    INSERT INTO chaos_change (at_s, ledger_id, version, ctime_ms, metadata)
    VALUES ({_NOW}, NEW.ledger_id, NEW.version, NEW.ctime_ms, NEW.metadata);
END;
CREATE TRIGGER chaos_delete AFTER DELETE ON ledger BEGIN
    INSERT INTO chaos_change (at_s, ledger_id, version, ctime_ms, metadata)
    VALUES ({_NOW}, OLD.ledger_id, NULL, 0, NULL);
END;
"""  # noqa: S608 - constants

_Row = tuple[int, float, int, int | None, int, bytes | None]


class Changes:
    """The changes of the store, for the history. Created before the first ledger."""

    def __init__(self, path: Path, history: History) -> None:
        self._history = history
        self._seen = 0
        self._last_s = 0.0
        self._connection = _connect(path)
        try:
            self._connection.executescript(_SETUP)
        except sqlite3.Error as error:
            raise ChaosError(f"{path} cannot be observed: {error}") from error

    async def collect(self) -> None:
        """Writes the changes since the last call to the history. Raises ChaosError."""
        try:
            rows = await asyncio.to_thread(self._rows)
        except sqlite3.Error as error:
            raise ChaosError(f"changes of the metadata store cannot be read: {error}") from error
        for row in rows:
            self._note(row)

    def close(self) -> None:
        self._connection.close()

    def _rows(self) -> list[_Row]:
        return self._connection.execute(
            "SELECT * FROM chaos_change WHERE number > ? ORDER BY number", (self._seen,)
        ).fetchall()

    def _note(self, row: _Row) -> None:
        self._seen, at_s, ledger, version, ctime_ms, data = row
        # In the order of the transactions, even if the host's clock jumps meanwhile.
        self._last_s = at_s = max(at_s - self._history.start - _RESOLUTION_S, self._last_s)
        if data is None:
            self._history.note("metadata", t=at_s, ledger=ledger, version=None)
            return
        metadata = ledger_metadata.decode(LedgerId(ledger), data, ctime_ms)
        self._history.note(
            "metadata",
            t=at_s,
            ledger=ledger,
            version=version,
            state=int(metadata.state),
            last=metadata.last_entry,
            sizes=[metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum],
            fragments=[
                [fragment.first_entry, list(fragment.ensemble)] for fragment in metadata.fragments
            ],
        )


class Lock:
    """Holds the write lock of the store from ``acquire`` to ``release``."""

    def __init__(self, path: Path) -> None:
        self._connection = _connect(path)

    async def acquire(self) -> bool:
        """Acquires the lock; False if another process keeps it until the time-out."""
        try:
            await asyncio.to_thread(self._connection.execute, "BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        return True

    def release(self) -> None:
        if self._connection.in_transaction:
            self._connection.rollback()
        self._connection.close()


def hide(path: Path) -> None:
    """Makes the store unreachable: processes that open it fail, and those that have it open notice."""
    path.rename(path.with_name(path.name + _HIDDEN))


def restore(path: Path) -> None:
    """Puts the same file back under its name."""
    path.with_name(path.name + _HIDDEN).rename(path)


def _connect(path: Path) -> sqlite3.Connection:
    try:
        return sqlite3.connect(
            f"file:{quote(str(path))}?mode=rw",  # never creates a new one while it is taken away
            uri=True,
            timeout=_BUSY_S,
            isolation_level=None,
            check_same_thread=False,
        )
    except sqlite3.Error as error:
        raise ChaosError(f"{path} cannot be opened: {error}") from error
