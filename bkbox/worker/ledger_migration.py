"""The worker's part in migrating a ledger between this disk and another disk of the same bookie.

The order of the calls, and why a migration loses nothing, is at the head of supervisor/disks/ledger_migration.py. A
disk records in ``<disk>/MOVES``, durably, before anything else is done:

- which ledgers are *arriving*: this disk is their target, and its copy does not count yet. They are missing from the
  disk's list of ledgers, and a worker that opens the disk forgets them. Taking a ledger out of this list commits the
  migration: from then on the ledger is assigned to this disk;
- which ledgers are *leaving*: this disk is their source; the target disk is recorded too. Only the target knows whether
  such a ledger is still assigned to this disk. This disk is not put into service before the target has reported it.

Without the file no ledger is arriving or leaving.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from struct import Struct

from bkbox.bookie.bookie import Bookie
from bkbox.errors import DamagedError, DiskError, DiskFullError, LedgerNotMovedError
from bkbox.ipc.handlers import Handlers
from bkbox.ipc.messages.migration import (
    EVERYTHING,
    Arrived,
    CommitImport,
    EndExport,
    EntriesImported,
    EntriesRead,
    GetLedger,
    ImportEntries,
    LedgerInfo,
    ListMigrations,
    MigrationList,
    ReadLedger,
    SealExport,
    StartImport,
)
from bkbox.storage.checksummed_document import read_document, write_document
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.files import Files, unlink_durably
from bkbox.storage.log.records import (
    LedgerRecord,
    Location,
    Record,
    decode_state,
    encode_state,
    entry_record,
    lac_record,
)
from bkbox.worker.commit_groups import CommitGroups

log = logging.getLogger(__name__)

MOVES_NAME = "MOVES"

_LENGTH = Struct("=I")
_SLICE_BYTES = 1 << 20
_SLICE_US = 10_000
"""Bytes, and microseconds in ``_SLICE_US``, after which one call stops reading; it reads one entry more."""

_BAD_MAX = 20


class _Pass:
    """A pass over the entries of a ledger that were written since a location in the log."""

    def __init__(self, store: DiskStore, ledger: int, since: Sequence[int]) -> None:
        segment, offset = since
        self.ledger = ledger
        self.began = [store.position.segment, store.position.offset]
        self.entries: Iterator[int] = store.changed_since(ledger, Location(segment, offset, 0))


class LedgerMigrations:
    """The migrations of one disk."""

    def __init__(
        self,
        files: Files,
        disk: Path,
        store: DiskStore,
        bookie: Bookie,
        groups: CommitGroups,
        ticks_us: Callable[[], int],
    ) -> None:
        """Forgets ledgers that had been arriving. DamagedError if MOVES cannot be read, DiskError."""
        self._files = files
        self._path = disk / MOVES_NAME
        self._store = store
        self._bookie = bookie
        self._groups = groups
        self._ticks_us = ticks_us
        self._importing: set[int] = set()
        """Imports that this process has begun; those of an earlier process come to nothing."""
        self._exported: set[int] = set()
        """Exported ledgers, assigned to another disk, that could not be forgotten here."""
        self._pass: _Pass | None = None
        self._began: list[list[int]] = []
        """Where the passes over the present ledger began. Locations of another process may be out of date: records may
        have been copied."""
        self._arriving, self._leaving = self._read()
        self._forget_arrivals()

    def _read(self) -> tuple[set[int], dict[int, str]]:
        fields = read_document(self._files, self._path)
        if fields is None:
            return set(), {}
        try:
            leaving = {int(ledger): str(disk) for ledger, disk in fields["leaving"].items()}
            return {int(ledger) for ledger in fields["arriving"]}, leaving
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise DamagedError(f"{self._path}: not a list of moves") from error

    def _write(self, arriving: set[int], leaving: dict[int, str]) -> None:
        """Records arriving and leaving ledgers durably; they count only once durable."""
        if arriving or leaving:
            named = {str(ledger): disk for ledger, disk in leaving.items()}
            fields = {"arriving": sorted(arriving), "leaving": named}
            write_document(self._files, self._path, fields)
        else:
            unlink_durably(self._files, self._path)
        self._arriving, self._leaving = arriving, leaving

    def _forget_arrivals(self) -> None:
        for ledger in self._arriving:
            try:
                self._bookie.forget(ledger)
            except DiskFullError:
                return  # hidden from every list, and the next start tries again
        if self._arriving:
            log.warning("what had arrived of %d ledgers is forgotten", len(self._arriving))
            self._write(set(), self._leaving)

    def assigned_ledgers(self, after: int = -1) -> Iterator[tuple[int, LedgerRecord]]:
        """The ledgers assigned to this disk with an id > ``after``, ascending. The caller must not write to the disk
        before it has read the last of them.
        """
        found = self._store.ledgers(after)
        return (each for each in found if not self._is_elsewhere(each[0]))

    @property
    def leaving(self) -> Collection[int]:
        """The ledgers that are about to leave."""
        return self._leaving

    def _is_elsewhere(self, ledger: int) -> bool:
        """True if the disk holds data of a ledger that is assigned to another disk."""
        return ledger in self._arriving or ledger in self._exported

    # ---- calls --------------------------------------------------------------------------------------

    def register(self, handlers: Handlers) -> None:
        """Add the handlers, which raise BkboxError."""
        handlers.on(GetLedger, lambda call: self._state(call.ledger))
        handlers.on(StartImport, self._start_import)
        handlers.on_fd(ReadLedger, self._read_ledger)
        handlers.on_fd(ImportEntries, self._import_entries)
        handlers.on(SealExport, self._seal_export)
        handlers.on(CommitImport, self._finish_import)
        handlers.on(EndExport, self._end_export)
        handlers.on(ListMigrations, self._list)

    def _list(self, _call: ListMigrations) -> MigrationList:
        leaving = {str(ledger): disk for ledger, disk in self._leaving.items()}
        return MigrationList(arriving=sorted(self._arriving), leaving=leaving)

    def _state(self, ledger: int) -> LedgerInfo:
        record = self._bookie.ledgers.record(ledger)
        if record is None or self._is_elsewhere(ledger):
            return LedgerInfo(known=False)
        packet = self._store.explicit_lac(ledger) or b""
        state = encode_state(record).hex()
        return LedgerInfo(known=True, limbo=record.limbo, state=state, payload=packet)

    # ---- the source ---------------------------------------------------------------------------------

    def _read_ledger(self, call: ReadLedger, fd: int) -> EntriesRead:
        if call.since == EVERYTHING:
            self._began = []
        if call.since is not None and (call.since == EVERYTHING or call.since in self._began):
            self._pass = _Pass(self._store, call.ledger, call.since)
            self._began.append(self._pass.began)
        elif call.since is not None or self._pass is None or self._pass.ledger != call.ledger:
            raise LedgerNotMovedError(f"ledger {call.ledger} is not being read from the start on")
        end_us = self._ticks_us() + _SLICE_US
        parts: list[bytes] = []
        bad: list[int] = []
        size, more = 0, False
        for entry in self._pass.entries:
            try:
                data = self._store.read_entry(call.ledger, entry)
            except DiskError as error:
                log.error("ledger %d entry %d cannot be moved: %s", call.ledger, entry, error)
                bad.append(entry)
                data = None
            if data is not None:
                parts += (_LENGTH.pack(len(data)), data)
                size += _LENGTH.size + len(data)
            if size >= _SLICE_BYTES or len(bad) >= _BAD_MAX or self._ticks_us() >= end_us:
                more = True
                break
        _write_all(fd, b"".join(parts))
        began = self._pass.began
        return EntriesRead(entries=len(parts) // 2, size=size, more=more, bad=bad, began=began)

    def _seal_export(self, call: SealExport) -> LedgerInfo:
        self._groups.receive()  # what the front-end had sent before it paused the ledger
        self._groups.drain()
        found = self._state(call.ledger)
        if found.known:
            self._require_healthy()
            self._bookie.disturb(call.ledger)
            self._write(self._arriving, {**self._leaving, call.ledger: call.target})
        return found

    def _end_export(self, call: EndExport) -> None:
        if call.ledger not in self._leaving:
            return
        if not call.migrated:
            self._write(self._arriving, _without(self._leaving, call.ledger))
            return
        self._exported.add(call.ledger)
        self._groups.drain()
        try:
            self._bookie.forget(call.ledger)
            self._write(self._arriving, _without(self._leaving, call.ledger))
        except DiskError as error:
            log.error("ledger %d has left, and cannot be forgotten: %s", call.ledger, error)
        else:
            self._exported.discard(call.ledger)

    # ---- the target ---------------------------------------------------------------------------------

    def _start_import(self, call: StartImport) -> None:
        ledger = call.ledger
        self._groups.drain()
        if ledger in self._arriving:
            self._importing.discard(ledger)
            self._bookie.forget(ledger)
        elif self._bookie.ledgers.record(ledger) is not None:
            raise LedgerNotMovedError(f"ledger {ledger} is on the disk that it would come to")
        else:
            self._require_healthy()
            self._write(self._arriving | {ledger}, self._leaving)
        self._put_state(ledger, call.state, call.payload)
        self._importing.add(ledger)

    def _put_state(self, ledger: int, state: str, packet: bytes) -> None:
        """Write a state durably, and with it everything written before. No group may be in flight."""
        if packet:
            self._store.write([lac_record(packet)])
        self._bookie.set_states({ledger: decode_state(bytes.fromhex(state))})

    def _import_entries(self, call: ImportEntries, fd: int) -> EntriesImported:
        self._require_importing(call.ledger)
        if self._bookie.read_only:
            reasons = ", ".join(sorted(self._bookie.read_only.reasons))
            raise LedgerNotMovedError(f"the disk that it would come to takes no more: {reasons}")
        if self._store.is_backpressured:
            return EntriesImported(crowded=True)
        self._store.append(list(_entries(os.pread(fd, call.size, 0))))
        self._store.index_appended()
        self._groups.sync_in_background()
        return EntriesImported(crowded=False)

    def _finish_import(self, call: CommitImport) -> Arrived:
        return self._commit(call) if call.commit else self._drop_arrival(call.ledger)

    def _commit(self, call: CommitImport) -> Arrived:
        self._require_importing(call.ledger)
        self._groups.drain()
        self._put_state(call.ledger, call.state, call.payload)
        self._write(self._arriving - {call.ledger}, self._leaving)
        self._importing.discard(call.ledger)
        return Arrived(assigned=True)

    def _drop_arrival(self, ledger: int) -> Arrived:
        if ledger not in self._arriving:
            return Arrived(assigned=self._bookie.ledgers.record(ledger) is not None)
        self._importing.discard(ledger)
        self._groups.drain()
        self._bookie.forget(ledger)
        self._write(self._arriving - {ledger}, self._leaving)
        return Arrived(assigned=False)

    def _require_importing(self, ledger: int) -> None:
        if ledger not in self._importing:
            raise LedgerNotMovedError(f"ledger {ledger} is not arriving here any more")

    def _require_healthy(self) -> None:
        if self._store.health.failed_reason is not None:
            raise LedgerNotMovedError(f"the disk has failed: {self._store.health.failed_reason}")


def _entries(data: bytes) -> Iterator[Record]:
    view, at = memoryview(data), 0
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        yield entry_record(view[at : at + length])
        at += length


def _write_all(fd: int, data: bytes) -> None:
    view, at = memoryview(data), 0
    while at < len(view):
        at += os.pwrite(fd, view[at:], at)


def _without(leaving: dict[int, str], ledger: int) -> dict[int, str]:
    return {other: disk for other, disk in leaving.items() if other != ledger}
