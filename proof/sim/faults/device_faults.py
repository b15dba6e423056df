"""Devices that fail and come back, mounts that change, and disks, indexes, logs and records of the metadata store from
the past, while the kernel's boot id stays as it is.

Each takes the ``Faults`` that carries it out, the host that the fault is about, and a random generator; it returns
whether it was done.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

from bkbox.base.ids import BookieId
from bkbox.errors import DamagedError, DiskError
from bkbox.storage.disk.identity import read_identity
from bkbox.storage.entries.entry_log import ENTRY_LOG_DIR
from bkbox.storage.log.segment import (
    ENTRY_LOG_MAGIC,
    SEGMENT_HEADER_BYTES,
    ScannedRecord,
    SegmentName,
    scan,
    segment_file_name,
)
from bkbox.storage.log.tail import TailMark, read_tail
from bkbox.supervisor.disks.disk_inspection import EPOCH_NAME, VERSION_NAME
from bkbox.supervisor.disks.witness import NOTHING, BookieRecord, DiskRecord, decode_record
from proof.sim.faults.faults import Fault, Faults
from proof.sim.world.disk import SECTOR_BYTES, Disk, File
from proof.sim.world.frontend import ADDED
from proof.sim.world.host import Host
from proof.sim.world.worker import RESTED_S

_LAST_BYTES = 600
"""Where rot in the last batch strikes: so far from its end at most."""

_LOOKS = 60
_ADDS = 200


# ---- devices that fail and come back ----------------------------------------------------------------


def lose_device(faults: Faults, host: Host, rng: random.Random) -> bool:
    """It is gone with what was not synced, and back soon; the bookie is killed and the disk mounted anew."""
    if not faults.may_lose(host):
        return False
    host.kill("the device of a disk is gone")
    for disk in _some(host, rng):
        host.remount(disk)
    return True


def lose_device_at_add(faults: Faults, host: Host, rng: random.Random) -> bool:
    """The device of the next bookie that answers an add, and has not synced what is on it, is gone, or fails."""
    faults.cluster.traps[ADDED] = partial(_strike_unsynced, faults, rng, _ADDS)
    return True


def _strike_unsynced(faults: Faults, rng: random.Random, adds: int, host: Host) -> None:
    disks = [disk for disk in _data_disks(host) if disk.has_unsynced_log]
    if not disks:
        if adds:
            call = partial(_strike_unsynced, faults, rng, adds - 1)
            faults.later(0.0, faults.cluster.traps.setdefault, ADDED, call)
        return
    faults.later(rng.choice((0.0, 0.0, 0.01)) * rng.random(), _lose_these, faults, host, rng, disks)


def _lose_these(faults: Faults, host: Host, rng: random.Random, disks: Sequence[Disk]) -> None:
    if not faults.may_lose(host):
        return
    faults.cluster.counts["devices lost at an add"] += 1
    if rng.random() < 0.3:
        host.kill("the device of a disk is gone")
        for disk in disks:
            host.remount(disk)
        return
    for disk in disks:
        disk.is_failing = True
    end = rng.choice((_heal_and_kill, _heal_and_kill, _remount_after_stop, _remount_after_kill))
    faults.later(rng.choice((0.0, 0.0, 2.0, 5.0)) * rng.random(), end, faults, host, rng, disks)


def fail_device(faults: Faults, host: Host, rng: random.Random) -> bool:
    """It takes no writes for a while. Then the bookie is stopped, or killed, and the disk mounted anew; or the device
    works again by itself, with the bookie killed, or none the wiser."""
    if not faults.may_lose(host):
        return False
    disks = _some(host, rng)
    for disk in disks:
        disk.is_failing = True
    end = rng.choice((_remount_after_kill, _remount_after_stop, _heal, _heal_and_kill))
    faults.later(rng.choice((0.01, 1.0, 20.0)) * rng.random(), end, faults, host, rng, disks)
    return True


def _some(host: Host, rng: random.Random) -> list[Disk]:
    return rng.sample(host.disks, 2 if len(host.disks) > 1 and rng.random() < 0.4 else 1)


def _remount(host: Host, disks: Sequence[Disk]) -> None:
    for disk in disks:
        if disk.is_failing:
            host.remount(disk)


def _remount_after_kill(
    _faults: Faults, host: Host, _rng: random.Random, disks: Sequence[Disk]
) -> None:
    host.kill("to mount a disk again")
    _remount(host, disks)


def _remount_after_stop(
    _faults: Faults, host: Host, _rng: random.Random, disks: Sequence[Disk]
) -> None:
    host.stop()
    host.once_down(partial(_remount, host, disks))


def _heal(faults: Faults, host: Host, rng: random.Random, disks: Sequence[Disk]) -> None:
    for disk in disks:
        if disk.is_failing:
            disk.come_back()
    faults.later(rng.uniform(5.0, 60.0), faults.restart, host)


def _heal_and_kill(faults: Faults, host: Host, rng: random.Random, disks: Sequence[Disk]) -> None:
    """What a bookie has heard of the failure it has noted where it could; in some cases another program has then asked
    the kernel, which says it once."""
    told = {path for path, worker in host.workers.items() if worker.has_told_trouble}
    faults.cluster.counts["devices that came back"] += 1
    faults.cluster.counts["devices that came back after trouble"] += bool(told)
    for disk in disks:
        if disk.is_failing:
            disk.come_back()
            if disk.root in told and rng.random() < 0.7:
                disk.left_behind = False
                for names in disk.names.values():
                    for file in names.values():
                        file.unheard = False
    host.kill("after an error of its disk")
    if rng.random() < 0.8:
        for disk in disks:
            disk.drop_caches()


def remount_in_order(faults: Faults, host: Host, rng: random.Random) -> bool:
    """The operator stops the bookie, and mounts its disks anew: nothing is lost."""
    if not host.is_up:
        return False
    host.stop()
    host.once_down(partial(_remount_all, faults, host))
    return True


def _remount_all(faults: Faults, host: Host) -> None:
    if any(not disk.mounted or disk.is_failing for disk in host.disks):
        return
    for disk in host.disks:
        disk.remount_in_order()
    if host.left_clean and not faults.is_suspect(host):
        host.must_be_clean = True
        faults.cluster.counts["remounts after an ordered stop"] += 1


# ---- copies from before ------------------------------------------------------------------------------


def older_index(faults: Faults, host: Host, rng: random.Random) -> bool:
    """Only the index of a disk comes from a copy: it can be made anew from the log, so that nothing is lost."""
    disk = rng.choice(_data_disks(host))
    if not disk.mounted or disk.root not in host.indexes:
        return False
    contents, copy = disk.contents, host.indexes[disk.root].copy()

    def put_back() -> None:
        if disk.contents is contents and disk.root in host.indexes:
            host.indexes[disk.root] = copy
            faults.cluster.counts["older indexes"] += 1

    faults.later(rng.choice((2.0, 60.0)) * rng.random(), _bring_down, host, rng, put_back)
    return True


def older_disk(faults: Faults, host: Host, rng: random.Random) -> bool:
    """A disk comes from a snapshot: of before the last start, or of before the last checkpoint that is noted. In some
    cases the metadata store has its record of the disks from then, too, for a while."""
    disk = rng.choice(_data_disks(host))
    if not host.is_up or not disk.mounted or disk.root not in host.indexes:
        return False
    worker = host.workers.get(disk.root)
    store = None if worker is None else worker.store
    if store is None or host.supervisor is None:
        return False
    copy, index, contents = disk.copy(), host.indexes[disk.root].copy(), disk.contents
    generation, checkpoint = host.supervisor.witnessing.generation, store.durable[0]
    uuid = str(store.identity.uuid)
    truth, bookie = faults.cluster.truth, BookieId(host.name)
    record = truth.disk_records.get(bookie)
    with_store = len(_data_disks(host)) > 1 and rng.random() < 0.5

    def put_back() -> None:
        now = _record_of(faults, host)
        noted = now.disks.get(uuid, DiskRecord(0))
        is_older = noted.generation > generation
        if not is_older and (with_store or noted.checkpoint <= checkpoint):
            return
        if disk.contents is not contents or not _is_same_epoch(disk, copy):
            return
        if not faults.may_lose(host):
            return
        disk.put_back(copy)
        disk.contents = object()
        host.indexes[disk.root] = index
        faults.cluster.counts["older disks"] += 1
        faults.cluster.scheduler.say(host.name, "%s is from the past", disk.root)
        if with_store and record is not None:
            _put_record(faults, host, rng, record)

    faults.later(rng.choice((10.0, 60.0, 120.0)) * rng.random(), _bring_down, host, rng, put_back)
    if rng.random() < 0.7:
        faults.later(1.0, faults.restart, host)
    return True


def older_store(faults: Faults, host: Host, rng: random.Random) -> bool:
    """The metadata store has its record of the disks from a copy, until the newest one is put back."""
    record = faults.cluster.truth.disk_records.get(BookieId(host.name))
    if record is None:
        return False
    call = partial(_put_record, faults, host, rng, record)
    faults.later(rng.choice((10.0, 60.0)) * rng.random(), _bring_down, host, rng, call)
    return True


def _put_record(faults: Faults, host: Host, rng: random.Random, older: object) -> None:
    records, bookie = faults.cluster.truth.disk_records, BookieId(host.name)
    newest = records.get(bookie)
    if newest is None or newest is older:
        return
    records[bookie] = older  # type: ignore[assignment]
    faults.cluster.counts["older stores"] += 1

    def put_back() -> None:
        if records.get(bookie) is older:
            records[bookie] = newest

    faults.at_last.append(put_back)
    faults.later(rng.uniform(2.0, 20.0), put_back)


def _record_of(faults: Faults, host: Host) -> BookieRecord:
    found = faults.cluster.truth.disk_records.get(BookieId(host.name))
    try:
        return NOTHING if found is None else decode_record(found.value)
    except DamagedError:
        return NOTHING


def _is_same_epoch(disk: Disk, copy: Disk) -> bool:
    """Whether no repair of the cookies came in between: no bookie takes a disk of before that."""
    root = str(disk.root)

    def of(one: Disk) -> list[bytes | None]:
        files = (one.names[root].get(name) for name in (EPOCH_NAME, VERSION_NAME))
        return [None if file is None else bytes(file.data) for file in files]

    return of(disk) == of(copy)


def _bring_down(host: Host, rng: random.Random, call: Callable[[], None]) -> None:
    if rng.random() < 0.5:
        host.stop()
    else:
        host.kill("to put something from a copy in its place")
    host.once_down(call)


# ---- logs that were cut off, rot in what was synced last ---------------------------------------------


def cut_log(faults: Faults, host: Host, rng: random.Random) -> bool:
    """The end of an entry log is gone, from a record on, or its last segment as a whole; it had been durable."""
    disk = rng.choice(_data_disks(host))
    if not disk.mounted or not faults.may_lose(host):
        return False
    if rng.random() < 0.8:
        host.kill("to cut off a log")
    else:
        host.stop()
    host.once_down(partial(_cut, faults, host, disk, rng))
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
    faults.cluster.scheduler.say(host.name, "%s/%s is cut off at %d", folder, name, cut)


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
    """The last that was synced rots, once nothing has come for a while; then the host is lost."""
    if not faults.may_lose(host):
        return False
    faults.later(0.0, _rot, faults, host, rng, _LOOKS)
    return True


def _rot(faults: Faults, host: Host, rng: random.Random, looks: int) -> None:
    found = _rested(faults, host)
    if not found:
        if looks:
            faults.later(1.0, _rot, faults, host, rng, looks - 1)
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
    faults.cluster.scheduler.say(host.name, "%s rots at %d", path, at)
    faults.lose_host(host, rng)


def _rested(faults: Faults, host: Host) -> list[tuple[str, File, int]]:
    """The ends of logs that nothing has been appended to for a while, of disks that were up all the time: path, file,
    and from where on the next start reads it, and finds what is wrong."""
    now = faults.cluster.scheduler.now
    disks = _data_disks(host)
    workers = [host.workers.get(disk.root) for disk in disks]
    if (
        host.plan.ack_after == "journal"
    ):  # what is acknowledged is in it, and the entry logs wait for checkpoints
        if not all(worker is not None and worker.is_resting(now) for worker in workers):
            return []
        found = [disk.last_batch(now, RESTED_S) for disk in host.disks[len(disks) :]]
        return [(*each, 0) for each in found if each is not None]
    rested = []
    for disk, worker in zip(disks, workers, strict=True):
        if worker is None or worker.store is None or not worker.is_resting(now):
            continue
        last = disk.last_batch(now, RESTED_S)
        checkpoint = worker.store.last_checkpoint
        if last is not None and last[0].endswith(segment_file_name(checkpoint.segment)):
            rested.append((*last, checkpoint.offset))
        elif last is not None:
            rested.append((*last, 0))
    return rested


def _data_disks(host: Host) -> list[Disk]:
    return host.disks[: len(host.config.disks)]


DEVICE_FAULTS: dict[str, Fault] = {
    "lose a device for a while": lose_device,
    "lose a device at an add": lose_device_at_add,
    "fail a device for a while": fail_device,
    "remount in order": remount_in_order,
    "older index": older_index,
    "older disk": older_disk,
    "older metadata store": older_store,
    "cut off a log": cut_log,
    "rot at rest": rot_at_rest,
}
