"""Logs that are cut off, and rot in what was synced last.

Each function takes the fault injector, the target host and a random generator, and returns True if it injected the
fault.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from uuid import UUID

from bkbox.errors import DiskError
from bkbox.storage.disk.identity import read_identity
from bkbox.storage.log.segment import (
    ENTRY_LOG_DIR,
    ENTRY_LOG_MAGIC,
    SEGMENT_HEADER_BYTES,
    ScannedRecord,
    SegmentName,
    scan,
    segment_file_name,
)
from bkbox.storage.log.tail import TailMark, read_tail
from proof.sim.faults.faults import Fault, Faults
from proof.sim.world.disk import SECTOR_BYTES, Disk, File
from proof.sim.world.host import Host
from proof.sim.world.worker import IDLE_S

_LAST_BYTES = 600
"""Maximum distance, in bytes, from the end of the last batch at which it rots."""

_TRIES = 60


def cut_log(faults: Faults, host: Host, rng: random.Random) -> bool:
    """The end of an entry log is gone, from a record on, or its whole last segment, although it was durable."""
    disk = rng.choice(host.data_disks)
    if not disk.mounted or not faults.may_lose(host):
        return False
    if rng.random() < 0.8:
        host.kill("to cut off a log")
    else:
        host.stop()
    host.when_down(partial(_cut, faults, host, disk, rng))
    return True


def _cut(faults: Faults, host: Host, disk: Disk, rng: random.Random) -> None:
    found = _tail_of(faults, host, disk)
    if found is None:
        return
    mark, uuid = found
    folder = str(disk.root / ENTRY_LOG_DIR)
    name = segment_file_name(mark.segment)
    file = disk.names.get(folder, {}).get(name)
    later = [other for key, other in disk.names.get(folder, {}).items() if key > name]
    is_last = all(len(other.data) <= SEGMENT_HEADER_BYTES for other in later)
    if file is None or not is_last or len(file.data) < mark.offset:
        return
    if rng.random() < 0.2:
        del disk.names[folder][name]
        disk.durable_names[folder].pop(name, None)
        cut = 0
    else:
        files = host.files(faults.machine)
        reader = files.open_read(Path(folder, name))
        segment = SegmentName(ENTRY_LOG_MAGIC, uuid, mark.segment)
        places = [
            item.offset
            for item in scan(reader, segment, SEGMENT_HEADER_BYTES)
            if isinstance(item, ScannedRecord) and item.offset < mark.offset
        ]
        if not places:
            return
        cut = rng.choice(places[-rng.choice((2, 8, 30)) :])
        file.truncate(cut)
        file.sync()
    faults.cluster.counts["logs cut off"] += 1
    faults.cluster.scheduler.note(host.name, "%s/%s is cut off at %d", folder, name, cut)


def _tail_of(faults: Faults, host: Host, disk: Disk) -> tuple[TailMark, UUID] | None:
    files = host.files(faults.machine)
    try:
        mark, identity = read_tail(files, disk.root), read_identity(files, disk.root)
    except DiskError:
        return None
    if mark is None or identity is None or mark.offset <= SEGMENT_HEADER_BYTES:
        return None
    return mark, identity.uuid


def rot_at_rest(faults: Faults, host: Host, rng: random.Random) -> bool:
    """The last synced bytes rot, after a while without appends; then the host is lost."""
    if not faults.may_lose(host):
        return False
    faults.later(0.0, _rot, faults, host, rng, _TRIES)
    return True


def _rot(faults: Faults, host: Host, rng: random.Random, tries: int) -> None:
    found = _idle_batches(faults, host)
    if not found:
        if tries:
            faults.later(1.0, _rot, faults, host, rng, tries - 1)
        return
    path, file, begin = rng.choice(found)
    begin = max(begin, SEGMENT_HEADER_BYTES, file.ended - _LAST_BYTES)
    if begin >= file.ended or not faults.may_lose(host):
        return
    at = rng.randrange(begin, file.ended)
    if rng.random() < 0.7:
        file.data[at] ^= 1 << rng.randrange(8)
    else:
        at -= at % SECTOR_BYTES
        source = rng.randint(0, at // SECTOR_BYTES) * SECTOR_BYTES
        end = min(at + SECTOR_BYTES, file.ended)
        file.data[at:end] = file.data[source : source + end - at]
    faults.cluster.counts["rot in the last batch"] += 1
    faults.cluster.scheduler.note(host.name, "%s rots at %d", path, at)
    faults.lose_host(host, rng)


def _idle_batches(faults: Faults, host: Host) -> list[tuple[str, File, int]]:
    """The ends of logs without appends for a while, on disks that were up all the time: path, file, and the offset from
    which the next start reads it, and so detects the damage."""
    now = faults.cluster.scheduler.now
    disks = host.data_disks
    workers = [host.workers.get(disk.root) for disk in disks]
    if (
        host.plan.ack_after == "journal"
    ):  # it has the acknowledged entries; the entry logs wait for checkpoints
        if not all(worker is not None and worker.is_idle(now) for worker in workers):
            return []
        found = [disk.last_batch(now, IDLE_S) for disk in host.disks[len(disks) :]]
        return [(*each, 0) for each in found if each is not None]
    batches = []
    for disk, worker in zip(disks, workers, strict=True):
        if worker is None or worker.store is None or not worker.is_idle(now):
            continue
        last = disk.last_batch(now, IDLE_S)
        checkpoint = worker.store.checkpoints.last
        if last is not None and last[0].endswith(segment_file_name(checkpoint.segment)):
            batches.append((*last, checkpoint.offset))
        elif last is not None:
            batches.append((*last, 0))
    return batches


LOG_FAULTS: dict[str, Fault] = {
    "cut off a log": cut_log,
    "rot at rest": rot_at_rest,
}
