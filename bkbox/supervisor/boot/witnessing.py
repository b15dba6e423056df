"""Reads and writes the witnesses of witness.py: at a start, while the bookie is up, when a disk fails, at a stop."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from bkbox.base.ids import BookieId
from bkbox.base.values import replaced
from bkbox.errors import DamagedError, DiskError, MetadataError, VersionConflictError
from bkbox.metadata.base import MetadataStore
from bkbox.metadata.versioned import Versioned
from bkbox.storage.checksummed_document import read_document, write_document
from bkbox.storage.disk.checkpoint import read_checkpoint
from bkbox.storage.files import Files, unlink_durably, write_atomic
from bkbox.supervisor.disks import witness
from bkbox.supervisor.disks.disks import Disk
from bkbox.supervisor.disks.witness import (
    NOTHING,
    WITNESS_NAME,
    BookieRecord,
    DiskRecord,
    DiskWitness,
)

log = logging.getLogger(__name__)

FAILED_NAME = "failed-disks.json"
"""File in the run directory with the failures of disks, by uuid."""

_NOTE_EVERY_S = 5.0
_CHECK_EVERY_S = 1.0
_AGAIN_S = 15.0
"""Back-off, in seconds, after a store has not responded: a ZooKeeper client that keeps sending requests does not detect
that its connection is dead."""


def read_witness(files: Files, disk: Path) -> DiskWitness | None:
    """The witness on a disk; None if there is none that can be read, which counts as the oldest. Raises DiskError if
    reading failed."""
    try:
        fields = read_document(files, disk / WITNESS_NAME)
        if fields is None:
            return None
        failed = {str(uuid): str(reason) for uuid, reason in fields["failed"].items()}
        return DiskWitness(int(fields["generation"]), witness.record_of(fields["record"]), failed)
    except (DamagedError, KeyError, TypeError, ValueError, AttributeError):
        return None


def checkpoint_number(files: Files, disk: Path) -> int:
    """The number of a disk's last checkpoint, 0 if there is none that can be read. A lost checkpoint costs no data, and
    the replay then scans the whole log, so it does not make a disk an older copy of itself."""
    try:
        found = read_checkpoint(files, disk)
    except DamagedError:
        return 1 << 62
    return 1 << 62 if found is None else found.number


async def read_record(store: MetadataStore, bookie: BookieId) -> tuple[BookieRecord, int | None]:
    """The metadata store's record of a bookie, and its version, None if there is no record. Raises MetadataError."""
    found = await store.read_disk_record(bookie)
    if found is None:
        return NOTHING, None
    try:
        return witness.decode_record(found.value), found.version
    except DamagedError as error:
        raise MetadataError(f"metadata store: {error}") from error


