"""Disks, indexes and records of the metadata store that are replaced by copies from the past.

Each function takes the fault injector, the target host and a random generator, and returns True if it injected the
fault.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from bkbox.base.ids import BookieId
from bkbox.errors import DamagedError
from bkbox.supervisor.disks.disk_inspection import EPOCH_NAME, VERSION_NAME
from bkbox.supervisor.disks.witness import NOTHING, BookieRecord, DiskRecord, decode_record
from proof.sim.faults.faults import Fault, Faults
from proof.sim.world.disk import Disk
from proof.sim.world.host import Host


def older_index(faults: Faults, host: Host, rng: random.Random) -> bool:
    """Only the index of a disk is an older copy: it can be rebuilt from the log, so nothing is lost."""
    disk = rng.choice(host.data_disks)
    if not disk.mounted or disk.root not in host.indexes:
        return False
    contents, copy = disk.contents, host.indexes[disk.root].copy()

    def restore() -> None:
        if disk.contents is contents and disk.root in host.indexes:
            host.indexes[disk.root] = copy
            faults.cluster.counts["older indexes"] += 1

    faults.later(rng.choice((2.0, 60.0)) * rng.random(), _bring_down, host, rng, restore)
    return True


def older_disk(faults: Faults, host: Host, rng: random.Random) -> bool:
    """A disk is replaced by an older snapshot: from before the last start, or before the last checkpoint that is
    recorded. In some cases the metadata store's record of the disks is as old, too, for a while."""
    disk = rng.choice(host.data_disks)
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
    with_store = len(host.data_disks) > 1 and rng.random() < 0.5

    def restore() -> None:
        now = _record_of(faults, host)
        noted = now.disks.get(uuid, DiskRecord(0))
        is_older = noted.generation > generation
        if not is_older and (with_store or noted.checkpoint <= checkpoint):
            return
        if disk.contents is not contents or not _is_same_epoch(disk, copy):
            return
        if not faults.may_lose(host):
            return
        disk.restore_from(copy)
        disk.contents = object()
        host.indexes[disk.root] = index
        faults.cluster.counts["older disks"] += 1
        faults.cluster.scheduler.note(host.name, "%s is from the past", disk.root)
        if with_store and record is not None:
            _put_record(faults, host, rng, record)

    faults.later(rng.choice((10.0, 60.0, 120.0)) * rng.random(), _bring_down, host, rng, restore)
    if rng.random() < 0.7:
        faults.later(1.0, faults.restart, host)
    return True


def older_store(faults: Faults, host: Host, rng: random.Random) -> bool:
    """The metadata store's record of the disks is an older copy, until the newest one is put back."""
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

    def restore() -> None:
        if records.get(bookie) is older:
            records[bookie] = newest

    faults.at_last.append(restore)
    faults.later(rng.uniform(2.0, 20.0), restore)


def _record_of(faults: Faults, host: Host) -> BookieRecord:
    found = faults.cluster.truth.disk_records.get(BookieId(host.name))
    try:
        return NOTHING if found is None else decode_record(found.value)
    except DamagedError:
        return NOTHING


def _is_same_epoch(disk: Disk, copy: Disk) -> bool:
    """True if no repair of the cookies came in between: a bookie refuses a disk from before one."""
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
    host.when_down(call)


STALE_FAULTS: dict[str, Fault] = {
    "older index": older_index,
    "older disk": older_disk,
    "older metadata store": older_store,
}
