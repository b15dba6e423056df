"""One disk of a bookie: entry log, index, journal and checkpoint combined.

Contract:

- ``open``, then ``replay`` once, then everything else. One thread, one process (lock.py); methods that may run on
  another thread say so.
- Appended data survives the process, and entries can be read, from the append on. When it may be acknowledged depends
  on the disk's ``ack_after``; ``must_sync`` decides:

  =========  ====================================================================================
  sync       after a sync of the entry log
  write      at once; after a sync if it changes a ledger's state (fence, limbo)
  journal    after a sync of the journal
  =========  ====================================================================================

- The states of ledgers and explicit LACs become visible (``show``) only once they are durable: a reader may act upon a
  LAC, and no repair restores one.
- A sync is begun and ended here and may run on another thread, while more is appended. It makes durable what was
  appended before it began. An entry that needed no sync (``write``, deferred adds) is durable with the next one.
- The stored index names only records that a checkpoint has synced before. So after a host crash it is not ahead of the
  log: what it lacks was never acknowledged, or is replayed.
- DiskFullError from ``append`` leaves the disk usable: nothing of the append was written. After any other failed write
  or sync nothing is written any more (disk_health.py), and the dirty marker says so to the next start. Reads go on.
- A replay that is not ``trusted`` holds the checkpoint back, so that every later start finds the same data missing,
  until the caller has made limbo durable and calls ``resolve_losses``.
- An idle disk proves its own end: ``prove`` and a sync, then a tail mark (tail.py). Both follow soon after the last
  append. So a start can distinguish rot, and a truncated log, from a write that a host crash interrupted.
- Under ``write`` a ledger is marked *active*, synced, before its first entry that is acknowledged without a sync, and
  unmarked after a sync (bookie/active.py). So after a host crash only active ledgers can lack entries, as long as the
  log is ``intact``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from bkbox.base.commandline import plain_command
from bkbox.base.ids import MAX_ID
from bkbox.base.values import replaced
from bkbox.errors import (
    BootError,
    BugError,
    DamagedError,
    DiskError,
    DiskFailedError,
    DiskFullError,
    IndexDamagedError,
    InvalidIdError,
)
from bkbox.storage.disk.checkpointing import Checkpoints, PendingCheckpoint, Sync
from bkbox.storage.disk.disk_health import DiskHealth
from bkbox.storage.disk.format_disk import OpenIndex, open_level_store
from bkbox.storage.disk.identity import DiskIdentity, read_identity
from bkbox.storage.disk.rebuild import set_aside
from bkbox.storage.disk.replay import (
    UNRESOLVED_LOSS,
    LogReplay,
    LogReplayer,
    ReplayReport,
    Witnesses,
)
from bkbox.storage.disk.tail_marks import TailMarks
from bkbox.storage.entries.entry_log import EntryLog, Part
from bkbox.storage.entries.entry_reader import Fetch, Range
from bkbox.storage.entries.journal_replay import JournalReplay
from bkbox.storage.entries.readahead import ReadAhead
from bkbox.storage.file_removal import FileRemoval, UnneededFiles
from bkbox.storage.files import Files
from bkbox.storage.index.index import LedgerIndex
from bkbox.storage.index.memtable import EntryLookup
from bkbox.storage.log.journal import Journal
from bkbox.storage.log.records import (
    ENTRY_IDS,
    STATE_KINDS,
    AckAfter,
    Kind,
    LedgerRecord,
    Location,
    Record,
    forget_record,
)
from bkbox.storage.log.segmented_log import record_bytes
from bkbox.storage.log.tail import TailMark, read_tail

WRITEBACK_BYTES = 8 << 20
"""Bytes after which appended data is written back to the disk in one piece, if no sync does that."""


class DiskStore:
    """The store of one disk; see the contract above."""

    def __init__(
        self,
        files: Files,
        disk: Path,
        identity: DiskIdentity,
        log: EntryLog,
        journal: Journal | None,
        *,
        ack_after: AckAfter,
        checkpoint_bytes: int,
        open_index: OpenIndex,
        generation: int = 0,
    ) -> None:
        self._files = files
        self._disk = disk
        self.identity = identity
        self.ack_after = ack_after
        self.log = log
        self._journal = journal
        self.checkpoints = Checkpoints(files, disk, log, checkpoint_bytes)
        self._open_index = open_index
        self._opened_index: LedgerIndex | None = None
        self._unsynced = 0
        self._unshown = 0
        self._appended: tuple[Sequence[Part], Sequence[Location]] = (), ()
        self.health = DiskHealth(files, disk)
        self._journal_in_use = journal if ack_after is AckAfter.JOURNAL else None
        """The journal, if this start acknowledges by it; a journal may also exist only to be replayed."""
        self._losses_resolved = True
        self.tail_marks = TailMarks(
            files, disk, self.health, self.checkpoints, log, self._journal_in_use, generation
        )
        self._unneeded = UnneededFiles(files)
        log.set_generation(generation)
        if journal is not None:
            journal.set_generation(generation)

    @classmethod
    def open(
        cls,
        files: Files,
        disk: Path,
        *,
        ack_after: AckAfter,
        journal_dir: Path | None,
        segment_bytes_max: int,
        checkpoint_bytes: int,
        now_ms: Callable[[], int],
        open_index: OpenIndex = open_level_store,
        generation: int = 0,
    ) -> DiskStore:
        """The store of a prepared disk, not replayed yet. ``generation``: that of this start of the bookie. Raises
        BootError, DamagedError, FormatVersionError, DiskError.
        """
        identity = read_identity(files, disk)
        if identity is None:
            raise BootError(
                f"disk {disk} is not prepared; `{plain_command('init', '--help')}` says how a new bookie's are"
            )
        if ack_after is AckAfter.JOURNAL and journal_dir is None:
            raise BootError(f"disk {disk}: ack_after = journal needs a journal folder")
        log = EntryLog(files, disk, identity.uuid, segment_bytes_max, now_ms)
        journal = None
        if journal_dir is not None:
            journal = Journal(
                files, journal_dir, identity.uuid, segment_bytes_max, checkpoint_bytes, now_ms
            )
        return cls(
            files,
            disk,
            identity,
            log,
            journal,
            ack_after=ack_after,
            checkpoint_bytes=checkpoint_bytes,
            open_index=open_index,
            generation=generation,
        )

    # ---- start ---------------------------------------------------------------

    def replay(
        self, host_crash: bool, *, is_clean: bool = False, seen: tuple[int, int, int] = (0, 0, 0)
    ) -> ReplayReport:
        """Bring the index up to the logs after a clean stop (``is_clean``), a process crash or a host crash, and
        report missing data. ``seen``: an earlier value of ``durable``, as recorded elsewhere.

        Raises IndexDamagedError if the index must be rebuilt, DiskFullError, DiskFailedError, DiskError, and
        BootError if the last incarnation kept a journal that the configuration does not name.
        """
        if self._opened_index is not None:
            raise BugError("a disk is replayed once")
        checkpoints = self.checkpoints
        checkpoint, journal_first = checkpoints.read(self._journal)
        if journal_first is not None and self._journal is None:
            raise BootError(
                f"disk {self._disk}: the last run kept a journal; "
                "name its folder in the configuration"
            )
        not_written = "" if host_crash or is_clean else self._bring_to_device()
        if not_written:
            # Now: the kernel says so once, and this replay may end before its end.
            with self.health:
                checkpoints.record_blocked(checkpoint, journal_first)
        host_crash = host_crash or bool(not_written)
        self._losses_resolved = not host_crash
        self._opened_index = LedgerIndex(self._open_index(self._files, self._disk, host_crash))
        stamp = self.index.stamp()
        if checkpoint is not None and stamp.number < checkpoint.index:
            raise IndexDamagedError(
                f"index: it is of checkpoint {stamp.number}, and the disk's is {checkpoint.index}: an older copy"
            )
        if checkpoint is None:
            checkpoints.count_from(max(stamp.number, seen[0]))
        tail = read_tail(self._files, self._disk, written=not host_crash)
        with self.health:
            # Records that the index names and the log has lost are in the journal, if there is one to replay.
            journaled = not is_clean and journal_first is not None
            replayer = LogReplayer(
                self._files,
                self.log,
                self.index,
                host_crash=host_crash,
                is_journaled=journaled,
                witnesses=Witnesses(tail, stamp, seen[1:], is_clean),
            )

            def before_change(found: LogReplay) -> None:
                if found.lost or not journaled:
                    checkpoints.record_blocked(checkpoint, journal_first)

            found = replayer.run(checkpoint, before_change)
            if not_written:
                found.lost.append(not_written)
            journal_records = 0
            if self._journal is not None and journal_first is not None and journaled:
                reapply = JournalReplay(self.log, self.index)
                found.lost += self._journal.replay(journal_first, reapply, tail)
                reapply.flush()
                journal_records = reapply.records
            self.log.sync()
            if checkpoint is not None and checkpoint.held:
                found.lost.append(UNRESOLVED_LOSS)
            intact = not found.lost and (journaled or not found.dropped)
            if not intact:
                checkpoints.record_blocked(checkpoint, journal_first)
            trusted = intact and not (host_crash and self.ack_after is AckAfter.WRITE)
            if host_crash:
                with suppress(DiskFullError):  # which only makes a later start suspicious
                    self.tail_marks.replace(tail)  # without what was only written
            self._begin(journal_first, tail, trusted=trusted)
        return ReplayReport(
            found.records,
            found.entries,
            found.bytes_read,
            found.bytes_cut,
            journal_records,
            found.dropped,
            tuple(found.lost),
            trusted,
            intact,
            found.synced_ms,
        )

    def _bring_to_device(self) -> str:
        """Sync the file system after a process crash, when everything written is in the kernel. Returns the reason
        that the device did not take it, empty if it did.
        """
        try:
            self._files.sync_file_system(self._disk)
        except DiskFailedError as error:
            return f"what was written did not reach the device: {error}"
        return ""

    def _begin(self, journal_first: int | None, tail: TailMark | None, *, trusted: bool) -> None:
        """Start the journal of this incarnation. Take a checkpoint unless something forbids it or the last one covers
        everything.
        """
        journal = self._journal_in_use
        made = 0
        if journal is not None:
            # Never reuse a segment id that a tail mark may name: what the mark says of the old segment would be applied
            # to the new one.
            journal.start(max(journal_first or 1, 1 + (tail.journal_segment if tail else 0)))
            made = journal.segment
        if trusted:
            if self.checkpoints.is_here(None if journal is None else journal.segment):
                return
            with suppress(DiskFullError):  # it only shortens the next start
                self.checkpoint()
                return
        checkpoints = self.checkpoints
        checkpoints.blocked = not trusted
        if made and checkpoints.last.journal is None:
            # From here on the journal counts, though the log's position stays where it is. The checkpoint that found no
            # space may have left the segment that was made, and have made no other.
            checkpoints.write(replaced(checkpoints.last, journal=made))

    # ---- writing ---------------------------------------------------------------

    def append(self, parts: Sequence[Part]) -> None:
        """Write parts, unsynced, in one piece; ``index_appended`` follows.

        DiskFullError: none of the parts was written, and the disk stays usable. DiskFailedError: the disk takes no more
        writes. InvalidIdError: a single entry whose ledger or entry id is negative.
        """
        self.health.require_healthy()
        size = record_bytes(parts)
        hidden = 0
        for part in parts:
            if isinstance(part, Record):
                if _has_negative_id(part):
                    raise InvalidIdError("an entry with a negative ledger or entry id")
                hidden += part.kind in STATE_KINDS
        with self.health:
            if self._journal_in_use is not None:
                self._journal_in_use.append(parts, size)
            locations = self.log.append(parts, size)
        self._unsynced += size
        self.checkpoints.wrote(size)
        self._unshown += hidden
        self._appended = parts, locations

    def index_appended(self) -> None:
        """Put the entries of the last append into the index: from here on they can be read."""
        self.log.index(*self._appended, self.index.finder.active)
        self._appended = (), ()

    def show(self, record: Record) -> None:
        """Make a durable ledger state or explicit LAC visible."""
        self.index.apply(record)
        self._unshown -= 1

    @property
    def has_hidden(self) -> bool:
        """True if something was appended that is not visible yet."""
        return self._unshown > 0

    def write(self, records: Sequence[Record], *, durable: bool = False) -> None:
        """Append records, sync as ``ack_after`` demands (``durable``: sync everything, in every mode), and make them
        visible.
        """
        self.append(records)
        self.index_appended()
        states = [record for record in records if record.kind in STATE_KINDS]
        if self.must_sync(entries=True, states=bool(states), force=durable):
            self.sync()
        for record in states:
            self.show(record)

    def forget(self, ledger: int) -> None:
        """Remove a ledger durably: entries and state."""
        self.write([forget_record(ledger)])

    @property
    def is_backpressured(self) -> bool:
        """Backpressure: true if so many entries wait for a checkpoint that no more should be accepted."""
        return self.index.is_overfull

    def copy(self, parts: Sequence[Part]) -> None:
        """Append again, unsynced, records that are known and visible already, so that their old location is not needed
        any more. Raises as ``append``.
        """
        self.health.require_healthy()
        size = record_bytes(parts)
        with self.health:
            locations = self.log.append(parts, size)
        self._unsynced += size
        self.checkpoints.wrote(size)
        self.log.index(parts, locations, self.index.finder.active)

    def retire(self, segment: int) -> None:
        """Give up a segment without live records; see compaction.py. Its file is there until the next removal.
        DiskFullError: it is not given up.
        """
        with self.health:
            self.log.retire(segment)
        self._unneeded.add([self.log.path_of(segment)])

    def begin_removal(self) -> FileRemoval | None:
        """The removal of files that nothing needs any more: ``run`` it, then end it. None if there are none."""
        return self._unneeded.begin()

    def end_removal(self, removal: FileRemoval) -> None:
        """End a removal that has run. DiskFullError: some files are still there, which is harmless. DiskFailedError."""
        with self.health:
            self._unneeded.end(removal)

    def remove_unneeded(self) -> None:
        """Remove the files that nothing needs any more, now; if there is no space even for that, later.
        DiskFailedError.
        """
        removal = self.begin_removal()
        if removal is not None:
            removal.run()
            with suppress(DiskFullError):
                self.end_removal(removal)

    # ---- durability ---------------------------------------------------------------

    def must_sync(self, entries: bool, states: bool, force: bool = False) -> bool:
        """True if a sync must precede the responses to what was just appended.

        ``entries``: there are entries for which no deferred sync was requested. ``states``: there are records of
        STATE_KINDS. ``force``: all that was appended so far must be durable.
        """
        if self.health.failed_reason is not None:
            return False
        return (
            states
            or (force and not self._acknowledger.is_durable)
            or (entries and self.ack_after is not AckAfter.WRITE)
        )

    def begin_sync(self) -> Sync:
        """Begin a sync of everything appended so far: ``run`` it, then ``end_sync``, in the order in which they were
        begun. DiskFailedError."""
        self.health.require_healthy()
        size, self._unsynced = self._unsynced, 0
        return Sync(size, self._acknowledger.begin_sync())

    def extend_sync(self, sync: Sync) -> None:
        """Extend a sync that does not run yet, the last one that was begun, to everything appended so far."""
        self._unsynced = 0
        self._acknowledger.extend_sync(sync.of_log)

    def end_sync(self, sync: Sync) -> None:
        """End a sync that has run. DiskFailedError: nothing that was appended and not synced before may be
        acknowledged."""
        with self.health:
            self._acknowledger.end_sync(sync.of_log)

    def sync(self) -> None:
        """Make everything appended durable, now; no sync may be in flight. DiskFailedError."""
        sync = self.begin_sync()
        sync.run()
        self.end_sync(sync)

    def begin_writeback(self) -> Callable[[], None] | None:
        """A call, for another thread, that starts the write-back of appended data; None unless much was written that no
        sync will make durable soon. A later sync then has little to do, and the system does not stop the writers to
        free memory.
        """
        if self.ack_after is AckAfter.SYNC:
            return None
        return self.log.begin_writeback(WRITEBACK_BYTES)

    @property
    def _acknowledger(self) -> Journal | EntryLog:
        """The log whose sync must precede an acknowledgement."""
        return self._journal_in_use or self.log

    # ---- reading ---------------------------------------------------------------

    def read_entry(self, ledger: int, entry: int) -> bytes | None:
        """An entry as it was on the wire, None if the index has no such entry.

        DamagedError, DiskError: the entry exists and cannot be read.
        """
        location = self.index.find(ledger, entry)
        if location is None:
            return None
        kind, body = self.log.read(location)
        if kind is not Kind.ENTRY or ENTRY_IDS.unpack_from(body) != (ledger, entry):
            raise DamagedError(
                f"disk {self._disk}: the index has ledger {ledger} entry {entry} at {location}, "
                "where something else is"
            )
        return bytes(body)

    def is_readable(self, ledger: int, entry: int) -> bool:
        """True if an entry exists and its record verifies."""
        try:
            return self.read_entry(ledger, entry) is not None
        except DiskError:
            return False

    @property
    def finder(self) -> EntryLookup:
        """The look-up of entry locations, for bookie/read_group.py."""
        return self.index.finder

    def fetch(self) -> Fetch:
        """For reading many entries at once, with read-ahead for catch-up readers (readahead.py)."""
        ahead = ReadAhead(self.index.finder, self.log.reader, lambda: self.log.position.segment)
        return Fetch(self.log.reader, ahead)

    def await_read(self, ranges: Sequence[Range]) -> None:
        """Wait until these bytes of the log are in memory, or cannot be read. On any thread, one call at a time."""
        self.log.await_read(ranges)

    def has_entry(self, ledger: int, entry: int) -> bool:
        """True if the index has an entry; the entry is not read."""
        return self.index.find(ledger, entry) is not None

    def last_entry_id(self, ledger: int) -> int:
        """The highest entry id of a ledger, -1 if it has no entries."""
        return self.index.last_entry_id(ledger)

    def entries(self, ledger: int) -> list[tuple[int, int]]:
        """Ranges (first, last), both included, of the entries of a ledger, ascending and merged."""
        return self.index.entries(ledger)

    def changed_since(self, ledger: int, since: Location) -> Iterator[int]:
        """Entries of a ledger whose records lie at or behind a location in the log, in no order, some more than once.
        Concurrent appends lie behind the ``position`` from before the call.
        """
        for run in self.index.runs(ledger):
            if run.segment >= since.segment:
                for entry, offset, _length in run.entries():
                    if (run.segment, offset) >= (since.segment, since.offset):
                        yield entry

    @property
    def position(self) -> Location:
        """The location of the next record, or one before it."""
        return self.log.position

    def ledger_state(self, ledger: int) -> LedgerRecord | None:
        """State of a ledger, None if the disk does not know it."""
        return self.index.ledger_state(ledger)

    def explicit_lac(self, ledger: int) -> bytes | None:
        """The highest explicit LAC packet that was written for a ledger, None if there is none."""
        return self.index.explicit_lac(ledger)

    def ledgers(self, after: int = -1) -> Iterator[tuple[int, LedgerRecord]]:
        """Ledgers with an id > ``after`` that have a state, ascending. Copy them into a list before writing
        to the disk.
        """
        return self.index.ledgers(after)

    # ---- checkpoint and end ---------------------------------------------------------------

    @property
    def checkpoint_due(self) -> bool:
        """True if enough was written since the last checkpoint; a checkpoint belongs between two appends."""
        return self.checkpoints.is_due(self.index)

    @property
    def checkpoint_half_due(self) -> bool:
        """True if half of what makes a checkpoint due was written. On any thread."""
        return self.checkpoints.is_half_due(self.index)

    def begin_checkpoint(self) -> PendingCheckpoint:
        """Begin a checkpoint of everything appended so far. If it has a ``sync``, run and end that first like any
        other; then ``run`` the checkpoint and end it. One at a time. No sync may be in flight, and nothing hidden: a
        start would not replay it.

        DiskFullError: nothing has changed. DiskFailedError.
        """
        self.health.require_healthy()
        if self._unshown:
            raise BugError("a checkpoint between an append and what makes it seen")
        with self.health:
            try:
                checkpoint = self.checkpoints.freeze(self.index, self._journal_in_use)
            except DiskError as error:
                self.checkpoints.failed(error)
                raise
        index, write_frozen = self.index, self.checkpoints.write_frozen
        write = partial(write_frozen, index)
        if self._journal_in_use is not None:
            return PendingCheckpoint(None, self.log.begin_sync(), write, checkpoint)
        return PendingCheckpoint(self.begin_sync(), None, write, checkpoint)

    def end_checkpoint(self, checkpointing: PendingCheckpoint) -> None:
        """End a checkpoint that has run. DiskFullError: it was not taken, and will be due again. DiskFailedError."""
        with self.health:
            if checkpointing.of_log is not None:
                self.log.end_sync(checkpointing.of_log)
            if checkpointing.error is not None:
                self.checkpoints.failed(checkpointing.error)
                raise checkpointing.error
            self.index.drop_frozen()
            self.checkpoints.completed(checkpointing.checkpoint)
            if self._journal is not None:
                self._unneeded.add(self._journal.retire(checkpointing.checkpoint.journal))

    @property
    def has_much_to_store(self) -> bool:
        """True if so much waits for a checkpoint that deferrable work should not add to it."""
        return self.index.is_full

    def checkpoint(self) -> None:
        """Make logs and index durable now, and record how far; ends the hold of an untrusted replay. Nothing may be in
        flight.

        DiskFullError: no checkpoint was taken, nothing else changed. DiskFailedError.
        """
        checkpointing = self.begin_checkpoint()
        if checkpointing.sync is not None:
            checkpointing.sync.run()
            self.end_sync(checkpointing.sync)
        checkpointing.run()
        self.end_checkpoint(checkpointing)
        self.remove_unneeded()

    def resolve_losses(self) -> None:
        """End the hold: the data that a replay found missing has been dealt with, durably. Raises as ``checkpoint``."""
        if self.checkpoints.blocked:
            self.checkpoint()
            self.tail_marks.replace_with_end()
        self._losses_resolved = True

    # ---- idle disk ---------------------------------------------------------------

    @property
    def blocks_checkpoints(self) -> bool:
        """True if data that a replay found missing, or that a host crash may have taken of active ledgers, has not been
        dealt with yet: see ``resolve_losses``. Active ledgers stay marked until then.
        """
        return self.checkpoints.blocked or not self._losses_resolved

    @property
    def is_proven(self) -> bool:
        """True if the log, or the journal that acknowledges, proves that everything appended is durable."""
        return self._acknowledger.is_proven

    @property
    def is_durable(self) -> bool:
        """True if everything appended is durable in the log that acknowledges."""
        return self._acknowledger.is_durable

    def prove(self) -> None:
        """Append, unsynced, the record that proves it; everything must be durable. DiskFullError, DiskFailedError."""
        self.health.require_healthy()
        with self.health:
            self._acknowledger.prove()

    @property
    def durable(self) -> tuple[int, int, int]:
        """The number of the last checkpoint; segment and offset up to which the log's last sync made it durable."""
        segment, offset, _ms = self.log.durable_end
        return self.checkpoints.last.number, segment, offset

    def close(self) -> None:
        """Make everything durable, take a last checkpoint (unless held back) and close.

        If it raises, the files are closed all the same, and the dirty marker must stay.
        """
        try:
            if self._opened_index is not None and self.health.failed_reason is None:
                with self.health:
                    self._close_durably()
        finally:
            self.abandon()

    def _close_durably(self) -> None:
        if self.checkpoints.blocked:
            self.log.sync()
            return
        if self.index.is_frozen:
            self.checkpoint()  # an earlier one that failed; the next one covers the rest
        self.checkpoint()
        if self.checkpoints.last.journal is not None:
            # The log holds everything: the next start does not need the journal.
            self.checkpoints.write(self.checkpoints.here(None))
            assert self._journal is not None
            self._unneeded.add(self._journal.retire(None))
        self.remove_unneeded()

    def abandon(self) -> None:
        """Close all files as they are, without a sync."""
        self.log.close()
        self.tail_marks.close()
        if self._journal is not None:
            self._journal.close()
        if self._opened_index is not None:
            self._opened_index.close()
            self._opened_index = None

    @property
    def index_damage(self) -> str:
        """The part of the index that was found unreadable, as text; empty if none was."""
        return self._opened_index.damage if self._opened_index is not None else ""

    def set_index_aside(self) -> None:
        """Move the index aside, in a process that is about to end: the next start rebuilds it. DiskError."""
        set_aside(self._files, self._disk)

    @property
    def index(self) -> LedgerIndex:
        if self._opened_index is None:
            raise BugError("the disk is not open: replay comes first")
        return self._opened_index


def _has_negative_id(record: Record) -> bool:
    return record.kind is Kind.ENTRY and max(ENTRY_IDS.unpack_from(record.body)) > MAX_ID
