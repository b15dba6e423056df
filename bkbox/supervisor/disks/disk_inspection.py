"""One data disk or journal directory: its state, its lock, its stamp.

Each has an identity of its own (``DISK``: uuid, bookie, cluster), which tells an emptied directory, another bookie's
disk and another cluster's disk apart; a cookie (``VERSION``), byte for byte as Java writes it; and an ``EPOCH``.

A disk that was removed or replaced and comes back later is out of date: it lacks the fences and entries of the time
between, although its files look intact. So every repair raises the version of the metadata store's cookie, and each
directory that took part holds that version (``EPOCH``; a missing one means 0, the version of `bkbox init`). A directory
with an older version is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from bkbox.base.values import frozen_struct, replaced
from bkbox.config.schema import Config
from bkbox.errors import DiskError, EncodingError, OperatorError
from bkbox.metadata.versioned import Versioned
from bkbox.storage.checksummed_document import read_document, write_document
from bkbox.storage.disk import dirty_marker as markers
from bkbox.storage.disk.conversion import read_conversion
from bkbox.storage.disk.dirty_marker import MARKER_NAME
from bkbox.storage.disk.identity import DISK_NAME, DiskIdentity, read_identity
from bkbox.storage.disk.lock import LOCK_NAME, DiskLock
from bkbox.storage.files import Files, write_atomic
from bkbox.storage.log.segment import ENTRY_LOG_DIR
from bkbox.supervisor.disks.drain_marker import DRAINING_NAME, is_removed
from bkbox.supervisor.disks.witness import WITNESS_NAME
from bkbox.wire.metadata import cookie as cookies
from bkbox.wire.metadata.cookie import Cookie

VERSION_NAME = "VERSION"
EPOCH_NAME = "EPOCH"
JOBS_NAME = "JOBS"

_NOT_DATA = frozenset(
    {
        *(LOCK_NAME, MARKER_NAME, f"{MARKER_NAME}.new", f"{DISK_NAME}.new"),
        *(EPOCH_NAME, f"{EPOCH_NAME}.new", "lost+found", "admin.sock"),
        *(DRAINING_NAME, f"{DRAINING_NAME}.new"),
        *(JOBS_NAME, f"{JOBS_NAME}.new", f"{JOBS_NAME}.aside"),
        *(WITNESS_NAME, f"{WITNESS_NAME}.new"),
    }
)
"""Files that a directory may hold and still count as empty: an interrupted repair leaves some of these."""

_HALF_PREPARED = _NOT_DATA | {ENTRY_LOG_DIR, "index", "CHECKPOINT", "CHECKPOINT.new"}
"""The same for a disk that is being prepared, as long as its entry log is empty. Spelled out here because the modules
that define these names load LevelDB."""

_WRITTEN_BY_INIT = _HALF_PREPARED | {DISK_NAME, VERSION_NAME, f"{VERSION_NAME}.new"}


class DirState(Enum):
    """The state of a directory."""

    GOOD = "good"
    EMPTY = "empty"
    REPLACED = "replaced, to be stamped after phase one"
    STALE = "its VERSION is missing, unreadable or differs"
    OUTDATED = "out of date"
    PAST = "from the past"
    REMOVED = "taken out of the bookie"
    BYPASSED = "its cookie in the metadata store was written by another tool, or it was out of use"
    FOREIGN = "foreign"
    STRANGE = "not empty and not a disk of bkbox"
    UNREADABLE = "unreadable"
    HALF_CONVERTED = "half converted"


OURS = (DirState.GOOD, DirState.STALE, DirState.REPLACED)
NEVER_WRITTEN_TO = (
    DirState.OUTDATED,
    DirState.FOREIGN,
    DirState.STRANGE,
    DirState.UNREADABLE,
    DirState.REMOVED,
    DirState.HALF_CONVERTED,
)


@frozen_struct
class Directory:
    """One data disk or journal directory as it was found."""

    path: Path
    state: DirState
    detail: str = ""
    version: bytes | None = None
    identity: DiskIdentity | None = None
    epoch: int = 0


# ---- inspection -------------------------------------------------------------------------------------


def inspect_directory(files: Files, path: Path, expected: Cookie, instance_id: str) -> Directory:
    """Determine the state of one directory."""
    try:
        names = files.listdir(path) if files.exists(path) else []
        identity = read_identity(files, path)
        version = files.read_bytes(path / VERSION_NAME)
        conversion = read_conversion(files, path)
    except DiskError as error:
        return Directory(path, DirState.UNREADABLE, str(error))
    if conversion is not None:
        command = f"bkbox {conversion.direction}"
        detail = f"`{command}` has converted a part of it: run that command again to finish it"
        return Directory(path, DirState.HALF_CONVERTED, detail, version, identity)
    if identity is None:
        if version is None and (not names or _contains_only(files, path, _HALF_PREPARED)):
            return Directory(
                path,
                DirState.EMPTY,
                "the directory is empty" if names else "there is nothing in it",
            )
        detail = f"it has no {DISK_NAME} file but holds {', '.join(names[:5])}"
        return Directory(path, DirState.STRANGE, detail, version)
    for name, ours, theirs in (
        ("bookieHost", expected.bookie_host, identity.bookie_id),
        ("instanceId", instance_id, identity.instance_id),
    ):
        if ours != theirs:
            detail = f"{name} of its {DISK_NAME} file is {theirs}, expected {ours}"
            return Directory(path, DirState.FOREIGN, detail, version, identity)
    if is_removed(files, path):
        detail = "an operator has removed this disk: take it out of `disks` in the configuration"
        return Directory(path, DirState.REMOVED, detail, version, identity)
    compared = _compare_version(files, path, expected, version, identity)
    return replaced(compared, epoch=_read_epoch(files, path))


def _contains_only(files: Files, path: Path, allowed: frozenset[str]) -> bool:
    """True if the directory holds only ``allowed`` names, and its entry log nothing at all."""
    log = path / ENTRY_LOG_DIR
    return set(files.listdir(path)) <= allowed and not (files.exists(log) and files.listdir(log))


def _read_epoch(files: Files, path: Path) -> int:
    """The directory's epoch; 0, the oldest there is, where the file is missing or cannot be read."""
    try:
        fields = read_document(files, path / EPOCH_NAME)
        return int(fields["epoch"]) if fields is not None else 0
    except (DiskError, KeyError, ValueError, TypeError):
        return 0


