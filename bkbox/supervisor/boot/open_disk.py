"""Steps 2 and 3 of a start, for all disks at boot and for one disk when its worker is restarted.

A worker is started and replays its log, and the disk is classified. If the disk may have lost something, phase one
comes before it serves. Its dirty marker is cleared of earlier runs only when that is durable.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from datetime import datetime

from bkbox.base.ids import BookieId
from bkbox.config.schema import Config
from bkbox.errors import BootError, ConnectionLostError, DamagedError, FormatVersionError
from bkbox.ipc.channel import Handler
from bkbox.ipc.messages.disk import ClearDirtyMarker, DiskOpened, IndexProgress, OpenDisk
from bkbox.metadata.base import MetadataStore
from bkbox.protocol import boot
from bkbox.protocol.boot import MarkerEvidence, RunEvidence
from bkbox.storage.disk import dirty_marker as markers
from bkbox.storage.disk.dirty_marker import Marker
from bkbox.storage.files import Files
from bkbox.storage.log.records import AckAfter
from bkbox.supervisor.boot import phase_one
from bkbox.supervisor.boot.witnessing import DiskWitnesses
from bkbox.supervisor.children.child_pool import ChildPool
from bkbox.supervisor.children.process import Child
from bkbox.supervisor.disks.disks import Disk

log = logging.getLogger(__name__)


async def open_disk(
    disk: Disk,
    config: Config,
    witnessing: DiskWitnesses,
    child_pool: ChildPool,
    on_message: Handler,
) -> None:
    """Hand the disk and its lock to a worker, let it replay, classify the disk. Raises BootError and the worker's
    errors."""
    before, run = disk.before, disk.run
    assert run is not None
    host_crash = before is not None and (
        config.strict_unclean_shutdown or before.is_host_crash(run.boot_id, run.mount)
    )
    name = str(disk.path)
    disk.child = Child(child_pool.acquire("worker", name), name, on_message)
    order = OpenDisk(
        path=str(disk.path),
        journal=str(config.journal) if config.journal else "",
        ack_after=config.ack_after,
        host_crash=host_crash,
        is_clean=before is None,
        generation=witnessing.generation,
        seen=witnessing.seen(disk),
        segment_bytes_max=config.segment_bytes_max,
        checkpoint_bytes=config.checkpoint_bytes,
        slow_operation_ms=config.slow_operation_ms,
        disk_usage_max=config.disk_usage_max,
        disk_reserve_bytes=config.disk_reserve_bytes,
        disk_usage_resume=config.disk_usage_resume,
    )
    try:
        opened = await disk.call(order, fds=(disk.lock.fileno(),))
    except ConnectionLostError as error:
        ended = await disk.child.wait()
        raise BootError(
            f"the worker of disk {disk.path} ended while it opened the disk: {ended}"
        ) from error
    except (DamagedError, FormatVersionError) as error:
        raise BootError(f"disk {disk.path} cannot be opened: {error}") from error
    assert isinstance(opened, DiskOpened)
    verdict = boot.classify(
        boot.DiskEvidence(
            marker=_marker_evidence(before),
            boot_id=run.boot_id,
            strict=config.strict_unclean_shutdown,
            tail_trusted=opened.trusted,
            damaged=tuple(opened.damaged),
            mount=run.mount,
            intact=opened.intact,
        )
    )
    disk.opened = opened
    disk.crash_class, disk.reason = verdict.disk_class, verdict.reason
    disk.may_have_lost, disk.only_active = verdict.may_have_lost, verdict.only_active
    if verdict.may_have_lost and opened.intact and opened.synced_ms:
        disk.reason += f"; nothing acknowledged before {_time(opened.synced_ms)} is missing"
    level = logging.INFO if verdict.disk_class is boot.DiskClass.CLEAN else logging.WARNING
    log.log(level, "disk %s: %s: %s", disk.path, disk.crash_class.value, disk.reason)


def replay_phase(disk: Disk, at: IndexProgress) -> str:
    """The phase of a start while a disk's worker rebuilds its index."""
    if at.done_bytes >= at.total_bytes:
        return "replay"
    percent = 100 * at.done_bytes // at.total_bytes
    return f"replay: making the index of {disk.path} anew, {percent} %"


def _marker_evidence(marker: Marker | None) -> MarkerEvidence | None:
    """Convert a disk's dirty marker to the evidence that the protocol's boot planning takes."""
    if marker is None:
        return None
    runs = tuple(
        RunEvidence(run.boot_id, run.ack_after is AckAfter.WRITE, run.mount, run.marks_active)
        for run in marker.runs
    )
    return MarkerEvidence(runs, marker.failures, marker.replaced)


async def mark_losses(
    store: MetadataStore,
    bookie: BookieId,
    disks: Sequence[Disk],
    unresolved: Collection[int] = (),
    assigned_disk: phase_one.AssignedDisk = phase_one.no_disk,
) -> phase_one.PhaseOne:
    """Run phase one over all ``disks`` of the bookie. Some of them may have lost something, or have a copy of a ledger
    that is ``unresolved``. ``assigned_disk``: as in phase_one.run."""
    done = await phase_one.run(store, bookie, disks, unresolved, assigned_disk)
    log.warning(
        "phase one: %d ledgers fenced, %d in limbo, of %d seen",
        done.fenced,
        done.limbo,
        done.ledgers_seen,
    )
    return done


async def finish_recovery(disk: Disk, files: Files) -> None:
    """Clear earlier runs from the dirty marker, whose possible losses are durably accounted for: the disk may serve."""
    assert disk.run is not None
    await disk.call(ClearDirtyMarker())
    markers.commit(files, disk.path, disk.run, disk.before)
    disk.may_have_lost = disk.only_active = False
    disk.recovered = True


def _time(ms: int) -> str:
    """A point in time, to the second, as an operator's clock shows it."""
    return datetime.fromtimestamp(ms // 1000).astimezone().isoformat(sep=" ")
