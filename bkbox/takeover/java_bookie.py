"""A Java bookie on this host, as its bk_server.conf describes it: its directories, its storage, its cookie.

Java keeps everything below ``<directory>/current``. While a conversion goes on, that tree is called ``java-current``,
and ``current`` is a file, in which no version of Java's bookie can create anything: it ends with an error at its start.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path

from bkbox.base.values import frozen_struct
from bkbox.config.java_properties import Property
from bkbox.errors import (
    BookieRunningError,
    ConfigError,
    CookieMismatchError,
    DiskFailedError,
    EncodingError,
    OperatorError,
)
from bkbox.storage.files import Files, unlink_durably, write_atomic
from bkbox.takeover.java_index_file import LOCATION, PAGE_BYTES
from bkbox.wire.metadata import cookie as cookies
from bkbox.wire.metadata.cookie import Cookie

CURRENT = "current"
ASIDE = "java-current"
COOKIE_NAME = "VERSION"
UNCLEAN_NAME = "DIRTY"

_NOTE = (
    "This disk is being converted by `bkbox {direction}`, which was not finished. Run the command again. "
    "Apache's bookie cannot start here before that.\n"
)
_PORT = "3181"
_CONNECT_S = 2.0


class Storage(Enum):
    """The kinds of ledger storage."""

    DB = "DbLedgerStorage"
    INTERLEAVED = "InterleavedLedgerStorage"
    SORTED = "SortedLedgerStorage"


@frozen_struct
class JavaBookie:
    """``journal_dirs``, ``ledger_dirs``, ``index_dirs``: as configured; ``index_dirs`` are the ledger directories where
    none are configured. ``is_journaled``: every entry is in a synced journal before it is acknowledged.
    """

    name: str
    journal_dirs: tuple[str, ...]
    ledger_dirs: tuple[str, ...]
    index_dirs: tuple[str, ...]
    has_index_dirs: bool
    storage: Storage
    port: int
    is_journaled: bool
    page_bytes: int

    @property
    def directories(self) -> tuple[Path, ...]:
        """Every directory, once: ledgers, indexes, journals."""
        return tuple(
            map(Path, dict.fromkeys(self.ledger_dirs + self.index_dirs + self.journal_dirs))
        )

    def cookie(self, bookie_id: str, instance_id: str) -> Cookie:
        """The cookie of this configuration."""
        index = self.index_dirs if self.has_index_dirs else None
        return cookies.cookie_of(
            bookie_id, self.journal_dirs, self.ledger_dirs, index, instance_id or None
        )


def java_bookie(properties: Mapping[str, Property], name: str) -> JavaBookie:
    """The bookie of a configuration file. Raises ConfigError."""

    def items(*keys: str) -> tuple[str, ...]:
        for key in keys:
            if key in properties and properties[key].items():
                return tuple(properties[key].items())
        return ()

    def is_set(key: str) -> bool:
        return key not in properties or properties[key].value.strip().lower() != "false"

    ledger_dirs = items("ledgerDirectories")
    journal_dirs = items("journalDirectories", "journalDirectory")
    problems = [
        f"{name}: {key} is missing"
        for key, found in (("ledgerDirectories", ledger_dirs), ("journalDirectories", journal_dirs))
        if not found
    ]
    index_dirs = items("indexDirectories")
    if index_dirs and len(index_dirs) != len(ledger_dirs):
        problems.append(
            f"{name}: indexDirectories has not as many directories as ledgerDirectories"
        )
    class_name = "".join(items("ledgerStorageClass")) or Storage.SORTED.value
    storage = next((each for each in Storage if class_name.endswith(each.value)), None)
    port = "".join(items("bookiePort")) or _PORT
    if not port.isdigit():
        problems.append(f"{name}: bookiePort is not a port: {port}")
    page = "".join(items("pageSize")) or str(PAGE_BYTES)
    if not page.isdigit() or int(page) % LOCATION.size or not int(page):
        problems.append(f"{name}: pageSize is not a size of pages: {page}")
    if storage is None:
        problems.append(f"{name}: ledgerStorageClass {class_name} is not known")
    if problems:
        raise ConfigError(problems)
    assert storage is not None
    return JavaBookie(
        name,
        journal_dirs,
        ledger_dirs,
        index_dirs or ledger_dirs,
        bool(index_dirs),
        storage,
        int(port),
        is_set("journalWriteData") and is_set("journalSyncData"),
        int(page),
    )


def refuse_listening(port: int) -> None:
    """Raises BookieRunningError if something answers on the bookie's port of this host."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=_CONNECT_S):
        raise BookieRunningError(
            f"something listens on port {port} of this host: stop Java's bookie first"
        )


def tree(directory: Path) -> Path:
    """Java's files below a directory, wherever they are now."""
    aside = directory / ASIDE
    return aside if aside.is_dir() else directory / CURRENT


def read_cookies(java: JavaBookie, files: Files) -> Cookie:
    """The cookie on all directories. Raises OperatorError for one that is missing, CookieMismatchError, DiskError."""
    found: dict[Path, Cookie] = {}
    for directory in java.directories:
        path = tree(directory) / COOKIE_NAME
        data = files.read_bytes(path)
        if data is None:
            raise OperatorError(
                f"{path} is not there: {directory}, which {java.name} names, is not a directory of a Java bookie. "
                "Is its file system mounted?"
            )
        try:
            found[directory] = cookies.decode(data)
        except EncodingError as error:
            raise CookieMismatchError(f"{path}: {error}") from error
    first = next(iter(found.values()))
    expected = java.cookie(first.bookie_host or "", first.instance_id or "")
    for directory, cookie in found.items():
        for difference in cookies.differences(expected, cookie):
            raise CookieMismatchError(
                f"the cookie of {directory} does not match {java.name}: {difference.field} is {difference.stored}, "
                f"expected {difference.config}"
            )
    return first


def set_aside(files: Files, directory: Path, direction: str) -> None:
    """Take Java's tree out of Java's reach; one that is already is left. DiskError."""
    current, aside = directory / CURRENT, directory / ASIDE
    if current.is_dir() and not aside.exists():
        files.rename(current, aside)
        files.fsync_dir(directory)
    bar(files, directory, direction)


def bar(files: Files, directory: Path, direction: str) -> None:
    """Put the file that keeps Java's bookie from starting where its tree would be. DiskError."""
    if not (directory / CURRENT).exists():
        write_atomic(files, directory / CURRENT, _NOTE.format(direction=direction).encode())


def remove_java(files: Files, directory: Path) -> None:
    """Remove Java's tree and the file in its place. DiskError."""
    remove_tree(files, directory / ASIDE)
    if (directory / CURRENT).is_file():
        unlink_durably(files, directory / CURRENT)


def give_back(files: Files, directory: Path) -> None:
    """Put Java's tree back where Java's bookie looks for it. DiskError."""
    current, aside = directory / CURRENT, directory / ASIDE
    if current.is_file():
        unlink_durably(files, current)
    if aside.is_dir():
        files.rename(aside, current)
        files.fsync_dir(directory)


def remove_tree(files: Files, path: Path) -> None:
    """Remove a directory with all that is in it, durably, if it exists. DiskFailedError."""
    if not path.exists():
        return
    try:
        shutil.rmtree(path)
    except OSError as error:
        raise DiskFailedError(f"remove {path}: {error.strerror}") from error
    files.fsync_dir(path.parent)


def was_unclean(java: JavaBookie) -> bool:
    """True if Java's bookie noted that it was not stopped in order."""
    return any(os.path.lexists(tree(Path(each)) / UNCLEAN_NAME) for each in java.ledger_dirs)