def write_epoch(files: Files, path: Path, epoch: int) -> None:
    write_document(files, path / EPOCH_NAME, {"epoch": epoch})


def mark_outdated(
    found: Sequence[Directory], stored: Versioned[bytes] | None
) -> tuple[Directory, ...]:
    """Mark the directories of one bookie that are out of date."""
    ours = [item for item in found if item.state in OURS]
    if stored is None or all(item.epoch >= stored.version for item in ours):
        return tuple(found)
    bypassed = all(item.epoch < stored.version for item in ours)

    def classified(item: Directory) -> Directory:
        if item.state not in OURS or item.epoch >= stored.version:
            return item
        if bypassed:
            detail = (
                "another tool has written the cookie in the metadata store, or it was out of use"
            )
            return replaced(item, state=DirState.BYPASSED, detail=detail)
        detail = "it was not in use when the cookies were repaired and knows nothing of what happened since"
        return replaced(item, state=DirState.OUTDATED, detail=detail)

    return tuple(map(classified, found))


def _compare_version(
    files: Files, path: Path, expected: Cookie, version: bytes | None, identity: DiskIdentity
) -> Directory:
    if version is None:
        marker = markers.read_marker(files, path)
        if marker is not None and marker.replaced:
            return Directory(
                path, DirState.REPLACED, "it stands in for a lost disk", None, identity
            )
        return Directory(path, DirState.STALE, "its VERSION file is missing", None, identity)
    try:
        found = cookies.decode(version)
    except EncodingError as error:
        return Directory(
            path, DirState.STALE, f"its VERSION file cannot be read: {error}", version, identity
        )
    differing = cookies.differences(expected, found)
    for difference in differing:
        if difference.field in ("bookieHost", "instanceId"):
            detail = f"{difference.field} of its VERSION file is {difference.stored}, expected {difference.config}"
            return Directory(path, DirState.FOREIGN, detail, version, identity)
    if differing:
        first = differing[0]
        detail = f"{first.field} of its VERSION file is {first.stored}, expected {first.config}"
        return Directory(path, DirState.STALE, detail, version, identity)
    return Directory(path, DirState.GOOD, "", version, identity)


# ---- writing ----------------------------------------------------------------------------------------


def stamp(files: Files, path: Path, expected: Cookie) -> None:
    """Write VERSION durably."""
    write_atomic(files, path / VERSION_NAME, cookies.encode(expected))


def lock_all(config: Config, files: Files, *, create: bool) -> dict[Path, DiskLock]:
    """Lock every directory of the bookie, or none. Raises BookieRunningError, DiskError.

    Without ``create`` a missing directory is left alone: it may be a mount point whose file system is not mounted.
    """
    locks: dict[Path, DiskLock] = {}
    try:
        for path in (*config.disks, *((config.journal,) if config.journal else ())):
            if create:
                make_directory(files, path)
            if files.exists(path):
                locks[path] = DiskLock(path)
    except (DiskError, OperatorError):
        for lock in locks.values():
            lock.release()
        raise
    return locks


@contextmanager
def locked(config: Config, files: Files, *, create: bool) -> Iterator[None]:
    """Hold every directory of the bookie. Arguments and errors as of ``lock_all``."""
    locks = lock_all(config, files, create=create)
    try:
        yield
    finally:
        for lock in locks.values():
            lock.release()


def make_directory(files: Files, path: Path) -> None:
    """Create a directory and its missing parents, durably: a synced file is lost when a name above it is lost."""
    missing = [path]
    while not files.exists(missing[-1].parent):
        missing.append(missing[-1].parent)
    for each in reversed(missing):
        files.mkdir(each)
        files.fsync_dir(each.parent)


def only_from_init(files: Files, path: Path) -> bool:
    """True if the directory holds only what `bkbox init` writes: no bookie has written to it since."""
    return not files.exists(path) or _contains_only(files, path, _WRITTEN_BY_INIT)
