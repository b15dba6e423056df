"""One disk of a bookie: entry log, index, journal and checkpoint put together.

Contract:

- ``open``, then ``replay`` once, then everything else. One thread, one process (lock.py).
- What was appended is invisible to reads until ``commit`` has returned, and may be acknowledged
  from then on. What a commit promises is the disk's ``ack_after``:

  =========  ====================================================================================
  sync       entry log appended and synced
  write      entry log appended; synced too if the batch changes a ledger's state (fence, limbo)
  journal    journal appended and synced, entry log appended
  =========  ====================================================================================

- A ``deferred`` commit of entries promises only what ``write`` does: they survive the process,
  and the host from the next commit on that syncs. Until then the index shows them and does not
  store them, so that after a lost host they are simply not there: they were never promised, and
  nothing else has to go to limbo for them. (An index that had stored them would look as if the
  log had lost what was synced.) What they replaced is there again, if that had been synced.
- No room (DiskFullError from ``append``) leaves the disk alive: nothing of the batch was written.
  After any other failed write or sync nothing is written any more (``failed_reason``), and the
  dirty marker says so to the next start. Reads go on.
- A replay that is not ``trusted`` holds the checkpoint back, so that every later start finds the
  same, until the caller has made limbo durable and calls ``checkpoint``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from bkbox.errors import (
    BootError,
    BugError,
    DamagedError,
    DiskError,
    DiskFailedError,
    DiskFullError,
    InvalidIdError,
)
from bkbox.ids import MAX_ID
from bkbox.limits import HELD_KEYS_MAX
from bkbox.storage import marker
from bkbox.storage.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from bkbox.storage.entrylog import ENTRY_LOG_DIR, EntryLog
from bkbox.storage.files import Files, Space, remove_flat_dir
from bkbox.storage.identity import DiskIdentity, read_identity, write_identity
from bkbox.storage.index import Change, LedgerIndex, changes_of
from bkbox.storage.journal import Journal
from bkbox.storage.orderedstore import INDEX_DIR, LevelStore, OrderedStore, discard_unsynced
from bkbox.storage.records import (
    ENTRY_IDS,
    STATE_KINDS,
    AckAfter,
    Kind,
    LedgerRecord,
    Location,
    Record,
    forget_record,
    ledger_record,
)
from bkbox.storage.replay import LogReplay, LogReplayer
from bkbox.storage.segment import RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, ScannedRecord

HELD = "what an earlier start found missing has not been dealt with"
"""In ReplayReport.damaged while a replay that was not trusted waits for its ``checkpoint``."""

OpenIndex = Callable[[Files, Path, bool], OrderedStore]
"""Opens the index of a disk; the flag says that only what was flushed can be relied on."""

CreateIndex = Callable[[Files, Path], None]
"""Makes the empty index of a disk."""


def open_level_store(files: Files, disk: Path, host_crash: bool) -> OrderedStore:
    """The LevelDB index of a disk. DamagedError where it is missing or broken: it has to be
    rebuilt.
    """
    path = disk / INDEX_DIR
    if host_crash and files.exists(path):
        discard_unsynced(files, path)
    return LevelStore(path)


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a replay found.

    ``damaged``: what had been durable and cannot be read, in words. ``dropped_entries``: entries
    that the index knew and the log does not have. ``trusted``: nothing that was acknowledged can
    be missing, if all runs since the last clean moment had the present ``ack_after``.
    """

    records: int
    entries: int
    bytes_read: int
    bytes_cut: int
    journal_records: int
    dropped_entries: int
    damaged: tuple[str, ...]
    trusted: bool


