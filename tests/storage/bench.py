"""A disk in a temporary folder, and a few words to say what is done to it."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from uuid import UUID

from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.format_disk import (
    CreateIndex,
    OpenIndex,
    create_level_store,
    format_disk,
    open_level_store,
)
from bkbox.storage.disk.identity import DiskIdentity
from bkbox.storage.files import Files, RealFiles
from bkbox.storage.index.ordered_store import MemoryStore, OrderedStore
from bkbox.storage.log.records import (
    STATE_KINDS,
    AckAfter,
    LedgerRecord,
    Record,
    entry_record,
    ledger_record,
)
from bkbox.storage.log.scan import read_segment
from bkbox.storage.log.segment import ENTRY_LOG_MAGIC, SegmentName, filler
from tests.harness.faultyfiles import SECTOR_BYTES, CrashableFiles, CrashableStore

IDENTITY = DiskIdentity(UUID(int=0x1234), "bookie:3181", "instance")
KEY = b"k" * 20


def entry_bytes(ledger: int, entry: int, payload: bytes = b"payload") -> bytes:
    """An entry as on the wire; the digest is of no interest here."""
    return struct.pack(">qqqq", ledger, entry, entry - 1, len(payload)) + payload


def entry(ledger: int, number: int, payload: bytes = b"payload") -> Record:
    return entry_record(entry_bytes(ledger, number, payload))


class Disk:
    """A prepared disk and its journal folder.

    The index is in memory and outlives the stores; with ``level`` it is in LevelDB.
    """

    def __init__(self, folder: Path, files: Files | None = None, *, level: bool = False) -> None:
        self.folder = folder
        self.files = files or CrashableFiles(folder, random.Random(1))
        self.path = folder / "disk"
        self.journal_dir = folder / "journal"
        memory = MemoryStore()
        self.open_index: OpenIndex = open_level_store if level else lambda *_: memory
        create_index: CreateIndex = create_level_store if level else lambda *_: None
        format_disk(self.files, self.path, IDENTITY, create_index=create_index)

    def open(
        self,
        ack_after: AckAfter = AckAfter.SYNC,
        *,
        segment_bytes_max: int = 1 << 20,
        open_index: OpenIndex | None = None,
        files: Files | None = None,
    ) -> DiskStore:
        return DiskStore.open(
            files or self.files,
            self.path,
            ack_after=ack_after,
            journal_dir=self.journal_dir,
            segment_bytes_max=segment_bytes_max,
            checkpoint_bytes=1 << 20,
            now_ms=lambda: 1_000,
            open_index=open_index or self.open_index,
        )

    def start(self, ack_after: AckAfter = AckAfter.SYNC, *, host_crash: bool = False) -> DiskStore:
        store = self.open(ack_after)
        store.replay(host_crash)
        return store

    def segment(self, number: int = 1) -> Path:
        return self.path / "entrylog" / f"{number:010d}.log"

    def end_of_segment(self, number: int = 1) -> int:
        """Where the last record of a whole segment ends, and its filler begins."""
        name = segment_name(number)
        return read_segment(RealFiles(), self.segment(number), name, 0, lambda _record: None).size

    def unwrite_sector(self, offset: int, number: int = 1, *, zeros: bool = False) -> int:
        """The first sector of a segment that begins behind ``offset`` never reached the disk: it holds filler, or zeros
        as where the file was not filled. Where it begins.
        """
        start = offset - offset % SECTOR_BYTES + SECTOR_BYTES
        data = bytearray(self.segment(number).read_bytes())
        end = min(start + SECTOR_BYTES, len(data))
        data[start:end] = (
            bytes(end - start) if zeros else filler(segment_name(number).seed, start, end)
        )
        self.segment(number).write_bytes(data)
        return start


def segment_name(number: int = 1) -> SegmentName:
    """Of a segment of the disk's entry log."""
    return SegmentName(ENTRY_LOG_MAGIC, IDENTITY.uuid, number)


def put(store: DiskStore, *records: Record) -> None:
    store.write(records)


def defer(store: DiskStore, *records: Record) -> None:
    """As put, but entries ask for a deferred sync."""
    store.append(records)
    store.index_appended()
    states = [record for record in records if record.kind in STATE_KINDS]
    if store.must_sync(entries=False, states=bool(states)):
        store.sync()
    for record in states:
        store.show(record)


class Host:
    """A disk, with ledger 1 on it, of a host that can be lost."""

    def __init__(self, folder: Path, mode: AckAfter, seed: int = 1) -> None:
        self.rng = random.Random(seed)
        self.files = CrashableFiles(folder, self.rng)
        self.disk = Disk(folder, self.files)
        self.files.mkdir(self.disk.journal_dir)
        self.mode = mode
        self.index = CrashableStore()
        self.store = self.open(host_crash=False)
        put(self.store, ledger_record(1, LedgerRecord(KEY)))

    def _open_index(self, files: Files, disk: Path, host_crash: bool) -> OrderedStore:
        return self.index

    def open(self, *, host_crash: bool) -> DiskStore:
        store = self.disk.open(
            self.mode, open_index=self._open_index, files=self.files, segment_bytes_max=1 << 20
        )
        self.report = store.replay(host_crash)
        self.store = store
        return store

    def kill(self) -> DiskStore:
        """The process dies; the next one."""
        self.files.stop()
        self.store.abandon()
        self.files = self.files.next_process()
        return self.open(host_crash=False)

    def lose(self, *, index_reached_the_disk: bool = True) -> DiskStore:
        """The host dies; the next process after its restart. LevelDB may have made tables of all that it was given."""
        self.files = self.files.lose_host()
        self.store.abandon()
        if index_reached_the_disk:
            self.index.flush()
        self.index = self.index.lose_host(self.rng)
        return self.open(host_crash=True)