class DiskWitnesses:
    """The witnesses of one bookie, from its start to its stop."""

    def __init__(self, files: Files, bookie: BookieId, run_dir: Path | None) -> None:
        self._files = files
        self._bookie = bookie
        self._failed_path = None if run_dir is None else run_dir / FAILED_NAME
        self._record = NOTHING
        self._version: int | None = None
        self._failed: dict[str, str] = {}
        """Disks that failed and were not found whole since: the reason by uuid."""
        self._is_noted = True
        """True if the metadata store has all of ``_failed``, and nothing beyond."""
        self.generation = 0

    # ---- a start ------------------------------------------------------------------------------------

    async def begin(self, store: MetadataStore, disks: Iterable[Disk]) -> None:
        """Takes the next generation, and gathers what other witnesses noted of each disk (``failures_of``). Nothing has
        been written to a disk so far. Raises MetadataError, DiskError."""
        self._record, self._version = await read_record(store, self._bookie)
        found = {disk.uuid: read_witness(self._files, disk.path) for disk in disks}
        newest = [each.generation for each in found.values() if each is not None]
        in_run_dir = self._read_run_dir()
        for uuid in found:
            reasons = witness.failures(self._record, found, uuid)
            if in_run_dir.get(uuid):
                reasons.append(in_run_dir[uuid])
            if reasons:
                self._failed[uuid] = "; ".join(dict.fromkeys(reasons))
        self.generation = 1 + max(self._record.generation, self._record.announced, *newest, 0)
        await self._write(store, witness.with_announced(self._record, self.generation))

    def failure_of(self, disk: Disk) -> str:
        """Why a disk failed since it was last known to be whole, by the other witnesses; empty if it did not."""
        return self._failed.get(disk.uuid, "")

    def seen(self, disk: Disk) -> list[int]:
        """The record's view of a disk: its last checkpoint, and the position up to which its log was durable."""
        noted = self._record.disks.get(disk.uuid, DiskRecord(0))
        return [noted.checkpoint, noted.segment, noted.offset]

    def join(self, disk: Disk) -> None:
        """Writes this generation to a disk, whose dirty marker is written already. Raises DiskError."""
        self._write_disk(disk)

    # ---- while it is up -----------------------------------------------------------------------------

    async def keep(self, store: MetadataStore, disks: list[Disk]) -> None:
        """Records the state of the disks periodically, until cancelled. ``disks`` may change."""
        while True:
            if not await self.note(store, disks):
                await asyncio.sleep(_AGAIN_S)
                continue
            wait_s = _NOTE_EVERY_S
            while wait_s > 0 and self._is_noted:  # a failure is recorded at once
                await asyncio.sleep(_CHECK_EVERY_S)
                wait_s -= _CHECK_EVERY_S

    async def commit(self, store: MetadataStore, disks: Iterable[Disk]) -> None:
        """Records that the disks of this start are about to be used. Raises MetadataError."""
        now = {disk.uuid: self._record_of(disk) for disk in disks}
        await self._write(store, witness.with_disks(self._record, self.generation, now))

    async def note(self, store: MetadataStore, disks: Iterable[Disk]) -> bool:
        """Records the state of the disks if it has changed. Returns True if the metadata store has it."""
        disks = list(disks)
        now = {disk.uuid: self._record_of(disk) for disk in disks}
        if now == self._record.disks and not self._record.announced and self._is_noted:
            return True
        try:
            await self._write(store, witness.with_disks(self._record, self.generation, now))
        except MetadataError as error:
            log.warning("what the disks have come to is not noted: %s", error)
            return False
        self._is_noted = True
        for disk in disks:
            if disk.run is not None:
                with suppress(DiskError):  # one witness less
                    self._write_disk(disk)
        return True

    def fail(self, disk: Disk, disks: Iterable[Disk], reason: str) -> None:
        """A disk has failed: recorded at once on local disks, and by ``keep`` in the metadata store."""
        if self._failed.get(disk.uuid) == reason:
            return
        self._failed[disk.uuid] = reason
        self._is_noted = False
        self._note_failures([other for other in disks if other is not disk])

    def clear_failure(self, disk: Disk, disks: Iterable[Disk]) -> None:
        """A disk is whole, as far as limbo shows: its earlier failures are accounted for, durably."""
        if self._failed.pop(disk.uuid, None) is not None:
            self._is_noted = False
            self._note_failures(disks)

    # ---- parts --------------------------------------------------------------------------------------

    def _record_of(self, disk: Disk) -> DiskRecord:
        before = self._record.disks.get(disk.uuid, DiskRecord(0))
        failed = self._failed.get(disk.uuid, "")
        if disk.run is None or not disk.recovered:
            return replaced(before, failed=failed)
        stats = disk.stats.get("durable") or (before.checkpoint, before.segment, before.offset)
        checkpoint, segment, offset = (int(each) for each in stats)
        return DiskRecord(self.generation, checkpoint, segment, offset, failed)

    async def _write(self, store: MetadataStore, record: BookieRecord) -> None:
        try:
            stored = await self._put(store, record, self._version)
        except VersionConflictError:
            found, version = await read_record(store, self._bookie)
            if max(found.generation, found.announced) > self.generation:
                raise  # of a later start: another process has this id
            # A write of this start has taken effect although its response was lost: this write, or an earlier one.
            if found == record:
                stored = Versioned(b"", version or 0)
            else:
                record = replaced(record, sequence=found.sequence + 1)
                stored = await self._put(store, record, version)
        self._record, self._version = record, stored.version

    async def _put(
        self, store: MetadataStore, record: BookieRecord, version: int | None
    ) -> Versioned[bytes]:
        return await store.write_disk_record(self._bookie, witness.encode_record(record), version)

    def _write_disk(self, disk: Disk) -> None:
        failed = {uuid: reason for uuid, reason in self._failed.items() if uuid != disk.uuid}
        fields = {
            "generation": self.generation,
            "record": witness.record_fields(self._record),
            "failed": failed,
        }
        write_document(self._files, disk.path / WITNESS_NAME, fields)

    def _note_failures(self, disks: Iterable[Disk]) -> None:
        for disk in disks:
            if disk.run is not None and disk.uuid not in self._failed:
                with suppress(DiskError):
                    self._write_disk(disk)
        if self._failed_path is None:
            return
        with suppress(DiskError):
            if self._failed:
                write_atomic(self._files, self._failed_path, json.dumps(self._failed).encode())
            else:
                unlink_durably(self._files, self._failed_path)

    def _read_run_dir(self) -> dict[str, str]:
        """The failures noted in the run directory; empty if the file cannot be read."""
        if self._failed_path is None:
            return {}
        try:
            data = self._files.read_bytes(self._failed_path) or b"{}"
            return {str(uuid): str(reason) for uuid, reason in json.loads(data).items()}
        except (DiskError, ValueError, AttributeError):
            return {}
