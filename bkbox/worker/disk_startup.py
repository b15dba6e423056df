"""Opening a disk: rebuild its index from the log if it is missing or broken, then replay the log.

A rebuild changes nothing about what the disk may have lost. It only reports a part of the log that cannot be read
(storage/disk/rebuild.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from bkbox.base.values import frozen_struct, replaced
from bkbox.bookie.bookie import Bookie
from bkbox.errors import IndexDamagedError
from bkbox.ipc.messages.disk import OpenDisk
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.format_disk import OpenIndex, open_level_store
from bkbox.storage.disk.rebuild import Progress, rebuild_index
from bkbox.storage.disk.replay import ReplayReport
from bkbox.storage.disk.reserve import free_reserve_if_full
from bkbox.storage.files import Files
from bkbox.storage.log.records import AckAfter

log = logging.getLogger(__name__)


@frozen_struct
class OpenedDisk:
    """An open disk; ``rebuilt``: why its index was rebuilt, empty if it was not."""

    store: DiskStore
    bookie: Bookie
    report: ReplayReport
    rebuilt: str = ""


@frozen_struct
class Opening:
    """The arguments for opening a disk. ``wall_ms``, ``ticks_us``: as for Bookie."""

    files: Files
    order: OpenDisk
    wall_ms: Callable[[], int]
    ticks_us: Callable[[], int]

    def run(self, progress: Progress) -> OpenedDisk:
        """Open the disk. Raises BootError, DamagedError, FormatVersionError, DiskError."""
        try:
            return self._once()
        except IndexDamagedError as error:
            why = str(error)
        disk = Path(self.order.path)
        log.warning("disk %s: its index is rebuilt from the entry log: %s", disk, why)
        made = rebuild_index(self.files, disk, keep_going=True, progress=progress)
        log.warning("disk %s: %d ledgers and %d entries indexed", disk, made.ledgers, made.entries)
        for what in made.unreadable:
            log.error("disk %s: cannot be read: %s", disk, what)
        return replaced(self._once(), rebuilt=why)

    def _once(self) -> OpenedDisk:
        free_reserve_if_full(self.files, Path(self.order.path))
        return open_once(self.files, self.order, self.wall_ms, self.ticks_us)


def open_once(
    files: Files,
    order: OpenDisk,
    wall_ms: Callable[[], int],
    ticks_us: Callable[[], int],
    open_index: OpenIndex = open_level_store,
) -> OpenedDisk:
    """Open the disk as it is. Raises IndexDamagedError, and what ``Opening.run`` raises."""
    store = DiskStore.open(
        files,
        Path(order.path),
        ack_after=AckAfter(order.ack_after),
        journal_dir=Path(order.journal) if order.journal else None,
        segment_bytes_max=order.segment_bytes_max,
        checkpoint_bytes=order.checkpoint_bytes,
        now_ms=wall_ms,
        open_index=open_index,
        generation=order.generation,
    )
    try:
        report = store.replay(
            order.host_crash,
            is_clean=order.is_clean,
            seen=(order.seen[0], order.seen[1], order.seen[2]),
        )
        bookie = Bookie(store, wall_ms=wall_ms, ticks_us=ticks_us)
    except IndexDamagedError:
        store.abandon()
        raise
    return OpenedDisk(store, bookie, report)
