"""Preparing an empty disk, and opening its index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bkbox.errors import BootError
from bkbox.storage.disk.checkpoint import Checkpoint, write_checkpoint
from bkbox.storage.disk.identity import DiskIdentity, read_identity, write_identity
from bkbox.storage.files import Files, remove_flat_dir
from bkbox.storage.index.ordered_store import INDEX_DIR, LevelStore, OrderedStore, discard_unsynced
from bkbox.storage.log.segment import ENTRY_LOG_DIR, SEGMENT_HEADER_BYTES

OpenIndex = Callable[[Files, Path, bool], OrderedStore]
"""Opens the index of a disk; the flag says that only flushed data can be relied on."""

CreateIndex = Callable[[Files, Path], None]
"""Makes the empty index of a disk."""


def open_level_store(files: Files, disk: Path, host_crash: bool) -> OrderedStore:
    """The LevelDB index of a disk. DamagedError if it is missing or broken: it has to be rebuilt."""
    path = disk / INDEX_DIR
    if host_crash and files.exists(path):
        discard_unsynced(files, path)
    return LevelStore(path)


def create_level_store(files: Files, disk: Path) -> None:
    """Create an empty LevelDB index; the remains of an earlier attempt are removed."""
    path = disk / INDEX_DIR
    remove_flat_dir(files, path)
    store = LevelStore(path, create=True)
    store.flush()
    store.close()
    files.fsync_dir(disk)


def format_disk(
    files: Files,
    disk: Path,
    identity: DiskIdentity,
    *,
    create_index: CreateIndex = create_level_store,
) -> None:
    """Prepare an empty disk; an interrupted preparation is completed.

    BootError for a disk that is in use, DiskError.
    """
    log_dir = disk / ENTRY_LOG_DIR
    if read_identity(files, disk) is not None:
        raise BootError(f"disk {disk} is prepared already")
    if files.exists(log_dir) and files.listdir(log_dir):
        raise BootError(f"disk {disk} holds an entry log but no identity: it is not empty")
    files.mkdir(log_dir)
    create_index(files, disk)
    files.fsync_dir(disk)
    files.fsync_dir(disk.parent)
    write_checkpoint(files, disk, Checkpoint(0, 1, SEGMENT_HEADER_BYTES, 0, None))
    write_identity(files, disk, identity)