def create_level_store(files: Files, disk: Path) -> None:
    """Make an empty LevelDB index; what an earlier attempt left is removed."""
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
    """Prepare an empty disk; one whose preparation was cut short is finished.

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


class DiskStore:
    """See the contract above."""

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
    ) -> None:
        self._files = files
        self._disk = disk
        self.identity = identity
        self.ack_after = ack_after
        self._log = log
        self._journal = journal
        self._checkpoint_bytes = checkpoint_bytes
        self._open_index = open_index
        self._opened_index: LedgerIndex | None = None
        self._last_checkpoint = Checkpoint(0, 1, SEGMENT_HEADER_BYTES, 0, None)
        self._held = False
        self._since_checkpoint = 0
        self._changes: list[Change] = []
        self._state_pending = False
        self._failed: str | None = None

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
    ) -> DiskStore:
        """The store of a prepared disk, not replayed yet. BootError, DamagedError,
        FormatVersionError, DiskError.
        """
        identity = read_identity(files, disk)
        if identity is None:
            raise BootError(
                f"disk {disk} is not prepared; bkbox init prepares the disks of a bookie"
            )
        if ack_after is AckAfter.JOURNAL and journal_dir is None:
            raise BootError(f"disk {disk}: ack_after = journal needs a journal folder")
        log = EntryLog(files, disk, identity.uuid, segment_bytes_max, now_ms)
        journal = None
        if journal_dir is not None:
            journal = Journal(files, journal_dir, identity.uuid, segment_bytes_max, now_ms)
        return cls(
            files,
            disk,
            identity,
            log,
            journal,
            ack_after=ack_after,
            checkpoint_bytes=checkpoint_bytes,
            open_index=open_index,
        )

    # ---- start ---------------------------------------------------------------

    def replay(self, host_crash: bool) -> ReplayReport:
        """Bring the index up to the logs after a stop, a process crash or a host crash, and say
        what is missing.

        Raises DamagedError where the index has to be rebuilt, DiskFullError, DiskFailedError,
        DiskError, and BootError where the last run kept a journal that the configuration does not
        name.
        """
        if self._opened_index is not None:
            raise BugError("a disk is replayed once")
        checkpoint, journal_first = self._read_checkpoint()
        if checkpoint is not None:
            self._last_checkpoint = checkpoint
        if journal_first is not None and self._journal is None:
            raise BootError(
                f"disk {self._disk}: the last run kept a journal; "
                "name its folder in the configuration"
            )
        self._opened_index = LedgerIndex(self._open_index(self._files, self._disk, host_crash))
        with self._failing():
            # What the index knows and the log lost is in the journal, if there is one to replay.
            journaled = host_crash and journal_first is not None
            replayer = LogReplayer(self._files, self._log, self._index, host_crash=host_crash)

            def before_drop(found: LogReplay) -> None:
                if found.lost or not journaled:
                    self._hold(checkpoint, journal_first)

            found = replayer.run(checkpoint, before_drop)
            journal_records = 0
            if self._journal is not None and journal_first is not None and host_crash:
                reapply = _Reapply(self._log, self._index)
                found.lost += self._journal.replay(journal_first, reapply)
                journal_records = reapply.records
            self._log.sync()
            if checkpoint is not None and checkpoint.held:
                found.lost.append(HELD)
            trusted = not found.lost and (journaled or not found.dropped)
            if not trusted:
                self._hold(checkpoint, journal_first)
            trusted = trusted and not (host_crash and self.ack_after is AckAfter.WRITE)
            self._begin(journal_first, trusted=trusted)
        return ReplayReport(
            found.records,
            found.entries,
            found.bytes_read,
            found.bytes_cut,
            journal_records,
            found.dropped,
            tuple(found.lost),
            trusted,
        )

    def _read_checkpoint(self) -> tuple[Checkpoint | None, int | None]:
        """The checkpoint, None if it is lost, and the first journal segment to replay, None if
        there is none.
        """
        try:
            checkpoint = read_checkpoint(self._files, self._disk)
        except DamagedError:
            checkpoint = None
        if checkpoint is not None:
            return checkpoint, checkpoint.journal
        journal_segments = self._journal.segments() if self._journal is not None else []
        return None, min(journal_segments, default=None)

    def _hold(self, checkpoint: Checkpoint | None, journal_first: int | None) -> None:
        """Note durably that something is missing, so that every start says so until the caller has
        dealt with it.
        """
        if not self._last_checkpoint.held:
            first = min(self._log.segments(), default=1)
            at = checkpoint or Checkpoint(0, first, SEGMENT_HEADER_BYTES, 0, journal_first)
            self._write_checkpoint(replace(at, held=True))

    def _begin(self, journal_first: int | None, *, trusted: bool) -> None:
        """Start the journal of this run, and take a checkpoint if nothing speaks against it."""
        journal = self._journal_in_use
        if journal is not None:
            journal.start(journal_first or 1)
        if trusted:
            with suppress(DiskFullError):  # it only makes the next start read less
                self.checkpoint()
                return
        self._held = not trusted
        if journal is not None and journal_first is None:
            # From here on the journal counts, though the log's position stays where it is.
            self._write_checkpoint(replace(self._last_checkpoint, journal=journal.segment))

    # ---- writing ---------------------------------------------------------------

    def append(self, batch: Sequence[Record]) -> list[Location]:
        """Write records, unsynced; they count once ``commit`` has returned.

        DiskFullError: nothing of the batch is there, the disk lives on. DiskFailedError: the disk
        takes no more writes. InvalidIdError: an entry whose ledger or entry id is negative.
        """
        self._require_healthy()
        for kind, body in batch:
            if kind is Kind.ENTRY and max(ENTRY_IDS.unpack_from(body)) > MAX_ID:
                raise InvalidIdError("an entry with a negative ledger or entry id")
        with self._failing():
            if self._journal_in_use is not None:
                self._journal_in_use.append(batch)
            locations = self._log.append(batch)
        changes = changes_of(batch, locations)
        self._log.count(changes)
        self._changes += changes
        self._state_pending = self._state_pending or any(
            isinstance(change, Record) for change in changes
        )
        self._since_checkpoint += sum(RECORD_HEADER_BYTES + len(body) for _, body in batch)
        return locations

    def commit(self, *, durable: bool = False, deferred: bool = False) -> None:
        """Make good what ``ack_after`` promises, and let reads see it.

        ``durable``: sync in every mode, also what earlier commits left unsynced. ``deferred``: do
        not sync, in any mode, unless a ledger's state changes or too much of the index is held.
        If it raises, nothing appended since the last commit may be acknowledged, and the disk
        takes no more writes.
        """
        self._require_healthy()
        changes, self._changes = self._changes, []
        durable = durable or self._state_pending
        deferred = deferred and not durable and self._index.held < HELD_KEYS_MAX
        self._state_pending = False
        try:
            with self._failing():
                if self.ack_after is AckAfter.WRITE:
                    if durable:
                        self._log.sync()
                elif not deferred:
                    (self._journal_in_use or self._log).sync()
                self._index.apply(changes, hold=deferred and self.ack_after is not AckAfter.WRITE)
        except DiskError as error:  # perhaps of the index, which now lacks what the log holds
            self._failed = str(error)
            raise

    def set_ledger_state(self, ledger: int, state: LedgerRecord) -> None:
        """Change the state of a ledger, durably. A fence is never lifted, a known key never
        forgotten.
        """
        self._commit_one(ledger_record(ledger, state))

    def forget(self, ledger: int) -> None:
        """Remove a ledger, durably: entries and state."""
        self._commit_one(forget_record(ledger))

    def _commit_one(self, record: Record) -> None:
        self.append([record])
        self.commit(durable=True)

    # ---- reading ---------------------------------------------------------------

    def read_entry(self, ledger: int, entry: int) -> bytes | None:
        """An entry as it was on the wire, None if the index has no such entry.

        DamagedError, DiskError: it is there and cannot be read.
        """
        location = self._index.find(ledger, entry)
        if location is None:
            return None
        kind, body = self._log.read(location)
        if kind is not Kind.ENTRY or ENTRY_IDS.unpack_from(body) != (ledger, entry):
            raise DamagedError(
                f"disk {self._disk}: the index has ledger {ledger} entry {entry} at {location}, "
                "where something else is"
            )
        return bytes(body)

    def has_entry(self, ledger: int, entry: int) -> bool:
        """Whether the index has an entry; it is not read."""
        return self._index.find(ledger, entry) is not None

    def last_entry_id(self, ledger: int) -> int:
        """The highest entry id of a ledger, -1 if it has no entries."""
        return self._index.last_entry_id(ledger)

    def entries(self, ledger: int) -> list[tuple[int, int]]:
        """Ranges (first, last), both included, of the entries of a ledger, ascending and merged."""
        return self._index.entries(ledger)

    def ledger_state(self, ledger: int) -> LedgerRecord | None:
        """State of a ledger, None if the disk does not know it."""
        return self._index.ledger_state(ledger)

    def explicit_lac(self, ledger: int) -> bytes | None:
        """The highest explicit LAC packet that was written for a ledger, None if there is none."""
        return self._index.explicit_lac(ledger)

    def ledgers(self, after: int = -1) -> Iterator[tuple[int, LedgerRecord]]:
        """Ledgers with an id > ``after`` that have a state, ascending. Make a list of it before
        writing.
        """
        return self._index.ledgers(after)

    def space(self) -> Space:
        """Room on the disk's file system, bytes."""
        return self._files.space(self._disk)

    def free_bytes(self) -> int:
        """Bytes free on the disk's file system."""
        return self.space().free

    # ---- checkpoint and end ---------------------------------------------------------------

    @property
    def checkpoint_due(self) -> bool:
        """Whether enough was written since the last checkpoint; ``checkpoint`` belongs between two
        batches.
        """
        return not self._held and self._since_checkpoint >= self._checkpoint_bytes

    def checkpoint(self) -> None:
        """Make logs and index durable, and note how far; lifts the hold of a replay that was not
        trusted.

        DiskFullError: no checkpoint was taken, nothing else changed. DiskFailedError.
        """
        self._require_healthy()
        if self._changes:
            raise BugError("a checkpoint between append and commit")
        with self._failing():
            self._log.write_footer()
            self._log.sync()
            self._index.flush()
            if self._journal_in_use is not None:
                self._journal_in_use.next_segment()
            self._write_checkpoint(self._checkpoint_here(self._journal_first()))
            if self._journal is not None:
                self._journal.retire(self._last_checkpoint.journal)
        self._held = False
        self._since_checkpoint = 0

    def _journal_first(self) -> int | None:
        """The first segment of the journal that a replay from here has to read."""
        return None if self._journal_in_use is None else self._journal_in_use.segment

    @property
    def _journal_in_use(self) -> Journal | None:
        """The journal, if this run acknowledges by it; one may be there only to be replayed."""
        return self._journal if self.ack_after is AckAfter.JOURNAL else None

    def _checkpoint_here(self, journal: int | None) -> Checkpoint:
        segment, offset, _ = self._log.position
        return Checkpoint(
            self._last_checkpoint.number + 1, segment, offset, self._log.footer, journal
        )

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        write_checkpoint(self._files, self._disk, checkpoint)
        self._last_checkpoint = checkpoint

    def close(self) -> None:
        """Make everything durable, take a last checkpoint (unless held back) and close.

        If it raises, the files are closed all the same, and the dirty marker has to stay.
        """
        try:
            if self._opened_index is not None and self.failed_reason is None:
                with self._failing():
                    self._close_durably()
        finally:
            self.abandon()

    def _close_durably(self) -> None:
        if self._changes:
            raise BugError("a close between append and commit")
        if self._held:
            self._log.sync()
            self._index.flush()
            return
        self.checkpoint()
        if self._last_checkpoint.journal is not None:
            # The log holds it all: the journal need not be there at the next start.
            self._write_checkpoint(self._checkpoint_here(None))
            assert self._journal is not None
            self._journal.retire(None)

    def abandon(self) -> None:
        """Close all files as they are, syncing nothing."""
        self._log.close()
        if self._journal is not None:
            self._journal.close()
        if self._opened_index is not None:
            self._opened_index.close()
            self._opened_index = None

    @property
    def failed_reason(self) -> str | None:
        """Why the disk takes no more writes, None while it does."""
        return self._failed

    @property
    def _index(self) -> LedgerIndex:
        if self._opened_index is None:
            raise BugError("the disk is not open: replay comes first")
        return self._opened_index

    def _require_healthy(self) -> None:
        if self._failed is not None:
            raise DiskFailedError(f"disk {self._disk} takes no writes: {self._failed}")

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """A DiskFailedError inside ends the writing, and the next start is told."""
        try:
            yield
        except DiskFailedError as error:
            self._failed = str(error)
            with suppress(DiskError):  # the disk may be beyond that; the caller has the error
                marker.record_failure(self._files, self._disk, self._failed)
            raise


class _Reapply:
    """Appends what was journaled to the entry log again, and indexes it."""

    def __init__(self, log: EntryLog, index: LedgerIndex) -> None:
        self._log = log
        self._index = index
        self.records = 0

    def __call__(self, scanned: list[ScannedRecord]) -> None:
        batch = [
            Record(item.kind, item.body)
            for item in scanned
            if item.kind is Kind.ENTRY or item.kind in STATE_KINDS
        ]
        if batch:
            changes = changes_of(batch, self._log.append(batch))
            self._log.count(changes)
            self._index.apply(changes)
            self.records += len(batch)
